//! Publishers that take turns within one task.
//!
//! Waking a task costs tokio a good part of what a small request costs its client, and would be paid for every answer.
//! A crew is woken once for all whose sockets have something for them, and polls these, in the order in which they were
//! woken; who is woken meanwhile has its turn when everybody else on the thread has had theirs.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::driver::Pending;

/// Futures that are polled each for its own sake; done when all of them are.
#[derive(Default)]
pub(crate) struct Crew {
    /// Those that have not ended, each with what wakes it.
    members: Vec<Option<(Pending<'static, ()>, Waker)>>,
    left: usize,
    calls: Arc<Mutex<Calls>>,
    /// The members of the current turn.
    turn: Vec<usize>,
}

/// The members that were woken.
#[derive(Default)]
struct Calls {
    /// In the order of their wakes.
    members: Vec<usize>,
    /// Whether a member is among them, by its number.
    called: Vec<bool>,
    /// Wakes the crew, once.
    crew: Option<Waker>,
}

/// The waker of one member.
struct Member {
    number: usize,
    calls: Arc<Mutex<Calls>>,
}

impl Crew {
    /// One more, who has its first turn with the next poll.
    pub(crate) fn push(&mut self, work: impl Future<Output = ()> + 'static) {
        let number = self.members.len();
        let mut calls = lock(&self.calls);
        calls.called.push(true);
        calls.members.push(number);
        let waker = Waker::from(Arc::new(Member { number, calls: Arc::clone(&self.calls) }));
        self.members.push(Some((Box::pin(work), waker)));
        self.left += 1;
    }
}

impl Future for Crew {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut calls = lock(&this.calls);
        std::mem::swap(&mut calls.members, &mut this.turn);
        for number in &this.turn {
            if let Some(called) = calls.called.get_mut(*number) {
                *called = false;
            }
        }
        calls.crew = Some(cx.waker().clone());
        drop(calls);
        for number in this.turn.drain(..) {
            let Some(place) = this.members.get_mut(number) else { continue };
            let Some((work, waker)) = place else { continue };
            if work.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                *place = None;
                this.left -= 1;
            }
        }
        if this.left == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Wake for Member {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut calls = lock(&self.calls);
        let Calls { members, called, crew } = &mut *calls;
        let Some(called) = called.get_mut(self.number).filter(|called| !**called) else { return };
        *called = true;
        members.push(self.number);
        let crew = crew.take();
        drop(calls);
        if let Some(crew) = crew {
            crew.wake();
        }
    }
}

/// Locks the calls. They are consistent at any time, so a poisoned lock is usable.
fn lock(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::rc::Rc;

    use tokio::sync::Notify;
    use tokio::task::{LocalSet, yield_now};

    use super::*;

    type Log = Rc<RefCell<Vec<u32>>>;

    /// Notes each of its turns, and ends with the third.
    async fn worker(name: u32, bell: Rc<Notify>, log: Log) {
        for _ in 0..2 {
            log.borrow_mut().push(name);
            bell.notified().await;
        }
        log.borrow_mut().push(name);
    }

    #[tokio::test]
    async fn only_who_is_woken_is_polled_and_in_that_order() {
        let log = Log::default();
        let bells: Vec<_> = std::iter::repeat_with(|| Rc::new(Notify::new())).take(3).collect();
        let mut crew = Crew::default();
        for (name, bell) in (0..).zip(&bells) {
            crew.push(worker(name, Rc::clone(bell), Rc::clone(&log)));
        }
        LocalSet::new()
            .run_until(async {
                let crew = tokio::task::spawn_local(crew);
                yield_now().await;
                for name in [2, 0, 0, 1, 2, 1] {
                    bells[name].notify_one();
                    yield_now().await;
                    yield_now().await;
                }
                crew.await.unwrap();
            })
            .await;
        assert_eq!(*log.borrow(), [0, 1, 2, 2, 0, 0, 1, 2, 1]);
    }

    #[tokio::test]
    async fn who_goes_on_at_once_lets_the_others_have_their_turn() {
        let log = Log::default();
        let mut crew = Crew::default();
        for name in 0..2 {
            let (log, mut turns) = (Rc::clone(&log), 0);
            crew.push(poll_fn(move |cx| {
                log.borrow_mut().push(name);
                turns += 1;
                cx.waker().wake_by_ref();
                if turns == 3 { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        crew.await;
        assert_eq!(*log.borrow(), [0, 1, 0, 1, 0, 1]);
    }

    #[tokio::test]
    async fn nobody_is_done_at_once() {
        Crew::default().await;
    }
}
