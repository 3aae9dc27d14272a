//! The queue of the committer: the newest write of each topic and record, and the completion of the next commit.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use fogmux_bus::{Completer, Completion, Message, StoreFailed, Topic, Undo};

use crate::durability::Durability;

/// Bytes of an entry besides its topic, roughly.
const ENTRY_BYTES: usize = 200;

/// A change of a topic.
#[derive(Debug)]
pub(crate) enum Write {
    /// Its new message, with the expiry in milliseconds since 1970.
    Put(Arc<Message>, Option<u64>),
    /// Its message is removed.
    Remove,
}

/// The writes of one commit.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Sorted, as the disk prefers. A tree, unlike a hash table, never moves all its entries while publishers wait.
    pub(crate) writes: BTreeMap<Topic, Write>,
    /// Values of records by key; `None` for those to remove.
    pub(crate) records: HashMap<Box<str>, Option<Box<[u8]>>>,
    /// The message that each topic of `writes` had before, if failed writes have to be undone.
    before: HashMap<Topic, Option<Arc<Message>>>,
    /// Resolves the completion of this batch, if there is one.
    pub(crate) completer: Option<Arc<Completer>>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.records.is_empty()
    }

    /// Undoes each write in the bus, so that nobody reads a message whose publisher is told that it was not kept.
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
    /// Takes nothing more; the batch is still written.
    Closing,
    /// A write failed; nothing is taken any more.
    Failed,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch,
    bytes: usize,
    phase: Phase,
    /// Completions of the batches that the committer has taken and that are not resolved.
    taken: Vec<Arc<Completer>>,
    ended: bool,
}

impl State {
    /// Room for another entry; false when there is none.
    fn reserve(&mut self, bytes: usize, bytes_max: usize) -> bool {
        self.grow(bytes.saturating_add(ENTRY_BYTES), bytes_max)
    }

    /// Takes the batch out.
    fn hand_over(&mut self) -> Batch {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.taken.extend(batch.completer.clone());
        batch
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

    /// Replaces the waiting write of a record, or removes the record; otherwise as [`Queue::push`].
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

    /// Waits for a batch to write, and for more as long as the durability says. `None`: closed and empty.
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
        Some(state.hand_over())
    }

    /// The completion of writes of a topic that are under way. The batch that the committer has taken counts whatever
    /// its topics are.
    pub(crate) fn pending(&self, topic: &str) -> Completion {
        let state = self.lock();
        let gathered = state.batch.completer.as_ref().filter(|_| state.batch.writes.contains_key(topic));
        let completer = gathered.or_else(|| state.taken.last());
        completer.map_or(Completion::Ready, |completer| Completion::Waiting(Arc::clone(completer)))
    }

    /// Notes that the completions of all batches that were taken are resolved.
    pub(crate) fn settled(&self) {
        self.lock().taken.clear();
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

    /// Refuses all writes from now on. Returns the waiting batch, which fails.
    pub(crate) fn fail(&self) -> Batch {
        let mut state = self.lock();
        state.phase = Phase::Failed;
        state.hand_over()
    }

    /// Called by the committer when it ends.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits for the end of the committer. Returns whether it came within `patience`.
    pub(crate) fn wait_for_end(&self, patience: Duration) -> bool {
        let state = self.lock();
        let (state, _) = self
            .changed
            .wait_timeout_while(state, patience, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        state.ended
    }
}
