//! The store: retained messages and records of doors by their names, and other records in batches.

mod write;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use fogmux_bus::{Completion, Message, RetainedStore, Stored, Topic, Undo};
use fogmux_journal::{
    CommitTimes, Committer, Config, Figures, Ids, Journal, Location, ReadError, Record, RecordId, Refused,
};

use crate::{
    batch::Batch,
    counters::{NotKept, Snapshot},
    disk::AnyDisk,
    durability::Durability,
    held::Held,
    kind::{self, Kind},
    open::{self, OpenError, Opened},
    queue::Charge,
    reader::Reader,
    record,
    watch::Shared,
};

/// How long [`JournalStore::close`] waits for a disk that does not answer.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a commit, while more waits and acknowledgements wait for it.
///
/// An SD card of 10 MB/s writes them in 52 ms, or in 0.26 s if cleaning adds as much as it may. A write of somebody who
/// has little waiting is on the disk at the latest with the commit after the one under way: in 0.1 s, or 0.5 s, and the
/// time of two synchronisations. Half as many would cost a card that takes 30 ms for those a quarter of its rate.
const COMMIT_BYTES_MAX: usize = 512 << 10;

/// Longest key of a record, in bytes.
pub const RECORD_KEY_BYTES_MAX: usize = 65_535;

/// The configuration of a store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Its directory; created if missing.
    pub path: PathBuf,
    /// The data that a power cut may cost.
    pub durability: Durability,
    /// The time between commits of [`Durability::None`] and [`Durability::Interval`].
    pub interval: Duration,
    /// The least time between commits of [`Durability::Group`].
    pub group_delay: Duration,
    /// Most bytes that may wait for the disk or be on their way there, with 256 for each write. Writes beyond are
    /// refused, those of the principal first that has most. A tenth is added for those who have little.
    pub queue_bytes_max: usize,
}

impl StoreConfig {
    /// The defaults, in a directory.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            durability: Durability::default(),
            interval: Duration::from_secs(1),
            group_delay: Duration::from_millis(20),
            queue_bytes_max: 32 << 20,
        }
    }
}

/// The store on disk. Clones are handles on the same one.
#[derive(Clone, Debug)]
pub struct JournalStore(Arc<Inner>);

pub(crate) struct Inner {
    shared: Arc<Shared>,
    engine: Engine,
    /// The principal of writes whose user names none. They have one share together.
    nobody: Arc<str>,
    /// Where acknowledgements wait for commits that are not begun at once.
    held: Option<Arc<Held>>,
    pub(crate) reader: Reader,
    /// The outcome of the first close.
    closed: OnceLock<Result<(), NotKept>>,
}

/// The layer below: a committer, or a store that only reads.
pub(crate) enum Engine {
    Running(Committer<AnyDisk>),
    /// The disk cannot be written.
    ReadOnly(Box<Journal>, AnyDisk),
    /// It cannot be read either, or is empty.
    Nothing,
}

impl JournalStore {
    /// Opens the store and starts its committer. The store is read-only if the disk is read-only or failing, and full
    /// if it is full.
    ///
    /// # Errors
    /// When another process has it, a newer release has written to it, or it may not be read. Never because of damage.
    pub fn open(config: &StoreConfig) -> Result<Self, OpenError> {
        Self::open_by(config, |journal, shared| open::open(&config.path, journal, shared))
    }

    pub(crate) fn open_by(
        config: &StoreConfig,
        open: impl FnOnce(Config, &Shared) -> Result<Opened, OpenError>,
    ) -> Result<Self, OpenError> {
        let mode = config.durability.mode(config.interval, config.group_delay);
        let shared = Arc::new(Shared::new(mode.waits(), config.path.clone(), config.queue_bytes_max));
        let commit_bytes_max = if mode.waits() { COMMIT_BYTES_MAX } else { usize::MAX };
        // The bound of what waits is the queue's.
        let journal = Config { pending_bytes_max: usize::MAX, commit_bytes_max, ..Config::default() };
        let engine = match open(journal, &shared)? {
            Opened::Writable(journal, disk) => {
                let watch = Arc::clone(&shared);
                let started = Committer::start(journal, disk, mode, move |progress| watch.progress(&progress));
                Engine::Running(started.map_err(|source| OpenError::Io { path: config.path.clone(), source })?)
            }
            Opened::ReadOnly(journal, disk) => Engine::ReadOnly(Box::new(journal), disk),
            Opened::Nothing => Engine::Nothing,
        };
        let held = config.durability.hold_delay(config.group_delay);
        let held = held.map(|delay| Held::new(delay, config.queue_bytes_max));
        Ok(Self(Arc::new(Inner {
            shared,
            engine,
            nobody: Arc::default(),
            held,
            reader: Reader::new(),
            closed: OnceLock::new(),
        })))
    }

    /// The reason why nothing that is put is taken, if so. To ask is to have the disk tried again, now and then.
    #[must_use]
    pub fn why_stopped(&self) -> Option<String> {
        let why = self.0.shared.counters.why_stopped();
        if why.is_some() {
            self.0.try_disk();
        }
        why
    }

    /// Closes the store and waits until everything is on the disk. Blocks: for the end of the process.
    ///
    /// # Errors
    /// When something is not on the disk that the store was given, or the disk does not answer.
    pub fn close(&self) -> Result<(), NotKept> {
        self.0.close(CLOSE_PATIENCE)
    }

    pub(crate) const fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// The directory of the store.
    pub(crate) fn path(&self) -> &Path {
        &self.0.shared.path
    }

    /// An empty batch of changes of records that have no names.
    #[must_use]
    pub fn batch(&self) -> Batch {
        Batch(match &self.0.engine {
            Engine::Running(committer) => committer.batch(),
            Engine::ReadOnly(journal, _) => fogmux_journal::Batch::new(&journal.ids()),
            Engine::Nothing => fogmux_journal::Batch::new(&Ids::default()),
        })
    }

    /// Appends a batch: all of it is committed or nothing. The completion waits for that, if acknowledgements do. A
    /// batch that only forgets is not refused for lack of space.
    #[must_use]
    pub fn commit(&self, batch: Batch) -> Completion {
        self.0.commit(&self.0.nobody, Vec::new(), batch)
    }

    /// The same for a principal, whose share of what may wait for the disk it takes. All such batches are committed in
    /// the order in which they were appended, whoever they are for.
    #[must_use]
    pub fn commit_for(&self, principal: &Arc<str>, batch: Batch) -> Completion {
        self.0.commit(principal, Vec::new(), batch)
    }

    /// The same where some of its bytes count for others, who have been asked for their shares before.
    pub(crate) fn commit_shared(
        &self,
        principal: &Arc<str>,
        others: Vec<(Arc<str>, usize)>,
        batch: Batch,
    ) -> Completion {
        self.0.commit(principal, others, batch)
    }

    /// Batches that are not appended yet, if there are such.
    pub(crate) fn held(&self) -> Option<&Arc<Held>> {
        self.0.held.as_ref()
    }

    /// Bytes that anybody may have put now, whatever the share.
    pub(crate) fn free_for_others(&self) -> usize {
        self.0.shared.ledger().queue.free()
    }

    /// Whether less than a quarter of the queue waits: nobody is refused soon.
    pub(crate) fn has_room(&self) -> bool {
        self.0.shared.ledger().queue.has_room()
    }

    /// Whether a principal may have so many bytes put. Counts and says if it has its share.
    pub(crate) fn admits_for(&self, principal: &Arc<str>, bytes: usize) -> bool {
        let admitted = self.0.admits(&self.0.shared.ledger().queue, &Charge::of(principal, bytes), 0);
        if !admitted {
            self.0.shared.counters.refuse(1);
        }
        admitted
    }

    /// Reads a record, from memory if it is not on the disk yet. `None` if there is none, or it is to be forgotten.
    ///
    /// # Errors
    /// The record is damaged, or the system refuses.
    pub fn read(&self, id: RecordId) -> Result<Option<Bytes>, ReadError> {
        Ok(self.0.read(id)?.map(|record| record.bytes))
    }

    /// Visits the committed records of these kinds in order of their identifiers, with little memory. Damaged ones are
    /// skipped, logged and counted.
    pub fn visit(&self, kinds: &[Kind], mut visit: impl FnMut(Kind, RecordId, &Bytes)) {
        self.0.visit(&mut |id, record| {
            if let Some(kind) = Kind::from_u8(record.kind).filter(|kind| kinds.contains(kind)) {
                visit(kind, id, &record.bytes);
            }
        });
    }

    /// Stores or removes a door's record; the completion is like that of a retained message. Keys begin with the door's
    /// name and have at most [`RECORD_KEY_BYTES_MAX`] bytes; values are opaque.
    #[must_use]
    pub fn put_record(&self, key: &str, value: Option<Box<[u8]>>) -> Completion {
        self.put_record_for(&self.0.nobody, key, value)
    }

    /// The same for a principal, whose share of what may wait for the disk it takes.
    #[must_use]
    pub fn put_record_for(&self, principal: &Arc<str>, key: &str, value: Option<Box<[u8]>>) -> Completion {
        if key.len() > RECORD_KEY_BYTES_MAX {
            return Completion::Failed;
        }
        self.0.put_record(principal, key, value)
    }

    /// Visits the committed records with this prefix in order of their keys: for the start.
    pub fn records(&self, prefix: &str, visit: &mut dyn FnMut(&str, &[u8])) {
        let ledger = self.0.shared.ledger();
        let found = ledger.records.all().filter(|(key, _)| key.starts_with(prefix));
        let mut found: Vec<_> = found.map(|(key, id)| (key.clone(), id)).collect();
        drop(ledger);
        found.sort_unstable();
        for (_, id) in found {
            match self.0.read(id) {
                Ok(Some(record)) => {
                    if let Some((key, value)) = kind::split(&record.bytes) {
                        visit(key, value);
                    }
                }
                Ok(None) => {}
                Err(error) => self.0.damaged(&error),
            }
        }
    }

    /// A reading of the counters.
    #[must_use]
    pub fn counters(&self) -> Snapshot {
        self.0.shared.counters.snapshot(&self.0.figures(), self.0.times())
    }
}

impl Inner {
    const fn committer(&self) -> Option<&Committer<AnyDisk>> {
        match &self.engine {
            Engine::Running(committer) => Some(committer),
            Engine::ReadOnly(..) | Engine::Nothing => None,
        }
    }

    pub(crate) fn read(&self, id: RecordId) -> Result<Option<Record>, ReadError> {
        match &self.engine {
            Engine::Running(committer) => committer.read(id),
            Engine::ReadOnly(journal, disk) => match journal.find(id) {
                Some(Location::Disk(parts)) => parts.read(disk).map(Some),
                Some(Location::Memory(record)) => Ok(Some(record)),
                None => Ok(None),
            },
            Engine::Nothing => Ok(None),
        }
    }

    fn visit(&self, visit: &mut dyn FnMut(RecordId, &Record)) {
        let mut each = |id, outcome: Result<Record, ReadError>| match outcome {
            Ok(record) => visit(id, &record),
            Err(error) => self.damaged(&error),
        };
        match &self.engine {
            Engine::Running(committer) => drop(committer.visit(&mut each)),
            Engine::ReadOnly(journal, disk) => drop(journal.visit(disk, &mut each)),
            Engine::Nothing => {}
        }
    }

    pub(crate) fn count_damaged(&self) {
        self.shared.counters.damaged_records.fetch_add(1, Relaxed);
    }

    fn damaged(&self, error: &dyn fmt::Display) {
        self.count_damaged();
        tracing::error!(%error, "a record of the store is damaged and is skipped");
    }

    fn times(&self) -> CommitTimes {
        self.committer().map(Committer::times).unwrap_or_default()
    }

    fn figures(&self) -> Figures {
        match &self.engine {
            Engine::Running(committer) => committer.figures(),
            Engine::ReadOnly(journal, _) => journal.figures(),
            Engine::Nothing => Figures::default(),
        }
    }

    /// A disk that does not answer is waited for once, not again when the last handle is dropped.
    fn close(&self, patience: Duration) -> Result<(), NotKept> {
        let close = || {
            self.held.iter().for_each(|held| held.close());
            self.sweep_all();
            let ended = self.committer().is_none_or(|committer| committer.close_within(patience));
            let unsettled = (!ended).then(|| self.shared.ledger().unsettled());
            self.shared.counters.end(unsettled)
        };
        self.closed.get_or_init(close).clone()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The result is of interest only to callers that close the store themselves, before this.
        let _ = self.close(CLOSE_PATIENCE);
    }
}

impl RetainedStore for JournalStore {
    fn put(&self, message: &Arc<Message>, expires_unix_ms: Option<u64>, before: Option<&Arc<Message>>) -> Completion {
        let record = record::Record::of(message, expires_unix_ms);
        let value = kind::named(&message.topic, record.encoded_bytes(), |out| record.encode(out));
        match value {
            Some(value) => self.0.put_topic(&message.topic, Some(value), Some(message), before),
            None => self.0.refused(Some(Refused::TooLarge(message.payload.len()))),
        }
    }

    fn remove(&self, topic: &Topic, before: Option<&Arc<Message>>) -> Completion {
        self.0.put_topic(topic, None, None, before)
    }

    fn pending(&self, topic: &str) -> Completion {
        self.0.shared.ledger().pending(topic)
    }

    fn undo_by(&self, undo: Undo) {
        // A store belongs to one bus.
        let _ = self.0.shared.undo.set(undo);
    }

    fn load(&self, visit: &mut dyn FnMut(Stored)) {
        let mut loaded = 0_u64;
        self.visit(&[Kind::Retained], |_, id, bytes| {
            let Some((name, value)) = kind::split(bytes) else { return };
            let ledger = self.0.shared.ledger();
            // Shared with the topic's own.
            let topic = ledger.topics.name(name).filter(|_| ledger.topics.kept(name) == Some(id)).cloned();
            drop(ledger);
            match topic.map(|topic| record::decode(topic, value)) {
                Some(Ok(stored)) => {
                    loaded += 1;
                    visit(stored);
                }
                Some(Err(error)) => self.0.damaged(&error),
                // An older one, which is being forgotten.
                None => {}
            }
        });
        tracing::info!(loaded, "retained messages are back");
    }
}

#[cfg(test)]
mod oracle;
