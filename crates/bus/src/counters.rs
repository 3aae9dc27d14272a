//! What the bus counts: every message in, out, and every one that was dropped, by reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Totals since the start; read by metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Publications that came in.
    pub published: AtomicU64,
    /// Deliveries handed to mailboxes.
    pub delivered: AtomicU64,
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

    /// Deliveries that waited in a mailbox when its owner went, and may be lost.
    pub fn gone(&self, count: u64) {
        if count > 0 {
            self.dropped_gone.fetch_add(count, Relaxed);
        }
    }

    /// Deliveries that expired in a mailbox, found when it was drained.
    pub fn expired(&self, count: u64) {
        self.dropped_expired.fetch_add(count, Relaxed);
    }
}
