//! Answers to publications that wait for the disk.
//!
//! What is published cannot be taken back, so nothing gives way here: while there is room nobody is limited, and the
//! rest of the room is for owners that have less of it than there is left (ADR 0031). Of that, half is for clients with
//! a name: those without may be many.

use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    task::{Context, Poll},
};

use fogmux_bus::{Completion, StoreFailed};
use fogmux_coap::{Code, Ticket};
use fogmux_fair::Owner;
use foldhash::quality::RandomState;

use super::transport::Path;

/// An answer.
pub(super) struct Owed {
    pub(super) ticket: Ticket<Path>,
    pub(super) code: Code,
    pub(super) owner: Owner,
}

/// Answers that wait for the same commit.
struct Deferred {
    completion: Completion,
    answers: Vec<Owed>,
}

/// How many answers may wait, and how many more of owners that have few.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) max: usize,
    pub(super) reserve: usize,
}

/// All answers of a worker's socket, or of its connections, that wait for the disk.
#[derive(Default)]
pub(super) struct Pending {
    queue: VecDeque<Deferred>,
    answers: usize,
    by_owner: HashMap<Owner, usize, RandomState>,
    by_association: HashMap<u64, usize, RandomState>,
    /// Associations that are owed nothing any more, since the last turn.
    settled: Vec<u64>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether an answer for this association or connection waits.
    pub(super) fn is_for(&self, association: u64) -> bool {
        self.by_association.contains_key(&association)
    }

    /// Whether one more answer of an owner may wait, besides those of a batch that is about to be published.
    pub(super) fn admits<'a>(
        &self,
        owner: &Owner,
        batch: impl ExactSizeIterator<Item = &'a Owner>,
        places: Places,
    ) -> bool {
        let used = self.answers + batch.len();
        if used < places.max {
            return true;
        }
        let own = self.by_owner.get(owner).copied().unwrap_or(0) + batch.filter(|other| *other == owner).count();
        let others = if owner.is_principal() { 0 } else { places.reserve / 2 };
        own < (places.max + places.reserve).saturating_sub(used + others)
    }

    /// Adds an answer.
    pub(super) fn push(&mut self, completion: &Completion, answer: Owed) {
        self.answers += 1;
        *self.by_owner.entry(answer.owner.clone()).or_default() += 1;
        *self.by_association.entry(answer.ticket.peer().association).or_default() += 1;
        match self.queue.back_mut() {
            Some(last) if last.completion.is_same(completion) => last.answers.push(answer),
            _ => self.queue.push_back(Deferred { completion: completion.clone(), answers: vec![answer] }),
        }
    }

    /// Takes the answers of a commit that has ended. All are looked at, because a write of one owner may be committed
    /// before an earlier one of another (ADR 0044).
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Option<(Result<(), StoreFailed>, Vec<Owed>)> {
        let ended = self.queue.iter_mut().enumerate().find_map(|(place, deferred)| {
            match Pin::new(&mut deferred.completion).poll(cx) {
                Poll::Ready(result) => Some((place, result)),
                Poll::Pending => None,
            }
        });
        let (place, result) = ended?;
        let answers = self.queue.remove(place)?.answers;
        self.answers -= answers.len();
        for answer in &answers {
            less(&mut self.by_owner, &answer.owner);
            let association = answer.ticket.peer().association;
            if less(&mut self.by_association, &association) {
                self.settled.push(association);
            }
        }
        Some((result, answers))
    }

    /// A new turn begins.
    pub(super) fn begin_turn(&mut self) {
        self.settled.clear();
    }

    /// Associations that are owed nothing any more, since the turn began.
    pub(super) fn settled(&self) -> impl Iterator<Item = u64> {
        self.settled.iter().copied()
    }
}

/// Takes one from a count. Returns whether it was the last.
fn less<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, usize, RandomState>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count -= 1;
    let was_last = *count == 0;
    if was_last {
        counts.remove(key);
    }
    was_last
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, task::Waker};

    use fogmux_bus::Completer;

    use super::*;

    const PLACES: Places = Places { max: 100, reserve: 20 };

    /// Answers that wait, by owner.
    fn pending(counts: &[(&Owner, usize)]) -> Pending {
        let by_owner = counts.iter().map(|(owner, count)| ((*owner).clone(), *count)).collect();
        Pending { answers: counts.iter().map(|(_, count)| count).sum(), by_owner, ..Pending::default() }
    }

    #[test]
    fn an_answer_waits_for_its_own_commit_and_not_for_earlier_ones_of_others() {
        let commits: [Arc<Completer>; 2] = std::array::from_fn(|_| Arc::default());
        let mut pending = Pending::default();
        for commit in &commits {
            let completion = Completion::Waiting(Arc::clone(commit));
            pending.queue.push_back(Deferred { completion, answers: Vec::new() });
        }
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pending.poll(&mut cx).is_none());
        commits[1].complete(Err(StoreFailed));
        assert!(pending.poll(&mut cx).is_some_and(|(result, _)| result.is_err()));
        assert!(pending.poll(&mut cx).is_none() && !pending.is_empty());
        commits[0].complete(Ok(()));
        assert!(pending.poll(&mut cx).is_some_and(|(result, _)| result.is_ok()));
        assert!(pending.is_empty());
    }

    #[test]
    fn the_owner_that_has_most_is_refused_first_and_those_without_a_name_leave_room_to_those_with_one() {
        let host = |last| Owner::nameless([192, 0, 2, last].into());
        let (hog, other, last, ada) = (host(1), host(2), host(99), Owner::principal("ada".into()));
        let admits = |counts: &[(&Owner, usize)], owner| pending(counts).admits(owner, std::iter::empty(), PLACES);
        assert!(admits(&[(&hog, 99)], &hog), "nobody is limited while there is room");
        assert!(!admits(&[(&hog, 100)], &hog));
        assert!(!pending(&[(&hog, 90)]).admits(&hog, [&hog; 10].into_iter(), PLACES), "with those of the batch");
        assert!(admits(&[(&hog, 100)], &other) && admits(&[(&hog, 100), (&other, 5)], &ada));
        assert!(!admits(&[(&hog, 100), (&other, 5)], &other), "no more than is left");
        let many: Vec<Owner> = (2..12).map(host).collect();
        let all: Vec<_> = std::iter::once((&hog, 100)).chain(many.iter().map(|owner| (owner, 1))).collect();
        assert!(!admits(&all, &last), "many without a name");
        assert!(admits(&all, &ada));
    }
}
