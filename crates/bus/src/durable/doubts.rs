//! Changes of which it is not known whether the store has them.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use crate::retained::Completion;

/// Changes that have to be made again if their batch is refused or fails, whatever becomes of the connection that they
/// were made for. Empty most of the time.
#[derive(Debug)]
pub(super) struct Doubts<T> {
    /// In a batch that is still to be appended.
    open: Vec<T>,
    /// In batches whose outcomes are not known, oldest first.
    unsure: Vec<(Completion, Vec<T>)>,
    /// In no batch any more: the store has not taken theirs.
    failed: Vec<T>,
}

impl<T> Default for Doubts<T> {
    fn default() -> Self {
        Self { open: Vec::new(), unsure: Vec::new(), failed: Vec::new() }
    }
}

impl<T> Doubts<T> {
    /// Notes a change in the batch that is still to be appended.
    pub(super) fn begin(&mut self, change: T) {
        self.open.push(change);
    }

    /// The batch was appended, with this outcome. Returns the changes that the store has.
    #[must_use]
    pub(super) fn appended(&mut self, completion: &Completion) -> Vec<T> {
        if self.open.is_empty() {
            return Vec::new();
        }
        self.unsure.push((completion.clone(), std::mem::take(&mut self.open)));
        self.settle()
    }

    /// Looks at the outcomes. Returns the changes that the store has by now.
    #[must_use]
    pub(super) fn settle(&mut self) -> Vec<T> {
        let mut taken = Vec::new();
        if self.unsure.is_empty() {
            return taken;
        }
        let cx = &mut Context::from_waker(Waker::noop());
        self.unsure.retain_mut(|(completion, changes)| match Pin::new(completion).poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => {
                taken.append(changes);
                false
            }
            Poll::Ready(Err(_)) => {
                self.failed.append(changes);
                false
            }
        });
        taken
    }

    /// Takes out the changes that are to be made again.
    #[must_use]
    pub(super) fn take_failed(&mut self) -> Vec<T> {
        std::mem::take(&mut self.failed)
    }

    /// Whether there are some to be made again.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Ready when the store has all of them, as far as they are appended; failed if some are to be made again.
    pub(super) fn outcome(&self) -> Completion {
        match self.unsure.last() {
            _ if self.has_failed() => Completion::Failed,
            Some((last, _)) => last.clone(),
            None => Completion::Ready,
        }
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let unsure = self.unsure.iter().flat_map(|(_, changes)| changes);
        self.failed.iter().chain(unsure).chain(&self.open)
    }

    /// All of them.
    pub(super) fn into_all(self) -> impl Iterator<Item = T> {
        let unsure = self.unsure.into_iter().flat_map(|(_, changes)| changes);
        self.failed.into_iter().chain(unsure).chain(self.open)
    }
}
