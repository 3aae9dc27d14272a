//! How fast notifications may go, and which of them are Confirmable (RFC 7641 §4.5, RFC 7252 §4.7).

use std::time::Duration;

use super::{Observed, Relation};
use crate::peer::Peer;
use crate::server::ServerConfig;
use crate::server::peers::PeerState;
use crate::time::Timestamp;

/// Without an estimate of the round trip, no more than one Non-confirmable in this time (RFC 7641 §4.5.1).
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_secs(3);

/// A shorter round trip is one of a local network, and more scheduling than transmission: it sets no pace.
const PACED_ROUND_TRIP_MIN: Duration = Duration::from_millis(10);

/// An observer that has not acknowledged for this long, or for [`PATIENCE_TRIPS`] round trips if that is longer, is
/// perhaps gone.
pub(super) const PATIENCE_MIN: Duration = Duration::from_millis(10);

/// A device and its network may for once take so many times as long as they do on average.
pub(super) const PATIENCE_TRIPS: u32 = 4;

/// The pace of Non-confirmables to an observer that is perhaps gone: one whose acknowledgement was lost still hears the
/// newest several times a second, and many that have vanished cost next to nothing.
pub(super) const PACE_OF_DOUBT: Duration = Duration::from_millis(200);

/// When a notification could not be protected, it is tried again after this.
pub(super) const SEAL_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// How many Non-confirmable notifications a Reset may come too late by.
pub(super) const RECENT: usize = 4;

/// Notifications that may be under way to a peer unacknowledged before the loss of one is likely: two small datagrams
/// fit the smallest receive buffer of Linux (2304 bytes, of which each takes 768). An acknowledgement says that the
/// buffer is empty again.
const CHUNK_DATAGRAMS: u8 = 2;

/// Bytes of payload and location in such a chunk: a larger notification is a chunk of its own.
const CHUNK_BYTES: usize = 160;

/// After this long, what was sent has been received or is lost; and a relation to which nothing has been sent for this
/// long is quiet.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// What may still go to a peer before it has to acknowledge something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    datagrams: u8,
    bytes: usize,
    since: Timestamp,
    /// Nothing has been sent for so long that one notification fits, however large.
    rested: bool,
}

impl Allowance {
    /// After an acknowledgement of what came last.
    pub(crate) const fn full(now: Timestamp) -> Self {
        Self { datagrams: CHUNK_DATAGRAMS, bytes: CHUNK_BYTES, since: now, rested: false }
    }

    /// The peer may have had time enough to take what came last.
    pub(super) fn renew(&mut self, now: Timestamp, in_flight: bool) {
        if !in_flight && now.since(self.since) >= QUIET {
            *self = Self { rested: true, ..Self::full(now) };
        }
    }

    /// Whether a notification ends the chunk.
    pub(super) const fn ends_with(self, bytes: usize) -> bool {
        self.datagrams <= 1 || (self.bytes <= bytes && !self.rested)
    }

    pub(crate) fn spend(&mut self, bytes: usize) {
        self.datagrams = self.datagrams.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.rested = false;
    }

    pub(super) const fn is_spent(self) -> bool {
        self.datagrams == 0 || self.bytes == 0
    }
}

/// Knowledge of the newest notification's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// It is Confirmable, or there is none.
    Given,
    /// It is Non-confirmable; if nothing follows, it is confirmed after the interval of the configuration.
    Open,
    /// It is Non-confirmable and went out behind more than a small receive buffer holds: the newest is sent again,
    /// Confirmable, as soon as the relation is quiet.
    Due,
    /// The next one is Confirmable, whatever it is.
    Demanded,
}

/// The time between two Non-confirmables.
pub(super) fn pace<P: Peer>(peer: &PeerState<P>) -> Duration {
    let trip = peer.round_trip.filter(|trip| !peer.address.is_local() && *trip >= PACED_ROUND_TRIP_MIN);
    trip.unwrap_or_default()
}

/// Whether the observer has to acknowledge this one, to show that it is there or how far away it is.
pub(super) fn needs_proof<P: Peer>(
    config: &ServerConfig,
    now: Timestamp,
    relation: &Relation,
    peer: &PeerState<P>,
    bytes: usize,
) -> bool {
    let paced = peer.address.is_local() || relation.sent_at.is_none_or(|sent| now.since(sent) >= UNKNOWN_ROUND_TRIP);
    // A Confirmable that is under way is proof enough to wait for.
    let due = relation.in_flight.is_none()
        && (relation.unconfirmed >= config.confirm_every
            || now.since(relation.confirmed_at) >= config.confirm_interval
            || relation.proof == Proof::Demanded);
    let chunk = relation.observed == Observed::Many && peer.allowance.ends_with(bytes);
    // RFC 7641 §4.5.1: without a known round trip nothing goes fast; an acknowledgement tells it.
    due || chunk || (peer.round_trip.is_none() && !paced)
}
