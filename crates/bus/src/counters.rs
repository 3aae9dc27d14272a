//! Counters of the bus: publications, deliveries, and every dropped message by reason.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{self, Relaxed},
};

use crate::door::Door;

/// Totals since the start, for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Publications that came in.
    pub published: ByDoor,
    /// Deliveries that routing asked for: one for each publication and each subscriber that it matched.
    pub matched: AtomicU64,
    /// Bytes of the payloads of publications.
    pub published_bytes: AtomicU64,
    /// Bytes of payloads to be delivered, counted once for each match.
    pub delivered_bytes: AtomicU64,
    /// Deliveries handed to mailboxes.
    pub delivered: AtomicU64,
    /// Messages that mailboxes handed to connections, at once or when they were drained.
    pub sent: AtomicU64,
    /// Retained messages put into mailboxes for new subscriptions.
    pub pulled: AtomicU64,
    /// Messages that waited for sessions when these were restored at the start.
    pub restored: AtomicU64,
    /// Messages of a shared subscription that a member had not taken when it left, and that went to another member.
    pub handed_on: AtomicU64,
    /// Deliveries thrown away because a queue was full (oldest or newest).
    pub dropped_full: AtomicU64,
    /// Deliveries thrown away because the message had expired.
    pub dropped_expired: AtomicU64,
    /// Deliveries thrown away because the subscriber takes no messages of that size.
    pub dropped_too_large: AtomicU64,
    /// Deliveries dropped because the mailbox's owner was gone.
    pub dropped_gone: AtomicU64,
    /// Values replaced by a newer one for subscribers that only want the newest.
    pub conflated: AtomicU64,
    /// Publications refused because they could not be stored or the bus was shut down.
    pub refused: AtomicU64,
    /// Publications delivered but not retained, because there was no room or the store failed, and whose publishers
    /// cannot be told.
    pub unkept: AtomicU64,
    /// Retained messages refused because the rest of the table is reserved for other principals.
    pub share_retained: AtomicU64,
    /// Subscriptions refused for the same reason.
    pub share_subscriptions: AtomicU64,
    /// Publications that matched no subscription.
    pub unmatched: AtomicU64,
    /// Publications routed by the cache.
    pub route_hits: AtomicU64,
    /// Topics matched against the tree.
    pub route_misses: AtomicU64,
}

/// A counter for each door: no more than one of them is touched for a batch.
#[derive(Debug, Default)]
pub struct ByDoor([AtomicU64; Door::ALL.len()]);

impl ByDoor {
    /// The counter of a door.
    #[must_use]
    pub fn of(&self, door: Door) -> Option<&AtomicU64> {
        self.0.get(door.place())
    }

    /// The sum of all doors.
    pub fn load(&self, order: Ordering) -> u64 {
        self.0.iter().map(|count| count.load(order)).sum()
    }
}

/// Counts of one batch, added to [`Counters`] at once: no atomic per message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The door that the publications came in by.
    pub(crate) door: Option<Door>,
    pub(crate) published: u64,
    pub(crate) matched: u64,
    pub(crate) sent: u64,
    pub(crate) published_bytes: u64,
    pub(crate) delivered_bytes: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped_full: u64,
    pub(crate) dropped_expired: u64,
    pub(crate) dropped_too_large: u64,
    pub(crate) dropped_gone: u64,
    pub(crate) conflated: u64,
    pub(crate) refused: u64,
    pub(crate) unmatched: u64,
    pub(crate) route_hits: u64,
    pub(crate) route_misses: u64,
}

impl Counters {
    pub(crate) fn add(&self, tally: &Tally) {
        if let Some(published) = tally.door.and_then(|door| self.published.of(door)).filter(|_| tally.published > 0) {
            published.fetch_add(tally.published, Relaxed);
        }
        for (total, count) in [
            (&self.matched, tally.matched),
            (&self.sent, tally.sent),
            (&self.published_bytes, tally.published_bytes),
            (&self.delivered_bytes, tally.delivered_bytes),
            (&self.delivered, tally.delivered),
            (&self.dropped_full, tally.dropped_full),
            (&self.dropped_expired, tally.dropped_expired),
            (&self.dropped_too_large, tally.dropped_too_large),
            (&self.dropped_gone, tally.dropped_gone),
            (&self.conflated, tally.conflated),
            (&self.refused, tally.refused),
            (&self.unmatched, tally.unmatched),
            (&self.route_hits, tally.route_hits),
            (&self.route_misses, tally.route_misses),
        ] {
            if count > 0 {
                total.fetch_add(count, Relaxed);
            }
        }
    }

    /// Counts a refusal by [`crate::Room`] in one of the two counters above.
    pub(crate) fn beyond_share(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    /// Counts messages that were found expired when a mailbox was drained.
    pub fn expired(&self, count: u64) {
        self.dropped_expired.fetch_add(count, Relaxed);
    }

    /// Counts what draining a mailbox yielded: messages handed to the connection, expired, and too large for the
    /// client.
    pub fn drained(&self, sent: u64, expired: u64, too_large: u64) {
        for (total, count) in
            [(&self.sent, sent), (&self.dropped_expired, expired), (&self.dropped_too_large, too_large)]
        {
            if count > 0 {
                total.fetch_add(count, Relaxed);
            }
        }
    }

    /// Counts retained messages put into a mailbox for a new subscription.
    pub fn pulled(&self, count: u64) {
        if count > 0 {
            self.pulled.fetch_add(count, Relaxed);
        }
    }

    /// Counts messages that wait for a session that was restored.
    pub fn restored(&self, count: u64) {
        self.restored.fetch_add(count, Relaxed);
    }

    /// Counts messages of a shared subscription that left a mailbox for another one.
    pub fn handed_on(&self, count: u64) {
        if count > 0 {
            self.handed_on.fetch_add(count, Relaxed);
        }
    }

    /// Counts messages that a mailbox dropped for lack of room outside of a delivery.
    pub fn full(&self, count: u64) {
        if count > 0 {
            self.dropped_full.fetch_add(count, Relaxed);
        }
    }

    /// Counts waiting values that newer ones have replaced.
    pub fn overtaken(&self, count: u64) {
        if count > 0 {
            self.conflated.fetch_add(count, Relaxed);
        }
    }

    /// Counts messages that waited for an owner that is gone.
    pub fn gone(&self, count: u64) {
        if count > 0 {
            self.dropped_gone.fetch_add(count, Relaxed);
        }
    }
}
