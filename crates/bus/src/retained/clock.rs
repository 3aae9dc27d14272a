//! Retained messages and the wall clock: what the store gives back, and what a clock that is set changes.
//!
//! While the process runs, a message expires by the monotonic clock. Its expiry is stored by the wall clock, which a
//! board without a battery has wrong until it hears of the time. So when the clock is set,
//!
//! - messages that were published since the start keep the time that is left to them, and are stamped and stored again;
//! - messages that the store gave back have the time left that their stored expiry says by the new clock.
//!
//! Nothing has more time left than it was published with. A stored expiry by a clock that had not been set says only
//! how long that is.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError},
    time::Duration,
};

use super::{
    Completion, Retained, Stored,
    map::Map,
    restored::{Shared, again},
};
use crate::{Timestamp, message::Message, topic::Topic};

/// 2025-01-01T00:00:00Z. A clock before that was not set.
const EARLIEST_UNIX_MS: u64 = 1_735_689_600_000;
/// Messages that had expired when they were loaded, or when the clock was set, leave the store after this time: until
/// then the clock may turn out to have been ahead.
const GRACE: Duration = Duration::from_hours(1);

/// A wall clock that was set: the start of the process by it, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSet {
    /// The start by the clock as it was.
    pub before_unix_ms: u64,
    /// The start by the clock as it is now.
    pub origin_unix_ms: u64,
}

/// The life of a stored message by the wall clock.
#[derive(Clone, Copy, Debug)]
struct Life {
    ingest_unix_ms: u64,
    expires_unix_ms: u64,
}

impl Life {
    const fn whole_ms(self) -> u64 {
        self.expires_unix_ms.saturating_sub(self.ingest_unix_ms)
    }

    fn left_ms(self, now_unix_ms: u64) -> u64 {
        self.expires_unix_ms.saturating_sub(now_unix_ms).min(self.whole_ms())
    }

    /// The time left, by a clock that may not have been set, or not have been when the message came in.
    fn told_ms(self, now_unix_ms: u64) -> u64 {
        let is_told = self.is_dated() || (self.ingest_unix_ms..EARLIEST_UNIX_MS).contains(&now_unix_ms);
        if is_told { self.left_ms(now_unix_ms) } else { self.whole_ms() }
    }

    /// Whether the clock that stamped it had been set.
    const fn is_dated(self) -> bool {
        self.expires_unix_ms >= EARLIEST_UNIX_MS
    }
}

/// Messages that the store gave back, and whose expiry depends on the wall clock.
#[derive(Debug, Default)]
pub(super) struct Clocked {
    /// The lives of messages that expire.
    restored: HashMap<Topic, Life>,
    /// Topics whose messages had expired when they were loaded or the clock was set, and that are still in the store.
    expired: HashSet<Topic>,
    /// When that was last.
    hidden_at: Timestamp,
}

impl Retained {
    /// Loads the stored messages. `now` and `now_unix_ms` are the same moment on both clocks.
    pub(crate) fn load(&self, now: Timestamp, now_unix_ms: u64) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let mut clocked = self.clocked.lock().unwrap_or_else(PoisonError::into_inner);
        clocked.hidden_at = now;
        let mut shared = Shared::default();
        self.store.load(&mut |stored| self.take_in(&mut map, &mut clocked, &mut shared, stored, (now, now_unix_ms)));
    }

    fn take_in(
        &self,
        map: &mut Map,
        clocked: &mut Clocked,
        shared: &mut Shared,
        mut stored: Stored,
        (now, now_unix_ms): (Timestamp, u64),
    ) {
        let (topic, expires) = (stored.topic.clone(), stored.expires_unix_ms);
        let life = expires.map(|expires| Life { ingest_unix_ms: stored.ingest_unix_ms, expires_unix_ms: expires });
        let left = life.map(|life| life.told_ms(now_unix_ms));
        if left == Some(0) {
            clocked.expired.insert(topic);
            return;
        }
        clocked.expired.remove(&topic);
        let undated = life.is_some_and(|life| !life.is_dated());
        if undated {
            stored.ingest_unix_ms = now_unix_ms;
        }
        let message = Arc::new(shared.restore(stored, now, left));
        if undated {
            // Or it would have its whole life again after each restart. One that is refused is in the store as it was,
            // so it is also what readers have then.
            drop(self.store.put(&message, left.map(|ms| now_unix_ms.saturating_add(ms)), Some(&message)));
        } else if let Some(life) = life {
            clocked.restored.insert(topic, life);
        }
        let hash = map.hash(&message.topic);
        map.insert(hash, &message);
    }

    /// Brings up to `limit` messages behind `after` in line with a clock that was set. Returns where to go on.
    pub(crate) fn restamp(
        &self,
        clock: ClockSet,
        after: Option<&Topic>,
        limit: usize,
        now: Timestamp,
    ) -> Option<Topic> {
        if after.is_none() && clock.origin_unix_ms < clock.before_unix_ms {
            self.revive(clock, now);
        }
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let mut clocked = self.clocked.lock().unwrap_or_else(PoisonError::into_inner);
        let topics: Vec<Topic> = map.topics("", after.map(Topic::as_str)).take(limit).cloned().collect();
        for topic in &topics {
            let hash = map.hash(topic);
            let Some(message) = map.find(hash, topic) else { continue };
            if message.ingest_unix_ms == clock.before_unix_ms.saturating_add(message.ingest.as_millis()) {
                let ingest_unix_ms = clock.origin_unix_ms.saturating_add(message.ingest.as_millis());
                let renewed = Arc::new(again(message, ingest_unix_ms, message.expires_at));
                let expires = expires_unix_ms(&renewed);
                // One that is refused is in the store as it was: nothing better is known of it after a restart.
                drop(self.store.put(&renewed, expires, Some(message)));
                map.insert(hash, &renewed);
            } else if let Some(life) = clocked.restored.get(topic).copied()
                && life.ingest_unix_ms == message.ingest_unix_ms
            {
                let left = life.left_ms(clock.origin_unix_ms.saturating_add(now.as_millis()));
                if left == 0 {
                    // Hidden, not removed: the clock may turn out to be ahead.
                    map.remove(hash, topic);
                    clocked.restored.remove(topic);
                    clocked.expired.insert(topic.clone());
                    clocked.hidden_at = now;
                    continue;
                }
                let renewed = again(message, message.ingest_unix_ms, Some(now + Duration::from_millis(left)));
                map.insert(hash, &Arc::new(renewed));
            } else {
                clocked.restored.remove(topic);
            }
        }
        topics.into_iter().next_back()
    }

    /// Loads again what had expired only by a clock that was ahead.
    fn revive(&self, clock: ClockSet, now: Timestamp) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let mut clocked = self.clocked.lock().unwrap_or_else(PoisonError::into_inner);
        if clocked.expired.is_empty() {
            return;
        }
        let now_unix_ms = clock.origin_unix_ms.saturating_add(now.as_millis());
        let mut shared = Shared::default();
        self.store.load(&mut |stored| {
            if clocked.expired.contains(&stored.topic) && map.get(&stored.topic).is_none() {
                self.take_in(&mut map, &mut clocked, &mut shared, stored, (now, now_unix_ms));
            }
        });
    }

    /// Removes a topic's message from the store that had expired when it was loaded: once cleared, it does not come
    /// back when the clock is set back. `None` if there is no such message.
    pub(super) fn clear_expired(&self, topic: &str) -> Option<Completion> {
        let mut clocked = self.clocked.lock().unwrap_or_else(PoisonError::into_inner);
        let topic = clocked.expired.get(topic)?.clone();
        let completion = self.store.remove(&topic, None);
        if !matches!(completion, Completion::Failed) {
            clocked.expired.remove(&topic);
        }
        Some(completion)
    }

    /// Removes up to `limit` messages from the store that had expired when they were loaded or the clock was set.
    pub(super) fn sweep_loaded(&self, limit: usize, now: Timestamp) {
        let clocked = || self.clocked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |clocked: &Clocked| !clocked.expired.is_empty() && now.since(clocked.hidden_at) >= GRACE;
        if !is_due(&clocked()) {
            return;
        }
        let map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let mut clocked = clocked();
        // Under the map's lock, so that no publication comes between.
        let topics: Vec<Topic> = clocked.expired.iter().take(limit).cloned().collect();
        for topic in topics {
            clocked.expired.remove(&topic);
            if map.get(&topic).is_none() {
                // Nobody waits for the completion: an expired message that is loaded again is dropped then.
                drop(self.store.remove(&topic, None));
            }
        }
        if clocked.expired.is_empty() {
            clocked.expired = HashSet::new();
        }
    }
}

/// The milliseconds that something is left which began and ends at these times, by a clock of which the same is true.
pub(crate) fn left_ms(began_unix_ms: u64, ends_unix_ms: u64, now_unix_ms: u64) -> u64 {
    Life { ingest_unix_ms: began_unix_ms, expires_unix_ms: ends_unix_ms }.told_ms(now_unix_ms)
}

/// The expiry of a message in milliseconds since 1970.
pub(crate) fn expires_unix_ms(message: &Message) -> Option<u64> {
    let life = message.expires_at?.since(message.ingest).as_millis();
    Some(message.ingest_unix_ms.saturating_add(u64::try_from(life).unwrap_or(u64::MAX)))
}
