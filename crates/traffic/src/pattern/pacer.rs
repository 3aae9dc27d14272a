//! When operations are due that come at a rate: at fixed times from the first, whatever became of those before.

use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// How far apart wakes are at least: what becomes due in between goes out together, late by at most this.
const APART: Duration = Duration::from_micros(50);

/// The times at which the operations of one publisher are due, in nanoseconds since the first of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    interval_ns: f64,
    offset_ns: f64,
}

/// Wakes one publisher when its next operation is due.
pub(crate) struct Pacer {
    /// Tokio's own timers round up to a whole millisecond, which is longer than a gateway takes to answer.
    timer: AsyncFd<rustix::fd::OwnedFd>,
    schedule: Schedule,
    done: u64,
}

impl Schedule {
    /// Publisher `number` of `publishers`, who together send `rate` a second, one after the other.
    pub(crate) fn new(rate: f64, number: u32, publishers: u32) -> Self {
        let interval_ns = 1e9 / rate * f64::from(publishers);
        Self { interval_ns, offset_ns: interval_ns * f64::from(number) / f64::from(publishers) }
    }

    /// How many are due before that time.
    pub(crate) fn due_before(&self, elapsed_ns: u64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "2^53 nanoseconds are 104 days")]
        let intervals = (elapsed_ns as f64 - self.offset_ns) / self.interval_ns;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least 0, and below 2^53")]
        let mut due = intervals.ceil().max(0.0) as u64;
        // The division rounds; only what `at` says counts.
        while self.at(due) < elapsed_ns {
            due += 1;
        }
        while due > 0 && self.at(due - 1) >= elapsed_ns {
            due -= 1;
        }
        due
    }

    /// When the operation at this place is due.
    pub(crate) fn at(&self, place: u64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "2^53 operations are more than a run has")]
        let due = self.offset_ns + self.interval_ns * place as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and below 2^53")]
        let due = due as u64;
        due
    }
}

impl Pacer {
    /// Publisher `number` of `publishers`, who together send `rate` a second, one after the other.
    pub(crate) fn new(rate: f64, number: u32, publishers: u32) -> std::io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[expect(deprecated, reason = "its successor is unsafe; a descriptor that is owned keeps what both ask for")]
        let timer = AsyncFd::new(timer)?;
        Ok(Self { timer, schedule: Schedule::new(rate, number, publishers), done: 0 })
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
        let wait = wait.max(APART);
        let value = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: never, it_value: value };
        if timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &spec).is_err() {
            return Poll::Ready(());
        }
        match self.timer.poll_read_ready(cx) {
            Poll::Ready(Ok(mut guard)) => {
                // Readiness of an earlier setting: setting it anew has cleared the descriptor.
                guard.clear_ready();
                self.timer.poll_read_ready(cx).map(drop)
            }
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn publishers_take_turns() {
        let mut second = Pacer::new(1_000.0, 1, 4).unwrap();
        assert_eq!(second.next_ns(), 1_000_000);
        second.advance();
        assert_eq!(second.next_ns(), 5_000_000);
        assert_eq!([5_000_000, 5_000_001, 13_000_001].map(|time| second.due_before(time)), [0, 1, 3]);
    }

    #[test]
    fn a_schedule_has_as_many_as_its_rate_says() {
        for (rate, due) in [(1_000.0, 5_000), (300.0, 1_500), (7.0, 35), (0.1, 1), (999_999.0, 4_999_995)] {
            assert_eq!(Schedule::new(rate, 0, 1).due_before(5_000_000_000), due, "{rate}");
            let each = (0..4).map(|number| Schedule::new(rate, number, 4).due_before(5_000_000_000));
            assert_eq!(each.sum::<u64>(), due, "{rate} by four");
        }
        assert_eq!(Schedule::new(10.0, 0, 1).due_before(0), 0);
    }

    #[tokio::test]
    async fn the_timer_wakes() {
        let mut pacer = Pacer::new(1_000.0, 0, 1).unwrap();
        let began = std::time::Instant::now();
        let mut set = false;
        std::future::poll_fn(|cx| {
            if set {
                return Poll::Ready(());
            }
            set = true;
            pacer.poll_in(Duration::from_millis(5), cx)
        })
        .await;
        assert!(began.elapsed() >= Duration::from_millis(5));
    }
}
