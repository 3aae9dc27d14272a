//! A timer that wakes a task to the microsecond: tokio's own round up to a whole millisecond, which is longer than a
//! gateway takes to answer.

use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// How far apart wakes are at least: what becomes due in between goes out together, late by at most this.
const APART: Duration = Duration::from_micros(50);

/// Wakes one task.
pub(crate) struct Alarm(AsyncFd<rustix::fd::OwnedFd>);

impl Alarm {
    /// A timer that is not set. Has to be called within a runtime.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub(crate) fn new() -> std::io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[expect(deprecated, reason = "its successor is unsafe; a descriptor that is owned keeps what both ask for")]
        let timer = AsyncFd::new(timer)?;
        Ok(Self(timer))
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
        if timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &spec).is_err() {
            return Poll::Ready(());
        }
        match self.0.poll_read_ready(cx) {
            Poll::Ready(Ok(mut guard)) => {
                // Readiness of an earlier setting: setting it anew has cleared the descriptor.
                guard.clear_ready();
                self.0.poll_read_ready(cx).map(drop)
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
    async fn the_timer_wakes() {
        let mut alarm = Alarm::new().unwrap();
        let began = std::time::Instant::now();
        let mut set = false;
        std::future::poll_fn(|cx| {
            if set {
                return Poll::Ready(());
            }
            set = true;
            alarm.poll_in(Duration::from_millis(5), cx)
        })
        .await;
        assert!(began.elapsed() >= Duration::from_millis(5));
    }
}
