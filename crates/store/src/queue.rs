//! The share of each principal in what waits for the disk (ADR 0031).
//!
//! Everything counts from the call until its outcome is known: what waits, and what is being written. So a disk that
//! does not answer stops what is put, of each principal by its own share, and the memory of pending writes is bounded.
//! Removals are never refused. One of what is on the disk counts nothing: there are no more of those than of that, and
//! others are not refused for their sake. One of what still waits counts as that did, or topics that come and go would
//! have no bound.

use std::{hash::BuildHasher as _, sync::Arc};

use fogmux_bus::{NoRoom, RESERVE_PERCENT, Room, Shares};
use foldhash::quality::RandomState;

/// Bytes that a write counts beside its name and its value: what the store keeps about it until its outcome is known.
const WRITE_BYTES: usize = 256;

/// The lane of batches whose users have no names for their records, in order.
pub(crate) const LANE_OF_OTHERS: u64 = 0;
/// The lane of trials.
pub(crate) const LANE_OF_TRIALS: u64 = 1;

/// The bytes that a write counts, and for whom.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    principal: Arc<str>,
    bytes: usize,
}

impl Charge {
    /// A write of so many bytes, with its name.
    pub(crate) fn of(principal: &Arc<str>, bytes: usize) -> Self {
        Self { principal: Arc::clone(principal), bytes: bytes + WRITE_BYTES }
    }

    /// A part of a write that counts for another principal: what the store keeps about it counts once.
    pub(crate) fn part(principal: &Arc<str>, bytes: usize) -> Self {
        Self { principal: Arc::clone(principal), bytes }
    }

    /// A removal of what is on the disk.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// Its bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// All that waits, by principal.
#[derive(Debug)]
pub(crate) struct Queue {
    room: Room,
    shares: Shares,
    used: usize,
    hasher: RandomState,
}

impl Queue {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let room = Room::new(bytes_max, RESERVE_PERCENT);
        Self { room, shares: Shares::default(), used: 0, hasher: RandomState::default() }
    }

    /// Whether a write may be added in the place of one of `less` bytes.
    pub(crate) fn admit(&self, charge: &Charge, less: usize) -> Result<(), NoRoom> {
        let own = self.shares.of(&charge.principal).bytes;
        match charge.bytes.saturating_sub(less) {
            0 => Ok(()),
            _ if self.used == 0 => Ok(()),
            more => self.room.admit(self.used, own, more),
        }
    }

    /// Bytes that are free for all, whoever has how much.
    pub(crate) const fn free(&self) -> usize {
        self.room.free_for_all(self.used)
    }

    /// Whether less than a quarter of the room for all waits.
    pub(crate) const fn has_room(&self) -> bool {
        self.used < self.free() / 3
    }

    pub(crate) fn add(&mut self, charge: &Charge) {
        if charge.bytes == 0 {
            return;
        }
        self.used += charge.bytes;
        self.shares.add(&charge.principal, charge.bytes);
    }

    pub(crate) fn remove(&mut self, charge: &Charge) {
        if charge.bytes == 0 {
            return;
        }
        self.used -= charge.bytes;
        self.shares.remove(&charge.principal, charge.bytes);
    }

    /// A write takes the place of one that counted `there`.
    pub(crate) fn replace(&mut self, there: &mut Charge, charge: Charge) {
        if there.bytes != charge.bytes || !Arc::ptr_eq(&there.principal, &charge.principal) {
            self.add(&charge);
            self.remove(there);
        }
        *there = charge;
    }

    /// The lane of a principal's writes of names: sharing one with another by chance does no harm.
    pub(crate) fn lane(&self, principal: &str) -> u64 {
        self.hasher.hash_one(principal).max(LANE_OF_TRIALS + 1)
    }

    /// Bytes that wait.
    #[cfg(test)]
    pub(crate) const fn used(&self) -> usize {
        self.used
    }
}
