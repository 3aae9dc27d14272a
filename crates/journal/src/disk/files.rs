//! Segments as files of a directory, which belongs to one process at a time.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{Access, FallocateFlags, StatVfs, access, fallocate, statvfs},
    io::Errno,
};

use super::{Disk, Slot};

/// The file in the directory of a journal that is locked while the journal is open.
pub const LOCK: &str = "lock";
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

/// A segment that is open.
#[derive(Debug)]
struct OpenFile {
    slot: Slot,
    file: Arc<File>,
    /// Whether also to write.
    writes: bool,
}

/// A directory of segments: mode 0700, files 0600.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    handle: File,
    // The most recently used is at the end.
    open: Mutex<Vec<OpenFile>>,
    _lock: Option<File>,
}

impl Files {
    /// Opens a directory, which is created if it is not there, and locks it for this process.
    ///
    /// # Errors
    /// Another process has it, or the system refuses, also if a segment may not be read and written.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| OpenError::Io { path, error }
        };
        make_directory(directory).map_err(failed(directory))?;
        let path = directory.join(LOCK);
        let lock = take(new_file().open(&path).map_err(failed(&path))?, directory, path)?;
        let handle = File::open(directory).map_err(failed(directory))?;
        let open = Mutex::default();
        let files = Self { directory: directory.to_owned(), handle, open, _lock: Some(lock) };
        for (slot, _) in files.list().map_err(failed(directory))? {
            let path = files.path(slot);
            // Another owner, another mode, or a file that may not be changed. Later it would look like a disk that
            // fails.
            if let Err(error @ (Errno::ACCESS | Errno::PERM)) = access(&path, Access::READ_OK | Access::WRITE_OK) {
                return Err(OpenError::Io { path, error: error.into() });
            }
        }
        Ok(files)
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
        Ok(Self { directory: directory.to_owned(), handle, open, _lock: lock })
    }

    /// The name of a segment's file in the directory.
    #[must_use]
    pub fn name(slot: Slot) -> String {
        format!("{:08}{SUFFIX}", slot.0)
    }

    fn path(&self, slot: Slot) -> PathBuf {
        self.directory.join(Self::name(slot))
    }

    fn open_files(&self) -> MutexGuard<'_, Vec<OpenFile>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, slot: Slot, writes: bool) -> io::Result<Arc<File>> {
        let mut open = self.open_files();
        let at = open.iter().position(|open| open.slot == slot && (open.writes || !writes));
        let found = match at {
            Some(at) => open.remove(at),
            None => {
                let path = self.path(slot);
                let file = Arc::new(opened(&mut open, || OpenOptions::new().read(true).write(writes).open(&path))?);
                open.retain(|open| open.slot != slot);
                OpenFile { slot, file, writes }
            }
        };
        if open.len() >= OPEN_MAX {
            open.remove(0);
        }
        let file = Arc::clone(&found.file);
        open.push(found);
        Ok(file)
    }

    fn forget_file(&self, slot: Slot) {
        self.open_files().retain(|open| open.slot != slot);
    }

    /// Makes the file of a segment under another name. Zeros are written, not only reserved, so that later writes
    /// change no metadata of the file system.
    fn fill(&self, path: &Path, bytes: u32) -> io::Result<()> {
        // One that was left behind may belong to another user.
        let _ = std::fs::remove_file(path);
        let file = opened(&mut self.open_files(), || new_file().open(path))?;
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

/// Makes a directory and those above it that are missing. Their names are on the disk when this returns: one that is
/// not takes everything below it away at a power cut, however often that was synchronised.
fn make_directory(directory: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = directory.ancestors().take_while(|path| !path.is_dir()).collect();
    // The last ancestor of a relative path is empty: it is the current directory.
    for path in missing.into_iter().rev().filter(|path| !path.as_os_str().is_empty()) {
        // Another process may make it meanwhile.
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match File::open(above).and_then(|above| above.sync_all()) {
            // Others may permit to make something there, and not to look.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Opens a file. If the process or the system has no descriptor left, those of other segments are closed for it, so
/// that the journal goes on with those that it has.
fn opened(open: &mut Vec<OpenFile>, file: impl Fn() -> io::Result<File>) -> io::Result<File> {
    let is_out = |error: &io::Error| {
        [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
    };
    loop {
        match file() {
            Err(error) if is_out(&error) && !open.is_empty() => drop(open.remove(0)),
            done => return done,
        }
    }
}

/// Whether a file system has room for a segment. One that has no size, as some in memory, does not say.
fn has_room(space: &StatVfs, bytes: u32) -> bool {
    space.f_blocks == 0 || space.f_bavail.saturating_mul(space.f_frsize) >= u64::from(bytes)
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
        if !has_room(&statvfs(&self.directory)?, bytes) {
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
        self.file(slot, true)?.write_all_at(bytes, u64::from(offset))
    }

    fn sync(&self, slot: Slot) -> io::Result<()> {
        self.file(slot, false)?.sync_data()
    }

    fn read(&self, slot: Slot, offset: u32, bytes: &mut [u8]) -> io::Result<()> {
        self.file(slot, false)?.read_exact_at(bytes, u64::from(offset))
    }

    fn remove(&self, slot: Slot) -> io::Result<()> {
        self.forget_file(slot);
        std::fs::remove_file(self.path(slot))?;
        self.handle.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_a_size_is_not_full() {
        let mut space = statvfs("/").unwrap();
        (space.f_frsize, space.f_blocks, space.f_bavail) = (4096, 1000, 128);
        assert!(has_room(&space, 512 << 10) && !has_room(&space, (512 << 10) + 1));
        (space.f_blocks, space.f_bavail) = (0, 0);
        assert!(has_room(&space, 512 << 10), "ramfs reports no sizes");
    }

    #[test]
    fn without_a_descriptor_those_of_other_segments_are_closed() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::open(directory.path()).unwrap();
        for slot in (0..4).map(Slot) {
            files.create(slot, 4096).unwrap();
            files.write(slot, 0, &[1; 4096]).unwrap();
        }
        let mut open = files.open_files();
        // As the system answers while fewer than two are given back.
        let tried = std::cell::Cell::new(0);
        let path = directory.path().join(Files::name(Slot(0)));
        let found = opened(&mut open, || {
            tried.set(tried.get() + 1);
            if tried.get() < 3 { Err(Errno::MFILE.into()) } else { File::open(&path) }
        });
        assert!(found.is_ok());
        assert_eq!((tried.get(), open.len()), (3, 2));
        let error = opened(&mut open, || Err(Errno::NFILE.into())).unwrap_err();
        assert_eq!((error.raw_os_error(), open.len()), (Some(Errno::NFILE.raw_os_error()), 0));
    }

    #[test]
    fn reading_needs_no_permission_to_write() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::open(directory.path()).unwrap();
        files.create(Slot(0), 4096).unwrap();
        files.read(Slot(0), 0, &mut [0; 4096]).unwrap();
        assert!(files.open_files().iter().all(|open| !open.writes));
        files.write(Slot(0), 0, &[1; 4096]).unwrap();
        files.read(Slot(0), 0, &mut [0; 4096]).unwrap();
        assert_eq!(files.open_files().iter().filter(|open| open.writes).count(), 1);
        assert_eq!(files.open_files().len(), 1);
    }
}
