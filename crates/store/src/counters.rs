//! Counters and state of the store, for metrics.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The state of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It reads and writes.
    #[default]
    Writable,
    /// It was read, but takes no more writes.
    ReadOnly,
    /// It could not be read, and takes no writes.
    Failed,
}

impl State {
    /// All states, for metrics.
    pub const ALL: [Self; 3] = [Self::Writable, Self::ReadOnly, Self::Failed];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Writable => "writable",
            Self::ReadOnly => "read-only",
            Self::Failed => "failed",
        }
    }
}

/// Counts of one store, kept by all its threads.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) shut_out: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) damaged_records: AtomicU64,
    pub(crate) damaged_blocks: AtomicU64,
    pub(crate) cut_bytes: AtomicU64,
    pub(crate) moved_aside: AtomicU64,
    pub(crate) lost_commits: AtomicU64,
    /// Set once: a store that has stopped writing does not start again.
    stopped: OnceLock<(State, String)>,
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
    /// Changes that were taken, and that the disk then failed to take.
    pub failed: u64,
    /// Records that could not be read at the start.
    pub damaged_records: u64,
    /// Damaged blocks of the tree met at the start; each may have held many records.
    pub damaged_blocks: u64,
    /// Bytes cut from the end of the journal at the start, because their write was torn.
    pub cut_bytes: u64,
    /// Trees that could not be opened and were moved aside at the start.
    pub moved_aside: u64,
    /// Commits that were missing at the start.
    pub lost_commits: u64,
    /// Bytes in memory that are in the journal and in no table yet.
    pub unflushed_bytes: u64,
    /// The state.
    pub state: State,
}

/// The end of a store that has not kept everything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NotKept {
    /// The reason.
    pub reason: String,
    /// Changes of retained messages and records that were taken and are not, or not surely, on the disk.
    pub failed: u64,
    /// Changes that were refused because the store had stopped writing.
    pub refused: u64,
}

impl Snapshot {
    /// Whether stored data was missing at the start.
    #[must_use]
    pub const fn has_lost(&self) -> bool {
        self.damaged_records + self.damaged_blocks + self.moved_aside + self.lost_commits > 0
    }
}

impl Counters {
    /// Notes that nothing is written from now on.
    pub(crate) fn stop(&self, state: State, reason: String) {
        // The first reason is the cause of all later ones.
        let _ = self.stopped.set((state, reason));
    }

    pub(crate) fn state(&self) -> State {
        self.stopped.get().map_or(State::Writable, |(state, _)| *state)
    }

    /// The reason why nothing is written any more, if so.
    pub(crate) fn why_stopped(&self) -> Option<&str> {
        self.stopped.get().map(|(_, reason)| reason.as_str())
    }

    /// Counts a write that was refused.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
        if self.stopped.get().is_some() {
            self.shut_out.fetch_add(1, Relaxed);
        }
    }

    /// Reads all counters.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            commits: self.commits.load(Relaxed),
            records: self.records.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            refused: self.refused.load(Relaxed),
            failed: self.failed.load(Relaxed),
            damaged_records: self.damaged_records.load(Relaxed),
            damaged_blocks: self.damaged_blocks.load(Relaxed),
            cut_bytes: self.cut_bytes.load(Relaxed),
            moved_aside: self.moved_aside.load(Relaxed),
            lost_commits: self.lost_commits.load(Relaxed),
            unflushed_bytes: 0,
            state: self.state(),
        }
    }
}
