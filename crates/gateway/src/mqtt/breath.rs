//! Pauses of publishers whose QoS 1 and 2 messages a subscriber reads more slowly than they come.
//!
//! A subscriber that keeps reading shall not be disconnected because publishers are faster; one that does not read, or
//! hardly, shall not slow them. So a publisher pauses after each turn only for subscribers that take a fair amount, and
//! never longer than [`PAUSE_MAX`].

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use fogmux_bus::Timestamp;

/// A client that took something so recently reads: long enough for one that waits for its turn on a busy processor.
const READS: Duration = Duration::from_secs(2);
/// The part of its queue that a client takes in [`READS`] at least if publishers are to wait for it.
const FAIR: usize = 32;
/// How long a publisher waits for subscribers that read more slowly than it writes. A turn is 64 KiB at most, so this
/// still leaves it some ten megabytes a second.
const BREATH: Duration = Duration::from_millis(4);
/// How long it waits for those that are far behind, before it looks again.
const DEEP_BREATH: Duration = Duration::from_millis(50);
/// How long it waits in all after one turn.
const PAUSE_MAX: Duration = Duration::from_secs(1);

thread_local! {
    /// A delivery on this thread went to a client that reads, but more slowly than it is written to. Deliveries happen
    /// inside of the publication that causes them, on its thread.
    static FALLING_BEHIND: RefCell<Option<Breath>> = const { RefCell::new(None) };
}

/// The pause that a publisher on this thread should make for what it published since the last call.
pub(super) fn take_falling_behind() -> Option<Breath> {
    FALLING_BEHIND.take()
}

/// How a pause goes on.
#[derive(Debug)]
pub(super) struct Breath {
    duration: Duration,
    left: Duration,
    /// While this is set, the subscriber is far behind.
    far: Option<Arc<AtomicBool>>,
}

impl Breath {
    pub(super) const fn duration(&self) -> Duration {
        self.duration
    }

    /// Pauses once only.
    pub(super) fn wait_no_longer(&mut self) {
        self.far = None;
    }

    /// Whether to pause once more.
    pub(super) fn goes_on(&mut self) -> bool {
        self.left = self.left.saturating_sub(self.duration);
        !self.left.is_zero() && self.far.as_ref().is_some_and(|far| far.load(Relaxed))
    }
}

/// How far a subscriber is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    /// Some way: publishers slow down.
    Behind,
    /// So far that its queue is soon full.
    Far,
}

/// How fast a client takes what is queued for it; there while something is.
#[derive(Debug)]
pub(super) struct Pace {
    far: Arc<AtomicBool>,
    window_began: Timestamp,
    window_bytes: usize,
    is_fair: bool,
    taken_at: Timestamp,
}

impl Pace {
    /// A client that has the benefit of the doubt.
    pub(super) fn new(now: Timestamp) -> Self {
        let far = Arc::new(AtomicBool::new(false));
        Self { far, window_began: now, window_bytes: 0, is_fair: true, taken_at: now }
    }

    /// Whether it has taken something of late.
    pub(super) fn reads(&self, now: Timestamp) -> bool {
        now.since(self.taken_at) < READS
    }

    /// The client took so many bytes and is not far behind any more, or still is.
    pub(super) fn took(&mut self, bytes: usize, is_far: bool, now: Timestamp) {
        if bytes > 0 {
            self.taken_at = now;
            self.window_bytes = self.window_bytes.saturating_add(bytes);
        }
        if !is_far {
            self.far.store(false, Relaxed);
        }
    }

    /// Asks whoever publishes on this thread to pause; `queue_bytes_max` is the bound of the queue.
    pub(super) fn slow_down(&mut self, distance: Distance, queue_bytes_max: usize, now: Timestamp) {
        if now.since(self.window_began) >= READS {
            self.is_fair = self.window_bytes >= queue_bytes_max / FAIR;
            (self.window_began, self.window_bytes) = (now, 0);
        }
        if !self.reads(now) {
            return;
        }
        let is_far = distance == Distance::Far;
        FALLING_BEHIND.with_borrow_mut(|breath| match breath {
            Some(Breath { far: Some(_), .. }) => {}
            Some(Breath { duration: DEEP_BREATH, .. }) if !(is_far && self.is_fair) => {}
            breath => {
                let far = (is_far && self.is_fair).then(|| {
                    self.far.store(true, Relaxed);
                    Arc::clone(&self.far)
                });
                let duration = if is_far { DEEP_BREATH } else { BREATH };
                *breath = Some(Breath { duration, left: PAUSE_MAX, far });
            }
        });
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.far.store(false, Relaxed);
    }
}
