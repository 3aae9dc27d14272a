//! The queue of a client, and what it takes up.

use std::collections::VecDeque;

use fogmux_bus::durable::{RecordId, StoredDelivery};

use super::super::kept::Kept;

/// A queue is given back when it is empty and had room for more than this.
const CAPACITY_KEPT: usize = 64;
/// Messages whose batches are looked at when another one comes.
const SETTLED_AT_ONCE: usize = 4;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::mqtt) struct Queue {
    all: VecDeque<Kept>,
    /// Bytes of memory.
    memory: usize,
    /// In a box: few queues need it, and each client has one.
    in_store: Option<Box<InStore>>,
}

/// The part of a queue that is in the store only.
#[derive(Debug, Default)]
struct InStore {
    /// Bytes of its messages.
    bytes: usize,
    /// The batches of so many of the first messages are over.
    settled: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn front(&self) -> Option<&Kept> {
        self.all.front()
    }

    /// The oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Kept> {
        self.all.iter()
    }

    /// Bytes of memory that it takes up.
    pub(super) const fn memory(&self) -> usize {
        self.memory
    }

    /// Bytes of messages that are in the store only.
    pub(super) fn away(&self) -> usize {
        self.in_store.as_ref().map_or(0, |in_store| in_store.bytes)
    }

    /// Bytes that it takes up in memory and in the store.
    pub(super) fn bytes(&self) -> usize {
        self.memory + self.away()
    }

    /// Bytes of memory that its messages take up.
    pub(super) fn messages(&self) -> usize {
        self.memory.saturating_sub(self.frames())
    }

    /// Bytes of memory that are left when all its messages are in the store.
    fn frames(&self) -> usize {
        self.all.len() * Kept::FRAME
    }

    fn add(&mut self, kept: &Kept) {
        self.memory += kept.cost();
        if kept.is_away() {
            self.in_store.get_or_insert_default().bytes += kept.away_bytes();
        }
    }

    fn subtract(&mut self, kept: &Kept) {
        self.memory -= kept.cost();
        if let Some(in_store) = &mut self.in_store {
            in_store.bytes -= kept.away_bytes();
        }
    }

    /// Has all be looked at again by [`settle`](Self::settle), from this one on.
    fn look_again(&mut self, from: usize) {
        if let Some(in_store) = &mut self.in_store {
            in_store.settled = in_store.settled.min(from);
        }
    }

    pub(super) fn push_back(&mut self, kept: Kept) {
        self.add(&kept);
        self.all.push_back(kept);
    }

    /// Puts back what was taken out of the front.
    pub(super) fn push_front(&mut self, kept: Kept) {
        self.add(&kept);
        self.look_again(0);
        self.all.push_front(kept);
    }

    pub(super) fn pop_front(&mut self) -> Option<Kept> {
        let kept = self.all.pop_front()?;
        self.subtract(&kept);
        if let Some(in_store) = &mut self.in_store {
            in_store.settled = in_store.settled.saturating_sub(1);
        }
        if self.all.is_empty() {
            self.in_store = None;
            if self.all.capacity() > CAPACITY_KEPT {
                self.all = VecDeque::new();
            }
        }
        Some(kept)
    }

    /// Takes out all that do not stay.
    pub(super) fn take_unless(&mut self, mut stays: impl FnMut(&Kept) -> bool) -> Vec<Kept> {
        self.take_of_last(self.all.len(), |kept| !stays(kept))
    }

    /// Takes those out of the last `count` that `goes` says.
    pub(super) fn take_of_last(&mut self, count: usize, mut goes: impl FnMut(&Kept) -> bool) -> Vec<Kept> {
        let start = self.all.len().saturating_sub(count);
        if !self.all.iter().skip(start).any(&mut goes) {
            return Vec::new();
        }
        let mut taken = Vec::new();
        self.look_again(start);
        for kept in self.all.split_off(start) {
            if goes(&kept) {
                self.subtract(&kept);
                taken.push(kept);
            } else {
                self.all.push_back(kept);
            }
        }
        taken
    }

    /// Takes the records of all. Messages that are in the store only are lost by this.
    pub(super) fn take_records(&mut self) -> Vec<StoredDelivery> {
        let records = self.all.iter_mut().filter_map(|kept| kept.stored.take()).map(|stored| *stored).collect();
        for kept in std::mem::take(self).all {
            self.push_back(kept);
        }
        records
    }

    /// They have waited for the client, which says nothing about the gateway.
    pub(super) fn untime(&mut self) {
        self.all.iter_mut().for_each(|kept| kept.timed = false);
    }

    /// Has messages leave memory but for the oldest, up to so many bytes of these.
    pub(super) fn send_away(&mut self, bytes_max: usize) {
        if self.messages() <= bytes_max {
            return;
        }
        let mut stay = 0;
        for kept in &mut self.all {
            let before = kept.cost();
            stay += before - Kept::FRAME.min(before);
            if stay > bytes_max && !kept.is_away() {
                kept.go_away();
                self.memory -= before - kept.cost();
                self.in_store.get_or_insert_default().bytes += kept.away_bytes();
            }
        }
    }

    /// Lets go of the batches that have put the messages, as far as they are over. Looks at a few more with each call.
    pub(super) fn settle(&mut self) {
        let in_store = self.in_store.get_or_insert_default();
        for kept in self.all.iter_mut().skip(in_store.settled).take(SETTLED_AT_ONCE) {
            let stored = kept.stored.as_mut();
            if stored.is_some_and(|stored| !stored.settle() && !stored.is_refused()) {
                break;
            }
            in_store.settled += 1;
        }
    }

    /// The first messages that are in the store only, up to so many and so many bytes; at least one.
    pub(super) fn first_away(&self, count_max: usize, bytes_max: usize) -> Wanted {
        take_away(self.all.iter().take_while(|kept| kept.is_away()), count_max, bytes_max)
    }

    /// Changes the first `count`, and takes out those that `stays` refuses.
    pub(super) fn change_first(&mut self, count: usize, mut stays: impl FnMut(&mut Kept) -> bool) -> Vec<Kept> {
        let mut gone = Vec::new();
        for (place, kept) in self.all.iter_mut().take(count).enumerate() {
            let (cost, away) = (kept.cost(), kept.away_bytes());
            if !stays(kept) {
                gone.push(place);
            }
            self.memory = self.memory + kept.cost() - cost;
            if let Some(in_store) = &mut self.in_store {
                in_store.bytes = in_store.bytes + kept.away_bytes() - away;
            }
        }
        self.look_again(0);
        let last = gone.last().map_or(0, |last| last + 1);
        let mut taken = Vec::with_capacity(gone.len());
        let mut first: Vec<Kept> = self.all.drain(..last).collect();
        while let Some(kept) = first.pop() {
            if gone.pop_if(|place| *place == first.len()).is_some() {
                self.subtract(&kept);
                taken.push(kept);
            } else {
                self.all.push_front(kept);
            }
        }
        taken
    }
}

/// Messages that are to be read back.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) records: Vec<RecordId>,
    /// Bytes of memory that they will take up.
    pub(super) bytes: usize,
}

/// The first messages that the store has, up to so many and so many bytes; at least one.
pub(super) fn take_away<'k>(messages: impl Iterator<Item = &'k Kept>, count_max: usize, bytes_max: usize) -> Wanted {
    let mut wanted = Wanted::default();
    for kept in messages.take(count_max) {
        let Some(stored) = kept.stored.as_ref().filter(|stored| stored.outcome() == Some(Ok(()))) else { break };
        let bytes = wanted.bytes + kept.away_bytes();
        if bytes > bytes_max && !wanted.records.is_empty() {
            break;
        }
        wanted.records.push(stored.message());
        wanted.bytes = bytes;
    }
    wanted
}
