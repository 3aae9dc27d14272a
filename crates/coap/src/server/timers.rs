//! A queue of timers. An entry whose cause is gone is dropped when it expires.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Timestamp;
use crate::slab::Key;

/// The action of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Retransmit a Confirmable message that was not acknowledged.
    Confirmable(Key),
    /// An observer may be notified again.
    Relation(Key),
    /// A ping to the peer was not answered.
    Ping(Key, u16),
    /// A request is still unanswered: send an empty acknowledgement.
    Acknowledge(Key, u16),
    /// A Confirmable to the peer is gone without an answer: the next one has its place (NSTART).
    Place(Key),
    /// There may be room for the rests of large notifications.
    Room,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Timestamp, Timer)>>,
    /// How many entries there may be before the dead ones are thrown out.
    watermark: usize,
}

/// Below this nobody cares.
const WATERMARK_MIN: usize = 1024;

impl Timers {
    pub(crate) fn add(&mut self, at: Timestamp, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, timer))| timer)
    }

    /// Throws entries out whose cause is gone, once they have doubled: so many acknowledged Confirmables cost nothing.
    pub(crate) fn prune(&mut self, is_alive: impl Fn(&Timer, Timestamp) -> bool) {
        if self.heap.len() <= self.watermark.max(WATERMARK_MIN) {
            return;
        }
        self.heap.retain(|Reverse((at, timer))| is_alive(timer, *at));
        self.watermark = self.heap.len() * 2;
    }
}
