//! Messages of sessions that are read back from the store (ADR 0073).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{message::StoredMessage, record::RecordId};

/// The records that were asked for, each with its message. `None`: the store does not have it, or it is damaged.
pub type MessagesRead = Vec<(RecordId, Option<StoredMessage>)>;

/// Messages that a store is asked for, to be polled by one task.
#[derive(Debug)]
#[must_use]
pub struct ReadBack(Arc<Mutex<State>>);

/// The store's half of a [`ReadBack`].
#[derive(Debug)]
pub struct ReadBackAnswer(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    Asked(Option<Waker>),
    Read(MessagesRead),
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReadBack {
    /// A question, and the place for its answer.
    pub fn ask() -> (Self, ReadBackAnswer) {
        let state = Arc::new(Mutex::new(State::Asked(None)));
        (Self(Arc::clone(&state)), ReadBackAnswer(state))
    }

    /// Whether the answer is there.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(*lock(&self.0), State::Read(_))
    }

    /// Takes the answer, once. The task that polled last is woken when it is there.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<MessagesRead> {
        match &mut *lock(&self.0) {
            State::Asked(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            State::Read(messages) => Poll::Ready(std::mem::take(messages)),
        }
    }
}

impl ReadBackAnswer {
    /// Whether nobody waits for the answer any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Answers.
    pub fn answer(self, messages: MessagesRead) {
        let before = std::mem::replace(&mut *lock(&self.0), State::Read(messages));
        if let State::Asked(Some(waker)) = before {
            waker.wake();
        }
    }
}
