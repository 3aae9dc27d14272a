//! A copy of a journal at work, as it was at one moment: the segments that hold it are lent, and until each was read,
//! it is neither overwritten nor removed. What is committed meanwhile goes into other blocks, so the files grow by no
//! more than they had when the loan began.

use std::{io, sync::Arc};

use crate::{
    committer::Shared,
    disk::{Disk, Slot},
    work,
};

/// A segment as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    pub(crate) slot: Slot,
    /// Bytes of its file.
    pub(crate) bytes: u32,
    /// Bytes that held frames. What follows counted for nothing.
    pub(crate) used: u32,
}

/// A segment of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentCopy {
    /// The number of its file.
    pub slot: Slot,
    /// Bytes of the file.
    pub bytes: u32,
    /// Its beginning; the rest is zeros.
    pub content: Vec<u8>,
    /// Blocks that the medium did not give. There are zeros in their place, which a start from the copy reports.
    pub unreadable_blocks: u64,
}

/// Why a copy ended early.
#[derive(Debug, thiserror::Error)]
pub enum LoanError {
    /// There is another copy under way.
    #[error("another copy is under way")]
    Busy,
    /// The journal needed the segments, because the disk is full.
    #[error("the journal needed its segments: the disk is full")]
    Recalled,
    /// The disk failed, in another way than that the medium does not give blocks.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Segments that are lent. Those that were not read are given back when this is dropped.
#[derive(Debug)]
pub struct Loan<D: Disk + Send + Sync + 'static> {
    shared: Arc<Shared<D>>,
    left: std::vec::IntoIter<Lent>,
}

impl<D: Disk + Send + Sync + 'static> Loan<D> {
    pub(crate) fn new(shared: Arc<Shared<D>>, lent: Vec<Lent>) -> Self {
        Self { shared, left: lent.into_iter() }
    }

    /// Reads the next segment, if one is left.
    ///
    /// # Errors
    /// [`LoanError::Recalled`] or [`LoanError::Io`].
    pub fn next_segment(&mut self) -> Result<Option<SegmentCopy>, LoanError> {
        let Some(Lent { slot, bytes, used }) = self.left.next() else { return Ok(None) };
        if used == 0 {
            return Ok(Some(SegmentCopy { slot, bytes, content: Vec::new(), unreadable_blocks: 0 }));
        }
        let read = work::salvage(&self.shared.disk, slot, 0, used);
        // If it was recalled before this, it may have been overwritten while it was read.
        if !self.shared.lock().journal.give_back(slot) {
            return Err(LoanError::Recalled);
        }
        let (content, unreadable_blocks) = read?;
        Ok(Some(SegmentCopy { slot, bytes, content, unreadable_blocks }))
    }
}

impl<D: Disk + Send + Sync + 'static> Drop for Loan<D> {
    fn drop(&mut self) {
        self.shared.lock().journal.recall();
    }
}

/// Reads a segment of a journal that nobody writes to, whose file has so many bytes.
///
/// # Errors
/// The disk failed, in another way than that the medium does not give blocks.
pub fn segment_at_rest<D: Disk + ?Sized>(disk: &D, slot: Slot, bytes: u64) -> io::Result<SegmentCopy> {
    let bytes = u32::try_from(bytes).map_err(|_| io::Error::other("a segment is too large"))?;
    let (content, unreadable_blocks) = work::salvage(disk, slot, 0, bytes)?;
    Ok(SegmentCopy { slot, bytes, content, unreadable_blocks })
}
