//! Segments as files of a directory, which belongs to one process at a time.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::{Disk, Slot};

const LOCK: &str = "lock";
/// A segment that is not yet complete.
const UNFINISHED: &str = "unfinished";
const SUFFIX: &str = ".segment";
/// Files that are kept open. A journal writes to one of them at a time and mostly reads few.
const OPEN_MAX: usize = 16;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// The system refuses.
    #[error("{path}: {error}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// A directory of segments: mode 0700, files 0600.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    handle: File,
    // The most recently used is at the end.
    open: Mutex<Vec<(Slot, Arc<File>)>>,
    may_write: bool,
    _lock: Option<File>,
}

impl Files {
    /// Opens a directory, which is created if it is not there, and locks it for this process.
    ///
    /// # Errors
    /// Another process has it, or the system refuses.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| OpenError::Io { path, error }
        };
        if !directory.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
            if let Some(parent) = directory.parent() {
                // A relative path of one component has an empty parent.
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed(parent))?;
            }
        }
        let path = directory.join(LOCK);
        let lock = take(new_file().open(&path).map_err(failed(&path))?, directory, path)?;
        let handle = File::open(directory).map_err(failed(directory))?;
        let open = Mutex::default();
        Ok(Self { directory: directory.to_owned(), handle, open, may_write: true, _lock: Some(lock) })
    }

    /// Opens a directory that cannot be written to. Nothing in it is changed.
    ///
    /// # Errors
    /// Another process has it, or the system refuses.
    pub fn open_to_read(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join(LOCK);
        let lock = match File::open(&path) {
            Ok(lock) => Some(take(lock, directory, path)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(OpenError::Io { path, error }),
        };
        let handle = File::open(directory).map_err(|error| OpenError::Io { path: directory.to_owned(), error })?;
        let open = Mutex::default();
        Ok(Self { directory: directory.to_owned(), handle, open, may_write: false, _lock: lock })
    }

    fn path(&self, slot: Slot) -> PathBuf {
        self.directory.join(format!("{:08}{SUFFIX}", slot.0))
    }

    fn file(&self, slot: Slot) -> io::Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match open.iter().position(|(of, _)| *of == slot) {
            Some(at) => open.remove(at).1,
            None => Arc::new(OpenOptions::new().read(true).write(self.may_write).open(self.path(slot))?),
        };
        if open.len() >= OPEN_MAX {
            open.remove(0);
        }
        open.push((slot, Arc::clone(&found)));
        Ok(found)
    }

    fn forget_file(&self, slot: Slot) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, _)| *of != slot);
    }

    /// Makes the file of a segment under another name. Zeros are written, not only reserved, so that later writes
    /// change no metadata of the file system.
    fn fill(&self, path: &Path, bytes: u32) -> io::Result<()> {
        let file = new_file().truncate(true).open(path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, u64::from(bytes)) {
            // Only some file systems can: it finds out early that the disk is full, and gives consecutive blocks.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        let mut left = bytes as usize;
        let mut at = 0;
        while left > 0 {
            let zeros = ZEROS.get(..left.min(ZEROS.len())).unwrap_or_default();
            file.write_all_at(zeros, at)?;
            left -= zeros.len();
            at += zeros.len() as u64;
        }
        file.sync_all()
    }
}

fn take(lock: File, directory: &Path, path: PathBuf) -> Result<File, OpenError> {
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(directory.to_owned())),
        Err(TryLockError::Error(error)) => Err(OpenError::Io { path, error }),
    }
}

fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).mode(0o600);
    options
}

impl Disk for Files {
    fn list(&self) -> io::Result<Vec<(Slot, u64)>> {
        let mut segments = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            let slot = entry.file_name().to_str().and_then(|name| name.strip_suffix(SUFFIX)?.parse().ok());
            if let Some(slot) = slot {
                segments.push((Slot(slot), entry.metadata()?.len()));
            }
        }
        Ok(segments)
    }

    fn create(&self, slot: Slot, bytes: u32) -> io::Result<()> {
        let space = statvfs(&self.directory)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < u64::from(bytes) {
            // Without a write to a disk that is full.
            return Err(io::ErrorKind::StorageFull.into());
        }
        let unfinished = self.directory.join(UNFINISHED);
        let made = self
            .fill(&unfinished, bytes)
            .and_then(|()| std::fs::rename(&unfinished, self.path(slot)))
            .and_then(|()| self.handle.sync_all());
        if made.is_err() {
            self.forget_file(slot);
            let _ = std::fs::remove_file(&unfinished);
            let _ = std::fs::remove_file(self.path(slot));
        }
        made
    }

    fn write(&self, slot: Slot, offset: u32, bytes: &[u8]) -> io::Result<()> {
        self.file(slot)?.write_all_at(bytes, u64::from(offset))
    }

    fn sync(&self, slot: Slot) -> io::Result<()> {
        self.file(slot)?.sync_data()
    }

    fn read(&self, slot: Slot, offset: u32, bytes: &mut [u8]) -> io::Result<()> {
        self.file(slot)?.read_exact_at(bytes, u64::from(offset))
    }

    fn remove(&self, slot: Slot) -> io::Result<()> {
        self.forget_file(slot);
        std::fs::remove_file(self.path(slot))?;
        self.handle.sync_all()
    }
}
