//! The place of each live record: 20 bytes a part, in order of the keys.
//!
//! Keys mostly ascend and are mostly removed from the front, so the index is a deque of sorted runs, which are deques
//! themselves: no pointers, no empty buckets, and iteration in order of the identifiers.

use std::{collections::VecDeque, ops::RangeInclusive};

use crate::{
    disk::Slot,
    entry::PUT,
    record::{Key, RecordId},
};

/// Entries of a run at most.
const RUN: usize = 512;
/// A run that is shorter joins the next one, if there is room.
const SHORT: usize = RUN / 4;

/// Where a part of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: Slot,
    /// Position of the entry in the content of the segment.
    pub(crate) position: u32,
    /// Bytes of the part, without the entry's head.
    pub(crate) bytes: u32,
}

impl Place {
    /// Bytes of the entry.
    pub(crate) const fn entry_bytes(&self) -> u32 {
        PUT + self.bytes
    }
}

// The key is in halves, so that an entry has an alignment, and no padding, of four bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    high: u32,
    low: u32,
    place: Place,
}

impl Entry {
    const fn new(key: Key, place: Place) -> Self {
        Self { high: (key.get() >> 32) as u32, low: (key.get() & 0xffff_ffff) as u32, place }
    }

    const fn key(&self) -> Key {
        Key::from_u64((self.high as u64) << 32 | self.low as u64)
    }
}

/// The places of all live records.
#[derive(Debug, Default)]
pub(crate) struct Index {
    // None is empty.
    runs: VecDeque<VecDeque<Entry>>,
    length: usize,
}

impl Index {
    /// The number of parts.
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn get(&self, key: Key) -> Option<Place> {
        let run = self.runs.get(self.run_of(key))?;
        let at = run.binary_search_by_key(&key, Entry::key).ok()?;
        run.get(at).map(|entry| entry.place)
    }

    /// Sets the place of a part. Returns the one it had.
    pub(crate) fn insert(&mut self, key: Key, place: Place) -> Option<Place> {
        let at_run = self.run_of(key);
        let is_last = at_run + 1 == self.runs.len();
        let Some(run) = self.runs.get_mut(at_run) else {
            self.runs.push_back(VecDeque::from([Entry::new(key, place)]));
            self.length += 1;
            return None;
        };
        match run.binary_search_by_key(&key, Entry::key) {
            Ok(at) => return run.get_mut(at).map(|entry| std::mem::replace(&mut entry.place, place)),
            Err(at) if run.len() < RUN => run.insert(at, Entry::new(key, place)),
            Err(at) if is_last && at == run.len() => self.runs.push_back(VecDeque::from([Entry::new(key, place)])),
            Err(at) => {
                let mut upper = run.split_off(RUN / 2);
                if at <= RUN / 2 {
                    run.insert(at, Entry::new(key, place));
                } else {
                    upper.insert(at - RUN / 2, Entry::new(key, place));
                }
                self.runs.insert(at_run + 1, upper);
            }
        }
        self.length += 1;
        None
    }

    /// Removes a part. Returns where it was.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Place> {
        let at_run = self.run_of(key);
        let run = self.runs.get_mut(at_run)?;
        let at = run.binary_search_by_key(&key, Entry::key).ok()?;
        let entry = run.remove(at)?;
        self.length -= 1;
        if run.len() <= run.capacity() / 2 {
            run.shrink_to(run.len().next_multiple_of(8));
        }
        if run.is_empty() {
            self.runs.remove(at_run);
        } else if run.len() < SHORT {
            self.join(at_run);
            self.join(at_run.wrapping_sub(1));
        }
        if self.runs.len() < self.runs.capacity() / 4 {
            self.runs.shrink_to(self.runs.len() * 2);
        }
        Some(entry.place)
    }

    /// Removes all parts of records, those included that are there without the first. Returns where they were. It takes
    /// as long as there are parts, not identifiers.
    pub(crate) fn remove_records(&mut self, ids: RangeInclusive<RecordId>) -> impl Iterator<Item = (Key, Place)> {
        std::iter::from_fn(move || {
            let key = self.first_from(ids.start().key(0)).filter(|key| key.id() <= *ids.end())?;
            Some((key, self.remove(key)?))
        })
    }

    // The first key that is not below this one.
    fn first_from(&self, key: Key) -> Option<Key> {
        let at_run = self.run_of(key);
        let run = self.runs.get(at_run)?;
        let at = run.partition_point(|entry| entry.key() < key);
        let found = run.get(at).or_else(|| self.runs.get(at_run + 1)?.front());
        found.map(Entry::key)
    }

    /// Removes the parts that `keep` refuses.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Key, Place) -> bool) {
        for run in &mut self.runs {
            run.retain(|entry| keep(entry.key(), entry.place));
        }
        self.runs.retain(|run| !run.is_empty());
        self.length = self.runs.iter().map(VecDeque::len).sum();
    }

    /// All parts, in order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, Place)> {
        self.runs.iter().flatten().map(|entry| (entry.key(), entry.place))
    }

    /// The parts from a key on, in order.
    pub(crate) fn from(&self, key: Key) -> impl Iterator<Item = (Key, Place)> {
        let runs = self.runs.range(self.run_of(key).min(self.runs.len())..);
        runs.flatten().map(|entry| (entry.key(), entry.place)).skip_while(move |(found, _)| *found < key)
    }

    /// Bytes of memory that the index has allocated.
    pub(crate) fn memory(&self) -> usize {
        let runs = self.runs.iter().map(VecDeque::capacity).sum::<usize>() * size_of::<Entry>();
        runs + self.runs.capacity() * size_of::<VecDeque<Entry>>()
    }

    // The run in which the key is, or would be.
    fn run_of(&self, key: Key) -> usize {
        self.runs.partition_point(|run| run.front().is_some_and(|first| first.key() <= key)).saturating_sub(1)
    }

    // Joins a run and the next one, if both are there and short.
    fn join(&mut self, at: usize) {
        let after = at.wrapping_add(1);
        let both = self.runs.get(at).zip(self.runs.get(after));
        if both.is_some_and(|(run, next)| run.len() + next.len() <= RUN / 2)
            && let Some(next) = self.runs.remove(after)
            && let Some(run) = self.runs.get_mut(at)
        {
            run.reserve_exact(next.len());
            run.extend(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn place(position: u32) -> Place {
        Place { slot: Slot(1), position, bytes: 3 }
    }

    #[test]
    fn is_a_map() {
        for seed in 0..20_u64 {
            let (mut index, mut model) = (Index::default(), BTreeMap::new());
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            for n in 0..4000 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Both halves of the key differ, and keys come back.
                let key = Key::from_u64(((random >> 20) % 3000) << 30);
                if random % (2 + seed % 3) == 0 {
                    assert_eq!(index.remove(key), model.remove(&key));
                } else {
                    assert_eq!(index.insert(key, place(n)), model.insert(key, place(n)));
                }
                assert_eq!(index.get(key), model.get(&key).copied());
            }
            assert_eq!(index.len(), model.len());
            assert!(index.iter().eq(model.into_iter()));
        }
    }

    #[test]
    fn memory_is_given_back_however_records_are_forgotten() {
        assert_eq!(size_of::<Entry>(), 20);
        let mut index = Index::default();
        (0..100_000).for_each(|n| assert!(index.insert(Key::from_u64(n << 8), place(0)).is_none()));
        assert!(index.memory() <= 100_000 * 24, "{}", index.memory());
        (0..100_000).filter(|n| n % 1000 != 0).for_each(|n| assert!(index.remove(Key::from_u64(n << 8)).is_some()));
        assert_eq!(index.len(), 100);
        assert!(index.memory() <= 8_000, "{}", index.memory());
    }

    #[test]
    fn a_range_of_records_is_removed_with_all_their_parts() {
        let id = |number| RecordId::new(number).unwrap();
        let mut index = Index::default();
        for (number, part) in [(1, 0), (1, 1), (5, 3), (5, 255), (9, 0), (RecordId::MAX.get(), 255)] {
            assert_eq!(index.insert(id(number).key(part), place(0)), None);
        }
        let mut remove =
            |first, last| index.remove_records(id(first)..=id(last)).map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(remove(2, 4), []);
        assert_eq!(remove(0, 5), [id(1).key(0), id(1).key(1), id(5).key(3), id(5).key(255)]);
        assert_eq!(remove(10, RecordId::MAX.get()), [RecordId::MAX.key(255)]);
        assert_eq!(remove(9, 9), [id(9).key(0)]);
        assert_eq!((index.len(), index.iter().count()), (0, 0));
    }
}
