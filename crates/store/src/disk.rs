//! The disk below the journal, and the meaning of its errors.

use std::io;
use std::sync::Arc;

use fogmux_journal::Disk;

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
