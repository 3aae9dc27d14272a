//! The owners that a worker still has to wake, in portions.
//!
//! A runtime runs the tasks that are ready in the order in which they were woken. A publication to ten thousand
//! subscribers would make ten thousand tasks ready at once, and a neighbour's request would be answered after all of them.
//! A publication therefore wakes [`WAKES_PER_TURN`] owners at once and leaves the others to this list, of which as many
//! are woken each time the runtime has looked at its sockets. A publication to few does not wait for those to many.

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
    /// The task that empties the list has been woken.
    notified: bool,
}

impl WakeList {
    pub(crate) fn push(&mut self, owner: Arc<dyn Subscriber>) {
        self.waiting.push_back(Waiting::Owner(owner));
    }

    /// Whether the task that empties the list has to be woken; true once until its next turn.
    pub(crate) fn wants_turn(&mut self) -> bool {
        !self.waiting.is_empty() && !std::mem::replace(&mut self.notified, true)
    }

    /// Wakes the next portion; says whether owners are left.
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
