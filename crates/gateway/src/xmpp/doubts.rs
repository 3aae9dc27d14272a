//! Changes whose storage is not certain yet, and what is there again if they are not kept.
//!
//! A change is seen at once, like a retained message that waits for the disk, and is undone before its author is told
//! that it failed. One that follows a failed one under the same key is not undone with it.

use std::{
    collections::VecDeque,
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use fogmux_bus::Completion;

/// Changes among which one of the same key is looked for.
const RECENT: usize = 64;

/// Changes that wait for the store, in order. The store bounds how many there are.
#[derive(Debug)]
pub(super) struct Doubts<K, B>(VecDeque<Doubt<K, B>>);

#[derive(Debug)]
struct Doubt<K, B> {
    key: K,
    completion: Completion,
    /// The state before.
    before: B,
}

impl<K, B> Default for Doubts<K, B> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: PartialEq, B> Doubts<K, B> {
    /// Notes a change, unless its outcome is known.
    pub(super) fn push(&mut self, key: K, completion: &Completion, before: B) {
        while self.0.front_mut().is_some_and(|first| poll(&mut first.completion) == Poll::Ready(true)) {
            self.0.pop_front();
        }
        // Of changes that are stored together only what was there before the first is needed.
        let is_known = |doubt: &Doubt<K, B>| doubt.key == key && doubt.completion.is_same(completion);
        if matches!(completion, Completion::Waiting(_)) && !self.0.iter().rev().take(RECENT).any(is_known) {
            self.0.push_back(Doubt { key, completion: completion.clone(), before });
        }
    }

    /// Takes out the changes that have failed and that no other has followed: what is to be there again, by key.
    pub(super) fn failed(&mut self) -> Vec<(K, B)> {
        let mut failed = Vec::new();
        let mut at = 0;
        // Many wait for the same commit.
        let mut pending = Completion::Ready;
        while let Some(doubt) = self.0.get_mut(at) {
            if pending.is_same(&doubt.completion) {
                at += 1;
                continue;
            }
            let Poll::Ready(is_kept) = poll(&mut doubt.completion) else {
                pending = doubt.completion.clone();
                at += 1;
                continue;
            };
            let Some(Doubt { key, before, .. }) = self.0.remove(at) else { break };
            if is_kept {
                continue;
            }
            match self.0.iter_mut().skip(at).find(|later| later.key == key) {
                Some(later) => later.before = before,
                None => failed.push((key, before)),
            }
        }
        failed
    }
}

fn poll(completion: &mut Completion) -> Poll<bool> {
    Pin::new(completion).poll(&mut Context::from_waker(Waker::noop())).map(|result| result.is_ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fogmux_bus::{Completer, StoreFailed};

    use super::*;

    #[test]
    fn a_failed_change_is_undone_unless_another_followed() {
        let commits: [Arc<Completer>; 3] = std::array::from_fn(|_| Arc::default());
        let waiting = |commit: usize| Completion::Waiting(Arc::clone(&commits[commit]));
        let mut doubts = Doubts::default();
        doubts.push("sure", &Completion::Ready, 0);
        doubts.push("a", &waiting(0), 1);
        doubts.push("a", &waiting(1), 2);
        doubts.push("b", &waiting(0), 3);
        doubts.push("c", &waiting(2), 4);
        assert_eq!(doubts.failed(), []);
        doubts.push("b", &waiting(0), 5);
        assert_eq!(doubts.0.len(), 4, "changes that are stored together");
        commits[0].complete(Err(StoreFailed));
        assert_eq!(doubts.failed(), [("b", 3)]);
        commits[2].complete(Ok(()));
        assert_eq!(doubts.failed(), []);
        // Its second change fails as well: what was there before the first is there again.
        commits[1].complete(Err(StoreFailed));
        assert_eq!(doubts.failed(), [("a", 1)]);
        assert!(doubts.0.is_empty());
    }
}
