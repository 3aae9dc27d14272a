//! When operations are due that come at a rate: at fixed times from the first, whatever became of those before.

use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// How far apart wakes are at least: what becomes due in between goes out together, late by at most this.
const APART: Duration = Duration::from_micros(50);

/// The times of one publisher.
pub(crate) struct Pacer {
    /// Tokio's own timers round up to a whole millisecond, which is longer than a gateway takes to answer.
    timer: AsyncFd<rustix::fd::OwnedFd>,
    interval_ns: f64,
    offset_ns: f64,
    done: u64,
}

impl Pacer {
    /// Publisher `number` of `publishers`, who together send `rate` a second, one after the other.
    pub(crate) fn new(rate: f64, number: u32, publishers: u32) -> std::io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let interval_ns = 1e9 / rate * f64::from(publishers);
        let offset_ns = interval_ns * f64::from(number) / f64::from(publishers);
        #[expect(deprecated, reason = "its successor is unsafe; a descriptor that is owned keeps what both ask for")]
        let timer = AsyncFd::new(timer)?;
        Ok(Self { timer, interval_ns, offset_ns, done: 0 })
    }

    /// When the next operation is due, in nanoseconds since the first of all.
    pub(crate) fn next_ns(&self) -> u64 {
        self.at(self.done)
    }

    /// How many are due by then, that have not begun.
    pub(crate) fn due(&self, elapsed_ns: u64) -> u64 {
        if self.next_ns() > elapsed_ns {
            return 0;
        }
        #[expect(clippy::cast_precision_loss, reason = "2^53 nanoseconds are 104 days")]
        let since = (elapsed_ns as f64 - self.offset_ns) / self.interval_ns;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not below what was done, and below 2^53"
        )]
        let due = since as u64 + 1;
        due.saturating_sub(self.done)
    }

    fn at(&self, place: u64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "2^53 operations are more than a run has")]
        let due = self.offset_ns + self.interval_ns * place as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and below 2^53")]
        let due = due as u64;
        due
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
        assert_eq!((second.due(4_999_999), second.due(5_000_000), second.due(13_000_001)), (0, 1, 3));
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
