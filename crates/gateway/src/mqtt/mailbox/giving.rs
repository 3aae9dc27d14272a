//! Memory that a mailbox gives back when memory is nearly gone; see `reclaim.rs`.

use std::sync::Arc;

use fogmux_bus::{Account, Mailbox, Qos, Timestamp};

use super::{
    super::{bounds::Standing, config::SlowSubscriber, reclaim::Held},
    MqttMailbox,
};
use crate::pause::READS;

/// The time in milliseconds, in four bytes: it comes round after seven weeks.
#[expect(clippy::cast_possible_truncation, reason = "meant")]
pub(super) const fn wrapped(now: Timestamp) -> u32 {
    now.as_millis() as u32
}

/// Whether so little time has passed since then. Publishers on other workers may look at the clock a little earlier.
const fn is_recent(then: u32, now: Timestamp) -> bool {
    let passed = wrapped(now).wrapping_sub(then).cast_signed();
    passed < 0 || passed.cast_unsigned() as u128 <= READS.as_millis()
}

impl MqttMailbox {
    /// The client has taken so many bytes.
    pub(super) fn note_taken(&mut self, bytes: usize) {
        self.taken = self.taken.wrapping_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// The account of its owner.
    pub(in crate::mqtt) const fn owned_by(&self) -> &Arc<Account> {
        &self.account
    }

    /// Gives the mailbox to another owner; see [`fogmux_bus::Slot::with_account`].
    pub(in crate::mqtt) fn give_to(&mut self, account: Arc<Account>) {
        self.account = account;
    }

    /// Returns the bytes it holds, and whether its client takes any.
    pub(in crate::mqtt) fn held(&self) -> Held {
        Held { bytes: self.buffered_bytes(), connected: self.connected, taken: self.taken }
    }

    /// The places in memory of the payloads that it holds.
    #[cfg(test)]
    pub(in crate::mqtt) fn payloads(&self) -> Vec<(*const u8, usize)> {
        let all = self.queue.iter().chain(self.outbound.messages());
        all.filter_map(|kept| kept.message()).map(|one| (one.payload.as_ptr(), one.payload.len())).collect()
    }

    /// Has an absent client hold `bytes` at most. Messages that the store has leave memory; if that is not enough the
    /// oldest are dropped, but none in flight. Returns how many were dropped, and the bytes that are left.
    pub(in crate::mqtt) fn trim(&mut self, bytes: usize) -> (u64, usize) {
        let mut dropped = 0;
        if self.buffered_bytes() > bytes {
            self.send_all_away();
        }
        while !self.connected && self.buffered_bytes() > bytes && self.drop_oldest() {
            dropped += 1;
        }
        drop(self.append());
        (dropped, self.buffered_bytes())
    }

    /// Has the client disconnected for what it holds.
    pub(in crate::mqtt) const fn evict(&mut self) {
        self.evicted = self.connected;
    }

    /// Whether there is room for a message that would make the queue longer: when memory is nearly gone, of the absent
    /// clients of the owner that holds most, only for those that hold less than an equal share of what absent ones may
    /// hold together.
    pub(super) fn may_grow(&self, cost: usize) -> bool {
        self.connected
            || cost <= self.queue.memory()
            || !(self.bounds.is_very_tight() && self.account.is_heaviest())
            || self.bounds.fits_absent(self.buffered_bytes() + cost)
    }

    /// Whether it takes another message at all, when mailboxes held so much before it came. A client that loses one of
    /// QoS 1 or 2 learns it at its next turn, or when memory is reclaimed.
    pub(super) fn may_take(&mut self, cost: usize, qos: Qos, held: usize, now: Timestamp) -> bool {
        self.note_begun(now);
        let takes = self.bounds.may_take(held, self.queue.memory() + cost, self.standing(now), &self.account);
        if !takes && qos > Qos::AtMostOnce && self.connected {
            self.lost = true;
        }
        takes
    }

    /// Notes that a message comes: the first one, if nothing is held.
    pub(super) fn note_begun(&mut self, now: Timestamp) {
        if self.buffered_bytes() == 0 {
            self.held_since = wrapped(now);
        }
    }

    /// A client that has acknowledged nothing yet had no chance to if it has just been sent its first message.
    fn standing(&self, now: Timestamp) -> Standing {
        if self.acknowledges {
            Standing::Known
        } else if self.connected && is_recent(self.held_since, now) {
            Standing::Fresh
        } else {
            Standing::Silent
        }
    }

    /// Whether the client is to be disconnected for messages that it lost, or for what it holds.
    pub(in crate::mqtt) fn is_overrun(&self) -> bool {
        self.evicted || (self.lost && self.bounds.slow_subscriber == SlowSubscriber::Disconnect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_seconds_are_recent_also_where_the_time_comes_round_and_clocks_differ() {
        for began in [0, 1, 5_000, (1 << 32) - 1, 1 << 32, (1 << 32) + 1] {
            let then = wrapped(Timestamp::from_millis(began));
            let at = |ms: i64| Timestamp::from_millis(began.saturating_add_signed(ms));
            assert!([-5, 0, 1, 2_000].map(at).into_iter().all(|now| is_recent(then, now)), "{began}");
            assert!([2_001, 3_000, 1 << 30].map(at).into_iter().all(|now| !is_recent(then, now)), "{began}");
        }
    }
}
