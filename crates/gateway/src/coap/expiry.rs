//! Expiry of the values that observers were last notified of.

use std::{cmp::Reverse, collections::BinaryHeap};

use fogmux_bus::Timestamp;
use fogmux_coap::server::RelationId;

/// The alarms of a socket's observations. An observation has one, or for a while a second, earlier one.
#[derive(Default)]
pub(super) struct Expiries(BinaryHeap<Reverse<(Timestamp, RelationId)>>);

impl Expiries {
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn add(&mut self, at: Timestamp, relation: RelationId) {
        self.0.push(Reverse((at, relation)));
    }

    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<RelationId> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, relation))| relation)
    }
}
