//! Opening the tree in whatever state it is: damaged parts are cut, and a tree that is proved damaged is moved aside.
//!
//! Nothing else moves a tree aside: a disk without room, a permission, a failing disk, too many open files, another
//! process or a newer format say nothing about the data. What is moved aside is never deleted.

mod attempts;
mod faults;

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
    time::{SystemTime, UNIX_EPOCH},
};

pub use self::faults::is_unwritable;
use self::{
    attempts::{Attempt, Past},
    faults::{Fault, check_readable, judge},
};
use crate::{
    counters::{Counters, State},
    journal,
    marks::{self, Found},
    scratch::{self, Scratch},
    tree::Tree,
};

/// The database's lock file.
const LOCK: &str = "lock";
/// The database's format file, and the format that this release reads and repairs.
const VERSION: &str = "version";
const MAGIC: &[u8] = b"FJL";
const FORMAT: u8 = 3;
/// The database's directory of keyspaces, each with a file that names its tables: the database's own and ours.
const KEYSPACES: &str = "keyspaces";
const TABLES: &str = "current";
const KEYSPACES_ALL: usize = 3;

/// Why the store cannot be opened. Damage is no reason: it is repaired or moved aside.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// Written by a release that is newer, or much older, than this one.
    #[error(
        "{path} has format {found}, and this release reads and writes format {FORMAT}; nothing in it was changed: \
         start the release that wrote it, or name another directory in store.path"
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u8,
    },
    /// The system refuses: permissions, space, a read-only file system.
    #[error("{path}: {source}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl OpenError {
    fn io(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Io { path: path.to_owned(), source }
    }
}

/// An open store.
#[derive(Debug)]
pub(crate) struct Opened {
    /// `None` if it could not be read.
    pub(crate) tree: Option<Tree>,
    /// The copy that the tree is read from, if the disk cannot be written.
    pub(crate) scratch: Option<Scratch>,
    /// The lock of the original, if the tree is a copy or was not opened.
    _lock: Option<File>,
}

/// Opens or creates the tree in `path`; if the disk cannot be written, opens a copy for reading.
pub(crate) fn open(path: &Path, counters: &Counters) -> Result<Opened, OpenError> {
    match open_writable(path, counters) {
        Err(OpenError::Io { source, .. }) if is_unwritable(&source) => open_copy(path, counters, &source),
        done => done,
    }
}

fn open_writable(path: &Path, counters: &Counters) -> Result<Opened, OpenError> {
    // Before anything is written.
    check_format(path)?;
    fs::create_dir_all(path).map_err(OpenError::io(path))?;
    let lock = lock(path)?;
    let past = Past::read(path);
    if past.is_unexplained() {
        past.forget(path);
        return Ok(leave_alone(path, counters, lock));
    }
    let tree = match prepare_and_open(path, counters, lock, &past) {
        Ok(tree) => tree,
        Err(Fault::Error(error)) => return Err(error),
        Err(Fault::Damage(reason)) => renew(path, counters, &reason)?,
    };
    Ok(Opened { tree: Some(tree), scratch: None, _lock: None })
}

fn prepare_and_open(path: &Path, counters: &Counters, lock: File, past: &Past) -> Result<Tree, Fault> {
    if let Some(damage) = past.proof() {
        return Err(Fault::Damage(damage));
    }
    // Under the database's lock, so that nobody's journal is cut while it is written.
    repair(path, counters, &mut |damaged| keep_journal(path, damaged))?;
    let attempt = Attempt::begin(path, past).map_err(OpenError::io(path))?;
    drop(lock);
    let opened = attempt.run(|| Tree::open(path, counters));
    attempt.end(path);
    opened.map_err(|failed| judge(path, failed))
}

/// Moves a damaged tree aside and makes a new one.
fn renew(path: &Path, counters: &Counters, damage: &str) -> Result<Tree, OpenError> {
    // Errors of a failing disk look like damage to the database, and another controller or kernel may read the data.
    check_readable(path).map_err(OpenError::io(path))?;
    move_aside(path, counters, damage).map_err(OpenError::io(path))?;
    fs::create_dir_all(path).map_err(OpenError::io(path))?;
    let lock = lock(path)?;
    prepare_and_open(path, counters, lock, &Past::default()).map_err(|fault| match fault {
        Fault::Error(error) => error,
        Fault::Damage(damage) => OpenError::io(path)(io::Error::other(damage)),
    })
}

/// Serves without a store that ends the process for a reason that is not known.
fn leave_alone(path: &Path, counters: &Counters, lock: File) -> Opened {
    let reason = format!(
        "{}: the process ended {} times in a row while it opened this store, and left no word why; it was not touched",
        path.display(),
        attempts::UNEXPLAINED_MAX
    );
    tracing::error!(
        reason,
        state = State::Failed.name(),
        "the store is not used: nothing that is to be kept is taken; see what ended the process (a limit of memory, a \
         time limit, the power), and restart: it is tried again"
    );
    counters.stop(State::Failed, reason);
    Opened { tree: None, scratch: None, _lock: Some(lock) }
}

fn open_copy(path: &Path, counters: &Counters, why: &io::Error) -> Result<Opened, OpenError> {
    let lock = match File::open(path.join(LOCK)) {
        Ok(lock) => Some(take(lock, path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(OpenError::io(path)(error)),
    };
    let there = path.join(VERSION).exists();
    let copied = if there { Scratch::copy(path).map(Some) } else { Ok(None) };
    let copied = copied.map_err(|error| error.to_string()).and_then(|copied| match copied {
        Some((scratch, copy)) => read_copy(&copy, counters).map(|tree| (Some(tree), Some(scratch))),
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

/// Opens a copy. Its original is whole as long as it is not proved damaged, so that nothing is moved or counted.
fn read_copy(copy: &Path, counters: &Counters) -> Result<Tree, String> {
    let opened = repair(copy, counters, &mut |_| Ok(())).and_then(|()| {
        let opened = attempts::guarded(|| Tree::open(copy, counters));
        opened.map_err(|failed| judge(copy, failed))
    });
    opened.map_err(|fault| match fault {
        Fault::Error(error) => error.to_string(),
        Fault::Damage(damage) => damage,
    })
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK));
    take(file.map_err(OpenError::io(path))?, path)
}

fn take(lock: File, path: &Path) -> Result<File, OpenError> {
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::InUse(path.to_owned()),
        TryLockError::Error(source) => OpenError::Io { path: path.to_owned(), source },
    })?;
    Ok(lock)
}

/// Checks what the database does not, and cuts the journals. `damaged` keeps a copy of a journal that is cut although
/// batches follow; without a copy nothing is cut.
fn repair(path: &Path, counters: &Counters, damaged: &mut dyn FnMut(&Path) -> io::Result<()>) -> Result<(), Fault> {
    let failed = |error| faults::of_io(path, error);
    clear_unfinished(path).map_err(failed)?;
    if let Some(missing) = missing(path).map_err(failed)? {
        return Err(Fault::Damage(format!("{missing} is gone")));
    }
    let cut = journal::cut(path, marks::refused(path).map_err(failed)?, damaged).map_err(failed)?;
    if cut.torn_bytes > 0 {
        counters.cut_bytes.fetch_add(cut.torn_bytes, Relaxed);
        tracing::warn!(bytes = cut.torn_bytes, path = %path.display(), "cut a torn write from the end of the journal");
    }
    if cut.refused > 0 {
        tracing::info!(path = %path.display(), "took a failed commit back, which was refused to its publishers");
    }
    Ok(())
}

/// Removes the empty journal of a store whose making was interrupted: it holds nothing, and the database does not go on
/// with it.
fn clear_unfinished(path: &Path) -> io::Result<()> {
    let version = path.join(VERSION);
    let empty = |file: &Path| fs::metadata(file).map_or(true, |found| found.is_file() && found.len() == 0);
    let keyspaces = fs::read_dir(path.join(KEYSPACES)).map_or(0, Iterator::count);
    if !empty(&version) || Found::read(path)? != Found::Nothing || keyspaces > 0 {
        return Ok(());
    }
    let journals: Vec<_> = journal::numbers(path)?.iter().map(|number| path.join(format!("{number}.jnl"))).collect();
    for journal in &journals {
        if !journal::is_blank(journal)? {
            return Ok(());
        }
    }
    for file in journals.iter().chain([&version]).filter(|file| file.exists()) {
        fs::remove_file(file)?;
    }
    Ok(())
}

// The file of a store that is missing. The database would take such a store for a new one and remove the files that the
// missing one named.
fn missing(path: &Path) -> io::Result<Option<String>> {
    if Found::read(path)? == Found::Nothing {
        return Ok(None);
    }
    if !path.join(VERSION).try_exists()? {
        return Ok(Some(VERSION.to_owned()));
    }
    let keyspaces = path.join(KEYSPACES);
    let mut count = 0;
    if keyspaces.try_exists()? {
        for entry in fs::read_dir(&keyspaces)? {
            let name = entry?.file_name();
            if !keyspaces.join(&name).join(TABLES).try_exists()? {
                return Ok(Some(format!("{KEYSPACES}/{}/{TABLES}", name.display())));
            }
            count += 1;
        }
    }
    // Their numbers depend on how often making them was interrupted.
    if count < KEYSPACES_ALL {
        return Ok(Some(format!("one of the {KEYSPACES}")));
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
    let mark = match fs::read(path.join(VERSION)) {
        Ok(mark) => mark,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(OpenError::io(path)(error)),
    };
    match mark.strip_prefix(MAGIC).and_then(<[u8]>::first) {
        Some(&found) if found != FORMAT => Err(OpenError::Format { path: path.to_owned(), found }),
        _ => Ok(()),
    }
}

// Nothing follows a torn write; damage may be followed by commits, which the database cannot read.
fn keep_journal(path: &Path, journal: &Path) -> io::Result<()> {
    let aside = aside(path, ".jnl");
    let mut unlimited = u64::MAX;
    if let Err(error) = scratch::copy_file(journal, &aside, &mut unlimited) {
        // A part of a copy is none.
        let _ = fs::remove_file(&aside);
        return Err(error);
    }
    tracing::error!(
        journal = %journal.display(),
        aside = %aside.display(),
        "the store's journal is damaged and is cut there, what was written later is lost; a copy is kept"
    );
    Ok(())
}

/// A free name beside the store's for damaged files. A clock that is not set gives the same time at each start.
fn aside(path: &Path, suffix: &str) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let name = |more: &str| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".damaged-{now}{more}{suffix}"));
        path.with_file_name(name)
    };
    let mut free = name("");
    for number in 2_u32.. {
        if free.symlink_metadata().is_err() {
            break;
        }
        free = name(&format!("-{number}"));
    }
    free
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
mod tests;
