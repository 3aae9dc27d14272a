//! The contexts of all users. A reload adds and removes some; those that stay keep their numbers and replay windows.

use std::{
    collections::HashMap,
    error::Error,
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fogmux_oscore::{
    Context, Fingerprint, Reservation, Ring, SequenceStore, Start,
    file::directory::{self, ContextFile},
};

use super::{
    journal::{Journal, Lock, Record, Records},
    start::{number_at, number_for, since_1970, start},
};

/// Contexts, shared by all workers.
pub struct Keyring {
    ring: Mutex<Arc<Ring>>,
    /// Counts changes of the ring, so that workers see one without a lock.
    generation: AtomicU64,
    /// Every context that ever was in the ring: one that comes back goes on where it was.
    known: Mutex<HashMap<Fingerprint, Arc<Context>>>,
    disk: Arc<Disk>,
    /// The directory that the contexts are from is no other gateway's.
    place: Mutex<Option<(PathBuf, Lock)>>,
    /// Contexts that are not in the ring because they have no numbers before the clock is set.
    waiting: Mutex<Vec<Unnumbered>>,
    /// The wall clock, since 1970.
    wall_clock: fn() -> Duration,
}

/// A context without numbers.
#[derive(Debug)]
struct Unnumbered {
    path: PathBuf,
    /// When its keys were generated, in seconds since 1970, if that is known.
    made: Option<u64>,
}

/// The journal, once there is a context that needs it.
#[derive(Default)]
struct Disk {
    journal: OnceLock<Journal>,
}

impl SequenceStore for Disk {
    fn reserve(&self, reservation: Reservation) {
        // Without a journal the reservation is dropped: it failed.
        if let Some(journal) = self.journal.get() {
            journal.reserve(reservation);
        }
    }
}

/// Contexts, and those that wait.
type Made = (Vec<Arc<Context>>, Vec<Unnumbered>);

/// Contexts that were read and are not in use yet.
#[derive(Debug)]
pub struct Fresh {
    directory: PathBuf,
    files: Vec<ContextFile>,
    left_out: Vec<String>,
}

impl Fresh {
    /// The problems of files that give no context, each with its file.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// Why contexts cannot be used; all reasons at once.
#[derive(Debug, thiserror::Error)]
#[error("{}", .problems.join("\n"))]
pub struct KeyringError {
    problems: Vec<String>,
    /// Whether it is because the disk takes nothing.
    is_of_disk: bool,
}

/// Whether an error, or what it comes from, says that the disk takes nothing.
fn is_of_disk(error: &(dyn Error + 'static)) -> bool {
    let of_it = error.downcast_ref().is_some_and(fogmux_store::is_unwritable);
    of_it || error.source().is_some_and(is_of_disk)
}

impl KeyringError {
    fn of(problems: Vec<String>) -> Self {
        Self { problems, is_of_disk: false }
    }

    /// Whether it is because the disk takes nothing.
    #[must_use]
    pub const fn is_of_disk(&self) -> bool {
        self.is_of_disk
    }
}

impl Default for Keyring {
    fn default() -> Self {
        Self::with_clock(since_1970)
    }
}

impl Keyring {
    /// A keyring without contexts, which reads this wall clock (since 1970).
    pub(super) fn with_clock(wall_clock: fn() -> Duration) -> Self {
        Self {
            ring: Mutex::default(),
            generation: AtomicU64::default(),
            known: Mutex::default(),
            disk: Arc::default(),
            place: Mutex::default(),
            waiting: Mutex::default(),
            wall_clock,
        }
    }

    /// Reads a directory. Nothing is changed.
    ///
    /// # Errors
    /// [`KeyringError`] with every file that is wrong.
    pub fn read(&self, directory: &Path) -> Result<Fresh, KeyringError> {
        let files = directory::read_all(directory).map_err(KeyringError::of)?;
        self.judge(directory, files, Vec::new())
    }

    /// [`Keyring::read`] but for files that give no context, such as one that was not written to its end: each is left
    /// out ([`Fresh::left_out`]), and its user can only not use OSCORE. Files that would share an identity or keys are
    /// an error as ever: no one of them is the right one.
    ///
    /// # Errors
    /// [`KeyringError`].
    pub fn read_usable(&self, directory: &Path) -> Result<Fresh, KeyringError> {
        let (files, left_out) = directory::read_each(directory).map_err(|problem| KeyringError::of(vec![problem]))?;
        self.judge(directory, files, left_out)
    }

    fn judge(&self, directory: &Path, files: Vec<ContextFile>, left_out: Vec<String>) -> Result<Fresh, KeyringError> {
        let known = lock(&self.known);
        let (mut seen, mut problems): (HashMap<_, &ContextFile>, _) = (HashMap::new(), Vec::new());
        let mut senders: HashMap<Fingerprint, &ContextFile> = HashMap::new();
        for file in &files {
            let parameters = &file.parameters;
            let address = (parameters.recipient_id, parameters.id_context.as_deref());
            if let Some(other) = seen.insert(address, file) {
                let (path, other) = (file.path.display(), other.path.display());
                problems.push(format!("{path}: recipient_id and id_context are those of {other}"));
            }
            let fingerprint = parameters.fingerprint();
            if let Some(other) = senders.insert(fingerprint, file) {
                problems.push(format!(
                    "{}: the sender key is that of {} (same master secret, salt, ID context and sender_id); \
                     numbers would be used twice (RFC 8613 §3.3)",
                    file.path.display(),
                    other.path.display()
                ));
            }
            problems.extend(known.get(&fingerprint).and_then(|context| not_now(context, file)));
        }
        drop(known);
        if problems.is_empty() {
            Ok(Fresh { directory: directory.to_owned(), files, left_out })
        } else {
            Err(KeyringError::of(problems))
        }
    }

    /// Puts what was read in the place of what is there. Returns when all that must be on the disk is there. `journal`
    /// is used the first time there is a context.
    ///
    /// A context for which no number is noted waits until the clock is set: see [`Keyring::can_go_on`].
    ///
    /// # Errors
    /// [`KeyringError`]; then nothing has been added. Contexts that are gone are out of use.
    pub fn replace(&self, fresh: Fresh, journal: &Path) -> Result<(), KeyringError> {
        let failed = |error: Box<dyn Error>| KeyringError {
            problems: vec![format!("{}: {error}", journal.display())],
            is_of_disk: is_of_disk(&*error),
        };
        self.occupy(&fresh)?;
        let mut known = lock(&self.known);
        let mut missing = Vec::new();
        let mut ring = Ring::default();
        let clash = |error: fogmux_oscore::Clash| KeyringError::of(vec![error.to_string()]);
        for file in fresh.files {
            match known.get(&file.parameters.fingerprint()) {
                Some(context) => ring.add(Arc::clone(context)).map_err(clash)?,
                None => missing.push(file),
            }
        }
        let made = if missing.is_empty() { Ok((Vec::new(), Vec::new())) } else { self.make(&missing, journal) };
        let outcome = made.map_err(failed).and_then(|(made, waiting)| {
            self.wait(waiting);
            made.into_iter().try_for_each(|context| {
                ring.add(Arc::clone(&context)).map_err(clash)?;
                known.insert(*context.fingerprint(), context);
                Ok(())
            })
        });
        *lock(&self.ring) = Arc::new(ring);
        self.generation.fetch_add(1, Ordering::Release);
        outcome
    }

    /// Takes the directory that contexts are from.
    fn occupy(&self, fresh: &Fresh) -> Result<(), KeyringError> {
        let (mut place, directory) = (lock(&self.place), &fresh.directory);
        if fresh.files.is_empty() || place.as_ref().is_some_and(|(held, _)| held == directory) {
            return Ok(());
        }
        match Lock::take_directory(directory) {
            Ok(taken) => *place = Some((directory.clone(), taken)),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(KeyringError::of(vec![format!("{}: {error}", directory.display())]));
            }
            // Some network file systems have no locks on directories.
            Err(error) => {
                tracing::warn!(%error, directory = %directory.display(), "cannot be locked: see to it that no \
                other gateway uses these OSCORE contexts")
            }
        }
        Ok(())
    }

    /// Makes contexts, when it is on the disk that they are in use. Those that have no numbers yet are returned as
    /// well.
    fn make(&self, files: &[ContextFile], path: &Path) -> Result<Made, Box<dyn Error>> {
        let lock = match self.disk.journal.get() {
            Some(_) => None,
            None => Some((Lock::misses(path), Lock::take(path)?)),
        };
        let mut records = Records::read(path)?;
        let now = (self.wall_clock)();
        if let Some((true, _)) = lock {
            tracing::warn!(journal = %path.display(), "the OSCORE journal is gone; each device will have to send its \
                first request twice");
            records.lose(number_at(now).unwrap_or(u64::MAX));
        }
        let (mut starts, mut waiting) = (Vec::<(&ContextFile, Start)>::new(), Vec::new());
        for file in files {
            match start(file, &records, &file.parameters.fingerprint(), now)? {
                Some(start) => starts.push((file, start)),
                None => waiting.push(Unnumbered { path: file.path.clone(), made: file.made }),
            }
        }
        let line =
            |(file, start): &(&ContextFile, Start)| (file.parameters.fingerprint(), Record { below: start.durable });
        let lines: Vec<(Fingerprint, Record)> = starts.iter().map(line).collect();
        match (self.disk.journal.get(), lock) {
            (Some(journal), _) => {
                if !journal.put(lines) {
                    return Err("it cannot be written".into());
                }
            }
            (None, None) => return Err("it is not open".into()),
            (None, Some((_, lock))) => {
                let damaged = records.heal(number_at(now).unwrap_or(u64::MAX));
                if damaged > 0 {
                    tracing::warn!(bytes = damaged, journal = %path.display(), "the end of the OSCORE journal was torn; \
                        all contexts skip what it may have said");
                }
                lines.into_iter().for_each(|(fingerprint, record)| records.put(fingerprint, record));
                let opened = Journal::open(path, lock, records)?;
                // The holder of `known` is the only one here.
                let _ = self.disk.journal.set(opened);
            }
        }
        let contexts = starts.into_iter().map(|(file, start)| {
            let disk: Arc<dyn SequenceStore> = Arc::clone(&self.disk) as _;
            Context::new(Arc::from(file.user.as_str()), &file.parameters, start, disk)
        });
        Ok((contexts.collect::<Result<_, _>>()?, waiting))
    }

    /// Notes the contexts that wait for the clock.
    fn wait(&self, waiting: Vec<Unnumbered>) {
        *lock(&self.waiting) = waiting;
        if let Some(why) = self.why_waiting() {
            tracing::warn!("{why}");
        }
    }

    /// Why some contexts are not in use although their files are right; `None` if all are.
    #[must_use]
    pub fn why_waiting(&self) -> Option<String> {
        let waiting = lock(&self.waiting);
        let first = waiting.first()?.path.display();
        let more = match waiting.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "{first}{more}: no OSCORE sequence numbers are noted in the journal, and the clock, by which they would \
             begin, is not set, so requests are refused until it is"
        ))
    }

    /// Whether the clock has been set for a context that waited for it, so that the files are to be read again.
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        let waiting = lock(&self.waiting);
        !waiting.is_empty() && {
            let now = (self.wall_clock)();
            waiting.iter().any(|context| number_for(context.made, now).is_some())
        }
    }

    /// How many contexts are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.ring).len()
    }

    /// Whether there is no context.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ring and its generation.
    pub(super) fn ring(&self) -> (u64, Arc<Ring>) {
        // In this order: a newer ring under an older number is only looked at once more.
        let generation = self.generation.load(Ordering::Acquire);
        (generation, Arc::clone(&lock(&self.ring)))
    }

    /// Whether a context is in use now.
    pub(in crate::coap) fn holds(&self, number: u64) -> bool {
        lock(&self.ring).holds(number)
    }

    /// The number of the ring that is in use.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// The fault of a file whose keys are in use as those of `context`.
fn not_now(context: &Context, file: &ContextFile) -> Option<String> {
    let (path, holder) = (file.path.display(), context.name());
    if **holder != file.user {
        Some(format!("{path}: these keys are {holder}'s; another user only after a restart"))
    } else if *context.recipient_id() != file.parameters.recipient_id {
        let recipient = context.recipient_id();
        Some(format!("{path}: the sender key is that of recipient_id {recipient:?}; another only after a restart"))
    } else {
        None
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the journal is, below the data directory.
#[must_use]
pub fn journal_path(data: &Path) -> PathBuf {
    data.join("oscore").join("journal")
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("contexts", &self.len()).finish_non_exhaustive()
    }
}
