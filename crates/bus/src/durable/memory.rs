//! A store of sessions in memory, for tests and the simulation: batches wait until they are committed, and a crash
//! takes those that were not.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;

use super::{
    message::StoredMessage,
    read_back::{ReadBack, ReadBackAnswer},
    record::{Record, RecordId},
    store::{Batch, Gathering, SessionStore},
};
use crate::retained::{Completer, Completion, StoreFailed};

/// Records by their identifiers, with their kinds.
type Records = BTreeMap<RecordId, (u8, Bytes)>;

#[derive(Debug, Default)]
struct State {
    committed: Records,
    /// Records that are committed or wait, and were not forgotten.
    known: BTreeSet<RecordId>,
    waiting: Vec<Changes>,
    next: u64,
    /// Nothing that puts is taken.
    full: bool,
    /// Batches that may be held are.
    holding: bool,
    held: VecDeque<Weak<Gathering>>,
    /// Messages are read when they are answered for, not at once.
    reading_later: bool,
    asked: VecDeque<(ReadBackAnswer, Vec<RecordId>)>,
}

#[derive(Debug, Default)]
struct Changes {
    puts: Vec<(RecordId, (u8, Bytes))>,
    forgets: Vec<RecordId>,
    completer: Arc<Completer>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<State>>);

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of batches that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// The number of records that are committed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().committed.len()
    }

    /// Whether no record is committed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Commits the first `count` batches that wait, and resolves their completions.
    pub fn commit(&self, count: usize) {
        let mut state = self.lock();
        let count = count.min(state.waiting.len());
        let batches: Vec<_> = state.waiting.drain(..count).collect();
        for Changes { puts, forgets, .. } in &batches {
            state.committed.extend(puts.iter().cloned());
            forgets.iter().for_each(|id| drop(state.committed.remove(id)));
        }
        drop(state);
        batches.iter().for_each(|batch| batch.completer.complete(Ok(())));
    }

    /// Fails the batches that wait and put something: the disk is found to be full when they are written. Those that
    /// only forget go on waiting.
    pub fn fail(&self) {
        let mut state = self.lock();
        let (failed, waiting) = std::mem::take(&mut state.waiting).into_iter().partition(|one| !one.puts.is_empty());
        state.waiting = waiting;
        let failed: Vec<Changes> = failed;
        for Changes { puts, forgets, .. } in &failed {
            state.known.extend(forgets);
            state.known.retain(|id| !puts.iter().any(|(put, _)| put == id));
        }
        drop(state);
        failed.iter().for_each(|batch| batch.completer.complete(Err(StoreFailed)));
    }

    /// Has batches that put something refused from now on, or taken again: a full disk.
    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    /// Has batches held from now on that may be, until they are released.
    pub fn set_holding(&self, holding: bool) {
        self.lock().holding = holding;
    }

    /// Appends the first `count` batches that are held.
    pub fn release(&self, count: usize) {
        let mut state = self.lock();
        let count = count.min(state.held.len());
        let released: Vec<_> = state.held.drain(..count).collect();
        drop(state);
        released.iter().filter_map(Weak::upgrade).for_each(|gathering| gathering.append_held());
    }

    /// Has messages that are to be read back read from now on when [`answer`](Self::answer) says so, and not at once.
    pub fn set_reading_later(&self, later: bool) {
        self.lock().reading_later = later;
    }

    /// Answers the first `count` of those who wait for messages.
    pub fn answer(&self, count: usize) {
        let mut state = self.lock();
        let count = count.min(state.asked.len());
        let asked: Vec<_> = state.asked.drain(..count).collect();
        drop(state);
        for (answer, messages) in asked {
            answer.answer(messages.into_iter().map(|id| (id, self.read(id))).collect());
        }
    }

    /// The store as another process finds it, once the first `count` batches that wait are committed and the others are
    /// lost. This one goes on.
    #[must_use]
    pub fn crashed(&self, count: usize) -> Self {
        let state = self.lock();
        let mut committed = state.committed.clone();
        for Changes { puts, forgets, .. } in state.waiting.iter().take(count) {
            committed.extend(puts.iter().cloned());
            forgets.iter().for_each(|id| drop(committed.remove(id)));
        }
        let (known, next) = (committed.keys().copied().collect(), state.next);
        Self(Arc::new(Mutex::new(State { committed, known, next, ..State::default() })))
    }

    /// Damages the store: removes the committed record at this place, and returns its kind.
    pub fn lose(&self, place: usize) -> Option<u8> {
        let mut state = self.lock();
        let id = *state.committed.keys().nth(place)?;
        state.committed.remove(&id).map(|(kind, _)| kind)
    }
}

impl SessionStore for MemoryStore {
    fn batch(&self) -> Box<dyn Batch> {
        Box::new(Waiting { store: self.clone(), changes: Changes::default() })
    }

    fn load(&self, visit: &mut dyn FnMut(RecordId, Option<(u8, Bytes)>)) {
        let committed = self.lock().committed.clone();
        committed.into_iter().for_each(|(id, record)| visit(id, Some(record)));
    }

    fn read(&self, message: RecordId) -> Option<StoredMessage> {
        let (kind, bytes) = self.lock().committed.get(&message).cloned()?;
        StoredMessage::of_record(kind, bytes)
    }

    fn read_back(&self, _principal: &Arc<str>, messages: Vec<RecordId>) -> ReadBack {
        let (read_back, answer) = ReadBack::ask();
        let mut state = self.lock();
        state.asked.push_back((answer, messages));
        let later = state.reading_later;
        drop(state);
        if !later {
            self.answer(usize::MAX);
        }
        read_back
    }
}

struct Waiting {
    store: MemoryStore,
    changes: Changes,
}

impl Batch for Waiting {
    fn put(&mut self, record: &Record) -> RecordId {
        let mut state = self.store.lock();
        let id = RecordId(state.next);
        state.next += 1;
        drop(state);
        self.changes.puts.push((id, (record.kind(), Bytes::from(record.encode()))));
        id
    }

    fn forget(&mut self, id: RecordId) {
        self.changes.forgets.push(id);
    }

    fn hold(&mut self, gathering: &Arc<Gathering>) -> bool {
        let mut state = self.store.lock();
        if state.holding {
            state.held.push_back(Arc::downgrade(gathering));
        }
        state.holding
    }

    fn release_held(&self) {
        self.store.release(usize::MAX);
    }

    fn append(self: Box<Self>) -> Completion {
        let Self { store, changes } = *self;
        if changes.puts.is_empty() && changes.forgets.is_empty() {
            return Completion::Ready;
        }
        let mut state = store.lock();
        if state.full && !changes.puts.is_empty() {
            return Completion::Failed;
        }
        let completion = Completion::Waiting(Arc::clone(&changes.completer));
        state.known.extend(changes.puts.iter().map(|(id, _)| *id));
        // As the journal does: what is not there is none to forget, even if it comes later.
        let forgets = changes.forgets.iter().copied().filter(|id| state.known.remove(id)).collect();
        state.waiting.push(Changes { forgets, ..changes });
        completion
    }
}
