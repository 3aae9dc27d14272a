//! The store's view of its journal: the value kept under each name, and the waiters of each set of batches.

use std::{collections::BTreeMap, sync::Arc};

use fogmux_bus::{Completer, Completion, Topic};
use fogmux_journal::{Appended, RecordId};

use crate::{
    names::Names,
    queue::{Charge, Queue},
};

/// Most records that nobody needs which a set of batches forgets: so many cost a write nothing.
const SWEPT_MAX: usize = 64;
/// Most records that nobody needs which are remembered while the disk fails, of 8 bytes each. What is beyond comes back
/// at the next start.
const SPARE_MAX: usize = 128 << 10;

/// The state of the store beside its journal.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Retained messages.
    pub(crate) topics: Names<Topic>,
    /// Records of doors.
    pub(crate) records: Names<Box<str>>,
    /// Sets of batches whose outcome is not known, by their numbers.
    sets: BTreeMap<u64, Set>,
    /// The shares of principals in them.
    pub(crate) queue: Queue,
    /// Whether failed writes are being undone in the bus, which must not change meanwhile.
    pub(crate) undoing: bool,
    /// Records that nobody needs and that are on the disk. Each set of batches forgets some of them.
    pub(crate) spare: Vec<RecordId>,
    /// Room for the records that a batch forgets, while it is appended.
    pub(crate) forgotten: Vec<RecordId>,
    /// Whether the outcome of a trial is not known.
    pub(crate) trying: bool,
}

/// Batches with one fate; see [`Appended::set`].
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// Resolves for those who wait for batches that put something.
    pub(crate) puts: Option<Arc<Completer>>,
    /// Resolves for those who wait for batches that only forget.
    pub(crate) forgets: Option<Arc<Completer>>,
    /// The names that were written.
    pub(crate) topics: Vec<Topic>,
    pub(crate) records: Vec<Box<str>>,
    /// Batches without names that put something, and that do not.
    pub(crate) others: [u64; 2],
    /// Whether a batch puts something.
    pub(crate) has_puts: bool,
    /// The bytes that batches without names count in the queue.
    pub(crate) charges: Vec<Charge>,
    /// The records that its batches without names forget which put nothing.
    pub(crate) forgotten: Vec<RecordId>,
    /// Those of [`Ledger::spare`] that its batches forget.
    pub(crate) swept: Vec<RecordId>,
    /// The record of a trial among its batches.
    pub(crate) trial: Option<RecordId>,
}

impl Set {
    /// Changes of names and other batches.
    pub(crate) fn changes(&self) -> u64 {
        (self.topics.len() + self.records.len()) as u64 + self.others.iter().sum::<u64>()
    }
}

impl Ledger {
    /// An empty one, with room for so many bytes of what waits.
    pub(crate) fn new(queue_bytes_max: usize) -> Self {
        Self {
            topics: Names::default(),
            records: Names::default(),
            sets: BTreeMap::new(),
            queue: Queue::new(queue_bytes_max),
            undoing: false,
            spare: Vec::new(),
            forgotten: Vec::new(),
            trying: false,
        }
    }

    /// The set of a batch that was appended just now, which forgets these records that nobody needs. All appends are
    /// made while the ledger is held.
    pub(crate) fn set(&mut self, appended: Appended, puts: bool, swept: Vec<RecordId>) -> &mut Set {
        let set = self.sets.entry(appended.set).or_default();
        set.has_puts |= puts;
        set.swept.extend(swept);
        set
    }

    /// A set whose outcome is not known.
    pub(crate) fn waiting(&mut self, number: u64) -> Option<&mut Set> {
        self.sets.get_mut(&number)
    }

    /// Has a batch forget some of what nobody needs. Returns it: it is to be given to [`Ledger::set`], or back.
    pub(crate) fn sweep(&mut self, batch: &mut fogmux_journal::Batch) -> Vec<RecordId> {
        let swept = self.spare.split_off(self.spare.len().saturating_sub(SWEPT_MAX));
        swept.iter().for_each(|id| batch.forget(*id));
        swept
    }

    /// Takes back what could not be forgotten, for later writes. The oldest stay if that is too much.
    pub(crate) fn spare(&mut self, ids: &[RecordId]) {
        self.spare.extend(ids);
        if self.spare.len() > SPARE_MAX {
            self.spare.sort_unstable();
            self.spare.dedup();
            self.spare.truncate(SPARE_MAX);
        }
    }

    /// Takes out a set that is done.
    pub(crate) fn settled(&mut self, number: u64) -> Option<Set> {
        self.sets.remove(&number)
    }

    /// The completion of the last write of a topic that is under way.
    pub(crate) fn pending(&self, topic: &str) -> Completion {
        let Some((number, puts)) = self.topics.pending(topic) else { return Completion::Ready };
        let Some(set) = self.sets.get(&number) else { return Completion::Ready };
        let completer = if puts { &set.puts } else { &set.forgets };
        completer.as_ref().map_or(Completion::Ready, |completer| Completion::Waiting(Arc::clone(completer)))
    }

    /// Changes whose outcome is not known.
    pub(crate) fn unsettled(&self) -> u64 {
        self.sets.values().map(Set::changes).sum()
    }
}

/// The completion of what a completer resolves, which is made if need be.
pub(crate) fn completion(completer: &mut Option<Arc<Completer>>) -> Completion {
    Completion::Waiting(Arc::clone(completer.get_or_insert_default()))
}
