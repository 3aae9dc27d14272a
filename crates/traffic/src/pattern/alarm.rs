//! Timers that wake tasks to the microsecond: tokio's own round up to a whole millisecond, which is longer than a
//! gateway takes to answer. All of a thread share one descriptor, so that ten thousand clients do not need ten
//! thousand.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

/// How far apart wakes are at least: what becomes due in between goes out together, late by at most this.
const APART: Duration = Duration::from_micros(50);

thread_local! {
    /// Those of the runtime that this thread runs, while there is any.
    static ALARMS: RefCell<Weak<Alarms>> = const { RefCell::new(Weak::new()) };
}

/// Wakes one task.
pub(crate) struct Alarm {
    all: Arc<Alarms>,
    number: u64,
    /// When it is to wake, if it is set.
    due: Option<Instant>,
}

impl Alarm {
    /// A timer that is not set. Has to be called within a runtime, and polled and dropped on the same thread.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub(crate) fn new() -> std::io::Result<Self> {
        let all = ALARMS.with_borrow_mut(|known| match known.upgrade() {
            Some(all) => Ok(all),
            None => {
                let all = Alarms::start()?;
                *known = Arc::downgrade(&all);
                Ok::<_, std::io::Error>(all)
            }
        })?;
        let number = lock(&all.state).next_number();
        Ok(Self { all, number, due: None })
    }

    /// Pending until so much time has passed, and the task is woken then.
    pub(crate) fn poll_in(&mut self, wait: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let due = Instant::now() + wait.max(APART);
        let mut state = lock(&self.all.state);
        let known = self.due.take().and_then(|before| state.waiting.remove(&(before, self.number)));
        let waker = known.filter(|waker| waker.will_wake(cx.waker())).unwrap_or_else(|| cx.waker().clone());
        state.waiting.insert((due, self.number), waker);
        self.due = Some(due);
        // Without a timer nobody would wake the task.
        if state.set(&self.all.timer).is_ok() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(due) = self.due {
            lock(&self.all.state).waiting.remove(&(due, self.number));
        }
    }
}

/// The alarms of a thread.
struct Alarms {
    timer: Arc<AsyncFd<OwnedFd>>,
    state: Arc<Mutex<State>>,
    /// The task that wakes the others.
    waking: AbortHandle,
}

#[derive(Default)]
struct State {
    numbers: u64,
    /// The task of each alarm that is set, by when it is due.
    waiting: BTreeMap<(Instant, u64), Waker>,
    /// When the timer fires.
    set: Option<Instant>,
}

impl Alarms {
    fn start() -> std::io::Result<Arc<Self>> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[expect(deprecated, reason = "its successor is unsafe; a descriptor that is owned keeps what both ask for")]
        let timer = Arc::new(AsyncFd::new(timer)?);
        let state = Arc::<Mutex<State>>::default();
        let waking = tokio::spawn(wake(Arc::clone(&timer), Arc::clone(&state))).abort_handle();
        Ok(Arc::new(Self { timer, state, waking }))
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        self.waking.abort();
    }
}

/// A lock that nobody else waits for: all alarms of a runtime are on its thread.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the tasks that are due, whenever the timer fires.
async fn wake(timer: Arc<AsyncFd<OwnedFd>>, state: Arc<Mutex<State>>) {
    while let Ok(mut guard) = timer.readable().await {
        // Setting the timer anew clears the descriptor.
        guard.clear_ready();
        let (due, is_set) = {
            let mut state = lock(&state);
            (state.take_due(), state.set(&timer).is_ok())
        };
        due.into_iter().for_each(Waker::wake);
        if !is_set {
            return;
        }
    }
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The timer has fired: takes the tasks that are due.
    fn take_due(&mut self) -> Vec<Waker> {
        self.set = None;
        let (now, mut due) = (Instant::now(), Vec::new());
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        due
    }

    /// Has the timer fire when the first alarm is due, unless it fires before.
    fn set(&mut self, timer: &AsyncFd<OwnedFd>) -> rustix::io::Result<()> {
        let Some(((first, _), _)) = self.waiting.first_key_value() else { return Ok(()) };
        if self.set.is_some_and(|set| set <= *first) {
            return Ok(());
        }
        let wait = first.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let value = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(
            timer.get_ref(),
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: never, it_value: value },
        )?;
        self.set = Some(*first);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Ends after so much time.
    async fn after(wait: Duration) -> Duration {
        let (mut alarm, began) = (Alarm::new().unwrap(), Instant::now());
        let mut set = false;
        poll_fn(|cx| if std::mem::replace(&mut set, true) { Poll::Ready(()) } else { alarm.poll_in(wait, cx) }).await;
        began.elapsed()
    }

    #[tokio::test]
    async fn each_task_is_woken_in_its_time() {
        let waits = [30, 1, 10, 5, 1].map(Duration::from_millis);
        let mut tasks: Vec<_> = waits.into_iter().map(|wait| (wait, tokio::spawn(after(wait)))).collect();
        // Nobody depends on one that has gone, be it the first.
        tasks.remove(1).1.abort();
        for (wait, task) in tasks {
            assert!(task.await.unwrap() >= wait, "{wait:?}");
        }
    }

    #[tokio::test]
    async fn ten_thousand_alarms_take_one_descriptor() {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        let alarms: Vec<Alarm> = (0..10_000).map(|_| Alarm::new().unwrap()).collect();
        // Other tests open some meanwhile.
        assert!(open() < before + 1_000, "{} after {before}", open());
        drop(alarms);
        // A runtime of its own begins anew.
        let again = std::thread::spawn(|| {
            let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            [0, 1].map(|_| runtime().block_on(after(Duration::from_millis(1))))
        });
        assert!(again.join().unwrap().iter().all(|took| *took >= Duration::from_millis(1)));
    }
}
