//! Times in which the gateway did not run: it was stopped by a signal, frozen with its container, or had no processor.
//!
//! Deadlines of clients are in [running time](Running): for nobody took what a client sent while its worker did not
//! run, nor sent it anything. Messages expire and sessions end as if the gateway had run.
//!
//! Each worker looks at the clock at least every [`TICK`], so a longer time between two looks was such a time. The look
//! that notices it comes before every judgement by that worker.

use std::{
    cell::Cell,
    ops::Add,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use fogmux_bus::Timestamp;

/// The longest time after which a worker that has nothing to do looks at the clock.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// A time between two looks from which on the worker did not run for a part of it: a tick that is late by half.
const STOPPED: Duration = Duration::from_millis(1500);
/// The part of such a time in which the worker is taken to have run: half a tick, on average. It is never nothing, so
/// running time passes, and silent clients are found, even on a machine on which each look is late.
const RAN: Duration = Duration::from_millis(500);
/// The time after a stop in which a worker passes no judgement, but reads what has come meanwhile: the first timers
/// may ring before the sockets are looked at, because a stop interrupts the wait for those.
const READS_FIRST: Duration = Duration::from_millis(100);
/// The least time between two lines of the log about it.
const TOLD: Duration = Duration::from_secs(60);

/// A moment in running time: the time of the clock less the time in which a worker did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Running(Timestamp);

impl Running {
    /// Later than any other.
    pub(crate) const NEVER: Self = Self(Timestamp::NEVER);

    pub(crate) const fn from_millis(millis: u64) -> Self {
        Self(Timestamp::from_millis(millis))
    }

    pub(crate) const fn as_millis(self) -> u64 {
        self.0.as_millis()
    }

    /// The running time since `earlier`; zero when it has not come yet.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        self.0.since(earlier.0)
    }
}

impl Add<Duration> for Running {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0 + rhs)
    }
}

/// The stops of all workers together, for judgements that one worker passes on the clients of all.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    /// When a worker last went on, in milliseconds.
    last: AtomicU64,
    /// The time in which any of them did not run, in milliseconds.
    all: AtomicU64,
}

impl Stops {
    /// When a worker last went on; the origin if all have always run.
    pub(crate) fn last(&self) -> Timestamp {
        Timestamp::from_millis(self.last.load(Relaxed))
    }

    /// The time in which all workers ran.
    pub(crate) fn running(&self, now: Timestamp) -> Running {
        Running::from_millis(now.as_millis().saturating_sub(self.all.load(Relaxed)))
    }

    /// A worker goes on after so long. Returns whether that is news: not when another worker said so, nor on a machine
    /// on which it happens all the time.
    pub(crate) fn ended(&self, at: Timestamp, stopped: Duration) -> bool {
        let before = Timestamp::from_millis(self.last.fetch_max(at.as_millis(), Relaxed));
        // Another worker has told of the time before that.
        let more = stopped.min(at.since(before)).as_millis();
        self.all.fetch_add(u64::try_from(more).unwrap_or_default(), Relaxed);
        before == Timestamp::ZERO || at.since(before) >= TOLD
    }
}

/// The looks of one worker at the clock.
#[derive(Debug)]
pub(crate) struct Look {
    last: Cell<Timestamp>,
    /// The time in which the worker did not run, ever.
    stopped: Cell<Duration>,
    /// When it last went on.
    went_on: Cell<Timestamp>,
}

impl Look {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { last: Cell::new(now), stopped: Cell::default(), went_on: Cell::default() }
    }

    /// Notes a look. Returns for how long the worker did not run since the one before, if it did not.
    pub(crate) fn again(&self, now: Timestamp) -> Option<Duration> {
        let between = now.since(self.last.replace(now));
        if between < STOPPED {
            return None;
        }
        let stopped = between - RAN;
        self.stopped.set(self.stopped.get() + stopped);
        self.went_on.set(now);
        Some(stopped)
    }

    /// The running time at the time of a look.
    pub(crate) fn running(&self, now: Timestamp) -> Running {
        let origin = Timestamp::ZERO + self.stopped.get();
        Running(Timestamp::ZERO + now.since(origin))
    }

    /// When a deadline passes if the worker runs until then; not before it has read after a stop.
    pub(crate) fn passes(&self, deadline: Running) -> Timestamp {
        (deadline.0 + self.stopped.get()).max(self.went_on.get() + READS_FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_look_that_is_late_ends_a_stop_and_is_told_once_for_all_workers() {
        let (stops, looks) = (Stops::default(), [Look::new(at(0)), Look::new(at(0))]);
        for ms in [0, 1000, 2000, 3499] {
            assert!(looks.iter().all(|look| look.again(at(ms)).is_none()), "{ms}");
        }
        assert_eq!(stops.last(), Timestamp::ZERO);
        let (first, second) = (Duration::from_millis(2500), Duration::from_millis(2501));
        assert_eq!(looks[0].again(at(6499)), Some(first));
        assert!(stops.ended(at(6499), first));
        assert_eq!(looks[1].again(at(6500)), Some(second));
        assert!(!stops.ended(at(6500), second));
        assert_eq!(stops.last(), at(6500));
        // One stop for both.
        assert_eq!(stops.running(at(6500)), Running::from_millis(6500 - 2501));
        assert!(looks[0].again(at(6501)).is_none());
        assert!(!stops.ended(at(9000), second) && stops.ended(at(69_000), second));
        assert_eq!(stops.last(), at(69_000));
    }

    #[test]
    fn a_stop_is_added_to_a_deadline_and_does_not_begin_it_anew() {
        let look = Look::new(at(0));
        let deadline = look.running(at(0)) + Duration::from_secs(6);
        assert_eq!(look.passes(deadline), at(6000));
        look.again(at(1000));
        look.again(at(71_000));
        assert_eq!(look.running(at(71_000)), Running::from_millis(1500));
        assert_eq!(look.passes(deadline), at(75_500));
        // It may have answered just before the deadline, and is read first.
        for soon in [1400, 1500, 1550] {
            assert_eq!(look.passes(Running::from_millis(soon)), at(71_100), "{soon}");
        }
        assert_eq!(look.passes(Running::from_millis(1601)), at(71_101));
        assert_eq!(look.passes(Running::NEVER), Timestamp::NEVER);
    }

    #[test]
    fn running_time_passes_however_often_the_worker_stops() {
        let look = Look::new(at(0));
        let deadline = look.running(at(0)) + Duration::from_secs(6);
        let mut now = at(0);
        while look.passes(deadline) > now {
            now = now + Duration::from_millis(1300);
            look.again(now);
            now = now + Duration::from_millis(1700);
            look.again(now);
            now = now + Duration::from_millis(150);
            look.again(now);
        }
        assert!(now < at(13_000), "{now:?}");
    }
}
