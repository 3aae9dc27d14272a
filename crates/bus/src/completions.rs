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

    /// The completion for the publication at this place in the batch. One of which nothing is kept has that of the
    /// publication before it, for doors that acknowledge in order; its own outcome does not depend on it.
    #[must_use]
    pub fn of(&self, index: usize) -> &Completion {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after.checked_sub(1).and_then(|at| self.0.get(at)).map_or(&Completion::Ready, |(_, completion)| completion)
    }

    /// Has publications wait for the store of sessions as well: those of the first `count` for which `is_stored`. One
    /// that is no state waits for that only: sessions get it whatever becomes of the retained message before it.
    pub(crate) fn join(
        &mut self,
        stored: &Completion,
        count: usize,
        is_stored: impl Fn(usize) -> bool,
        is_state: impl Fn(usize) -> bool,
    ) {
        if stored.is_ready() && (self.is_ready() || !(0..count).any(&is_stored)) {
            return;
        }
        let before = std::mem::take(self);
        let mut last: Option<(Completion, Completion)> = None;
        for index in 0..count {
            let own = before.of(index);
            let completion = match &last {
                _ if !is_stored(index) => own.clone(),
                _ if !is_state(index) => stored.clone(),
                Some((of, both)) if of.is_same(own) => both.clone(),
                _ => last.insert((own.clone(), own.and(stored))).1.clone(),
            };
            self.append(index, completion);
        }
    }

    /// Adds the completion of the publication at this place, which is behind all others.
    pub(crate) fn push(&mut self, index: usize, completion: Completion) {
        if !completion.is_ready() {
            self.append(index, completion);
        }
    }

    /// The same, where one that is ready does not wait for those before it.
    fn append(&mut self, index: usize, completion: Completion) {
        if !self.0.last().map_or(&Completion::Ready, |(_, last)| last).is_same(&completion) {
            self.0.push((index, completion));
        }
    }
}

impl Completion {
    /// Resolves when both have, and fails if one does.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (Self::Ready, one) | (one, Self::Ready) => one.clone(),
            (
                Self::Waiting(_) | Self::Both(_) | Self::Sooner(_),
                Self::Waiting(_) | Self::Both(_) | Self::Sooner(_),
            ) => Self::Both(Arc::new([self.clone(), other.clone()])),
        }
    }

    /// Whether both are resolved together, by the same commit.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ready, Self::Ready) | (Self::Failed, Self::Failed) => true,
            (Self::Waiting(one), Self::Waiting(other)) => Arc::ptr_eq(one, other),
            (Self::Both(one), Self::Both(other)) => Arc::ptr_eq(one, other),
            (Self::Sooner(one), Self::Sooner(other)) => Arc::ptr_eq(one, other),
            (Self::Ready | Self::Failed | Self::Waiting(_) | Self::Both(_) | Self::Sooner(_), _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_publication_that_is_stored_for_sessions_waits_for_both() {
        let [own, stored] = [(); 2].map(|()| Arc::new(crate::retained::Completer::default()));
        let mut all = Completions::default();
        all.push(2, Completion::Waiting(Arc::clone(&own)));
        all.join(&Completion::Waiting(Arc::clone(&stored)), 4, |index| index % 2 == 1, |_| true);
        let mut cx = Context::from_waker(Waker::noop());
        let mut ready = || {
            let is_ready = |index| std::pin::pin!(all.of(index).clone()).poll(&mut cx).map(|kept| kept.is_ok());
            [0, 1, 2, 3].map(is_ready)
        };
        let (waits, kept, lost) = (Poll::Pending, Poll::Ready(true), Poll::Ready(false));
        assert_eq!(ready(), [kept, waits, waits, waits]);
        stored.complete(Ok(()));
        assert_eq!(ready(), [kept, kept, waits, waits]);
        own.complete(Err(crate::retained::StoreFailed));
        assert_eq!(ready(), [kept, kept, lost, lost]);
        let mut none = Completions::default();
        none.join(&Completion::Ready, 4, |_| true, |_| true);
        assert!(none.is_ready());
        none.join(&Completion::Failed, 2, |index| index == 1, |_| true);
        assert!(none.of(0).is_ready() && matches!(none.of(1), Completion::Failed));
    }

    #[test]
    fn a_retained_message_that_is_lost_takes_no_event_behind_it_along() {
        let store = Completion::Waiting(Arc::default());
        for stored in [Completion::Ready, store] {
            let mut all = Completions::default();
            all.push(0, Completion::Failed);
            // A state that only the retained map keeps, two events for sessions, one for nobody, a state for sessions.
            let is_stored = |index| matches!(index, 1 | 2 | 4);
            all.join(&stored, 5, is_stored, |index| matches!(index, 0 | 4));
            assert!(matches!(all.of(0), Completion::Failed));
            assert!(all.of(1).is_same(&stored) && all.of(2).is_same(&stored));
            assert!(matches!(all.of(4), Completion::Failed));
        }
    }

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
