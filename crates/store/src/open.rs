//! Opening the journal, whatever state it is in.
//!
//! Nothing is moved or removed: damage costs what it hit, a newer format is an error that leaves the files alone, and a
//! disk that cannot be written is read.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use fogmux_bus::Topic;
use fogmux_journal::{
    Config, FORMAT, Files, Journal, Occasion, ReadError, RecordId, Recovery, RecoveryError, Slot, is_of_medium,
};

use crate::{
    counters::{Counters, State},
    disk::{AnyDisk, Late, is_full, is_unwritable},
    kind::{self, Kind},
    ledger::Ledger,
    losses,
    queue::LANE_OF_TRIALS,
    record,
    watch::Shared,
};

/// The directory of the segments, in that of the store.
pub(crate) const SEGMENTS: &str = "journal";

/// Why the store cannot be opened. Damage is no reason.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// Written by a release that is newer than this one.
    #[error(
        "{path} has format {found}, and this release reads and writes format {known}; nothing in it was changed: start \
         the release that wrote it, or name another directory in store.path"
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u16,
        /// Ours.
        known: u16,
    },
    /// It has records that only a newer release can read.
    #[error(
        "{path} has {what}, which this release does not know; nothing in it was changed: start the release that wrote \
         it, or name another directory in store.path"
    )]
    Newer {
        /// The directory.
        path: PathBuf,
        /// The newer part.
        what: String,
    },
    /// The system refuses: permissions, a wrong path.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl From<fogmux_journal::OpenError> for OpenError {
    fn from(error: fogmux_journal::OpenError) -> Self {
        match error {
            fogmux_journal::OpenError::InUse(path) => Self::InUse(path),
            fogmux_journal::OpenError::Io { path, error: source } => Self::Io { path, source },
        }
    }
}

/// An open journal.
pub(crate) enum Opened {
    /// It can be written, or may be later.
    Writable(Journal, AnyDisk),
    /// It can only be read.
    ReadOnly(Journal, AnyDisk),
    /// There is nothing to read.
    Nothing,
}

/// Returns the file that whoever has opened the store in `path` holds locked (`flock`).
#[must_use]
pub fn lock_file(path: &Path) -> PathBuf {
    path.join(SEGMENTS).join(fogmux_journal::LOCK)
}

/// Opens or creates the store in `path`; if the disk cannot be written, opens it for reading.
pub(crate) fn open(path: &Path, config: Config, shared: &Shared) -> Result<Opened, OpenError> {
    warn_of_older(path);
    let directory = path.join(SEGMENTS);
    match Files::open(&directory).map_err(OpenError::from) {
        Ok(files) => open_on(path, Arc::new(files), config, shared),
        // There is nothing to read, and there may be room later.
        Err(OpenError::Io { source, .. }) if is_full(&source) && has_no_segments(&directory) => {
            open_on(path, Arc::new(Late::new(directory)), config, shared)
        }
        Err(OpenError::Io { path: at, source }) if is_unwritable(&source) => {
            let why = format!("{}: {source}", at.display());
            open_to_read(path, &directory, config, shared, why)
        }
        Err(error) => Err(error),
    }
}

fn has_no_segments(directory: &Path) -> bool {
    fs::read_dir(directory).map_or_else(
        |error| error.kind() == io::ErrorKind::NotFound,
        |mut entries| entries.all(|entry| entry.is_ok_and(|entry| entry.path().extension().is_none())),
    )
}

/// Opens the store on a disk that can be written, as far as is known.
pub(crate) fn open_on(path: &Path, disk: AnyDisk, config: Config, shared: &Shared) -> Result<Opened, OpenError> {
    let mut journal = match read(path, &disk, config, shared) {
        Ok(journal) => journal,
        Err(OpenError::Io { path, source }) if is_unwritable(&source) => {
            shared.counters.stop(State::Failed, format!("{}: {source}", path.display()));
            return Ok(Opened::Nothing);
        }
        Err(error) => return Err(error),
    };
    try_disk(&mut journal, &disk, shared);
    Ok(Opened::Writable(journal, disk))
}

fn open_to_read(
    path: &Path,
    directory: &Path,
    config: Config,
    shared: &Shared,
    why: String,
) -> Result<Opened, OpenError> {
    let opened = match Files::open_to_read(directory).map_err(OpenError::from) {
        Ok(files) => {
            let disk: AnyDisk = Arc::new(files);
            read(path, &disk, config, shared).map(|journal| Opened::ReadOnly(journal, disk))
        }
        Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Opened::Nothing),
        Err(error) => Err(error),
    };
    match opened {
        Ok(opened) => {
            shared.counters.stop(State::ReadOnly, why);
            Ok(opened)
        }
        Err(error @ (OpenError::InUse(_) | OpenError::Format { .. } | OpenError::Newer { .. })) => Err(error),
        Err(OpenError::Io { path, source }) if !is_unwritable(&source) => Err(OpenError::Io { path, source }),
        Err(error @ OpenError::Io { .. }) => {
            shared.counters.stop(State::Failed, format!("{why}; it cannot be read either: {error}"));
            Ok(Opened::Nothing)
        }
    }
}

fn read(path: &Path, disk: &AnyDisk, config: Config, shared: &Shared) -> Result<Journal, OpenError> {
    let (journal, recovery) = Journal::open(disk, config).map_err(|error| match error {
        RecoveryError::Newer { found, known } => OpenError::Format { path: path.to_owned(), found, known },
        RecoveryError::List(source) => OpenError::Io { path: path.to_owned(), source },
        RecoveryError::Read { slot, error } => OpenError::Io { path: segment(path, slot), source: error },
        RecoveryError::Config(error) => OpenError::Io { path: path.to_owned(), source: io::Error::other(error) },
    })?;
    let mut ledger = shared.ledger();
    index(path, &journal, disk, &mut ledger, &shared.counters, &recovery)?;
    tell(path, &recovery);
    Ok(journal)
}

fn segment(path: &Path, slot: Slot) -> PathBuf {
    path.join(SEGMENTS).join(Files::name(slot))
}

/// Finds the names of records. An error if only a newer release can read some, or the system refuses to read them for
/// another reason than damage.
fn index(
    path: &Path,
    journal: &Journal,
    disk: &AnyDisk,
    ledger: &mut Ledger,
    counters: &Counters,
    recovery: &Recovery,
) -> Result<(), OpenError> {
    counters.found(recovery);
    let mut failed = None;
    let newer = |what| Some(OpenError::Newer { path: path.to_owned(), what });
    journal.visit(disk, |id, outcome| {
        let damaged = match outcome {
            Ok(record) => match Kind::from_u8(record.kind) {
                None => {
                    failed = newer(format!("records of kind {}", record.kind));
                    None
                }
                Some(kind) => match take(ledger, kind, id, &record.bytes) {
                    Err(Unusable::Newer(version)) => {
                        failed = newer(format!("messages of version {version}"));
                        None
                    }
                    Err(Unusable::Damaged(why)) => Some(why),
                    Ok(()) => None,
                },
            },
            Err(ReadError::Io(source)) if !is_of_medium(&source) => {
                failed = Some(OpenError::Io { path: path.join(SEGMENTS), source });
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = damaged {
            counters.damaged_records.fetch_add(1, Relaxed);
            tracing::error!(error, "a record of the store is damaged and is skipped");
        }
    });
    failed.map_or(Ok(()), Err)
}

enum Unusable {
    Newer(u8),
    Damaged(String),
}

/// Takes note of a record. Identifiers ascend, so the last record of a name is the newest.
fn take(ledger: &mut Ledger, kind: Kind, id: RecordId, bytes: &[u8]) -> Result<(), Unusable> {
    let damaged = |why: &str| Unusable::Damaged(why.to_owned());
    let older = match kind {
        Kind::Trial => Some(id),
        Kind::Retained => {
            let (name, value) = kind::split(bytes).ok_or_else(|| damaged("it has no topic"))?;
            let topic = Topic::new(name).map_err(|error| damaged(&error.to_string()))?;
            if let Some(version) = value.first().filter(|version| **version > record::VERSION) {
                return Err(Unusable::Newer(*version));
            }
            ledger.topics.keep(topic, id)
        }
        Kind::Door => {
            let (name, _) = kind::split(bytes).ok_or_else(|| damaged("it has no key"))?;
            ledger.records.keep(name.into(), id)
        }
        Kind::Session
        | Kind::Subscription
        | Kind::Message
        | Kind::Delivery
        | Kind::Released
        | Kind::Received
        | Kind::Will => None,
    };
    // A forget that was lost to damage lets its record rise again.
    ledger.spare.extend(older);
    Ok(())
}

/// Commits a record that says nothing, and has what nobody needs forgotten: so the state of the disk is known before
/// anybody relies on it.
fn try_disk(journal: &mut Journal, disk: &AnyDisk, shared: &Shared) {
    let mut ledger = shared.ledger();
    let mut forgets = fogmux_journal::Batch::new(&journal.ids());
    let spare = std::mem::take(&mut ledger.spare);
    spare.iter().for_each(|id| forgets.forget(*id));
    let mut trial = fogmux_journal::Batch::new(&journal.ids());
    trial.put(Kind::Trial as u8, &[][..]);
    trial.own_by(LANE_OF_TRIALS);
    for (batch, puts, swept) in [(forgets, false, spare), (trial, true, Vec::new())] {
        if let Ok(appended) = journal.append(batch) {
            ledger.set(appended, puts, swept);
        }
    }
    drop(ledger);
    while let Some(work) = journal.next_work(Occasion::Commit { sync: true }) {
        let done = work.run(disk);
        journal.settle(&done);
    }
    while let Some(progress) = journal.progress() {
        shared.progress(&progress);
    }
}

/// Says what is lost, and notes it in a file.
fn tell(path: &Path, recovery: &Recovery) {
    let Recovery { records, frames, files, bytes, torn, dropped, closed, .. } = recovery;
    tracing::debug!(records, frames, files, bytes, torn, dropped, closed, "the store is read");
    if !recovery.is_damaged() {
        return;
    }
    let found = losses::describe(recovery);
    let all = found.join("; ");
    match losses::note(path, found) {
        Ok(new) if new.is_empty() => {
            tracing::warn!(found = all, "the store has old damage, which was reported at an earlier start");
        }
        noted => {
            if let Err(error) = noted {
                tracing::warn!(%error, "what is lost could not be noted in a file");
            }
            tracing::error!(
                found = all,
                file = %path.join(losses::FILE).display(),
                "the store is damaged: what was kept there is missing, or older than it was"
            );
        }
    }
}

/// Says that a store of an early version is not read. No release has written one.
fn warn_of_older(path: &Path) {
    let is_older = fs::read(path.join("version")).is_ok_and(|mark| mark.starts_with(b"FJL"));
    if is_older {
        tracing::warn!(
            path = %path.display(),
            "the files version, commits, *.jnl and keyspaces are a store of a version before the first release: its \
             retained messages are not read and it is left alone; publish them again, or remove these files"
        );
    }
}

const _: () = assert!(FORMAT == 1, "a new format needs a way from the old one");
