//! When operations are due that come at a rate: at fixed times from the first, whatever became of those before.

use std::task::{Context, Poll};
use std::time::Duration;

use super::alarm::Alarm;
use super::schedule::{Draw, Schedule};
use crate::experiment::Experiment;

/// Wakes one publisher when its next operation is due.
pub(crate) struct Pacer {
    alarm: Alarm,
    schedule: Schedule,
    done: u64,
}

impl Pacer {
    /// Publisher `number` of an experiment; nothing if it has no rate.
    ///
    /// # Errors
    /// There is no timer.
    pub(crate) fn of(experiment: &Experiment, draw: Draw, number: u32) -> std::io::Result<Option<Self>> {
        let Some(rate) = experiment.rate else { return Ok(None) };
        Ok(Some(Self { alarm: Alarm::new()?, schedule: Schedule::new(experiment, draw, rate, number), done: 0 }))
    }

    /// When the next operation is due, in nanoseconds since the first of all.
    pub(crate) fn next_ns(&self) -> u64 {
        self.schedule.at(self.done)
    }

    /// How many are due before that time, that have not begun.
    pub(crate) fn due_before(&self, elapsed_ns: u64) -> u64 {
        if self.next_ns() >= elapsed_ns {
            return 0;
        }
        self.schedule.due_before(elapsed_ns).saturating_sub(self.done)
    }

    /// That one has begun.
    pub(crate) fn advance(&mut self) {
        self.done += 1;
    }

    /// Pending until so much time has passed, and the task is woken then.
    pub(crate) fn poll_in(&mut self, wait: Duration, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll_in(wait, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn publishers_take_turns() {
        let experiment = Experiment { rate: Some(1_000.0), publishers: 4, ..Experiment::default() };
        let mut second = Pacer::of(&experiment, Draw::default(), 1).unwrap().unwrap();
        assert_eq!(second.next_ns(), 1_000_000);
        second.advance();
        assert_eq!(second.next_ns(), 5_000_000);
        assert_eq!([5_000_000, 5_000_001, 13_000_001].map(|time| second.due_before(time)), [0, 1, 3]);
    }
}
