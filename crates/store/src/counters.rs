//! Counters and state of the store, for metrics.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use fogmux_journal::{CommitTimes, Figures, Recovery};

/// Changes of the state are logged no more often.
const QUIET: Duration = Duration::from_secs(60);

/// The state of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It reads and writes.
    #[default]
    Writable,
    /// The disk is full: what is to be kept is refused, as long as there is no space.
    Full,
    /// The disk takes nothing: it failed, and is tried again with each write, or it was read-only at the start.
    ReadOnly,
    /// It could not be read, and takes no writes.
    Failed,
}

impl State {
    /// All states, for metrics.
    pub const ALL: [Self; 4] = [Self::Writable, Self::Full, Self::ReadOnly, Self::Failed];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Writable => "writable",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
            Self::Failed => "failed",
        }
    }
}

/// Counts of one store, kept by all its threads.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) records: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) beyond_share: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Changes that were acknowledged and then not kept.
    pub(crate) lost: AtomicU64,
    pub(crate) damaged_records: AtomicU64,
    pub(crate) damaged_blocks: AtomicU64,
    pub(crate) damaged_files: AtomicU64,
    pub(crate) lost_commits: AtomicU64,
    health: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    /// The state and the reason, unless it is writable.
    trouble: Option<(State, String)>,
    /// Changes that were refused since the store is not writable.
    told: u64,
    logged: Option<Instant>,
    tried: Option<Instant>,
    /// When it was last said that a commit could not be taken back, and how often it was not said since.
    not_revoked: Option<Instant>,
    unsaid: u64,
}

/// A reading of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Commits since the start.
    pub commits: u64,
    /// Changes of messages and records in them, after coalescing.
    pub records: u64,
    /// Bytes written for them, whole blocks.
    pub bytes: u64,
    /// Writes refused because too much was waiting for the disk, or because the disk takes nothing.
    pub refused: u64,
    /// Those among them that were refused because the rest of the queue is reserved for other principals.
    pub beyond_share: u64,
    /// Changes that were taken, and that the disk then failed to take.
    pub failed: u64,
    /// Records that could not be read, at the start or since.
    pub damaged_records: u64,
    /// Blocks that the disk could not read at the start.
    pub damaged_blocks: u64,
    /// Files that were cut short, longer than they were, or gone at the start.
    pub damaged_files: u64,
    /// Frames that were missing at the start.
    pub lost_commits: u64,
    /// Bytes of the files.
    pub disk_bytes: u64,
    /// Bytes of what is kept in them.
    pub live_bytes: u64,
    /// How long commits have taken.
    pub times: CommitTimes,
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
    /// Changes that were refused because the store could not be written.
    pub refused: u64,
}

impl Snapshot {
    /// Whether stored data was missing at the start, or could not be read since.
    #[must_use]
    pub const fn has_lost(&self) -> bool {
        self.damaged_records + self.damaged_blocks + self.damaged_files + self.lost_commits > 0
    }
}

impl Counters {
    /// Takes over what a start has found.
    pub(crate) fn found(&self, recovery: &Recovery) {
        let missing: u64 = recovery.missing.iter().map(|missing| missing.last - missing.first + 1).sum();
        self.lost_commits.store(missing, Relaxed);
        self.damaged_records.store(recovery.incomplete, Relaxed);
        self.damaged_blocks.store(recovery.unreadable_blocks, Relaxed);
        self.damaged_files.store(recovery.short_files + recovery.long_files + u64::from(recovery.lost_end), Relaxed);
    }

    fn health(&self) -> std::sync::MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the disk takes nothing.
    pub(crate) fn stop(&self, state: State, reason: String) {
        let mut health = self.health();
        let is_new = health.trouble.as_ref().is_none_or(|(before, _)| *before != state);
        if is_new && health.logged.is_none_or(|logged| logged.elapsed() > QUIET) {
            health.logged = Some(Instant::now());
            tracing::error!(
                reason,
                state = state.name(),
                "the store cannot be written: nothing that is to be kept is taken; make room or see to the disk"
            );
        }
        health.trouble = Some((state, reason));
    }

    /// Says, now and then, that a failed commit could not be taken back.
    pub(crate) fn not_revoked(&self, error: &str) {
        let mut health = self.health();
        if health.not_revoked.is_some_and(|said| said.elapsed() <= QUIET) {
            health.unsaid += 1;
            return;
        }
        health.not_revoked = Some(Instant::now());
        let others = std::mem::take(&mut health.unsaid);
        tracing::error!(
            error,
            others,
            "a failed commit could not be taken back: its values may be there after a restart"
        );
    }

    /// Notes that the disk has taken something.
    pub(crate) fn recover(&self) {
        let mut health = self.health();
        if health.trouble.take().is_some() {
            health.told = 0;
            tracing::info!("the store can be written again");
        }
    }

    /// The reason why nothing is taken, if so.
    pub(crate) fn why_stopped(&self) -> Option<String> {
        self.health().trouble.as_ref().map(|(_, reason)| reason.clone())
    }

    /// Whether it is time to try again whether the disk takes something.
    pub(crate) fn is_trial_due(&self, after: Duration) -> bool {
        let mut health = self.health();
        let due = health.trouble.is_some() && health.tried.is_none_or(|tried| tried.elapsed() >= after);
        if due {
            health.tried = Some(Instant::now());
        }
        due
    }

    /// Counts writes that were refused.
    pub(crate) fn refuse(&self, count: u64) {
        self.refused.fetch_add(count, Relaxed);
        self.tell(count);
    }

    /// Counts changes whose failure is told, as long as the store cannot be written.
    pub(crate) fn tell(&self, count: u64) {
        let mut health = self.health();
        if health.trouble.is_some() {
            health.told += count;
        }
    }

    /// The end: an error if something was not kept. `unsettled` are changes of which nobody knows.
    pub(crate) fn end(&self, unsettled: Option<u64>) -> Result<(), NotKept> {
        let (lost, health) = (self.lost.load(Relaxed), self.health());
        let reason = match (&unsettled, &health.trouble) {
            (Some(_), _) => "the disk does not answer".to_owned(),
            (None, Some((_, reason))) if lost + health.told > 0 => reason.clone(),
            (None, None) if lost > 0 => "the disk was full or failed for a while".to_owned(),
            // A store that could not be written and that nobody wrote to has kept everything.
            (None, _) => return Ok(()),
        };
        Err(NotKept { reason, failed: lost + unsettled.unwrap_or_default(), refused: health.told })
    }

    /// Reads all counters.
    pub(crate) fn snapshot(&self, figures: &Figures, times: CommitTimes) -> Snapshot {
        Snapshot {
            commits: figures.commits,
            records: self.records.load(Relaxed),
            bytes: figures.written_bytes,
            refused: self.refused.load(Relaxed),
            beyond_share: self.beyond_share.load(Relaxed),
            failed: self.failed.load(Relaxed),
            damaged_records: self.damaged_records.load(Relaxed) + figures.lost_parts,
            damaged_blocks: self.damaged_blocks.load(Relaxed),
            damaged_files: self.damaged_files.load(Relaxed),
            lost_commits: self.lost_commits.load(Relaxed),
            disk_bytes: figures.disk_bytes,
            live_bytes: figures.live_bytes,
            times,
            state: self.health().trouble.as_ref().map_or(State::Writable, |(state, _)| *state),
        }
    }
}
