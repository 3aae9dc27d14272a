//! How a notification is sent: Confirmable or not (RFC 7641 §4.5), now or later.

use super::Relation;
use super::notify::Notification;
use super::pace::{PATIENCE_MIN, PATIENCE_TRIPS, needs_proof};
use super::part::size_of_content;
use crate::Timestamp;
use crate::peer::Peer;
use crate::server::ServerConfig;
use crate::server::confirmables::{Backoff, Confirmable};
use crate::server::peers::{PeerState, Waiting};
use crate::slab::Key;

/// How a notification is sent.
pub(super) struct Plan {
    pub(super) confirmable: bool,
    pub(super) last: bool,
    /// The back-off of the Confirmable that it replaces.
    pub(super) backoff: Option<Backoff>,
    pub(super) doubt: bool,
    /// Perhaps more is under way than the receiver has room for.
    pub(super) risky: bool,
}

/// Decides how a notification is sent. `None` when it must be Confirmable and may not be now; the relation waits then.
pub(super) fn plan<P: Peer>(
    config: &ServerConfig,
    now: Timestamp,
    (key, relation): (Key, &mut Relation),
    peer: &mut PeerState<P>,
    in_flight: Option<&Confirmable>,
    notification: &Notification<'_>,
) -> Option<Plan> {
    let doubt = in_flight.is_some_and(|confirmable| is_doubtful(now, peer, confirmable));
    let last = !notification.response.code.is_success();
    if config.reliable {
        return Some(Plan { confirmable: false, last, backoff: None, doubt, risky: false });
    }
    let backoff = in_flight.filter(|_| relation.replacing).map(|confirmable| confirmable.backoff);
    peer.allowance.renew(now, !peer.in_flight.is_empty());
    let bytes = size_of_content(&notification.response).min(relation.limits.whole);
    let confirmable =
        backoff.is_some() || notification.confirmable || last || needs_proof(config, now, relation, peer, bytes);
    if confirmable && backoff.is_none() {
        if relation.in_flight.is_some() && !last {
            // RFC 7641 §4.5.1: one at a time; its acknowledgement lets this one go on.
            return None;
        }
        if peer.in_flight.len() >= config.transmission.nstart {
            if !relation.queued {
                relation.queued = true;
                peer.waiting.push_back(Waiting::Relation(key));
            }
            return None;
        }
    }
    let risky = peer.allowance.is_spent() || !peer.in_flight.is_empty();
    Some(Plan { confirmable, last, backoff, doubt, risky })
}

/// Whether a Confirmable has been unacknowledged for longer than this peer usually takes.
fn is_doubtful<P: Peer>(now: Timestamp, peer: &PeerState<P>, confirmable: &Confirmable) -> bool {
    let trip = peer.round_trip.unwrap_or_default();
    now.since(confirmable.backoff.sent()) >= (trip * PATIENCE_TRIPS).max(PATIENCE_MIN)
}
