//! The pause of a client between two operations: it begins when the one before was answered, so that slow answers make
//! a slow client. This is how most published programs “send at a rate”, and no schedule.

use std::task::{Context, Poll};
use std::time::Duration;

use super::alarm::Alarm;
use super::stage::nanoseconds;
use crate::experiment::Experiment;

/// When one client may go on.
pub(crate) struct Pause {
    alarm: Alarm,
    gap_ns: u64,
    /// When the pause at hand is over.
    ends_ns: u64,
}

impl Pause {
    /// The pause of an experiment; nothing if it has none.
    ///
    /// # Errors
    /// There is no timer.
    pub(crate) fn of(experiment: &Experiment) -> std::io::Result<Option<Self>> {
        let Some(gap) = experiment.gap_seconds else { return Ok(None) };
        Ok(Some(Self { alarm: Alarm::new()?, gap_ns: nanoseconds(Duration::from_secs_f64(gap)), ends_ns: 0 }))
    }

    /// How many operations may begin now, of a client with so many unanswered ones.
    pub(crate) fn allowance(&self, unanswered: u64, now_ns: u64) -> u64 {
        u64::from(unanswered == 0 && now_ns >= self.ends_ns)
    }

    /// An operation was answered (at QoS 0: sent).
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.ends_ns = now_ns.saturating_add(self.gap_ns);
    }

    /// Pending until it is over, and the task is woken then.
    pub(crate) fn poll(&mut self, now_ns: u64, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll_in(Duration::from_nanos(self.ends_ns.saturating_sub(now_ns)), cx)
    }
}
