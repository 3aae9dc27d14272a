//! What the store counts; the gateway shows it as metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Counts of one store, kept by all its threads.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) damaged_records: AtomicU64,
    pub(crate) damaged_blocks: AtomicU64,
    pub(crate) cut_bytes: AtomicU64,
    pub(crate) moved_aside: AtomicU64,
    pub(crate) read_only: AtomicBool,
}

/// A reading of [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Commits since the start.
    pub commits: u64,
    /// Records they wrote, removals included, after coalescing.
    pub records: u64,
    /// Bytes of those records.
    pub bytes: u64,
    /// Writes refused because too much was waiting for the disk, or because the store is read-only.
    pub refused: u64,
    /// Records that could not be read at the start.
    pub damaged_records: u64,
    /// Times that reading at the start met a damaged block of the tree; each may have held many records.
    pub damaged_blocks: u64,
    /// Bytes cut from the end of the journal at the start, because their write was torn.
    pub cut_bytes: u64,
    /// Whether the tree could not be opened and was moved aside at the start.
    pub moved_aside: u64,
    /// Whether a write failed: nothing is kept any more.
    pub read_only: bool,
}

impl Counters {
    /// All at once.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            commits: self.commits.load(Relaxed),
            records: self.records.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            refused: self.refused.load(Relaxed),
            damaged_records: self.damaged_records.load(Relaxed),
            damaged_blocks: self.damaged_blocks.load(Relaxed),
            cut_bytes: self.cut_bytes.load(Relaxed),
            moved_aside: self.moved_aside.load(Relaxed),
            read_only: self.read_only.load(Relaxed),
        }
    }
}
