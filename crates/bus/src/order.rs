//! One order per topic: a publisher of retained messages holds its topic's lock from the retained map to the last
//! mailbox.
//!
//! Without it, two publishers on different workers could replace the retained message in one order and reach a mailbox
//! in the other, and the reader would end on a value that is not the retained one. Only batches with retained or
//! conditional publications take locks. Such a batch is cut into runs, so that a publication becomes the retained
//! message only when everything before it on its topic is in the mailboxes: a reader that looks it up then sees nothing
//! older afterwards.
//!
//! Lock order: these locks by ascending index; then the retained map, which is released before the first slot is
//! locked; then a slot. A reader that pulls retained messages locks its slot, then reads the map. A holder of a slot or
//! of the map never waits for one of these locks.

use std::{
    hash::BuildHasher,
    sync::{Mutex, MutexGuard, PoisonError},
};

use foldhash::quality::RandomState;
use smallvec::SmallVec;

use crate::message::Publication;

/// Locks that topics are hashed to; one bit each in [`Shards`].
const SHARDS: usize = 64;
/// Words of the marks by which a run knows the topics before: with 512 bits, some thirty different topics make a run.
const SEEN_WORDS: usize = 8;

/// A set of locks, one bit each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shards(u64);

/// Locks that are held.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    shards: Shards,
    _guards: SmallVec<[MutexGuard<'a, ()>; 4]>,
}

impl Held<'_> {
    /// Whether all of these locks are among them.
    pub(crate) const fn covers(&self, shards: Shards) -> bool {
        shards.0 & !self.shards.0 == 0
    }
}

/// The locks of all topics; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Order {
    shards: [Mutex<()>; SHARDS],
    hasher: RandomState,
}

impl Default for Order {
    fn default() -> Self {
        Self { shards: [const { Mutex::new(()) }; SHARDS], hasher: RandomState::default() }
    }
}

impl Order {
    /// The number of publications at the start of a batch that form a run, and the locks they need. In a run, nothing
    /// comes before a retained publication on its topic.
    pub(crate) fn run(&self, batch: &[Publication<'_>]) -> (usize, Shards) {
        let (mut seen, mut ordered) = ([0_u64; SEEN_WORDS], 0);
        for (index, publication) in batch.iter().enumerate() {
            let hash = self.hasher.hash_one(publication.topic.as_str());
            let Some(seen) = seen.get_mut((hash >> 32) as usize % SEEN_WORDS) else { continue };
            let mark = 1 << ((hash >> 48) % u64::from(u64::BITS));
            if publication.is_ordered() {
                if *seen & mark != 0 {
                    return (index, Shards(ordered));
                }
                ordered |= 1 << (hash % SHARDS as u64);
            }
            *seen |= mark;
        }
        (batch.len(), Shards(ordered))
    }

    /// Takes the locks in ascending order, so that two workers never wait for each other.
    pub(crate) fn lock(&self, shards: Shards) -> Held<'_> {
        let mut guards = SmallVec::new();
        let mut left = shards.0;
        while let Some(shard) = self.shards.get(left.trailing_zeros() as usize) {
            guards.push(shard.lock().unwrap_or_else(PoisonError::into_inner));
            left &= left - 1;
        }
        Held { shards, _guards: guards }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Arc};

    use super::*;
    use crate::{
        Timestamp,
        meaning::Meaning,
        message::{Payload, Publisher},
        topic::TopicRef,
    };

    fn publication<'a>(topic: &'a str, publisher: &'a Arc<Publisher>) -> Publication<'a> {
        let topic = TopicRef::new(topic).unwrap();
        let mut publication = Publication::new(topic, Payload::Slice(b"1"), publisher, Timestamp::ZERO, 0);
        publication.meaning = Meaning::Value;
        publication
    }

    #[test]
    fn different_topics_make_long_runs_and_a_topic_is_in_each_once() {
        let (order, publisher) = (Order::default(), Publisher::internal());
        let topics: Vec<String> = (0..4000).map(|number| format!("t/{}", number % 3000)).collect();
        let batch: Vec<_> = topics.iter().map(|topic| publication(topic, &publisher)).collect();
        let (mut rest, mut runs) = (&*batch, 0);
        while !rest.is_empty() {
            let (count, shards) = order.run(rest);
            let (run, later) = rest.split_at(count);
            let distinct: HashSet<&str> = run.iter().map(|publication| publication.topic.as_str()).collect();
            assert_eq!(distinct.len(), run.len());
            assert!(run.iter().all(|publication| {
                let alone = order.run(std::slice::from_ref(publication)).1;
                alone.0 & !shards.0 == 0
            }));
            (rest, runs) = (later, runs + 1);
        }
        assert!(runs < 4000 / 20, "{runs} runs of 4000 publications");
    }
}
