//! Sources and users that have recently logged in.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
};

use super::ring::Source;

/// Bounded: the least recent is forgotten first. Users are held as a hash under a key of this process.
#[derive(Debug)]
pub(super) struct Known {
    keys: RandomState,
    sources: Latest,
    users: Latest,
    entries_max: usize,
}

/// The number at which each was noted last.
#[derive(Debug, Default)]
struct Latest {
    noted: HashMap<u64, u64>,
    now: u64,
}

impl Known {
    pub(super) fn new(entries_max: usize) -> Self {
        Self { keys: RandomState::new(), sources: Latest::default(), users: Latest::default(), entries_max }
    }

    pub(super) fn configure(&mut self, entries_max: usize) {
        self.entries_max = entries_max;
        self.sources.shrink(entries_max);
        self.users.shrink(entries_max);
    }

    pub(super) fn note(&mut self, source: Source, user: &str) {
        self.sources.note(self.keys.hash_one(source), self.entries_max);
        self.users.note(self.keys.hash_one((source, user)), self.entries_max);
    }

    pub(super) fn has_source(&self, source: Source) -> bool {
        self.sources.noted.contains_key(&self.keys.hash_one(source))
    }

    pub(super) fn has_user(&self, source: Source, user: &str) -> bool {
        self.users.noted.contains_key(&self.keys.hash_one((source, user)))
    }
}

impl Latest {
    fn note(&mut self, key: u64, entries_max: usize) {
        self.now += 1;
        self.noted.insert(key, self.now);
        if self.noted.len() > entries_max {
            // A quarter at once, so that the map is not walked for each login.
            self.shrink(entries_max - entries_max / 4);
        }
    }

    fn shrink(&mut self, entries_max: usize) {
        let Some(surplus) = self.noted.len().checked_sub(entries_max).filter(|surplus| *surplus > 0) else { return };
        let mut times: Vec<u64> = self.noted.values().copied().collect();
        times.sort_unstable();
        let newest_to_go = times.get(surplus - 1).copied().unwrap_or_default();
        self.noted.retain(|_, time| *time > newest_to_go);
    }
}
