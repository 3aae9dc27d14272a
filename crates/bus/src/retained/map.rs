//! The retained messages in memory: found by topic, walked in order of topics, and counted for each principal.
//!
//! A search in a tree compares names at each step, and topics begin alike; so a single topic is found by its hash.

use std::{
    collections::{BTreeSet, btree_set},
    fmt,
    hash::BuildHasher,
    ops::Bound,
    sync::Arc,
};

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use crate::{
    footprint,
    message::Message,
    share::{Share, Shares},
    topic::Topic,
};

/// The number of places above which a table that is mostly empty is made smaller.
const SHRINK_ABOVE: usize = 1024;

/// All retained messages.
#[derive(Default)]
pub(super) struct Map {
    topics: BTreeSet<Topic>,
    /// With the hash of the topic, so that a table that grows reads no message.
    messages: HashTable<Place>,
    hasher: RandomState,
    bytes: usize,
    /// The messages of each principal, without the gateway's own.
    shares: Shares,
    /// The gateway's own status messages.
    status: Share,
}

struct Place {
    hash: u64,
    message: Arc<Message>,
}

/// The hash of a topic, for several calls about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(u64);

/// The memory of a message and of the one that it replaces, by [`footprint::of`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) bytes: usize,
    /// 0 if there is none.
    pub(super) old_bytes: usize,
}

impl Map {
    pub(super) fn hash(&self, topic: &str) -> Hash {
        Hash(self.hasher.hash_one(topic))
    }

    pub(super) fn get(&self, topic: &str) -> Option<&Arc<Message>> {
        self.find(self.hash(topic), topic)
    }

    pub(super) fn find(&self, Hash(hash): Hash, topic: &str) -> Option<&Arc<Message>> {
        let place = self.messages.find(hash, |place| place.hash == hash && place.message.topic.as_str() == topic);
        place.map(|place| &place.message)
    }

    /// The places that are taken: by all messages but the gateway's own.
    pub(super) fn taken(&self) -> Share {
        Share { count: self.len() - self.status.count, bytes: self.bytes - self.status.bytes }
    }

    /// The number of messages.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The memory of all messages; see [`footprint::of`].
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The messages of each principal.
    pub(super) const fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Makes a message its topic's.
    pub(super) fn insert(&mut self, hash: Hash, message: &Arc<Message>) {
        let old_bytes = self.find(hash, &message.topic).map_or(0, |old| footprint::of(old));
        self.replace(hash, message, Sizes { bytes: footprint::of(message), old_bytes });
    }

    /// The same, when the sizes are known.
    pub(super) fn replace(&mut self, Hash(hash): Hash, message: &Arc<Message>, sizes: Sizes) {
        let Sizes { bytes, old_bytes } = sizes;
        let is_it = |place: &Place| place.hash == hash && place.message.topic == message.topic;
        if let Some(place) = self.messages.find_mut(hash, is_it) {
            let old = std::mem::replace(&mut place.message, Arc::clone(message));
            // A value that follows one of the same publisher and size changes nothing.
            if bytes != old_bytes || !is_same_owner(message, &old) {
                self.count(message, bytes);
                self.discount(&old, old_bytes);
            }
            return;
        }
        self.count(message, bytes);
        self.topics.insert(message.topic.clone());
        self.messages.insert_unique(hash, Place { hash, message: Arc::clone(message) }, |place| place.hash);
    }

    /// Removes the message of a topic.
    pub(super) fn remove(&mut self, Hash(hash): Hash, topic: &str) {
        let is_it = |place: &Place| place.hash == hash && place.message.topic.as_str() == topic;
        let Ok(place) = self.messages.find_entry(hash, is_it) else { return };
        let old = place.remove().0.message;
        self.discount(&old, footprint::of(&old));
        self.topics.remove(topic);
        if self.messages.capacity() > SHRINK_ABOVE && self.messages.len() < self.messages.capacity() / 8 {
            self.messages.shrink_to(self.messages.len() * 2, |place| place.hash);
        }
    }

    fn count(&mut self, message: &Message, bytes: usize) {
        self.bytes += bytes;
        if is_status(message) {
            self.status.count += 1;
            self.status.bytes += bytes;
        } else {
            self.shares.add(&message.publisher.principal, bytes);
        }
    }

    fn discount(&mut self, message: &Message, bytes: usize) {
        self.bytes -= bytes;
        if is_status(message) {
            self.status.count -= 1;
            self.status.bytes -= bytes;
        } else {
            self.shares.remove(&message.publisher.principal, bytes);
        }
    }

    /// The topics that are not before `start` and behind `after`, in order.
    pub(super) fn topics(&self, start: &str, after: Option<&str>) -> btree_set::Range<'_, Topic> {
        let from = match after {
            Some(topic) if topic >= start => Bound::Excluded(topic),
            _ => Bound::Included(start),
        };
        self.topics.range::<str, _>((from, Bound::Unbounded))
    }
}

/// Whether it is one of the gateway's own status messages, which take no places (ADR 0031).
pub(super) fn is_status(message: &Message) -> bool {
    message.publisher.door.is_none()
}

fn is_same_owner(one: &Message, other: &Message) -> bool {
    is_status(one) == is_status(other) && one.publisher.principal == other.publisher.principal
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("messages", &self.len()).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        Timestamp,
        message::{Payload, Publication, Publisher},
        topic::TopicRef,
    };

    fn message(topic: &str, payload: &[u8]) -> Arc<Message> {
        let publisher = Publisher::internal();
        let topic = TopicRef::new(topic).unwrap();
        Arc::clone(Publication::new(topic, Payload::Slice(payload), &publisher, Timestamp::ZERO, 0).share())
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_map(steps in proptest::collection::vec((0..40u32, any::<bool>(), 0..50usize), 0..200)) {
            let (mut map, mut model) = (Map::default(), BTreeMap::new());
            for (topic, keep, length) in steps {
                let message = message(&format!("t/{topic}"), &vec![1; length]);
                let hash = map.hash(&message.topic);
                if keep {
                    map.insert(hash, &message);
                    model.insert(message.topic.clone(), message);
                } else {
                    map.remove(hash, &message.topic);
                    model.remove(&message.topic);
                }
            }
            prop_assert_eq!(map.len(), model.len());
            prop_assert_eq!(map.bytes(), model.values().map(|message| footprint::of(message)).sum::<usize>());
            prop_assert!(map.topics("", None).eq(model.keys()));
            for (topic, message) in &model {
                prop_assert!(map.get(topic).is_some_and(|found| Arc::ptr_eq(found, message)));
            }
        }
    }

    #[test]
    fn a_table_that_has_become_empty_gives_its_memory_back() {
        let mut map = Map::default();
        let messages: Vec<_> = (0..20_000).map(|number| message(&format!("t/{number}"), b"x")).collect();
        for message in &messages {
            map.insert(map.hash(&message.topic), message);
        }
        for message in &messages {
            map.remove(map.hash(&message.topic), &message.topic);
        }
        assert!(map.messages.capacity() <= SHRINK_ABOVE, "{}", map.messages.capacity());
        assert_eq!((map.len(), map.bytes(), map.topics("", None).count()), (0, 0, 0));
    }
}
