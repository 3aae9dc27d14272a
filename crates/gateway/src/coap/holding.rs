//! Answers to publications over datagrams that are held back because a subscriber asks their publishers to slow down.
//!
//! All peers share one socket, which is read on. A client that keeps to NSTART (RFC 7252 §4.7) sends its next request
//! when it has the answer to the last; one that does not is refused before anything of its next request is published.

use std::{
    collections::HashMap,
    task::{Context, Poll},
};

use fogmux_bus::{Completion, SlowDown};
use foldhash::quality::RandomState;

use super::{pending::Owed, transport::Path};
use crate::{WorkerContext, pause::Pause};

/// Answers held back for one peer above which its publications are refused. A client that keeps to NSTART has one.
const HELD_MAX: u32 = 16;

/// An answer, and what it waits for besides.
pub(super) struct Held {
    pub(super) answer: Owed,
    pub(super) completion: Completion,
}

/// All answers that a socket holds back.
#[derive(Default)]
pub(super) struct Holding {
    batches: Vec<(Pause, Vec<Held>)>,
    peers: HashMap<Path, u32, RandomState>,
    answers: usize,
}

impl Holding {
    /// The number of answers.
    pub(super) const fn len(&self) -> usize {
        self.answers
    }

    /// Whether an answer to this peer is held back.
    pub(super) fn is_for(&self, peer: &Path) -> bool {
        self.answers > 0 && self.peers.contains_key(peer)
    }

    /// Whether this peer publishes on without waiting for its answers.
    pub(super) fn has_many_for(&self, peer: &Path) -> bool {
        self.answers > 0 && self.peers.get(peer).is_some_and(|count| *count >= HELD_MAX)
    }

    /// Holds the answers of a batch back.
    pub(super) fn push(&mut self, asked: SlowDown, answers: Vec<Held>) {
        self.answers += answers.len();
        for held in &answers {
            *self.peers.entry(held.answer.ticket.peer()).or_default() += 1;
        }
        self.batches.push((Pause::new(asked), answers));
    }

    /// The answers that have been held back for long enough.
    pub(super) fn poll(&mut self, ctx: &WorkerContext, cx: &mut Context<'_>) -> Poll<Vec<Held>> {
        if self.answers == 0 {
            return Poll::Pending;
        }
        let mut free = Vec::new();
        for (_, answers) in self.batches.extract_if(.., |(pause, _)| pause.poll(ctx, cx).is_ready()) {
            free.extend(answers);
        }
        for held in &free {
            let peer = held.answer.ticket.peer();
            if let Some(count) = self.peers.get_mut(&peer) {
                *count -= 1;
                if *count == 0 {
                    self.peers.remove(&peer);
                }
            }
        }
        self.answers -= free.len();
        if free.is_empty() { Poll::Pending } else { Poll::Ready(free) }
    }
}
