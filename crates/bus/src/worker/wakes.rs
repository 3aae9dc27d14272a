//! Wakes of the owners of mailboxes, on this worker and on others.

use std::{
    sync::PoisonError,
    task::{Context, Waker},
};

use super::Worker;
use crate::{limits::WAKES_PER_TURN, wake_list::Place};

impl Worker {
    /// Tells each other worker, once, which of its owners have deliveries.
    pub(super) fn wake_workers(&mut self) {
        if self.wakes.wants_turn()
            && let Some(inbox) = self.bus.inboxes.get(self.id.0)
        {
            let waker = inbox.lock().unwrap_or_else(PoisonError::into_inner).waker.take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        for (list, inbox) in self.remote.iter_mut().zip(&self.bus.inboxes) {
            if list.is_empty() {
                continue;
            }
            let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.later.extend(list.drain(list.len().min(WAKES_PER_TURN)..));
            inbox.ready.append(list);
            let waker = inbox.waker.take();
            drop(inbox);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Wakes the owners of this worker that other workers delivered to, and the next portion of the wake list. Returns
    /// whether owners are left; then it is to be called again as soon as the runtime has polled its sockets. One task
    /// per worker calls it, and is woken when there is something to do.
    #[must_use = "owners may be left"]
    pub fn wake_owners(&mut self, cx: &Context<'_>) -> bool {
        let Some(inbox) = self.bus.inboxes.get(self.id.0) else { return false };
        let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.waker = Some(cx.waker().clone());
        std::mem::swap(&mut inbox.ready, &mut self.awake);
        for owner in inbox.later.drain(..) {
            self.wakes.push(owner);
        }
        drop(inbox);
        for owner in self.awake.drain(..) {
            owner.wake();
        }
        self.wakes.turn()
    }

    /// Whether all owners up to this place are awake.
    #[must_use]
    pub const fn has_woken(&self, place: Place) -> bool {
        self.wakes.is_past(place)
    }

    /// Wakes a publisher after all owners that are in the list now.
    pub fn wake_behind(&mut self, waker: &Waker) {
        self.wakes.push_publisher(waker);
    }
}
