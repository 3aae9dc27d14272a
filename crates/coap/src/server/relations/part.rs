//! The part of a large notification that is sent, and the rest, which is kept to be fetched (RFC 7959 §2.6).

use fogmux_fair::Owner;
use foldhash::fast::FixedState;

use super::Relation;
use super::notify::Notification;
use crate::Timestamp;
use crate::block::Block;
use crate::code::Code;
use crate::request::location_cache_key;
use crate::response::{Extra, Response};
use crate::server::TransferId;
use crate::server::downloads::{Downloads, Snapshot};
use crate::server::peers::Limits;

/// Bytes of a notification beside its token, location and payload: header 4, ETag 9, Observe 4, Content-Format 3,
/// Max-Age 5, Block2 4, Size2 5, and the marker.
const NOTIFICATION_BYTES: usize = 35;

/// Bytes that protection adds (RFC 8613 §6.1, §5.3): option, marker, inner code and tag, rounded up.
const PROTECTION_BYTES: usize = 32;

/// Bytes of payload and location.
pub(super) fn size_of_content(response: &Response<'_>) -> usize {
    response.payload.as_slice().len() + response.location.map_or(0, |location| location.path.len())
}

/// Keeps the state for the client to fetch the rest of a large notification (RFC 7959 §2.6). An observer of a filter
/// may have several: each is kept under its own location, the newest also under the filter. False if there is no room
/// for one that has to be kept, which that of an event has: others are still to be fetched.
pub(super) fn keep_for_blocks(
    downloads: &mut Downloads,
    hash: &FixedState,
    now: Timestamp,
    (relation, owner): (&Relation, Owner),
    notification: &Notification<'_>,
) -> bool {
    let (scope, response) = (relation.scope(), &notification.response);
    let snapshot = Snapshot {
        body: response.payload.to_bytes(),
        etag: response.etag,
        content_format: response.content_format,
        touched: now,
    };
    let own = ((relation.peer, scope, relation.cache_key), owner.clone());
    let Some(location) = response.location else { return keep(downloads, now, own, (snapshot, notification.event)) };
    let place = ((relation.peer, scope, location_cache_key(location, hash)), owner);
    if !keep(downloads, now, place, (snapshot.clone(), notification.event)) {
        return false;
    }
    downloads.keep_besides(own, snapshot);
    true
}

fn keep(
    downloads: &mut Downloads,
    now: Timestamp,
    place: (TransferId, Owner),
    (snapshot, is_event): (Snapshot, bool),
) -> bool {
    if is_event {
        return downloads.keep_event(now, place, snapshot);
    }
    downloads.keep(now, place, snapshot);
    true
}

/// The size limits of a notification beside its options, of which its location may be long. `None`: it does not fit.
pub(super) fn limits_for(relation: &Relation, response: &Response<'_>) -> Option<Limits> {
    // Each level has a head of two bytes at most (RFC 7252 §3.1).
    let heads = |path: &str| 2 + 2 * path.bytes().filter(|byte| *byte == b'/').count();
    let location = response.location.map_or(0, |it| 1 + it.root.len() + it.path.len() + heads(it.path));
    let protection = if relation.exchange.is_some() { PROTECTION_BYTES } else { 0 };
    let options = NOTIFICATION_BYTES + relation.token.as_slice().len() + protection + location;
    relation.limits.beside(options, response.payload.as_slice().len())
}

/// Whether only a part of a response goes into the notification.
pub(super) fn is_cut(response: &Response<'_>, limits: Limits) -> bool {
    first_block(response, limits, None).block2.is_some()
}

/// The part of a notification that fits, and the options that say so (RFC 7959 §2.6).
pub(super) fn first_block<'a>(response: &Response<'a>, limits: Limits, observe: Option<u32>) -> Extra<'a> {
    let payload = response.payload.as_slice();
    // RFC 7641 §4.2: an error response carries no Observe option.
    let extra = Extra { observe, payload, ..Extra::default() };
    if payload.len() <= limits.whole {
        return extra;
    }
    let first = Block { number: 0, more: false, size: limits.size };
    match first.slice_of(payload, limits.chunk) {
        Some((block, part)) if block.more && response.code == Code::CONTENT => {
            Extra { payload: part, block2: Some(block), size2: u32::try_from(payload.len()).ok(), ..extra }
        }
        Some(_) | None => extra,
    }
}
