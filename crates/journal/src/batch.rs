//! Changes that belong together, and all of those that wait for a commit.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::{
    entry::{FORGET, Forget, PUT},
    record::{Ids, RecordId},
};

/// Records to put and to forget. All of it happens or nothing.
#[derive(Debug)]
pub struct Batch {
    ids: Ids,
    pub(crate) puts: Vec<(RecordId, Record)>,
    pub(crate) forgets: Vec<RecordId>,
}

impl Batch {
    /// An empty batch. `ids` are those of the journal that it is for.
    #[must_use]
    pub fn new(ids: &Ids) -> Self {
        Self { ids: ids.clone(), puts: Vec::new(), forgets: Vec::new() }
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
    /// are those that only forget. A batch of a later set may fail although an earlier one has not.
    pub set: u64,
}

/// The number of a batch, in the order in which they were appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// All changes that go into the next commit.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) puts: BTreeMap<RecordId, Record>,
    pub(crate) forgets: BTreeSet<RecordId>,
    /// Those of the forgets that a batch asked for that puts nothing.
    pure: BTreeSet<RecordId>,
    /// The batches that put something.
    putting: Vec<Ticket>,
    /// Batches that are refused, because there is no space.
    pub(crate) refused: Vec<Ticket>,
    /// Bytes of the puts.
    pub(crate) bytes: usize,
    /// The last batch in it, if there is one.
    pub(crate) last: Option<Ticket>,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.forgets.is_empty()
    }

    pub(crate) fn put(&mut self, id: RecordId, record: Record) {
        self.bytes += record.bytes.len() + PUT as usize;
        self.puts.insert(id, record);
    }

    /// Drops a put that was not written yet. Returns whether there was one.
    pub(crate) fn drop_put(&mut self, id: RecordId) -> bool {
        let dropped = self.puts.remove(&id);
        self.bytes -= dropped.as_ref().map_or(0, |record| record.bytes.len() + PUT as usize);
        dropped.is_some()
    }

    /// Forgets a record that is on the disk, or will be before these changes.
    pub(crate) fn forget(&mut self, id: RecordId, pure: bool) {
        self.forgets.insert(id);
        if pure {
            self.pure.insert(id);
        }
    }

    /// Adds a batch, whose changes were added.
    pub(crate) fn close_batch(&mut self, ticket: Ticket, pure: bool) {
        self.last = Some(ticket);
        if !pure {
            self.putting.push(ticket);
        }
    }

    /// Refuses all batches that put something.
    pub(crate) fn refuse_puts(&mut self) {
        self.puts.clear();
        self.bytes = 0;
        self.forgets = self.pure.clone();
        self.refused.append(&mut self.putting);
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

    /// Bytes that wait, to compare with the bound.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.bytes + self.forgets.len() * FORGET as usize
    }
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
