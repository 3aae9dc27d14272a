//! The disk below the journal, and the meaning of its errors.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use fogmux_journal::{Disk, Files, OpenError, Slot};

/// A disk that threads share.
pub(crate) type AnyDisk = Arc<dyn Disk + Send + Sync>;

/// Whether an error means that the disk is full, read-only or failing, as opposed to a missing permission or a wrong
/// path.
#[must_use]
pub fn is_unwritable(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    let kinds = [io::ErrorKind::QuotaExceeded, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::StorageFull];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(EIO)
}

/// Whether an error means that the disk is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A directory that could not be made because the disk is full, and that is made when there is room for a segment.
#[derive(Debug)]
pub(crate) struct Late {
    directory: PathBuf,
    files: OnceLock<Files>,
    making: Mutex<()>,
}

impl Late {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, files: OnceLock::new(), making: Mutex::default() }
    }

    fn files(&self) -> io::Result<&Files> {
        let _one = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        let files = Files::open(&self.directory).map_err(|error| match error {
            OpenError::Io { error, .. } => error,
            error @ OpenError::InUse(_) => io::Error::new(io::ErrorKind::ResourceBusy, error.to_string()),
        })?;
        if !files.list()?.is_empty() {
            return Err(io::Error::other("somebody has put segments there; they are read at the next start"));
        }
        Ok(self.files.get_or_init(|| files))
    }
}

impl Disk for Late {
    fn list(&self) -> io::Result<Vec<(Slot, u64)>> {
        self.files.get().map_or_else(|| Ok(Vec::new()), Disk::list)
    }

    fn create(&self, slot: Slot, bytes: u32) -> io::Result<()> {
        self.files()?.create(slot, bytes)
    }

    fn write(&self, slot: Slot, offset: u32, bytes: &[u8]) -> io::Result<()> {
        self.files()?.write(slot, offset, bytes)
    }

    fn sync(&self, slot: Slot) -> io::Result<()> {
        self.files()?.sync(slot)
    }

    fn read(&self, slot: Slot, offset: u32, bytes: &mut [u8]) -> io::Result<()> {
        self.files()?.read(slot, offset, bytes)
    }

    fn remove(&self, slot: Slot) -> io::Result<()> {
        self.files()?.remove(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in the way of the directory stands for a disk without room for one.
    #[test]
    fn a_directory_is_made_when_there_is_room() {
        let home = tempfile::tempdir().unwrap();
        let (in_the_way, directory) = (home.path().join("store"), home.path().join("store/journal"));
        std::fs::write(&in_the_way, "").unwrap();
        let late = Late::new(directory.clone());
        assert_eq!(late.list().unwrap(), []);
        assert!(late.create(Slot(0), 4096).is_err());
        std::fs::remove_file(in_the_way).unwrap();
        late.create(Slot(0), 4096).unwrap();
        assert_eq!(late.list().unwrap(), [(Slot(0), 4096)]);
        let second = Late::new(directory);
        assert_eq!(second.create(Slot(1), 4096).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(late);
        assert!(second.create(Slot(1), 4096).is_err(), "segments of another are not written over");
    }
}
