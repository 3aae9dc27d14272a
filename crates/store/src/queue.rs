//! The queue of the committer: the newest write of each topic and record, and the completions of the next commits.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use fogmux_bus::{Completer, Completion, Message, Topic};

use crate::{
    batch::{Gathered, Value, Write},
    durability::Durability,
};

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// Takes nothing more; what has gathered is still written.
    Closing,
    /// A write failed; nothing is taken any more.
    Failed,
}

#[derive(Debug, Default)]
struct State {
    gathered: Gathered,
    bytes: usize,
    phase: Phase,
    /// Completions of what the committer has taken, until all are resolved.
    taken: Vec<Arc<Completer>>,
    /// The number of changes in it.
    taken_changes: usize,
    ended: bool,
}

impl State {
    /// Takes what has gathered out.
    fn hand_over(&mut self) -> Gathered {
        self.bytes = 0;
        let gathered = std::mem::take(&mut self.gathered);
        self.taken.extend(gathered.completers());
        self.taken_changes += gathered.changes();
        gathered
    }
}

/// The queue between publishers, who never wait, and the committer.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    durability: Durability,
    bytes_max: usize,
}

impl Queue {
    pub(crate) fn new(durability: Durability, bytes_max: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), durability, bytes_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the waiting write of a topic. `before` is the message that the topic had until then. Returns
    /// [`Completion::Failed`] when the write is not taken: the store is read-only or closed, or too many topics wait
    /// for the disk.
    pub(crate) fn push(&self, topic: &Topic, write: Write, before: Option<&Arc<Message>>) -> Completion {
        let before = self.durability.waits().then(|| before.cloned());
        self.enter(|gathered, reserve| gathered.put(topic, write, before, reserve))
    }

    /// Replaces the waiting write of a record, or removes the record; otherwise as [`Queue::push`].
    pub(crate) fn push_record(&self, key: &str, value: Value) -> Completion {
        self.enter(|gathered, reserve| gathered.put_record(key, value, reserve))
    }

    fn enter(&self, put: impl FnOnce(&mut Gathered, &mut dyn FnMut(usize) -> bool) -> Option<usize>) -> Completion {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Completion::Failed;
        }
        let was_empty = state.gathered.is_empty();
        let State { gathered, bytes, .. } = &mut *state;
        let mut reserve = |more: usize| {
            let all = bytes.saturating_add(more);
            let room = all <= self.bytes_max;
            if room {
                *bytes = all;
            }
            room
        };
        let Some(portion) = put(gathered, &mut reserve) else { return Completion::Failed };
        let completer = if self.durability.waits() { gathered.completer(portion) } else { None };
        let completion = completer.map_or(Completion::Ready, Completion::Waiting);
        let wake = was_empty || self.is_crowded(&state);
        drop(state);
        if wake {
            self.changed.notify_all();
        }
        completion
    }

    fn is_crowded(&self, state: &State) -> bool {
        state.bytes > self.bytes_max / 2
    }

    /// Waits for writes, and for more as long as the durability says. `None`: closed and empty.
    pub(crate) fn take(&self) -> Option<Gathered> {
        let mut state = self.lock();
        while state.gathered.is_empty() {
            if state.phase != Phase::Open {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let deadline = Instant::now() + self.durability.gather();
        while state.phase == Phase::Open && !self.is_crowded(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state.hand_over())
    }

    /// The completion of writes of a topic that are under way. What the committer has taken counts whatever its topics
    /// are.
    pub(crate) fn pending(&self, topic: &str) -> Completion {
        let state = self.lock();
        let completer = state.gathered.pending(topic).or_else(|| state.taken.last());
        completer.map_or(Completion::Ready, |completer| Completion::Waiting(Arc::clone(completer)))
    }

    /// Notes that the completions of everything that was taken are resolved.
    pub(crate) fn settled(&self) {
        let mut state = self.lock();
        state.taken.clear();
        state.taken_changes = 0;
    }

    /// Closes the queue; the committer writes what is in it and ends.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Refuses all writes from now on. Returns those that wait, which fail.
    pub(crate) fn fail(&self) -> Gathered {
        let mut state = self.lock();
        state.phase = Phase::Failed;
        state.hand_over()
    }

    /// Called by the committer when it ends.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits for the end of the committer. If it does not come within `patience`, returns how many changes may not be
    /// written.
    pub(crate) fn wait_for_end(&self, patience: Duration) -> Option<u64> {
        let state = self.lock();
        let (state, _) = self
            .changed
            .wait_timeout_while(state, patience, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        (!state.ended).then(|| (state.gathered.changes() + state.taken_changes) as u64)
    }
}
