//! The store's view of its journal: the value kept under each name, and the waiters of each set of batches.

use std::{collections::VecDeque, sync::Arc};

use fogmux_bus::{Completer, Completion, Topic};
use fogmux_journal::{Appended, RecordId, Ticket};

use crate::names::Names;

/// The state of the store beside its journal.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Retained messages.
    pub(crate) topics: Names<Topic>,
    /// Records of doors.
    pub(crate) records: Names<Box<str>>,
    /// Sets of batches whose outcome is not known, in order.
    sets: VecDeque<Set>,
    /// Whether failed writes are being undone in the bus, which must not change meanwhile.
    pub(crate) undoing: bool,
    /// Records that nobody needs and that may be on the disk. Each batch forgets them, until one is committed.
    pub(crate) spare: Vec<RecordId>,
}

/// Batches with one fate; see [`Appended::set`].
#[derive(Debug)]
pub(crate) struct Set {
    number: u64,
    pub(crate) first: Ticket,
    pub(crate) last: Ticket,
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
    /// How many of [`Ledger::spare`] its batches forget.
    pub(crate) sweeps: usize,
}

impl Set {
    const fn new(number: u64, first: Ticket) -> Self {
        Self {
            number,
            first,
            last: first,
            puts: None,
            forgets: None,
            topics: Vec::new(),
            records: Vec::new(),
            others: [0; 2],
            has_puts: false,
            sweeps: 0,
        }
    }

    /// Changes of names and other batches.
    pub(crate) fn changes(&self) -> u64 {
        (self.topics.len() + self.records.len()) as u64 + self.others.iter().sum::<u64>()
    }
}

impl Ledger {
    /// The set of a batch that was appended just now. All appends are made while the ledger is held.
    pub(crate) fn set(&mut self, appended: Appended, puts: bool) -> &mut Set {
        let Appended { ticket, set: number } = appended;
        let mut set = self.sets.pop_back();
        if let Some(earlier) = set.take_if(|set| set.number != number) {
            self.sets.push_back(earlier);
        }
        let set = self.sets.push_back_mut(set.unwrap_or_else(|| Set::new(number, ticket)));
        set.last = ticket;
        set.has_puts |= puts;
        set.sweeps = self.spare.len();
        set
    }

    /// Has a batch forget what nobody needs.
    pub(crate) fn sweep(&self, batch: &mut fogmux_journal::Batch) {
        self.spare.iter().for_each(|id| batch.forget(*id));
    }

    /// Takes out the next set whose batches are all among those up to `through`.
    pub(crate) fn settled(&mut self, through: Ticket) -> Option<Set> {
        if self.sets.front()?.last > through {
            return None;
        }
        self.sets.pop_front()
    }

    /// The completion of the last write of a topic that is under way.
    pub(crate) fn pending(&self, topic: &str) -> Completion {
        let Some((number, puts)) = self.topics.pending(topic) else { return Completion::Ready };
        let Some(set) = self.sets.iter().find(|set| set.number == number) else { return Completion::Ready };
        let completer = if puts { &set.puts } else { &set.forgets };
        completer.as_ref().map_or(Completion::Ready, |completer| Completion::Waiting(Arc::clone(completer)))
    }

    /// Changes whose outcome is not known.
    pub(crate) fn unsettled(&self) -> u64 {
        self.sets.iter().map(Set::changes).sum()
    }
}

/// The completion of what a completer resolves, which is made if need be.
pub(crate) fn completion(completer: &mut Option<Arc<Completer>>) -> Completion {
    Completion::Waiting(Arc::clone(completer.get_or_insert_default()))
}
