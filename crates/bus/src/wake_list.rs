//! Wakes in portions: the list of owners that a worker has still to wake (ADR 0020).
//!
//! A runtime runs its ready tasks in the order in which they were woken. A publication to ten thousand subscribers
//! would make ten thousand tasks ready at once, and another client's request would be answered after all of them. So a
//! publication wakes [`WAKES_PER_TURN`] owners at once and puts the others into this list, of which as many are woken
//! each time the runtime has polled its sockets. A publication to few subscribers does not wait for one to many.

use std::{collections::VecDeque, sync::Arc, task::Waker};

use crate::{limits::WAKES_PER_TURN, route::Subscriber};

/// A place in a worker's list of owners to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

enum Waiting {
    Owner(Arc<dyn Subscriber>),
    /// A publisher that continues when all owners before it are awake.
    Publisher(Waker),
}

/// The list; see the module's documentation.
#[derive(Default)]
pub(crate) struct WakeList {
    waiting: VecDeque<Waiting>,
    /// Entries taken from the list since the start.
    taken: u64,
    /// Whether the task that empties the list has been woken.
    notified: bool,
}

impl WakeList {
    pub(crate) fn push(&mut self, owner: Arc<dyn Subscriber>) {
        self.waiting.push_back(Waiting::Owner(owner));
    }

    /// Whether to wake the task that empties the list; true once until its next turn.
    pub(crate) fn wants_turn(&mut self) -> bool {
        !self.waiting.is_empty() && !std::mem::replace(&mut self.notified, true)
    }

    /// Wakes the next portion. Returns whether owners are left.
    pub(crate) fn turn(&mut self) -> bool {
        for _ in 0..WAKES_PER_TURN {
            let Some(next) = self.waiting.pop_front() else { break };
            self.taken += 1;
            match next {
                Waiting::Owner(owner) => owner.wake(),
                Waiting::Publisher(waker) => waker.wake(),
            }
        }
        if self.waiting.is_empty() && self.waiting.capacity() > WAKES_PER_TURN {
            self.waiting = VecDeque::new();
        }
        self.notified = !self.waiting.is_empty();
        self.notified
    }

    /// The end of the list.
    pub(crate) fn end(&self) -> Place {
        Place(self.taken + self.waiting.len() as u64)
    }

    pub(crate) const fn is_past(&self, place: Place) -> bool {
        self.taken >= place.0
    }

    pub(crate) fn push_publisher(&mut self, waker: &Waker) {
        self.waiting.push_back(Waiting::Publisher(waker.clone()));
    }
}
