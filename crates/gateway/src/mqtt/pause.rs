//! Pauses of publishers whose QoS 1 and 2 messages a subscriber reads more slowly than they are published.
//!
//! A subscriber that keeps reading must not be disconnected because publishers are faster; one that hardly reads must
//! not slow them. So a publisher pauses after a turn only for subscribers that take a fair share of their queue, and
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

/// A client reads if it took something within this time: long enough for one that waits for a busy processor.
const READS: Duration = Duration::from_secs(2);
/// The fraction of its queue that a client must take within [`READS`] for publishers to wait for it.
const FAIR: usize = 32;
/// The pause for subscribers that are behind. A turn is 64 KiB at most, so this still allows some ten megabytes a
/// second.
const PAUSE: Duration = Duration::from_millis(4);
/// The pause for subscribers that are far behind, before the publisher looks again.
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause after one turn.
const PAUSE_MAX: Duration = Duration::from_secs(1);

thread_local! {
    /// The pause asked for by a delivery on this thread, to a client that reads but is behind. Deliveries happen within
    /// the publication that causes them, on its thread.
    static FALLING_BEHIND: RefCell<Option<Pause>> = const { RefCell::new(None) };
}

/// Takes the pause that the publisher on this thread should make for what it published since the last call.
pub(super) fn take_falling_behind() -> Option<Pause> {
    FALLING_BEHIND.take()
}

/// A pause and when it ends.
#[derive(Debug)]
pub(super) struct Pause {
    duration: Duration,
    left: Duration,
    /// Set while the subscriber is far behind.
    far: Option<Arc<AtomicBool>>,
}

impl Pause {
    pub(super) const fn duration(&self) -> Duration {
        self.duration
    }

    /// Makes this the last pause.
    pub(super) fn wait_no_longer(&mut self) {
        self.far = None;
    }

    /// Whether to pause again.
    pub(super) fn goes_on(&mut self) -> bool {
        self.left = self.left.saturating_sub(self.duration);
        !self.left.is_zero() && self.far.as_ref().is_some_and(|far| far.load(Relaxed))
    }
}

/// How far a subscriber is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    /// Behind: publishers slow down.
    Behind,
    /// So far that its queue will soon be full.
    Far,
}

/// The pace at which a client takes its queue; exists while the queue is not empty.
#[derive(Debug)]
pub(super) struct Pace {
    far: Arc<AtomicBool>,
    window_began: Timestamp,
    window_bytes: usize,
    is_fair: bool,
    taken_at: Timestamp,
}

impl Pace {
    /// Assumes a fair pace at first.
    pub(super) fn new(now: Timestamp) -> Self {
        let far = Arc::new(AtomicBool::new(false));
        Self { far, window_began: now, window_bytes: 0, is_fair: true, taken_at: now }
    }

    /// Whether it has taken something recently.
    pub(super) fn reads(&self, now: Timestamp) -> bool {
        now.since(self.taken_at) < READS
    }

    /// Notes that the client took this many bytes, and whether it is still far behind.
    pub(super) fn took(&mut self, bytes: usize, is_far: bool, now: Timestamp) {
        if bytes > 0 {
            self.taken_at = now;
            self.window_bytes = self.window_bytes.saturating_add(bytes);
        }
        if !is_far {
            self.far.store(false, Relaxed);
        }
    }

    /// Asks the publisher on this thread to pause; `queue_bytes_max` is the bound of the queue.
    pub(super) fn slow_down(&mut self, distance: Distance, queue_bytes_max: usize, now: Timestamp) {
        if now.since(self.window_began) >= READS {
            self.is_fair = self.window_bytes >= queue_bytes_max / FAIR;
            (self.window_began, self.window_bytes) = (now, 0);
        }
        if !self.reads(now) {
            return;
        }
        let is_far = distance == Distance::Far;
        FALLING_BEHIND.with_borrow_mut(|pause| match pause {
            Some(Pause { far: Some(_), .. }) => {}
            Some(Pause { duration: LONG_PAUSE, .. }) if !(is_far && self.is_fair) => {}
            pause => {
                let far = (is_far && self.is_fair).then(|| {
                    self.far.store(true, Relaxed);
                    Arc::clone(&self.far)
                });
                let duration = if is_far { LONG_PAUSE } else { PAUSE };
                *pause = Some(Pause { duration, left: PAUSE_MAX, far });
            }
        });
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.far.store(false, Relaxed);
    }
}
