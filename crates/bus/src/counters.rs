//! What the bus counts: every message in, out, and every one that was dropped, by reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Totals since the start; read by metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Publications that came in.
    pub published: AtomicU64,
    /// Deliveries that routing asked for: one for each publication and each subscriber that it goes to.
    pub matched: AtomicU64,
    /// Bytes of their payloads.
    pub published_bytes: AtomicU64,
    /// Bytes of payloads that were to be delivered, each as often as it matched.
    pub delivered_bytes: AtomicU64,
    /// Deliveries handed to mailboxes.
    pub delivered: AtomicU64,
    /// Messages that mailboxes handed to connections, at once or when they were drained.
    pub sent: AtomicU64,
    /// Retained messages put into mailboxes for new subscriptions.
    pub pulled: AtomicU64,
    /// Messages of a shared subscription that a member had not taken when it left, and that went to another.
    pub handed_on: AtomicU64,
    /// Deliveries thrown away because a queue was full (oldest or newest).
    pub dropped_full: AtomicU64,
    /// Deliveries thrown away because the message had expired.
    pub dropped_expired: AtomicU64,
    /// Deliveries thrown away because the subscriber takes no messages of that size.
    pub dropped_too_large: AtomicU64,
    /// Deliveries to mailboxes whose owner had gone.
    pub dropped_gone: AtomicU64,
    /// Values that were overtaken by a newer one, for subscribers that only want the newest.
    pub conflated: AtomicU64,
    /// Publications refused because there was no room to keep them, or because the bus takes no more.
    pub refused: AtomicU64,
    /// Publications that nobody was subscribed to.
    pub unmatched: AtomicU64,
    /// Cached routes used.
    pub route_hits: AtomicU64,
    /// Topics matched against the tree.
    pub route_misses: AtomicU64,
}

/// Counts of one batch, added to [`Counters`] at once: no atomic per message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
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
        for (total, count) in [
            (&self.published, tally.published),
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

    /// Deliveries that expired in a mailbox, found when it was drained.
    pub fn expired(&self, count: u64) {
        self.dropped_expired.fetch_add(count, Relaxed);
    }

    /// The result of draining a mailbox: messages handed to the connection, expired, and too large for the client.
    pub fn drained(&self, sent: u64, expired: u64, too_large: u64) {
        for (total, count) in
            [(&self.sent, sent), (&self.dropped_expired, expired), (&self.dropped_too_large, too_large)]
        {
            if count > 0 {
                total.fetch_add(count, Relaxed);
            }
        }
    }

    /// Retained messages put into a mailbox for a new subscription.
    pub fn pulled(&self, count: u64) {
        if count > 0 {
            self.pulled.fetch_add(count, Relaxed);
        }
    }

    /// Messages of a shared subscription that left a mailbox for another.
    pub fn handed_on(&self, count: u64) {
        if count > 0 {
            self.handed_on.fetch_add(count, Relaxed);
        }
    }

    /// Deliveries that a mailbox dropped for want of room when it was not delivered to.
    pub fn full(&self, count: u64) {
        if count > 0 {
            self.dropped_full.fetch_add(count, Relaxed);
        }
    }

    /// Waiting values that newer ones have replaced.
    pub fn overtaken(&self, count: u64) {
        if count > 0 {
            self.conflated.fetch_add(count, Relaxed);
        }
    }

    /// Deliveries that waited for an owner who has gone.
    pub fn gone(&self, count: u64) {
        if count > 0 {
            self.dropped_gone.fetch_add(count, Relaxed);
        }
    }
}
