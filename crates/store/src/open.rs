//! Opening the tree in whatever state it is: damaged parts are cut, or the whole is moved aside for inspection.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    counters::{Counters, State},
    journal,
    marks::Found,
    scratch::{self, Scratch},
    tree::Tree,
};

/// The database's lock file.
const LOCK: &str = "lock";
/// The database's format file, and the format that this release reads and repairs.
const VERSION: &str = "version";
const MAGIC: &[u8] = b"FJL";
const FORMAT: u8 = 3;
/// The database's directory of keyspaces, each with a file that names its tables. Keyspace 0 is the database's own, the
/// others are ours.
const KEYSPACES: &str = "keyspaces";
const TABLES: &str = "current";
const KEYSPACES_OURS: u64 = 2;
/// A file that counts attempts to open the tree that have not succeeded.
const OPENING: &str = "opening";
/// Attempts without success before the tree is taken for damaged. The database panics on some kinds of damage, twice in
/// a row where it unwinds, which ends the process; a few power cuts while starting are no damage.
const ATTEMPTS_MAX: u32 = 5;
/// Free bytes that the disk must have to be written.
const ROOM_BYTES: usize = 256 << 10;

/// Why the store cannot be opened. Damage is no reason: it is repaired or moved aside.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// Written by a release that is newer, or much older, than this one.
    #[error("{0} was written in another format than this release reads")]
    Format(PathBuf),
    /// The system refuses: permissions, space, a read-only file system.
    #[error("{path}: {source}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// An open store.
#[derive(Debug)]
pub(crate) struct Opened {
    /// `None` if it could not be read.
    pub(crate) tree: Option<Tree>,
    /// The copy that the tree is read from, if the disk cannot be written.
    pub(crate) scratch: Option<Scratch>,
    /// The lock of the original, if the tree is a copy.
    _lock: Option<File>,
}

/// Opens or creates the tree in `path`; if the disk cannot be written, opens a copy for reading.
pub(crate) fn open(path: &Path, counters: &Counters) -> Result<Opened, OpenError> {
    match open_writable(path, counters) {
        Ok(tree) => Ok(Opened { tree: Some(tree), scratch: None, _lock: None }),
        Err(OpenError::Io { source, .. }) if is_unwritable(&source) => open_copy(path, counters, &source),
        Err(error) => Err(error),
    }
}

/// Whether an error means that the disk is full, read-only or failing, as opposed to a missing permission or a wrong
/// path.
#[must_use]
pub fn is_unwritable(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    let kinds = [io::ErrorKind::QuotaExceeded, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::StorageFull];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(EIO)
}

fn open_copy(path: &Path, counters: &Counters, why: &io::Error) -> Result<Opened, OpenError> {
    let io_error = |source| OpenError::Io { path: path.to_owned(), source };
    let lock = match File::open(path.join(LOCK)) {
        Ok(lock) => Some(take(lock, path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_error(error)),
    };
    let there = path.join(VERSION).exists();
    let copied = if there { Scratch::copy(path).map(Some) } else { Ok(None) };
    let copied = copied.map_err(|error| error.to_string()).and_then(|copied| match copied {
        Some((scratch, copy)) => match open_writable(&copy, counters) {
            Ok(tree) => Ok((Some(tree), Some(scratch))),
            Err(error) => Err(error.to_string()),
        },
        None => Ok((None, None)),
    });
    let (state, tree, scratch, reason) = match copied {
        Ok((tree, scratch)) => (State::ReadOnly, tree, scratch, format!("{}: {why}", path.display())),
        Err(error) => {
            (State::Failed, None, None, format!("{}: {why}; it cannot be read either: {error}", path.display()))
        }
    };
    tracing::error!(
        reason,
        state = state.name(),
        "the store cannot be written: nothing that is to be kept is taken; make room or replace the disk, and restart"
    );
    counters.stop(state, reason);
    Ok(Opened { tree, scratch, _lock: lock })
}

fn open_writable(path: &Path, counters: &Counters) -> Result<Tree, OpenError> {
    let io_error = |source| OpenError::Io { path: path.to_owned(), source };
    fs::create_dir_all(path).map_err(io_error)?;
    if let Condition::Hopeless(reason) = repair(path, counters)? {
        move_aside(path, counters, &reason).map_err(io_error)?;
        fs::create_dir_all(path).map_err(io_error)?;
    }
    match attempt(path, counters)? {
        Ok(tree) => Ok(tree),
        Err(reason) => {
            move_aside(path, counters, &reason).map_err(io_error)?;
            fs::create_dir_all(path).map_err(io_error)?;
            attempt(path, counters)?.map_err(|reason| io_error(io::Error::other(reason)))
        }
    }
}

enum Condition {
    Fair,
    Hopeless(String),
}

fn take(lock: File, path: &Path) -> Result<File, OpenError> {
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::InUse(path.to_owned()),
        TryLockError::Error(source) => OpenError::Io { path: path.to_owned(), source },
    })?;
    Ok(lock)
}

// Under the database's lock, so that nobody's journal is cut while it is written.
fn repair(path: &Path, counters: &Counters) -> Result<Condition, OpenError> {
    let io_error = |source| OpenError::Io { path: path.to_owned(), source };
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK)).map_err(io_error)?;
    let lock = take(lock, path)?;
    if count_attempt(path).map_err(io_error)? > ATTEMPTS_MAX {
        return Ok(Condition::Hopeless("it could not be opened several times in a row".to_owned()));
    }
    check_format(path)?;
    if let Some(missing) = missing(path).map_err(io_error)? {
        return Ok(Condition::Hopeless(format!("{missing} is gone")));
    }
    match journal::cut_torn_tails(path, &mut |damaged| keep_journal(path, damaged)) {
        Ok(0) => {}
        Ok(bytes) => {
            counters.cut_bytes.fetch_add(bytes, Relaxed);
            tracing::warn!(bytes, path = %path.display(), "cut a torn write from the end of the store's journal");
        }
        // The database will say what is wrong with it.
        Err(error) => tracing::warn!(%error, path = %path.display(), "cannot walk the store's journal"),
    }
    drop(lock);
    Ok(Condition::Fair)
}

// The file of a store that is missing. The database would take such a store for a new one and remove the files that the
// missing one named.
fn missing(path: &Path) -> io::Result<Option<String>> {
    if Found::read(path)? == Found::Nothing {
        return Ok(None);
    }
    let tables = (0..=KEYSPACES_OURS).map(|number| format!("{KEYSPACES}/{number}/{TABLES}"));
    for file in tables.chain([VERSION.to_owned()]) {
        if !path.join(&file).try_exists()? {
            return Ok(Some(file));
        }
    }
    let numbers = journal::numbers(path)?;
    if numbers.is_empty() {
        return Ok(Some("the journal".to_owned()));
    }
    let gap = numbers.windows(2).find(|pair| matches!(pair, [one, next] if one + 1 != *next));
    Ok(gap.map(|_| "one of the journals".to_owned()))
}

// The database takes an unknown format for damage, but a newer release may have written it.
fn check_format(path: &Path) -> Result<(), OpenError> {
    let mark = fs::read(path.join(VERSION)).unwrap_or_default();
    match mark.strip_prefix(MAGIC).and_then(<[u8]>::first) {
        Some(&format) if format != FORMAT => Err(OpenError::Format(path.to_owned())),
        _ => Ok(()),
    }
}

fn count_attempt(path: &Path) -> io::Result<u32> {
    let marker = path.join(OPENING);
    let count = fs::read_to_string(&marker).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0_u32) + 1;
    // Padded, so that a disk without room is noticed before the database is half-way through opening.
    let mut text = count.to_string();
    text.extend(std::iter::repeat_n(' ', ROOM_BYTES));
    fs::write(&marker, text)?;
    File::open(&marker)?.sync_all()?;
    Ok(count)
}

// The outer error is for the operator to solve, the inner one names the damage.
fn attempt(path: &Path, counters: &Counters) -> Result<Result<Tree, String>, OpenError> {
    let opened = catch_unwind(AssertUnwindSafe(|| Tree::open(path, counters)));
    let _ = fs::remove_file(path.join(OPENING));
    match opened {
        Ok(Ok(tree)) => Ok(Ok(tree)),
        Ok(Err(error)) => judge(path, error).map(Err),
        Err(_) => Ok(Err("the database panicked".to_owned())),
    }
}

fn judge(path: &Path, error: fjall::Error) -> Result<String, OpenError> {
    if matches!(error, fjall::Error::Locked) {
        return Err(OpenError::InUse(path.to_owned()));
    }
    let damage = error.to_string();
    match system_error(error) {
        Some(source) if is_refusal(&source) => Err(OpenError::Io { path: path.to_owned(), source }),
        _ => Ok(damage),
    }
}

fn system_error(error: fjall::Error) -> Option<io::Error> {
    if let fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)) = error {
        Some(source)
    } else {
        None
    }
}

// Whether the operator can remove the cause, which says nothing about the data.
fn is_refusal(error: &io::Error) -> bool {
    const OUT_OF_FILES: [i32; 2] = [23, 24];
    let kinds = [
        io::ErrorKind::OutOfMemory,
        io::ErrorKind::PermissionDenied,
        io::ErrorKind::QuotaExceeded,
        io::ErrorKind::ReadOnlyFilesystem,
        io::ErrorKind::StorageFull,
    ];
    kinds.contains(&error.kind()) || error.raw_os_error().is_some_and(|code| OUT_OF_FILES.contains(&code))
}

// Nothing follows a torn write; damage may be followed by commits, which the database cannot read.
fn keep_journal(path: &Path, journal: &Path) {
    let aside = aside(path, ".jnl");
    let mut unlimited = u64::MAX;
    let kept = scratch::copy_file(journal, &aside, &mut unlimited);
    tracing::error!(
        journal = %journal.display(),
        aside = %aside.display(),
        error = kept.err().map(tracing::field::display),
        "the store's journal is damaged and is cut there, what was written later is lost; a copy is kept"
    );
}

/// A name beside the store's for damaged files.
fn aside(path: &Path, suffix: &str) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".damaged-{now}{suffix}"));
    path.with_file_name(name)
}

fn move_aside(path: &Path, counters: &Counters, reason: &str) -> io::Result<()> {
    let aside = aside(path, "");
    fs::rename(path, &aside)?;
    counters.moved_aside.fetch_add(1, Relaxed);
    tracing::error!(
        reason,
        path = %path.display(),
        aside = %aside.display(),
        "the store is damaged beyond repair and was moved aside; starting with an empty one"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbours(path: &Path) -> usize {
        fs::read_dir(path.parent().unwrap()).unwrap().count()
    }

    #[test]
    fn a_tree_of_another_process_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let counters = Counters::default();
        let _tree = open(&path, &counters).unwrap();
        assert!(matches!(open(&path, &counters), Err(OpenError::InUse(_))));
        assert_eq!(neighbours(&path), 1);
    }

    #[test]
    fn a_tree_of_a_later_release_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let counters = Counters::default();
        drop(open(&path, &counters).unwrap());
        fs::write(path.join(VERSION), b"FJL\x09").unwrap();
        assert!(matches!(open(&path, &counters), Err(OpenError::Format(_))));
        assert_eq!(neighbours(&path), 1);
    }

    #[test]
    fn a_tree_without_its_head_is_moved_aside() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let counters = Counters::default();
        drop(open(&path, &counters).unwrap());
        fs::write(path.join(VERSION), b"rubbish").unwrap();
        drop(open(&path, &counters).unwrap());
        assert_eq!((counters.snapshot().moved_aside, neighbours(&path)), (1, 2));
    }

    #[test]
    fn a_tree_that_kills_whoever_opens_it_is_moved_aside_in_the_end() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let counters = Counters::default();
        drop(open(&path, &counters).unwrap());
        assert!(!path.join(OPENING).exists());
        fs::write(path.join(OPENING), ATTEMPTS_MAX.to_string()).unwrap();
        drop(open(&path, &counters).unwrap());
        assert_eq!((counters.snapshot().moved_aside, neighbours(&path)), (1, 2));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(matches!(open(&file.join("store"), &Counters::default()), Err(OpenError::Io { .. })));
    }
}
