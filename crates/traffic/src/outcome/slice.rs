//! A part of a measurement whose rate changes, with figures of its own.

use serde::{Deserialize, Serialize};

use super::{Outcome, is_more};
use crate::measure::latency::Latency;

/// A slice of the measured time. Operations and what came of them belong to the slice in which they were due; those
/// that were due before the first belong to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slice {
    /// When it begins, in seconds since the measurement began.
    pub from_s: f64,
    /// When it ends.
    pub to_s: f64,
    /// Operations that were due in it: `sent` and `unsent` together.
    pub offered: u64,
    /// Operations that began in it, whenever they were due.
    pub begun: u64,
    /// Of those that were due in it, operations that began, then or later.
    pub sent: u64,
    /// Of those that were due in it, operations that never began.
    pub unsent: u64,
    /// Operations of it that were answered with success.
    pub acknowledged: u64,
    /// Refusals and failures.
    pub errors: u64,
    /// Messages of it that should have reached subscribers.
    pub expected: u64,
    /// Different messages of it that did.
    pub delivered: u64,
    /// From when an operation was due to its delivery, else its answer; those that never began as they were at the end.
    pub latency: Latency,
}

impl Slice {
    /// Operations a second that were due in it.
    #[must_use]
    pub fn offered_per_s(&self) -> Option<f64> {
        per(self.offered, self.to_s - self.from_s)
    }

    /// Operations a second that began in it.
    #[must_use]
    pub fn achieved_per_s(&self) -> Option<f64> {
        per(self.begun, self.to_s - self.from_s)
    }

    /// Messages, else operations, that came to nothing: of those that began.
    #[must_use]
    pub fn lost(&self) -> u64 {
        match self.expected {
            0 => self.sent.saturating_sub(self.acknowledged).saturating_sub(self.errors),
            expected => expected.saturating_sub(self.delivered),
        }
    }

    /// Whether its operations began as fast as they were due.
    #[must_use]
    pub fn kept_up(&self) -> bool {
        self.unsent == 0 && !is_more(self.offered.saturating_sub(self.begun), self.offered)
    }
}

impl Outcome {
    /// The slice up to whose end operations began as fast as they were due, from the first slice on; its end rate is
    /// the highest that was kept.
    #[must_use]
    pub fn last_kept(&self) -> Option<&Slice> {
        self.slices.iter().take_while(|slice| slice.kept_up()).last()
    }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn per(count: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| count as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_kept_if_as_many_began_as_were_due() {
        let slice = |offered, begun, unsent| Slice { offered, begun, unsent, to_s: 0.5, ..Slice::default() };
        assert!(slice(1_000, 990, 0).kept_up() && slice(1_000, 1_100, 0).kept_up());
        assert!(!slice(1_000, 980, 0).kept_up() && !slice(1_000, 1_000, 1).kept_up());
        assert_eq!(slice(1_000, 980, 0).achieved_per_s(), Some(1_960.0));
        let slices = vec![slice(10, 10, 0), slice(20, 20, 0), slice(30, 20, 0), slice(40, 40, 0)];
        let outcome = Outcome { slices, ..Outcome::default() };
        assert_eq!(outcome.last_kept().map(|slice| slice.offered), Some(20));
    }
}
