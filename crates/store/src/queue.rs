//! What waits for the committer: the newest write of each topic and of each record, and who waits for it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use fogmux_bus::{Completer, Completion, Message, StoreFailed, Topic, Undo};

use crate::durability::Durability;

/// What an entry costs beside the bytes of its topic, roughly.
const ENTRY_BYTES: usize = 200;

/// What becomes of a topic.
#[derive(Debug)]
pub(crate) enum Write {
    /// The message is its latest; with its expiry in milliseconds since 1970.
    Put(Arc<Message>, Option<u64>),
    /// It has none any more.
    Remove,
}

/// What one commit writes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// In order, as the disk likes them; and a tree never moves all that it has while publishers wait.
    pub(crate) writes: BTreeMap<Topic, Write>,
    /// Values of records by key; none for those that are removed.
    pub(crate) records: HashMap<Box<str>, Option<Box<[u8]>>>,
    /// What each topic of `writes` had before, where somebody waits to hear that the write failed.
    before: HashMap<Topic, Option<Arc<Message>>>,
    /// Who waits for it, if anybody does.
    pub(crate) completer: Option<Arc<Completer>>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.records.is_empty()
    }

    /// Undoes each write for the bus, so that nobody reads what its publisher is told was not kept.
    pub(crate) fn undo(&self, undo: &Undo) {
        for (topic, before) in &self.before {
            undo(topic, before.as_ref());
        }
    }

    pub(crate) fn complete(self, result: Result<(), StoreFailed>) {
        if let Some(completer) = self.completer {
            completer.complete(result);
        }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// Takes nothing more; what it has is still written.
    Closing,
    /// A write failed. For ever.
    Failed,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch,
    bytes: usize,
    phase: Phase,
    ended: bool,
}

impl State {
    /// Room for another entry; false when there is none.
    fn reserve(&mut self, bytes: usize, bytes_max: usize) -> bool {
        self.grow(bytes.saturating_add(ENTRY_BYTES), bytes_max)
    }

    fn grow(&mut self, bytes: usize, bytes_max: usize) -> bool {
        let bytes = self.bytes.saturating_add(bytes);
        let room = bytes <= bytes_max;
        if room {
            self.bytes = bytes;
        }
        room
    }
}

/// Between the publishers, who never wait for it, and the committer.
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

    /// Puts a write in the place of the topic's last one. [`Completion::Failed`] when it is not taken: the store is
    /// read-only or closed, or more topics wait for the disk than the limit allows.
    /// `before` is what the topic had until then.
    pub(crate) fn push(&self, topic: &Topic, write: Write, before: Option<&Arc<Message>>) -> Completion {
        let state = self.lock();
        let was_empty = state.batch.is_empty();
        let waits = self.durability.waits();
        self.enter(state, was_empty, |state, bytes_max| {
            if let Some(place) = state.batch.writes.get_mut(topic.as_str()) {
                *place = write;
                return true;
            }
            let room = state.reserve(topic.len(), bytes_max);
            if room {
                state.batch.writes.insert(topic.clone(), write);
                if waits {
                    state.batch.before.insert(topic.clone(), before.cloned());
                }
            }
            room
        })
    }

    /// Puts a record in the place of the last one of its key, or removes it; as [`Queue::push`].
    pub(crate) fn push_record(&self, key: &str, value: Option<Box<[u8]>>) -> Completion {
        let state = self.lock();
        let was_empty = state.batch.is_empty();
        self.enter(state, was_empty, |state, bytes_max| {
            let before = state.batch.records.get(key).map(|place| place.as_ref().map_or(0, |value| value.len()));
            let after = value.as_ref().map_or(0, |value| value.len());
            let room = match before {
                Some(before) if after <= before => true,
                Some(before) => state.grow(after - before, bytes_max),
                None => state.reserve(key.len().saturating_add(after), bytes_max),
            };
            if room {
                state.batch.records.insert(key.into(), value);
            }
            room
        })
    }

    fn enter(
        &self,
        mut state: MutexGuard<'_, State>,
        was_empty: bool,
        put: impl FnOnce(&mut State, usize) -> bool,
    ) -> Completion {
        if state.phase != Phase::Open || !put(&mut state, self.bytes_max) {
            return Completion::Failed;
        }
        let completion = if self.durability.waits() {
            Completion::Waiting(Arc::clone(state.batch.completer.get_or_insert_default()))
        } else {
            Completion::Ready
        };
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

    /// Waits for something to write, and for company as long as the durability says. `None`: closed and empty.
    pub(crate) fn take(&self) -> Option<Batch> {
        let mut state = self.lock();
        while state.batch.is_empty() {
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
        state.bytes = 0;
        Some(std::mem::take(&mut state.batch))
    }

    /// Takes nothing more; the committer writes what is there and ends.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Read-only from here: what comes is refused. Gives what waits, which fails.
    pub(crate) fn fail(&self) -> Batch {
        let mut state = self.lock();
        state.phase = Phase::Failed;
        state.bytes = 0;
        std::mem::take(&mut state.batch)
    }

    /// The committer says that it is done.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Whether the committer was done within `patience`.
    pub(crate) fn wait_for_end(&self, patience: Duration) -> bool {
        let state = self.lock();
        let (state, _) = self
            .changed
            .wait_timeout_while(state, patience, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        state.ended
    }
}
