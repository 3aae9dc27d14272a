//! Detection of clock changes: a board without a battery starts in 1970 and gets the time later, and credentials expire
//! by the clock.

use std::time::{Duration, Instant, SystemTime};

/// More than two clocks drift apart between two checks when nobody sets one: NTP slews by 500 ppm.
const DRIFT_MAX: Duration = Duration::from_secs(2);

/// The wall clock and the monotonic clock at the same moment.
pub(super) struct Clock {
    wall: SystemTime,
    steady: Instant,
}

impl Clock {
    /// Starts now.
    pub(super) fn new() -> Self {
        Self { wall: SystemTime::now(), steady: Instant::now() }
    }

    /// Returns whether the clock was set since the last check, or the machine slept.
    pub(super) fn was_set(&mut self) -> bool {
        self.look(Self::new())
    }

    fn look(&mut self, now: Self) -> bool {
        let expected = self.wall + now.steady.saturating_duration_since(self.steady);
        let apart = now.wall.duration_since(expected).unwrap_or_else(|before| before.duration());
        *self = now;
        apart > DRIFT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_is_noticed_once_and_one_that_runs_is_not() {
        let (wall, steady) = (SystemTime::UNIX_EPOCH + Duration::from_secs(600), Instant::now());
        let at = |wall_s: u64, steady_s: u64| Clock {
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(wall_s),
            steady: steady + Duration::from_secs(steady_s),
        };
        let mut clock = Clock { wall, steady };
        assert!(!clock.look(at(3_601, 3_000)), "a second in an hour is slewing");
        assert!(clock.look(at(1_800_000_000, 3_001)), "it heard of today");
        assert!(!clock.look(at(1_800_000_001, 3_002)));
        assert!(clock.look(at(1_799_999_000, 3_003)), "backwards");
        assert!(!clock.look(at(1_799_999_001, 3_004)));
    }
}
