//! Records that are found by a name, of which the newest counts: what the disk has under each name, and what is on its
//! way there.
//!
//! A write puts a record and forgets all that may be there under its name: the one on the disk, and those of earlier
//! writes that wait or are being committed. So whichever of them succeed, at most the newest of those stays. A later
//! write may succeed although an earlier one fails.

use std::{
    borrow::Borrow,
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasher, Hash},
    sync::Arc,
};

use fogmux_bus::Message;
use fogmux_journal::RecordId;
use foldhash::quality::RandomState;

use crate::queue::Charge;

/// Tables that hold the names on the disk: one that grows moves its names while publishers wait.
const TABLES: usize = 64;

/// Tables that are larger and mostly empty are made smaller.
const SHRINK_ABOVE: usize = 1024;

/// All records of one kind that have names.
#[derive(Debug)]
pub(crate) struct Names<K> {
    hasher: RandomState,
    kept: Vec<HashMap<K, RecordId, RandomState>>,
    pending: HashMap<K, Pending, RandomState>,
}

/// A name with writes whose outcome is not known.
#[derive(Debug)]
struct Pending {
    /// The record on the disk.
    base: Option<RecordId>,
    /// The message that readers saw before these writes, if failed ones have to be undone.
    before: Option<Arc<Message>>,
    /// The writes, those of one set together.
    changes: Vec<Change>,
}

/// The writes of a name in one set.
#[derive(Debug)]
struct Change {
    set: u64,
    /// The newest record, or `None` if the name has none now.
    id: Option<RecordId>,
    /// Its message.
    message: Option<Arc<Message>>,
    /// There was a removal among the writes. It may succeed where a put is refused.
    removes: bool,
    /// The bytes that it counts in the queue.
    charge: Charge,
}

/// A write to take note of.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) set: u64,
    pub(crate) id: Option<RecordId>,
    pub(crate) message: Option<Arc<Message>>,
    /// The value that readers saw under the name before.
    pub(crate) before: Option<Arc<Message>>,
    /// The bytes that it counts in the queue.
    pub(crate) charge: Charge,
}

/// The last write of a name that is under way.
#[derive(Debug)]
pub(crate) struct LastWrite<'a> {
    pub(crate) set: u64,
    /// Its record, or `None` if it removes.
    pub(crate) id: Option<RecordId>,
    /// The message that readers see.
    pub(crate) message: &'a mut Option<Arc<Message>>,
    /// The bytes that it counts in the queue: a later write is likely to take its place.
    pub(crate) charge: &'a mut Charge,
}

/// The outcome of the writes of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They are on the disk.
    Done,
    /// There was no space for those that put something; the others are on the disk.
    NoSpace,
    /// None happened.
    Failed,
}

impl Fate {
    /// Whether those did not happen that put something, or those that only forget.
    pub(crate) const fn refuses(self, puts: bool) -> bool {
        match self {
            Self::Done => false,
            Self::NoSpace => puts,
            Self::Failed => true,
        }
    }
}

/// The value that readers are to see in place of one that was not kept.
pub(crate) type Undone = Option<Option<Arc<Message>>>;

impl<K> Default for Names<K> {
    fn default() -> Self {
        let hasher = RandomState::default();
        let kept = (0..TABLES).map(|_| HashMap::with_hasher(hasher.clone())).collect();
        Self { pending: HashMap::with_hasher(hasher.clone()), hasher, kept }
    }
}

impl<K: Hash + Eq + Borrow<str>> Names<K> {
    fn table(&self, name: &str) -> usize {
        // The tables use other bits of the same hash.
        usize::try_from(self.hasher.hash_one(name) >> 20).unwrap_or_default() % TABLES
    }

    /// The record on the disk.
    pub(crate) fn kept(&self, name: &str) -> Option<RecordId> {
        self.kept.get(self.table(name))?.get(name).copied()
    }

    /// The name that is known by this text, to be shared.
    pub(crate) fn name(&self, name: &str) -> Option<&K> {
        self.kept.get(self.table(name))?.get_key_value(name).map(|(name, _)| name)
    }

    /// All names on the disk, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&K, RecordId)> {
        self.kept.iter().flatten().map(|(name, id)| (name, *id))
    }

    /// Takes note of what the disk has. Returns the record that it had before, if there was one.
    pub(crate) fn keep(&mut self, name: K, id: RecordId) -> Option<RecordId> {
        let table = self.table(name.borrow());
        self.kept.get_mut(table)?.insert(name, id)
    }

    /// Hands on each record that may be there under a name.
    pub(crate) fn each(&self, name: &str, mut visit: impl FnMut(RecordId)) {
        match self.pending.get(name) {
            Some(pending) => {
                let waiting = pending.changes.iter().filter_map(|change| change.id);
                pending.base.into_iter().chain(waiting).for_each(visit);
            }
            None => {
                if let Some(id) = self.kept(name) {
                    visit(id);
                }
            }
        }
    }

    /// The set of the last write under way, and whether that put something.
    pub(crate) fn pending(&self, name: &str) -> Option<(u64, bool)> {
        let last = self.pending.get(name)?.changes.last()?;
        Some((last.set, last.id.is_some()))
    }

    /// The last write under way.
    pub(crate) fn last_write(&mut self, name: &str) -> Option<LastWrite<'_>> {
        let Change { set, id, message, charge, .. } = self.pending.get_mut(name)?.changes.last_mut()?;
        Some(LastWrite { set: *set, id: *id, message, charge })
    }

    /// Bytes that the last write under way counts in the queue: a later one is likely to take its place.
    pub(crate) fn pending_bytes(&self, name: &str) -> usize {
        self.pending.get(name).and_then(|pending| pending.changes.last()).map_or(0, |last| last.charge.bytes())
    }

    /// Whether the writes of a name in a set end with a put.
    pub(crate) fn puts_in(&self, name: &str, set: u64) -> bool {
        let changes = self.pending.get(name).into_iter().flat_map(|pending| &pending.changes);
        changes.into_iter().any(|change| change.set == set && change.id.is_some())
    }

    /// Takes note of a write. Returns what the write counted whose place it takes in its set, if it is not the first.
    pub(crate) fn write(&mut self, name: K, write: Write) -> Option<Charge> {
        let Write { set, id, message, before, charge } = write;
        let base = self.kept(name.borrow());
        let pending = match self.pending.entry(name) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) => free.insert(Pending { base, before, changes: Vec::with_capacity(1) }),
        };
        match pending.changes.last_mut() {
            Some(last) if last.set == set => {
                last.removes |= id.is_none();
                (last.id, last.message) = (id, message);
                Some(std::mem::replace(&mut last.charge, charge))
            }
            Some(_) | None => {
                pending.changes.push(Change { set, id, message, removes: id.is_none(), charge });
                None
            }
        }
    }

    /// Takes note of the outcome of a name's writes in a set, the earliest of its sets. Returns what they counted, and
    /// what readers are to see if that set was the last and something of it was not kept.
    pub(crate) fn settle(&mut self, name: K, set: u64, fate: Fate) -> (Charge, Undone) {
        let Entry::Occupied(mut there) = self.pending.entry(name) else { return Default::default() };
        let pending = there.get_mut();
        let Some(at) = pending.changes.iter().position(|change| change.set == set) else { return Default::default() };
        debug_assert!(at == 0, "sets of a name are done in their order");
        let change = pending.changes.remove(at);
        let charge = change.charge;
        let is_kept = !fate.refuses(change.id.is_some());
        if is_kept {
            (pending.base, pending.before) = (change.id, change.message);
        } else if fate == Fate::NoSpace && change.removes {
            (pending.base, pending.before) = (None, None);
        }
        if !pending.changes.is_empty() {
            return (charge, None);
        }
        let (name, Pending { base, before, .. }) = there.remove_entry();
        let table = self.table(name.borrow());
        let Some(kept) = self.kept.get_mut(table) else { return (charge, None) };
        match base {
            Some(id) => drop(kept.insert(name, id)),
            None => drop(kept.remove(name.borrow())),
        }
        shrink(kept);
        shrink(&mut self.pending);
        (charge, (!is_kept).then_some(before))
    }
}

fn shrink<K: Hash + Eq, V>(table: &mut HashMap<K, V, RandomState>) {
    if table.capacity() > SHRINK_ABOVE && table.len() < table.capacity() / 8 {
        table.shrink_to(table.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> RecordId {
        RecordId::new(number).unwrap()
    }

    fn write(names: &mut Names<Box<str>>, set: u64, number: Option<u64>) -> bool {
        let write = Write { set, id: number.map(id), message: None, before: None, charge: Charge::default() };
        names.write("n".into(), write).is_none()
    }

    fn each(names: &Names<Box<str>>) -> Vec<u64> {
        let mut found = Vec::new();
        names.each("n", |id| found.push(id.get()));
        found
    }

    /// A write forgets all of them, because none knows which of the earlier ones succeed.
    #[test]
    fn all_that_may_be_there_is_handed_on() {
        let mut names = Names::<Box<str>>::default();
        names.keep("n".into(), id(1));
        assert_eq!(each(&names), [1]);
        assert!(write(&mut names, 7, Some(2)));
        assert!(!write(&mut names, 7, Some(3)), "another of the same set");
        assert!(write(&mut names, 8, Some(4)));
        // Number 2 was never written, because number 3 forgot it before its commit.
        assert_eq!(each(&names), [1, 3, 4]);
        assert!(names.settle("n".into(), 7, Fate::Failed).1.is_none());
        assert_eq!(each(&names), [1, 4]);
        assert!(names.settle("n".into(), 8, Fate::Done).1.is_none());
        assert_eq!((each(&names), names.kept("n")), (vec![4], Some(id(4))));
    }

    #[test]
    fn without_space_a_removal_happens_and_the_put_behind_it_does_not() {
        let mut names = Names::<Box<str>>::default();
        names.keep("n".into(), id(1));
        write(&mut names, 7, None);
        write(&mut names, 7, Some(2));
        assert!(names.settle("n".into(), 7, Fate::NoSpace).1.is_some_and(|before| before.is_none()));
        assert_eq!(names.kept("n"), None);
        names.keep("n".into(), id(3));
        write(&mut names, 8, Some(4));
        assert!(names.settle("n".into(), 8, Fate::NoSpace).1.is_some_and(|before| before.is_none()));
        assert_eq!(names.kept("n"), Some(id(3)));
    }
}
