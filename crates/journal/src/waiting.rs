//! Batches that wait for a commit: in sets that have one fate, the sets of each owner in a lane, and the choice of
//! those that go into the next commit.
//!
//! A commit is bounded, so that nobody waits for more than that and the one before it. While more waits than one takes,
//! its bytes are divided among the owners, so an owner that has little waiting never waits for one that has much.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use fogmux_fair::level;

use crate::{
    batch::{Batch, Changes, Record, bytes_of},
    blocks::BLOCK,
    entry::{FORGET, PUT},
    record::RecordId,
};

/// Bytes of a set of several batches: what fits into a block. With less space than that nobody can tell which of them
/// fits.
const SET_BYTES: usize = BLOCK as usize;

/// Batches with one fate.
#[derive(Debug, Default)]
pub(crate) struct Set {
    lane: u64,
    pub(crate) puts: BTreeMap<RecordId, Record>,
    /// Records to forget, for batches that put something.
    pub(crate) forgets: BTreeSet<RecordId>,
    /// Records to forget, for batches that put nothing.
    pub(crate) pure: BTreeSet<RecordId>,
    bytes: usize,
    /// It has a batch that is larger than [`SET_BYTES`]; no other joins by itself.
    alone: bool,
    /// Sets that may not be committed later than this one: earlier ones of the lane of whose records it forgets some,
    /// and those of other lanes that forgot a record of this one, or the reverse, before it was written.
    linked: Vec<u64>,
    /// Sets of other lanes that put something in the place of such a record. If they are refused so is this one.
    pub(crate) followed_by: Vec<u64>,
}

/// The sets of an owner, in order.
#[derive(Debug, Default)]
struct Lane {
    sets: VecDeque<u64>,
    bytes: usize,
}

/// All batches that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The number of the next set.
    next: u64,
    sets: BTreeMap<u64, Set>,
    /// By owner. None is empty.
    lanes: BTreeMap<u64, Lane>,
    /// The set of each record that is put.
    puts: BTreeMap<RecordId, u64>,
    /// The number of sets that forget each record.
    forgets: BTreeMap<RecordId, usize>,
    bytes: usize,
    /// The owner who takes part in the next commit in any case.
    turn: u64,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Bytes that wait.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A record that waits.
    pub(crate) fn put(&self, id: RecordId) -> Option<&Record> {
        self.sets.get(self.puts.get(&id)?)?.puts.get(&id)
    }

    /// Whether a record is to be forgotten.
    pub(crate) fn forgets(&self, id: RecordId) -> bool {
        self.forgets.contains_key(&id)
    }

    /// Adds a batch. Returns the number of its set. A record that is put and forgotten here is never written. Other
    /// records are forgotten only if they are `committed`.
    pub(crate) fn append(&mut self, batch: Batch, committed: impl Fn(RecordId) -> bool) -> u64 {
        let Batch { puts, forgets, owner, joins, .. } = batch;
        let bytes = puts.iter().map(|(_, record)| bytes_of(record)).sum();
        let number = self.set_for(owner, joins, bytes);
        let pure = puts.is_empty();
        self.grow(number, bytes);
        self.puts.extend(puts.iter().map(|(id, _)| (*id, number)));
        if let Some(set) = self.sets.get_mut(&number) {
            set.puts.extend(puts);
        }
        for id in forgets {
            match self.puts.get(&id).copied() {
                // It waits in an earlier set of the lane, and is not written if both go into one commit.
                Some(of) if of < number && self.share_a_lane(of, number) => {
                    self.link(number, of);
                    self.forget(id, number, pure);
                }
                Some(of) => self.drop_put(id, of, number, pure),
                None if committed(id) => self.forget(id, number, pure),
                None => {}
            }
        }
        number
    }

    /// Puts other bytes into a record that waits. Its identifier, its set and what that forgets stay as they are.
    ///
    /// # Errors
    /// It does not wait, it is to be forgotten, or the bytes do not belong into a set of several batches: the bytes.
    pub(crate) fn replace(&mut self, id: RecordId, bytes: Bytes) -> Result<(), Bytes> {
        let Some(number) = self.puts.get(&id).copied().filter(|_| !self.forgets(id)) else { return Err(bytes) };
        let Some(set) = self.sets.get_mut(&number) else { return Err(bytes) };
        let fits = set.alone || bytes.len() + PUT as usize <= SET_BYTES;
        let Some(record) = set.puts.get_mut(&id).filter(|_| fits) else { return Err(bytes) };
        let before = bytes_of(record);
        record.bytes = bytes;
        let after = bytes_of(record);
        self.grow(number, after.saturating_sub(before));
        self.shrink(number, before.saturating_sub(after));
        Ok(())
    }

    fn share_a_lane(&self, one: u64, other: u64) -> bool {
        let lane = |number: u64| self.sets.get(&number).map(|set| set.lane);
        lane(one) == lane(other)
    }

    /// A record of one set is forgotten by a batch of another before it was written.
    fn drop_put(&mut self, id: RecordId, of: u64, by: u64, pure: bool) {
        self.puts.remove(&id);
        let Some(set) = self.sets.get_mut(&of) else { return };
        let dropped = set.puts.remove(&id);
        if !pure && of != by && !set.followed_by.contains(&by) {
            set.followed_by.push(by);
        }
        self.link(of, by);
        self.link(by, of);
        self.shrink(of, dropped.as_ref().map_or(0, bytes_of));
    }

    /// Has another set go into the commit that one goes into, or into an earlier one.
    fn link(&mut self, one: u64, other: u64) {
        if let Some(set) = self.sets.get_mut(&one).filter(|set| one != other && !set.linked.contains(&other)) {
            set.linked.push(other);
        }
    }

    fn forget(&mut self, id: RecordId, by: u64, pure: bool) {
        let Some(set) = self.sets.get_mut(&by) else { return };
        if if pure { &mut set.pure } else { &mut set.forgets }.insert(id) {
            self.grow(by, FORGET as usize);
            *self.forgets.entry(id).or_default() += 1;
        }
    }

    /// The set for a batch of so many bytes.
    fn set_for(&mut self, owner: u64, joins: Option<u64>, bytes: usize) -> u64 {
        let mut lane = owner;
        if let Some((number, set)) = joins.and_then(|number| Some((number, self.sets.get(&number)?))) {
            if set.alone || bytes <= SET_BYTES {
                return number;
            }
            // Behind that set, whoever its owner is.
            lane = set.lane;
        }
        let sets = &mut self.lanes.entry(lane).or_default().sets;
        if let Some(last) = sets.back().copied()
            && self.sets.get(&last).is_some_and(|set| !set.alone && set.bytes + bytes <= SET_BYTES)
        {
            return last;
        }
        let number = self.next;
        self.next += 1;
        sets.push_back(number);
        self.sets.insert(number, Set { lane, alone: bytes > SET_BYTES, ..Set::default() });
        number
    }

    fn grow(&mut self, number: u64, bytes: usize) {
        let Some(set) = self.sets.get_mut(&number) else { return };
        set.bytes += bytes;
        self.bytes += bytes;
        if let Some(lane) = self.lanes.get_mut(&set.lane) {
            lane.bytes += bytes;
        }
    }

    fn shrink(&mut self, number: u64, bytes: usize) {
        let Some(set) = self.sets.get_mut(&number) else { return };
        set.bytes -= bytes;
        self.bytes -= bytes;
        if let Some(lane) = self.lanes.get_mut(&set.lane) {
            lane.bytes -= bytes;
        }
    }

    /// Takes all sets.
    pub(crate) fn take_all(&mut self) -> Changes {
        self.take(self.sets.keys().copied().collect())
    }

    /// Takes the sets of the next commit: all, or as many as have `bytes_max` together, and at least one.
    pub(crate) fn pick(&mut self, bytes_max: usize) -> Changes {
        if self.bytes <= bytes_max {
            return self.take_all();
        }
        let mut chosen = self.choose(bytes_max);
        let mut left: Vec<u64> = chosen.iter().copied().collect();
        while let Some(number) = left.pop() {
            let Some(set) = self.sets.get(&number) else { continue };
            // Sets that they are linked with may have been taken before.
            left.extend(set.linked.iter().filter(|number| self.sets.contains_key(number) && chosen.insert(**number)));
        }
        self.take(chosen)
    }

    fn choose(&mut self, bytes_max: usize) -> BTreeSet<u64> {
        let mut sizes: Vec<usize> = self.lanes.values().map(|lane| lane.bytes).collect();
        let share = level(&mut sizes, bytes_max);
        let bytes_of = |number: &u64| self.sets.get(number).map_or(0, |set| set.bytes);
        let in_order = || self.lanes.range(self.turn..).chain(self.lanes.range(..self.turn));
        let mut chosen = BTreeSet::new();
        let mut left = bytes_max;
        let mut rests = Vec::new();
        for (owner, lane) in in_order() {
            let mut own = 0;
            let mut sets = lane.sets.iter().copied().peekable();
            // The first of all may be larger than its owner's share, and larger than a commit: it has its turn.
            while let Some(number) =
                sets.next_if(|number| chosen.is_empty() || own + bytes_of(number) <= share && bytes_of(number) <= left)
            {
                own += bytes_of(&number);
                left = left.saturating_sub(bytes_of(&number));
                chosen.insert(number);
            }
            rests.push((*owner, sets));
        }
        // Sets are not to be divided, so something is left.
        let mut turn = None;
        for (owner, sets) in &mut rests {
            let Some(number) = sets.peek() else { continue };
            if bytes_of(number) <= left {
                left -= bytes_of(number);
                chosen.insert(*number);
            } else if *owner != self.turn {
                turn = turn.or(Some(*owner));
            }
        }
        self.turn = turn.unwrap_or(self.turn.wrapping_add(1));
        chosen
    }

    fn take(&mut self, numbers: BTreeSet<u64>) -> Changes {
        if numbers.len() == self.sets.len() {
            let Self { next, sets, turn, .. } = std::mem::take(self);
            (self.next, self.turn) = (next, turn);
            return Changes::of(sets.into_iter().collect());
        }
        let mut taken = Vec::with_capacity(numbers.len());
        for number in &numbers {
            let Some(set) = self.sets.remove(number) else { continue };
            self.bytes -= set.bytes;
            if let Some(lane) = self.lanes.get_mut(&set.lane) {
                lane.bytes -= set.bytes;
            }
            for id in set.puts.keys() {
                self.puts.remove(id);
            }
            for id in set.forgets.iter().chain(&set.pure) {
                if let Some(count) = self.forgets.get_mut(id) {
                    *count -= 1;
                    if *count == 0 {
                        self.forgets.remove(id);
                    }
                }
            }
            taken.push((*number, set));
        }
        self.lanes.retain(|_, lane| {
            lane.sets.retain(|number| !numbers.contains(number));
            !lane.sets.is_empty()
        });
        Changes::of(taken)
    }
}
