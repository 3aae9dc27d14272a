//! Changes that belong together, and all of those that go into a commit.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::{
    entry::{FORGET, Forget, PUT},
    record::{Ids, RecordId},
    waiting::Set,
};

/// Records to put and to forget. All of it happens or nothing.
#[derive(Debug)]
pub struct Batch {
    ids: Ids,
    pub(crate) puts: Vec<(RecordId, Record)>,
    pub(crate) forgets: Vec<RecordId>,
    pub(crate) owner: u64,
    pub(crate) joins: Option<u64>,
}

impl Batch {
    /// An empty batch. `ids` are those of the journal that it is for.
    #[must_use]
    pub fn new(ids: &Ids) -> Self {
        Self { ids: ids.clone(), puts: Vec::new(), forgets: Vec::new(), owner: 0, joins: None }
    }

    /// Names the owner, by a number of the user's choice. While more waits than a commit takes, each owner has an equal
    /// part of it, and batches of one owner stay in their order. Unless this is called the owner is 0.
    pub fn own_by(&mut self, owner: u64) {
        self.owner = owner;
    }

    /// Has the batch share the fate of a set of batches, if that still waits for its commit: for a value that takes the
    /// place of one in that set. The order among sets is kept as well.
    pub fn join(&mut self, set: u64) {
        self.joins = Some(set);
    }

    /// Puts a record. The identifier is good at once, also in other records of the batch.
    pub fn put(&mut self, kind: u8, bytes: impl Into<Bytes>) -> RecordId {
        let id = self.ids.next();
        self.puts.push((id, Record { kind, bytes: bytes.into() }));
        id
    }

    /// Whether nothing happens in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.forgets.is_empty()
    }

    /// Whether a record is put.
    #[must_use]
    pub fn puts(&self) -> bool {
        !self.puts.is_empty()
    }

    /// Bytes that it takes in a commit, whole blocks not counted.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let puts = self.puts.iter().map(|(_, record)| bytes_of(record)).sum::<usize>();
        puts + self.forgets.len() * FORGET as usize
    }

    /// The records that it forgets, in the order of the calls.
    #[must_use]
    pub fn forgets(&self) -> &[RecordId] {
        &self.forgets
    }

    /// Forgets a record. One that is not there is none to forget.
    pub fn forget(&mut self, id: RecordId) {
        self.forgets.push(id);
    }
}

/// A record of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The user's kind of record, which the journal does not look at.
    pub kind: u8,
    /// The user's bytes.
    pub bytes: Bytes,
}

/// A batch that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its number.
    pub ticket: Ticket,
    /// Batches of one set have one fate: those that put something are committed, refused or failed together, and so
    /// are those that only forget. A set has one owner and no more than fits into a block, or one larger batch. Any set
    /// may fail although an earlier or a later one does not.
    pub set: u64,
}

/// The number of a batch, in the order in which they were appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A commit that does not fit is tried with this part of its bytes less.
const SMALLER: usize = 64;

/// All changes that go into a commit.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// In order of their identifiers.
    pub(crate) puts: Vec<(RecordId, Record)>,
    /// In order, each once.
    forgets: Vec<RecordId>,
    /// The sets that they come from, in order.
    pub(crate) sets: Vec<(u64, Set)>,
    /// Those of the sets whose puts are refused, because there is no space.
    pub(crate) refused: BTreeSet<u64>,
    /// Bytes of the puts.
    pub(crate) bytes: usize,
    /// Whether they are taken for what they forget, on a disk that is full for others.
    pub(crate) is_full: bool,
}

impl Changes {
    /// The changes of these sets.
    pub(crate) fn of(sets: Vec<(u64, Set)>) -> Self {
        let mut changes = Self { sets, ..Self::default() };
        changes.gather();
        changes
    }

    /// Gathers the changes of the sets that are not refused. What one puts and another forgets is none.
    fn gather(&mut self) {
        (self.puts, self.forgets, self.bytes) = Default::default();
        for (number, set) in &self.sets {
            self.forgets.extend(&set.pure);
            if !self.refused.contains(number) {
                self.puts.extend(set.puts.iter().map(|(id, record)| (*id, record.clone())));
                self.forgets.extend(&set.forgets);
            }
        }
        // Those of each set are in order, and mostly the sets are.
        self.puts.sort_by_key(|(id, _)| *id);
        self.forgets.sort();
        self.forgets.dedup();
        let mut both = Vec::new();
        self.forgets.retain(|id| {
            let is_put = position(&self.puts, *id).is_some();
            both.extend(is_put.then_some(*id));
            !is_put
        });
        if !both.is_empty() {
            self.puts.retain(|(id, _)| both.binary_search(id).is_err());
        }
        self.bytes = self.puts.iter().map(|(_, record)| bytes_of(record)).sum();
    }

    /// A record that is put.
    pub(crate) fn put(&self, id: RecordId) -> Option<&Record> {
        self.puts.get(position(&self.puts, id)?).map(|(_, record)| record)
    }

    /// Records that are forgotten.
    pub(crate) fn forgotten(&self) -> &[RecordId] {
        &self.forgets
    }

    /// Whether a record is forgotten.
    pub(crate) fn forgets(&self, id: RecordId) -> bool {
        self.forgets.binary_search(&id).is_ok()
    }

    /// Whether nothing is to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.forgets.is_empty()
    }

    /// The numbers of the sets.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.sets.iter().map(|(number, _)| *number)
    }

    /// Keeps the puts of as many sets as have `room` bytes together, and fewer bytes than before. Refuses the others: a
    /// set that fits is not refused for the sake of one that does not.
    pub(crate) fn refuse_beyond(&mut self, room: u64) {
        let bytes = |set: &Set| set.puts.keys().filter_map(|id| self.put(*id)).map(bytes_of).sum::<usize>();
        // Frames need some room as well: if it is they that do not fit, a little less is tried.
        let mut left = room.min((self.bytes - self.bytes / SMALLER - 1) as u64);
        let mut beyond = BTreeSet::new();
        for (number, set) in &self.sets {
            match left.checked_sub(bytes(set) as u64) {
                Some(less) => left = less,
                None => drop(beyond.insert(*number)),
            }
        }
        self.refuse(beyond);
    }

    /// Refuses sets, and those of which a part was replaced by one of them.
    fn refuse(&mut self, sets: BTreeSet<u64>) {
        let before = self.refused.len();
        self.refused.extend(sets);
        let mut known = before;
        while known != self.refused.len() {
            known = self.refused.len();
            let depends = |set: &Set| set.followed_by.iter().any(|number| self.refused.contains(number));
            let also: Vec<u64> = self.sets.iter().filter(|(_, set)| depends(set)).map(|(number, _)| *number).collect();
            self.refused.extend(also);
        }
        self.gather();
    }

    /// Forgets, with consecutive identifiers together.
    pub(crate) fn forget_ranges(&self) -> impl Iterator<Item = Forget> {
        let mut ids = self.forgets.iter().map(|id| id.get()).peekable();
        std::iter::from_fn(move || {
            let first = ids.next()?;
            let mut count = 1;
            while count < u32::MAX && ids.next_if_eq(&(first + u64::from(count))).is_some() {
                count += 1;
            }
            Some(Forget { first, count })
        })
    }
}

fn position(puts: &[(RecordId, Record)], id: RecordId) -> Option<usize> {
    puts.binary_search_by_key(&id, |(id, _)| *id).ok()
}

/// Bytes that a record takes beside others in a frame.
pub(crate) const fn bytes_of(record: &Record) -> usize {
    record.bytes.len() + PUT as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_of_neighbours_are_one() {
        let forgets = [1, 2, 3, 7, 9, 10].into_iter().filter_map(RecordId::new).collect();
        let changes = Changes { forgets, ..Changes::default() };
        let ranges: Vec<_> = changes.forget_ranges().map(|range| (range.first, range.count)).collect();
        assert_eq!(ranges, [(1, 3), (7, 1), (9, 2)]);
    }
}
