//! Pauses of publishers whose QoS 1 and 2 messages a subscriber reads more slowly than they are published.
//!
//! A subscriber that keeps reading must not be disconnected because publishers are faster; one that hardly reads must
//! not slow them. So a publisher pauses after a turn only for subscribers that take a fair share of their queue. The
//! pause is the time that the subscriber needs for what is too much in its queue, at the pace at which it has read: the
//! publisher goes on at the pace of its slowest reader instead of stopping and starting.

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
/// The pause for subscribers that are far behind and whose pace is not known or not fair; and the part of a longer pause
/// after which the publisher looks again.
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause after one turn.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A pace that was measured for less time says nothing: the socket's buffer takes the first bytes at once.
const MEASURED_MIN: Duration = Duration::from_millis(10);

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
    left: Duration,
    /// Set while the subscriber is far behind.
    far: Option<Arc<AtomicBool>>,
}

impl Pause {
    /// The time until the publisher looks again.
    pub(super) fn duration(&self) -> Duration {
        self.left.min(LONG_PAUSE)
    }

    /// Makes this the last pause.
    pub(super) fn wait_no_longer(&mut self) {
        self.far = None;
    }

    /// Whether to pause again.
    pub(super) fn goes_on(&mut self) -> bool {
        self.left = self.left.saturating_sub(self.duration());
        !self.left.is_zero() && self.far.as_ref().is_some_and(|far| far.load(Relaxed))
    }
}

/// How far a subscriber is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    /// Behind: publishers slow down.
    Behind,
    /// So far that its queue, or the memory of all, will soon be full.
    Far {
        /// Bytes that it has to take before the publisher goes on.
        excess: usize,
    },
}

/// The pace at which a client takes its queue; exists while the queue is not empty.
#[derive(Debug)]
pub(super) struct Pace {
    far: Arc<AtomicBool>,
    window_began: Timestamp,
    window_bytes: usize,
    /// Length and bytes of the window before.
    earlier: (Duration, usize),
    is_fair: bool,
    taken_at: Timestamp,
}

impl Pace {
    /// Assumes a fair pace at first.
    pub(super) fn new(now: Timestamp) -> Self {
        let far = Arc::new(AtomicBool::new(false));
        Self { far, window_began: now, window_bytes: 0, earlier: (Duration::ZERO, 0), is_fair: true, taken_at: now }
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
        let elapsed = now.since(self.window_began);
        if elapsed >= READS {
            self.is_fair = self.window_bytes >= queue_bytes_max / FAIR;
            self.earlier = (elapsed, self.window_bytes);
            (self.window_began, self.window_bytes) = (now, 0);
        }
        if !self.reads(now) {
            return;
        }
        let left = match distance {
            Distance::Behind => PAUSE,
            Distance::Far { excess } if self.is_fair => self.time_for(excess, now),
            Distance::Far { .. } => LONG_PAUSE,
        };
        let far = matches!(distance, Distance::Far { .. }) && self.is_fair;
        FALLING_BEHIND.with_borrow_mut(|pause| {
            if pause.as_ref().is_none_or(|pause| pause.left < left) {
                let far = far.then(|| {
                    self.far.store(true, Relaxed);
                    Arc::clone(&self.far)
                });
                *pause = Some(Pause { left, far });
            }
        });
    }

    /// The time in which the client takes this many bytes, at the pace of this window and the one before.
    fn time_for(&self, bytes: usize, now: Timestamp) -> Duration {
        let (earlier, earlier_bytes) = self.earlier;
        let elapsed = earlier + now.since(self.window_began);
        let taken = earlier_bytes.saturating_add(self.window_bytes);
        if elapsed < MEASURED_MIN || taken == 0 {
            return LONG_PAUSE;
        }
        let nanos = elapsed.as_nanos().saturating_mul(bytes as u128) / taken as u128;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).clamp(PAUSE, PAUSE_MAX)
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.far.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: usize = 16 << 20;
    /// The bytes of a publisher's turn.
    const TURN: usize = 32 << 10;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1000 + ms)
    }

    /// The pause of a publisher for a reader that takes so many bytes every 10 ms, and the excess at the end, after
    /// twenty seconds in which the publisher sends a turn after each pause.
    fn longest_pause(per_tick: usize, publishers: usize) -> (Duration, usize) {
        let mut pace = Pace::new(at(0));
        let (mut excess, mut longest) = (0_usize, Duration::ZERO);
        let mut resumes = vec![0_u64; publishers];
        for ms in 0..20_000 {
            if ms % 10 == 0 {
                let taken = per_tick.min(excess + QUEUE / 2);
                excess = excess.saturating_sub(taken);
                pace.took(taken, true, at(ms));
            }
            for resume in resumes.iter_mut().filter(|resume| **resume <= ms) {
                excess += TURN;
                pace.slow_down(Distance::Far { excess }, QUEUE, at(ms));
                let pause = take_falling_behind().expect("a pause").left;
                *resume = ms + u64::try_from(pause.as_millis()).expect("short");
                if ms > 100 {
                    longest = longest.max(pause);
                }
            }
        }
        (longest, excess)
    }

    #[test]
    fn a_publisher_is_slowed_to_the_pace_of_its_reader_and_not_stopped() {
        // From a 64th of the queue a second, which is fair, to a hundred megabytes.
        for per_second in [QUEUE / 64 * 2, 400_000, 1 << 20, 10 << 20, 100 << 20] {
            let (longest, excess) = longest_pause(per_second / 100, 1);
            let turn = Duration::from_secs_f64(TURN as f64 / per_second as f64);
            assert!(longest <= turn * 2 + LONG_PAUSE, "{per_second} bytes a second: {longest:?}");
            assert!(excess <= QUEUE / 16, "{per_second} bytes a second: {excess}");
        }
    }

    #[test]
    fn ten_publishers_together_do_not_overrun_a_reader() {
        for per_second in [400_000, 1 << 20, 10 << 20] {
            let (longest, excess) = longest_pause(per_second / 100, 10);
            assert!(longest <= PAUSE_MAX && excess <= QUEUE / 4, "{per_second}: {longest:?}, {excess}");
        }
    }

    #[test]
    fn a_reader_that_takes_nothing_stops_nobody() {
        let mut pace = Pace::new(at(0));
        pace.slow_down(Distance::Far { excess: TURN }, QUEUE, at(1999));
        assert!(take_falling_behind().is_some_and(|pause| pause.left <= LONG_PAUSE));
        pace.slow_down(Distance::Far { excess: TURN }, QUEUE, at(2000));
        assert!(take_falling_behind().is_none());
    }
}
