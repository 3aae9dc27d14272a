//! One order per topic: publishers of retained messages hold a topic's lock from the retained map to the last mailbox.
//!
//! Two publishers on different workers would otherwise replace the retained message in one order and reach a mailbox in
//! the other, and the reader would be left with a value that is not the retained one. A batch with retained or
//! conditional publications – no other takes a lock – is cut into runs, so that a value becomes the retained one when all
//! that came before it on its topic is in the mailboxes: a reader that finds it then sees nothing older.
//!
//! Lock order: these locks, each after those of lower index; then the retained map, which is released before the first
//! slot is locked; then a slot. A reader that pulls retained messages locks its slot, then reads the map. Nothing that
//! holds a slot or the map waits for one of these locks.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;

use crate::message::Publication;

/// A bit of [`Shards`] each.
const SHARDS: usize = 64;

/// The locks that a run needs, one bit each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shards(u64);

/// See the module.
#[derive(Debug)]
pub(crate) struct Order {
    shards: [Mutex<()>; SHARDS],
    hasher: RandomState,
}

impl Default for Order {
    fn default() -> Self {
        Self { shards: [const { Mutex::new(()) }; SHARDS], hasher: RandomState::new() }
    }
}

impl Order {
    /// How many publications at the start of a batch make a run, and the locks they need. No topic of a run has anything
    /// before its retained publication.
    pub(crate) fn run(&self, batch: &[Publication<'_>]) -> (usize, Shards) {
        let (mut seen, mut ordered) = (0, 0);
        for (index, publication) in batch.iter().enumerate() {
            let shard: u64 = 1 << (self.hasher.hash_one(publication.topic.as_str()) % SHARDS as u64);
            if publication.is_ordered() {
                if seen & shard != 0 {
                    return (index, Shards(ordered));
                }
                ordered |= shard;
            }
            seen |= shard;
        }
        (batch.len(), Shards(ordered))
    }

    /// Takes the locks in ascending order, so that two workers never wait for each other.
    pub(crate) fn lock(&self, shards: Shards) -> SmallVec<[MutexGuard<'_, ()>; 4]> {
        let wanted = self.shards.iter().enumerate().filter(|(index, _)| shards.0 & 1 << index != 0);
        wanted.map(|(_, shard)| shard.lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }
}
