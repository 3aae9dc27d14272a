//! Slowing publishers down for subscribers that read, but more slowly than is published (ADR 0018).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::Timestamp;

/// The progress of a subscriber that is behind, readable by publishers that wait for it.
#[derive(Debug, Default)]
pub struct Progress {
    taken: AtomicU64,
    read: AtomicU64,
    read_at: AtomicU64,
    far: AtomicBool,
}

impl Progress {
    /// Of a subscriber that has taken nothing yet and is given time from now on.
    #[must_use]
    pub const fn new(now: Timestamp) -> Self {
        let read_at = AtomicU64::new(now.as_millis());
        Self { taken: AtomicU64::new(0), read: AtomicU64::new(0), read_at, far: AtomicBool::new(false) }
    }

    /// Notes that the subscriber took so much more of its queue.
    pub fn took(&self, bytes: usize, now: Timestamp) {
        // One owner writes, under the lock of its slot.
        self.taken.store(self.taken.load(Relaxed).wrapping_add(bytes as u64), Relaxed);
        self.read(bytes, now);
    }

    /// Notes that it read so much of what it has taken: a large message takes time.
    pub fn read(&self, bytes: usize, now: Timestamp) {
        self.read.store(self.read.load(Relaxed).wrapping_add(bytes as u64), Relaxed);
        self.read_at.store(now.as_millis(), Relaxed);
    }

    /// All that the subscriber took of its queue.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// When it last took or read something.
    #[must_use]
    pub fn read_at(&self) -> Timestamp {
        Timestamp::from_millis(self.read_at.load(Relaxed))
    }

    /// Says whether publishers should wait for the subscriber.
    pub fn set_far(&self, far: bool) {
        self.far.store(far, Relaxed);
    }

    /// Whether publishers should wait for it.
    #[must_use]
    pub fn is_far(&self) -> bool {
        self.far.load(Relaxed)
    }
}

/// The progress of a subscriber that a publisher waits for.
#[derive(Clone, Debug)]
pub struct Until {
    /// The subscriber's progress.
    pub progress: Arc<Progress>,
    /// The publisher goes on when the subscriber has taken so much.
    pub taken: u64,
    /// How much that was more than it had taken when it asked; 0 if it waits for time to pass.
    pub excess: usize,
    /// How much it has to take or read within `patience`.
    pub fair: u64,
    /// The longest time in which it takes and reads nothing.
    pub patience: Duration,
}

impl Until {
    /// Whether the subscriber still has to catch up, and has not been idle for too long. Idleness counts from `since`
    /// on.
    #[must_use]
    pub fn is_waiting(&self, now: Timestamp, since: Timestamp) -> bool {
        let progress = &self.progress;
        let is_idle = now.since(progress.read_at().max(since)) >= self.patience;
        progress.is_far() && progress.taken() < self.taken && !is_idle
    }

    /// Whether the subscriber has read a fair amount since it had read so much.
    #[must_use]
    pub fn is_fair(&self, before: u64) -> bool {
        self.all_read().wrapping_sub(before) >= self.fair
    }

    /// All that the subscriber took and read; only differences mean something.
    #[must_use]
    pub fn all_read(&self) -> u64 {
        self.progress.read.load(Relaxed)
    }
}

/// The pause that subscribers ask of the publisher of a batch.
#[derive(Clone, Debug, Default)]
pub struct SlowDown {
    /// The time that the subscriber needs for the batch; zero if that is not known.
    pub paced: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// One of the subscribers is far behind and hardly reads.
    pub unfair: bool,
    /// The subscriber that the publisher waits for. It may go on earlier when that has caught up.
    pub until: Option<Until>,
}

impl SlowDown {
    /// The longer of two pauses, and of two subscribers the one that is further behind.
    pub fn merge(into: &mut Option<Self>, other: Self) {
        let Some(first) = into else {
            *into = Some(other);
            return;
        };
        first.paced = first.paced.max(other.paced);
        first.unfair |= other.unfair;
        if let Some(until) = other.until {
            let is_further = match &first.until {
                None => true,
                Some(before) => (until.excess, other.longest) > (before.excess, first.longest),
            };
            if is_further {
                first.until = Some(until);
            }
        }
        first.longest = first.longest.max(other.longest);
    }
}
