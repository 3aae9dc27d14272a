//! The owners that a worker still has to wake, in portions.
//!
//! A runtime runs the tasks that are ready in the order in which they were woken. A publication to ten thousand
//! subscribers would make ten thousand tasks ready at once, and a neighbour's request would be answered after all of them.
//! A worker therefore wakes [`WAKES_PER_TURN`] owners, then lets the runtime look at its sockets.

use std::{collections::VecDeque, sync::Arc, task::Waker};

use crate::{limits::WAKES_PER_TURN, route::Subscriber};

/// A place in a worker's list of owners to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

enum Waiting {
    Owner(Arc<dyn Subscriber>),
    /// A publisher that goes on when all owners before it are awake.
    Publisher(Waker),
}

/// See the module.
#[derive(Default)]
pub(crate) struct WakeList {
    waiting: VecDeque<Waiting>,
    /// Taken from the list since the start.
    taken: u64,
    /// Woken since the runtime was last let look at its sockets.
    woken: usize,
    /// The task that empties the list has been woken.
    notified: bool,
}

impl WakeList {
    /// Whether the next owner may be woken at once.
    pub(crate) fn may_wake(&self) -> bool {
        self.waiting.is_empty() && self.woken < WAKES_PER_TURN
    }

    /// An owner was woken at once.
    pub(crate) const fn count(&mut self) {
        self.woken += 1;
    }

    pub(crate) fn push(&mut self, owner: Arc<dyn Subscriber>) {
        self.waiting.push_back(Waiting::Owner(owner));
    }

    /// Whether the task that empties the list has to be woken; true once until its next turn.
    pub(crate) fn wants_turn(&mut self) -> bool {
        !self.may_wake() && !std::mem::replace(&mut self.notified, true)
    }

    /// Wakes the next portion; says whether owners are left.
    pub(crate) fn turn(&mut self) -> bool {
        self.woken = 0;
        while self.woken < WAKES_PER_TURN {
            let Some(next) = self.waiting.pop_front() else { break };
            self.taken += 1;
            self.woken += 1;
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

    /// The end of the list; `None` when it is empty.
    pub(crate) fn end(&self) -> Option<Place> {
        (!self.waiting.is_empty()).then(|| Place(self.taken + self.waiting.len() as u64))
    }

    pub(crate) const fn is_past(&self, place: Place) -> bool {
        self.taken >= place.0
    }

    pub(crate) fn push_publisher(&mut self, waker: &Waker) {
        self.waiting.push_back(Waiting::Publisher(waker.clone()));
    }
}
