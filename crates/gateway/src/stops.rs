//! Times in which the gateway did not run: it was stopped by a signal, frozen with its container, or had no processor.
//!
//! Deadlines that count the idleness of a client begin again after such a time, for nobody took what the client sent
//! nor sent it anything. Messages expire and sessions end as if it had run.
//!
//! Each worker looks at the clock at least every [`TICK`], so a longer time between two looks was such a time. The look
//! that notices it comes before every judgement by that worker.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use fogmux_bus::Timestamp;

/// The longest time after which a worker that has nothing to do looks at the clock.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// A time between two looks from which on the worker did not run for a part of it: a tick that is late by half.
const STOPPED: Duration = Duration::from_millis(1500);
/// The least time between two lines of the log about it.
const TOLD: Duration = Duration::from_secs(60);

/// The last of these times, of any worker.
#[derive(Debug, Default)]
pub(crate) struct Stops(AtomicU64);

impl Stops {
    /// When a worker last went on; the origin if all have always run.
    pub(crate) fn last(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Relaxed))
    }

    /// A worker goes on. Returns whether that is news: not when another worker said so, nor on a machine on which it
    /// happens all the time.
    pub(crate) fn ended(&self, at: Timestamp) -> bool {
        let before = Timestamp::from_millis(self.0.fetch_max(at.as_millis(), Relaxed));
        before == Timestamp::ZERO || at.since(before) >= TOLD
    }
}

/// The last look of one worker at the clock.
#[derive(Debug)]
pub(crate) struct Look(Cell<Timestamp>);

impl Look {
    pub(crate) const fn new(now: Timestamp) -> Self {
        Self(Cell::new(now))
    }

    /// Notes a look. Returns the time since the one before, if the worker did not run for a part of it.
    pub(crate) fn again(&self, now: Timestamp) -> Option<Duration> {
        let between = now.since(self.0.replace(now));
        (between >= STOPPED).then_some(between)
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
        assert_eq!(looks[0].again(at(6499)), Some(Duration::from_secs(3)));
        assert!(stops.ended(at(6499)));
        assert_eq!(looks[1].again(at(6500)), Some(Duration::from_millis(3001)));
        assert!(!stops.ended(at(6500)));
        assert_eq!(stops.last(), at(6500));
        assert!(looks[0].again(at(6501)).is_none());
        assert!(!stops.ended(at(9000)) && stops.ended(at(69_000)));
        assert_eq!(stops.last(), at(69_000));
    }
}
