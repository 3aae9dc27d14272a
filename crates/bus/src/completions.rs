//! The completions of a batch: the commit that each publication waits for.
//!
//! The store may take what it commits at any moment, so the publications of one batch may be written by several
//! commits, of which the first succeeds and the second fails. Each publisher is told the outcome of its own.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::retained::Completion;

/// The completions of the publications of a batch. Empty, without an allocation, if nothing has to be stored.
#[derive(Debug, Default)]
pub struct Completions(SmallVec<[(usize, Completion); 1]>);

impl Completions {
    /// Whether no acknowledgement has to wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.is_empty()
    }

    /// The completion for the publication at this place in the batch. One that waits for nothing itself has that of the
    /// publication before it, for doors that acknowledge in order.
    #[must_use]
    pub fn of(&self, index: usize) -> &Completion {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after.checked_sub(1).and_then(|at| self.0.get(at)).map_or(&Completion::Ready, |(_, completion)| completion)
    }

    /// Adds the completion of the publication at this place, which is behind all others.
    pub(crate) fn push(&mut self, index: usize, completion: Completion) {
        let is_new = self.0.last().is_none_or(|(_, last)| !last.is_same(&completion));
        if is_new && !completion.is_ready() {
            self.0.push((index, completion));
        }
    }
}

impl Completion {
    /// Whether both are resolved together, by the same commit.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ready, Self::Ready) | (Self::Failed, Self::Failed) => true,
            (Self::Waiting(one), Self::Waiting(other)) => Arc::ptr_eq(one, other),
            (Self::Ready | Self::Failed | Self::Waiting(_), _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_publication_has_its_own_completion_or_the_one_before() {
        let [first, second] = [(); 2].map(|()| Completion::Waiting(Arc::default()));
        let mut all = Completions::default();
        assert!(all.is_ready() && all.of(0).is_ready() && all.of(7).is_ready());
        for (index, completion) in
            [&Completion::Ready, &first, &Completion::Ready, &first, &second, &first].into_iter().enumerate()
        {
            all.push(index, completion.clone());
        }
        assert!(!all.is_ready() && all.of(0).is_ready());
        for (index, expected) in [(1, &first), (2, &first), (3, &first), (4, &second), (5, &first), (9, &first)] {
            assert!(all.of(index).is_same(expected), "{index}");
        }
    }
}
