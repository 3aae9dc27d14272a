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
use crate::server::downloads::{Downloads, Snapshot};
use crate::server::peers::Limits;

/// Bytes of payload and location.
pub(super) fn size_of_content(response: &Response<'_>) -> usize {
    response.payload.as_slice().len() + response.location.map_or(0, |location| location.path.len())
}

/// Keeps the state for the client to fetch the rest of a large notification (RFC 7959 §2.6). An observer of a filter
/// may have several: each is kept under its own location, the newest also under the filter. False if there is no room
/// for one that has to be kept: others are still to be fetched.
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
    let Some(location) = response.location else {
        downloads.keep(now, own, snapshot);
        return true;
    };
    let place = ((relation.peer, scope, location_cache_key(location, hash)), owner);
    if !notification.event {
        downloads.keep(now, place, snapshot.clone());
    } else if !downloads.keep_event(now, place, snapshot.clone()) {
        return false;
    }
    downloads.keep_besides(own, snapshot);
    true
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
