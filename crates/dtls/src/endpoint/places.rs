//! The slots of peers, found by address.

use std::hash::{BuildHasher as _, Hash};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::entry::Entry;

/// Numbers of slots under the hash of the peer that each slot holds. A map would keep every peer a second time, which
/// is more than the rest of what a resting session takes here.
#[derive(Default)]
pub(super) struct Places {
    slots: HashTable<usize>,
    hasher: RandomState,
}

impl Places {
    /// The slot of a peer.
    pub(super) fn find<P: Copy + Eq + Hash>(&self, entries: &[Option<Entry<P>>], peer: &P) -> Option<usize> {
        let holds = |slot: &usize| entries.get(*slot).and_then(Option::as_ref).is_some_and(|entry| entry.peer == *peer);
        self.slots.find(self.hasher.hash_one(peer), holds).copied()
    }

    /// Adds the peer that is in the slot by now, and that is in no other.
    pub(super) fn add<P: Copy + Eq + Hash>(&mut self, entries: &[Option<Entry<P>>], peer: &P, slot: usize) {
        let Self { slots, hasher } = self;
        let hash = |slot: &usize| {
            let entry = entries.get(*slot).and_then(Option::as_ref);
            entry.map_or(0, |entry| hasher.hash_one(entry.peer))
        };
        slots.insert_unique(hasher.hash_one(peer), slot, hash);
    }

    /// Removes a peer from its slot.
    pub(super) fn remove<P: Hash>(&mut self, peer: &P, slot: usize) {
        if let Ok(place) = self.slots.find_entry(self.hasher.hash_one(peer), |other| *other == slot) {
            place.remove();
        }
    }

    /// The number of peers.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}
