//! Records of a session that it has replaced, for as long as they may be in the store.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use super::{record::RecordId, store::Batch};
use crate::retained::{Completion, StoreFailed};

/// At most so many are kept: one that is on the disk, and those whose outcomes are not known.
const KEPT_MAX: usize = 64;

/// A record is forgotten in the batch that puts the next one, so it stays if that batch is refused or fails. It cannot
/// be forgotten by itself, or nothing would be there. So it is forgotten again with each later one, until one of those
/// is known to be on the disk.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    /// Oldest first.
    ids: Vec<RecordId>,
    /// The outcome of the last batch, which puts the newest record and forgets these.
    outcome: Completion,
    /// Whether that batch is still to be appended.
    is_open: bool,
    /// Whether the outcome of the one before was known then. A store does not forget again what is being forgotten.
    is_sure: bool,
}

impl Replaced {
    /// For a first record, in a batch that is still to be appended.
    pub(super) fn begun() -> Self {
        Self { is_open: true, is_sure: true, ..Self::default() }
    }

    /// Forgets the newest record, which is replaced or over, and those before it that may be there.
    pub(super) fn forget(&mut self, newest: RecordId, batch: &mut dyn Batch) {
        if self.is_over() {
            self.ids.clear();
        }
        self.forget_all(batch);
        batch.forget(newest);
        let outcome = self.outcome();
        // One that failed is not on the disk. The oldest stay: one of them is.
        if outcome != Poll::Ready(Err(StoreFailed)) && self.ids.len() < KEPT_MAX {
            self.ids.push(newest);
        }
        (self.is_open, self.is_sure) = (true, outcome.is_ready());
    }

    /// Forgets those before the newest record.
    pub(super) fn forget_all(&self, batch: &mut dyn Batch) {
        self.ids.iter().for_each(|id| batch.forget(*id));
    }

    /// Those that may be there.
    pub(super) fn into_ids(self) -> impl Iterator<Item = RecordId> {
        self.ids.into_iter()
    }

    /// Whether it is known that they are not there.
    pub(super) fn is_over(&self) -> bool {
        self.is_sure && self.outcome() == Poll::Ready(Ok(()))
    }

    /// Whether it is known that the newest record is not there. Asked for each message: once it is there, the batch is
    /// not looked at again.
    pub(super) fn is_refused(&mut self) -> bool {
        let outcome = self.outcome();
        if outcome == Poll::Ready(Ok(())) {
            self.outcome = Completion::Ready;
        }
        outcome == Poll::Ready(Err(StoreFailed))
    }

    fn outcome(&self) -> Poll<Result<(), StoreFailed>> {
        if self.is_open {
            return Poll::Pending;
        }
        Pin::new(&mut self.outcome.clone()).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// The batch was appended, with this outcome.
    pub(super) fn appended(&mut self, completion: &Completion) {
        if std::mem::take(&mut self.is_open) {
            self.outcome = completion.clone();
        }
    }
}
