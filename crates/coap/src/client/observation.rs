//! The state of one observation (RFC 7641): the newest notification of each resource, and the request that renews or
//! ends it.

use super::ahead::Ahead;
use super::exchanges::Number;
use super::freshness::{Freshness, Named};
use super::waiting::Waiting;
use crate::Timestamp;

/// One observation.
#[derive(Debug, Default)]
pub(super) struct Observation {
    /// Of the newest notification that names no resource, or of the first message of all.
    newest: Option<Freshness>,
    /// Of observations whose notifications name their resources.
    named: Named,
    /// A first answer was reported to the caller.
    pub(super) answered: bool,
    /// The request that registers again or deregisters.
    pub(super) follow_up: Option<Number>,
    /// It was registered again, and nothing newer has come since.
    pub(super) begins_again: bool,
    /// The requests that fetch the rests of notifications.
    pub(super) rests: Vec<Number>,
    /// Resources of which a rest is fetched later.
    pub(super) waiting: Waiting,
    /// States that were told before their notifications.
    pub(super) ahead: Ahead,
    /// The error that ended it, when rests were still to be fetched: it is told behind them.
    pub(super) last: Option<Vec<u8>>,
    /// It was registered again because a state changed while its blocks were fetched.
    pub(super) restarted: bool,
}

/// The transport and the request of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Known to be in order: over a reliable transport (RFC 8323 §7.1), or protected (RFC 8613 §7.4.1).
    InOrder,
    /// In a datagram.
    Datagram,
    /// In the acknowledgement of a further registration.
    Registration,
}

impl Observation {
    /// Whether parts of notifications are still to be fetched.
    pub(super) fn is_fetching(&self) -> bool {
        !self.rests.is_empty() || !self.waiting.is_empty()
    }

    /// Whether a notification is newer than all before of the same resource (RFC 7641 §3.4).
    ///
    /// Notifications may overtake the first answer, and each other before that. A server that had forgotten the client
    /// may begin to count again: the answer to a further registration counts, unless a notification came meanwhile.
    pub(super) fn admit(&mut self, sequence: u32, path: &[String], now: Timestamp, arrival: Arrival) -> bool {
        let Some(newest) = &mut self.newest else {
            self.newest = Some(Freshness::new(sequence, now));
            return arrival == Arrival::InOrder || path.is_empty() || self.named.admit(path, sequence, now);
        };
        if arrival == Arrival::InOrder {
            return true;
        }
        if !path.is_empty() {
            return self.named.admit(path, sequence, now);
        }
        let begins_again = arrival == Arrival::Registration && self.begins_again;
        if begins_again {
            *newest = Freshness::new(sequence, now);
        }
        let fresh = begins_again || newest.admit(sequence, now);
        self.begins_again &= !fresh;
        fresh
    }
}
