//! Messages of shared subscriptions that a member has left behind, at the doors that have no sessions.

use std::sync::Arc;

use fogmux_bus::{Message, Subscription};

use crate::WorkerContext;

/// Hands messages that waited for a member, by the tags of its shared subscriptions, to other members.
pub(crate) fn hand_on_tagged(
    ctx: &WorkerContext,
    left: Vec<(u64, Arc<Message>)>,
    of_tag: impl Fn(u64) -> Option<Arc<Subscription>>,
) {
    let waited = left.len();
    let left: Vec<_> = left.into_iter().filter_map(|(tag, message)| Some((message, of_tag(tag)?))).collect();
    // A subscription that has ended is not found, and its messages are dropped.
    ctx.bus().counters().gone((waited - left.len()) as u64);
    hand_on(ctx, left);
}

/// Hands messages that waited for a member to other members. To be called when it is not connected any more, or may not
/// read them any more.
pub(crate) fn hand_on(ctx: &WorkerContext, mut left: Vec<(Arc<Message>, Arc<Subscription>)>) {
    if left.is_empty() {
        return;
    }
    let now = ctx.now();
    let waited = left.len();
    left.retain(|(message, _)| !message.is_expired(now));
    let counters = ctx.bus().counters();
    counters.handed_on(left.len() as u64);
    counters.expired((waited - left.len()) as u64);
    // The members that have them now keep them, stored or not.
    drop(ctx.worker.borrow_mut().hand_on(&left, None));
}
