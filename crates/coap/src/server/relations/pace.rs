//! How fast notifications may go, and which of them are Confirmable (RFC 7641 §4.5, RFC 7252 §4.7).

use std::time::Duration;

use super::{Observed, Relation};
use crate::Timestamp;
use crate::peer::Peer;
use crate::server::ServerConfig;
use crate::server::peers::PeerState;

/// Without a known round-trip time, no more than one Non-confirmable is sent in this time (RFC 7641 §4.5.1).
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_secs(3);

/// A shorter round-trip time is that of a local network, mostly scheduling, and sets no pace.
const PACED_ROUND_TRIP_MIN: Duration = Duration::from_millis(10);

/// An observer that has not acknowledged for this long, or for [`PATIENCE_TRIPS`] round trips if that is longer, is
/// perhaps gone.
pub(super) const PATIENCE_MIN: Duration = Duration::from_millis(10);

/// A device and its network may occasionally take this many times their average.
pub(super) const PATIENCE_TRIPS: u32 = 4;

/// The interval of Non-confirmables to an observer that is perhaps gone. One whose acknowledgement was lost still gets
/// the newest state several times a second, and many that have vanished cost next to nothing.
pub(super) const PACE_OF_DOUBT: Duration = Duration::from_millis(200);

/// The delay before a notification that could not be protected is tried again.
pub(super) const SEAL_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Recent Non-confirmable notifications for which a Reset is recognised.
pub(super) const RECENT: usize = 4;

/// Unacknowledged notifications that may be under way to a peer before loss becomes likely: two small datagrams fit the
/// smallest receive buffer of Linux (2304 bytes, of which each takes 768). An acknowledgement means that the buffer is
/// empty again.
const CHUNK_DATAGRAMS: u8 = 2;

/// Bytes of payload and location in such a chunk. A larger notification is a chunk of its own.
const CHUNK_BYTES: usize = 160;

/// After this time, a notification has been received or is lost, and a relation without notifications is quiet.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// The budget of Non-confirmable messages to a peer until it has to acknowledge something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    datagrams: u8,
    bytes: usize,
    since: Timestamp,
    /// Nothing has been sent for [`QUIET`], so that one notification fits, however large.
    rested: bool,
}

impl Allowance {
    /// The allowance after everything was acknowledged.
    pub(crate) const fn full(now: Timestamp) -> Self {
        Self { datagrams: CHUNK_DATAGRAMS, bytes: CHUNK_BYTES, since: now, rested: false }
    }

    /// Renews the allowance when the peer has had time to receive everything.
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

/// Whether the newest notification is known to have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// It is Confirmable, or there was none.
    Given,
    /// It is Non-confirmable. If no other follows, it is confirmed after the configured interval.
    Open,
    /// It is Non-confirmable and was sent behind more than a small receive buffer holds. The newest state is sent
    /// again, as a Confirmable, as soon as the relation is quiet.
    Due,
    /// The next notification is Confirmable in any case.
    Demanded,
}

/// The time between two Non-confirmables.
pub(super) fn pace<P: Peer>(peer: &PeerState<P>) -> Duration {
    let trip = peer.round_trip.filter(|trip| !peer.address.is_local() && *trip >= PACED_ROUND_TRIP_MIN);
    trip.unwrap_or_default()
}

/// Whether the observer has to acknowledge this notification, to show that it is there or to measure the round-trip
/// time.
pub(super) fn needs_proof<P: Peer>(
    config: &ServerConfig,
    now: Timestamp,
    relation: &Relation,
    peer: &PeerState<P>,
    bytes: usize,
) -> bool {
    let paced = peer.address.is_local() || relation.sent_at.is_none_or(|sent| now.since(sent) >= UNKNOWN_ROUND_TRIP);
    // A Confirmable that is under way will be proof enough.
    let due = relation.in_flight.is_none()
        && (relation.unconfirmed >= config.confirm_every
            || now.since(relation.confirmed_at) >= config.confirm_interval
            || relation.proof == Proof::Demanded);
    let chunk = relation.observed == Observed::Many && peer.allowance.ends_with(bytes);
    // RFC 7641 §4.5.1: without a known round-trip time the pace is slow; an acknowledgement measures it.
    due || chunk || (peer.round_trip.is_none() && !paced)
}
