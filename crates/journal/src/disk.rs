//! The storage under a journal, as the few operations that it needs.

mod files;

use std::io;

pub use files::{Files, LOCK, OpenError};
use rustix::io::Errno;

/// The number of a segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// Whether an error says that bytes of a segment are not to be had from the medium: the only errors for which they may
/// be given up. Any other – no permission, no descriptor, no memory – says nothing about the bytes.
#[must_use]
pub fn is_of_medium(error: &io::Error) -> bool {
    // Linux gives these for blocks that fail, and for damage that a file system or a device has noticed.
    const OF_MEDIUM: [Errno; 7] =
        [Errno::IO, Errno::BADMSG, Errno::UCLEAN, Errno::NODATA, Errno::ILSEQ, Errno::REMOTEIO, Errno::TIMEDOUT];
    // The file was cut, or is gone.
    let is_missing = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound);
    is_missing || error.raw_os_error().is_some_and(|raw| OF_MEDIUM.iter().any(|errno| errno.raw_os_error() == raw))
}

/// Files of fixed sizes, one for each segment.
pub trait Disk {
    /// The segments that exist, with their bytes, in any order.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn list(&self) -> io::Result<Vec<(Slot, u64)>>;

    /// Creates a segment full of zeros. It is on the disk, and so is its name, when this returns; if it fails there is
    /// none.
    ///
    /// # Errors
    /// There is no space for it, or the system says so.
    fn create(&self, slot: Slot, bytes: u32) -> io::Result<()>;

    /// Overwrites a part of a segment. It may be on the disk in pieces, or not at all, until [`Disk::sync`] returns.
    ///
    /// # Errors
    /// The system says so. Any part may have been written.
    fn write(&self, slot: Slot, offset: u32, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all that was written to a segment is on the disk.
    ///
    /// # Errors
    /// The system says so. What was written is not trusted then, and the same bytes are never synchronised again.
    fn sync(&self, slot: Slot) -> io::Result<()>;

    /// Fills `bytes` from a segment.
    ///
    /// # Errors
    /// The system says so, or the segment is shorter.
    fn read(&self, slot: Slot, offset: u32, bytes: &mut [u8]) -> io::Result<()>;

    /// Removes a segment.
    ///
    /// # Errors
    /// The system says so.
    fn remove(&self, slot: Slot) -> io::Result<()>;
}

/// Forwards to what it points to.
macro_rules! forward {
    ($pointer:ty) => {
        impl<D: Disk + ?Sized> Disk for $pointer {
            fn list(&self) -> io::Result<Vec<(Slot, u64)>> {
                (**self).list()
            }

            fn create(&self, slot: Slot, bytes: u32) -> io::Result<()> {
                (**self).create(slot, bytes)
            }

            fn write(&self, slot: Slot, offset: u32, bytes: &[u8]) -> io::Result<()> {
                (**self).write(slot, offset, bytes)
            }

            fn sync(&self, slot: Slot) -> io::Result<()> {
                (**self).sync(slot)
            }

            fn read(&self, slot: Slot, offset: u32, bytes: &mut [u8]) -> io::Result<()> {
                (**self).read(slot, offset, bytes)
            }

            fn remove(&self, slot: Slot) -> io::Result<()> {
                (**self).remove(slot)
            }
        }
    };
}

forward!(&D);
forward!(std::sync::Arc<D>);
