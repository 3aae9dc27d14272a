//! The store of sessions, and the messages in it that several sessions share.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{
            AtomicUsize,
            Ordering::{AcqRel, Acquire},
        },
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

use super::{
    message::StoredMessage,
    read_back::ReadBack,
    record::{Record, RecordId},
};
use crate::retained::{Completer, Completion, Eventual, StoreFailed};

/// Storage of sessions that outlives the process. Calls return at once; another thread writes.
pub trait SessionStore: fmt::Debug + Send + Sync {
    /// An empty batch.
    fn batch(&self) -> Box<dyn Batch>;
    /// Visits the records of sessions in order of their identifiers, with `None` in the place of those that cannot be
    /// read. Called once, at the start, before there are batches.
    fn load(&self, visit: &mut dyn FnMut(RecordId, Option<(u8, Bytes)>));
    /// Reads a message. `None`: it is not there, or is damaged. Blocks: for the start.
    fn read(&self, message: RecordId) -> Option<StoredMessage>;
    /// The same for several of a principal's messages, on another thread. Principals take turns.
    fn read_back(&self, principal: &Arc<str>, messages: Vec<RecordId>) -> ReadBack;
}

/// Changes of records that happen whole or not at all, in the order in which batches are appended. A batch that is
/// dropped never happened.
pub trait Batch: Send {
    /// Puts a record. The identifier is good at once, also in other records of the batch.
    fn put(&mut self, record: &Record) -> RecordId;
    /// Forgets a record. One that is not there is none to forget. A record that is put and forgotten before it was
    /// written is never written.
    fn forget(&mut self, id: RecordId);
    /// Has what is put from now on count for a principal, whose share of what may wait for the disk it takes. The batch
    /// is refused for lack of a share of the first one only; of others [`Batch::admits`] is asked before.
    fn charge(&mut self, _principal: &Arc<str>) {}
    /// Whether a principal may have so many bytes more put in this batch.
    fn admits(&mut self, _principal: &Arc<str>, _bytes: usize) -> bool {
        true
    }
    /// Whether so little waits for the disk that publishers may go on before it has this, if their messages are
    /// acknowledged. Otherwise they wait, so that what waits stays bounded by what they may have under way.
    fn has_room(&self) -> bool {
        true
    }
    /// Has the store append it after a while by [`Gathering::append_held`], unless that ends before: everybody is sent
    /// what is in it, and may acknowledge it meanwhile. Returns whether the store does so.
    fn hold(&mut self, _gathering: &Arc<Gathering>) -> bool {
        false
    }
    /// Has the store append all batches that it holds, in their order.
    fn release_held(&self) {}
    /// Appends it to what the store writes next. Returns [`Completion::Failed`] if it is not taken, and
    /// [`Completion::Ready`] if there is nothing to write.
    fn append(self: Box<Self>) -> Completion;
}

/// The batch of a publisher, which gathers its messages and their deliveries while it publishes.
///
/// A session on another worker may have a message acknowledged before the batch that puts it is appended. Its delivery
/// is then forgotten here, because a store ignores what it is told to forget too early.
///
/// If all deliveries were sent at once, the store may hold the batch for a while ([`Batch::hold`]). It is never
/// appended if all of them are acknowledged meanwhile.
pub struct Gathering {
    stage: Mutex<Stage>,
    if_refused: IfRefused,
    /// Deliveries that no client has acknowledged, other records that its publishers wait for, and one until it was
    /// appended for them.
    needed: AtomicUsize,
    /// Records among them that are not deliveries which were sent at once.
    unsent: AtomicUsize,
    /// Resolved when nothing in it is needed any more. Its publishers have it; deliveries may hold on to this for days.
    unneeded: OnceLock<Weak<Completer>>,
}

/// The outcome for the publishers of a batch: as soon as nothing in it is needed, or it is stored.
#[derive(Debug)]
struct ForPublishers {
    unneeded: Arc<Completer>,
    gathering: Arc<Gathering>,
}

impl Eventual for ForPublishers {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), StoreFailed>> {
        match self.unneeded.poll(cx) {
            Poll::Pending => self.gathering.poll(cx),
            unneeded => unneeded,
        }
    }
}

/// The fate of deliveries whose batch the store does not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum IfRefused {
    /// They are none: the publisher is told of a refusal.
    #[default]
    Dropped,
    /// They stay without records, because the publisher was told before that they were taken.
    Kept,
}

enum Stage {
    /// Not appended yet, with those who wait for its outcome all the same.
    Open(Box<dyn Batch>, Vec<Waker>),
    Appended(Completion),
}

impl Gathering {
    /// Begins an empty one.
    #[must_use]
    pub fn new(store: &dyn SessionStore) -> Arc<Self> {
        Self::open(store.batch(), IfRefused::Dropped)
    }

    /// Goes on with a batch that was begun.
    pub(super) fn open(batch: Box<dyn Batch>, if_refused: IfRefused) -> Arc<Self> {
        let stage = Mutex::new(Stage::Open(batch, Vec::new()));
        Arc::new(Self {
            stage,
            if_refused,
            needed: AtomicUsize::new(1),
            unsent: AtomicUsize::new(0),
            unneeded: OnceLock::new(),
        })
    }

    /// The fate of its deliveries if the store does not take it.
    pub(super) const fn if_refused(&self) -> IfRefused {
        self.if_refused
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the batch. `None` once it was appended.
    pub fn with<T>(&self, change: impl FnOnce(&mut dyn Batch) -> T) -> Option<T> {
        match &mut *self.lock() {
            Stage::Open(batch, _) => Some(change(batch.as_mut())),
            Stage::Appended(_) => None,
        }
    }

    /// Appends the batch. A message that has no delivery by now is not put.
    pub fn append(&self, parcels: impl IntoIterator<Item = Arc<Parcel>>) -> Completion {
        let mut stage = self.lock();
        let (mut batch, wakers) = match std::mem::replace(&mut *stage, Stage::Appended(Completion::Ready)) {
            Stage::Open(batch, wakers) => (batch, wakers),
            Stage::Appended(completion) => {
                *stage = Stage::Appended(completion.clone());
                return completion;
            }
        };
        for parcel in parcels {
            parcel.leave(batch.as_mut());
        }
        let completion = batch.append();
        *stage = Stage::Appended(completion.clone());
        drop(stage);
        wakers.into_iter().for_each(Waker::wake);
        completion
    }

    /// The same for publishers. Their acknowledgements do not wait for the disk if all clients have acknowledged all
    /// deliveries before: then nothing of it has to be there. If all were sent at once it is appended only when that
    /// takes long.
    pub fn append_published(self: &Arc<Self>, parcels: impl IntoIterator<Item = Arc<Parcel>>) -> Completion {
        self.append_published_behind(parcels, || {})
    }

    /// The same, where others of the publisher may be held: `before` appends them if this is not held.
    pub fn append_published_behind(
        self: &Arc<Self>,
        parcels: impl IntoIterator<Item = Arc<Parcel>>,
        before: impl FnOnce(),
    ) -> Completion {
        let unneeded = Arc::<Completer>::default();
        let mut parcels = parcels.into_iter();
        let has_room = self.with(|batch| batch.has_room()).unwrap_or_default();
        let is_held = has_room && self.unsent.load(Acquire) == 0 && self.hold(&mut parcels, &unneeded);
        if !is_held {
            before();
            let stored = self.append(parcels);
            if !has_room || matches!(stored, Completion::Ready | Completion::Failed) {
                return stored;
            }
            if self.unneeded.set(Arc::downgrade(&unneeded)).is_err() {
                // It was appended for them before.
                return stored;
            }
        }
        self.acknowledged();
        Completion::Sooner(Arc::new(ForPublishers { unneeded, gathering: Arc::clone(self) }))
    }

    /// Leaves it to the store to append the batch. Returns whether the store does so; `parcels` are left then.
    fn hold(self: &Arc<Self>, parcels: &mut dyn Iterator<Item = Arc<Parcel>>, unneeded: &Arc<Completer>) -> bool {
        let mut stage = self.lock();
        let Stage::Open(batch, _) = &mut *stage else { return false };
        if self.unneeded.get().is_some() || !batch.hold(self) {
            return false;
        }
        for parcel in parcels {
            parcel.leave(batch.as_mut());
        }
        self.unneeded.set(Arc::downgrade(unneeded)).is_ok()
    }

    /// Whether the store holds the batch, and nothing has ended that.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(&*self.lock(), Stage::Open(..)) && self.unneeded.get().is_some()
    }

    /// Whether its publications are under way: it is neither held nor appended.
    pub(super) fn is_unpublished(&self) -> bool {
        matches!(&*self.lock(), Stage::Open(..)) && self.unneeded.get().is_none()
    }

    /// Appends the batch that the store has held, unless that is over.
    pub fn append_held(&self) {
        if self.is_held() {
            drop(self.append([]));
        }
    }

    /// Its publishers wait for one record more: for the disk, unless that is acknowledged.
    pub fn need(&self) {
        self.needed.fetch_add(1, AcqRel);
        self.unsent.fetch_add(1, AcqRel);
    }

    /// Has it appended with its publications, whatever was sent at once.
    pub(super) fn append_at_once(&self) {
        self.unsent.fetch_add(1, AcqRel);
    }

    /// One of the records that it needs is a delivery which was sent at once.
    pub(super) fn sent(&self) {
        self.unsent.fetch_sub(1, AcqRel);
    }

    /// A client has acknowledged a delivery in it.
    pub(super) fn acknowledged(&self) {
        if self.needed.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        if let Some(unneeded) = self.unneeded.get().and_then(Weak::upgrade) {
            unneeded.complete(Ok(()));
        }
        let mut stage = self.lock();
        if matches!(&*stage, Stage::Open(..)) {
            // It was held. Nothing in it has to happen.
            let never = std::mem::replace(&mut *stage, Stage::Appended(Completion::Ready));
            drop(stage);
            if let Stage::Open(_, wakers) = never {
                wakers.into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Ready with the outcome of the batch once it was appended and that is known.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), StoreFailed>> {
        match &mut *self.lock() {
            Stage::Open(_, wakers) => {
                if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    wakers.push(cx.waker().clone());
                }
                Poll::Pending
            }
            Stage::Appended(completion) => {
                let outcome = std::task::ready!(Pin::new(&mut *completion).poll(cx));
                // All deliveries of it hold on to this, so it is small from now on.
                *completion = if outcome.is_ok() { Completion::Ready } else { Completion::Failed };
                Poll::Ready(outcome)
            }
        }
    }
}

impl fmt::Debug for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathering").finish_non_exhaustive()
    }
}

/// A message in the store. It is forgotten with the last delivery of it.
#[derive(Debug)]
pub struct Parcel {
    id: RecordId,
    /// Deliveries, and one for its publisher until that has appended its batch.
    holders: AtomicUsize,
}

impl Parcel {
    /// Puts a message. `None` if the batch was appended.
    #[must_use]
    pub fn new(gathering: &Gathering, message: StoredMessage) -> Option<Arc<Self>> {
        let id = gathering.with(|batch| batch.put(&Record::Message(message)))?;
        Some(Self::held(id))
    }

    /// One that is held once.
    pub(super) fn held(id: RecordId) -> Arc<Self> {
        Arc::new(Self { id, holders: AtomicUsize::new(1) })
    }

    /// Its record.
    #[must_use]
    pub const fn id(&self) -> RecordId {
        self.id
    }

    /// Whether there is one holder, who is the last then.
    pub(super) fn is_held_once(&self) -> bool {
        self.holders.load(Acquire) == 1
    }

    /// One holder more, while there is one.
    pub(super) fn join(&self) {
        let before = self.holders.fetch_add(1, AcqRel);
        debug_assert!(before > 0, "the message was forgotten");
    }

    /// One holder less. The last one forgets the message. Returns whether it was the last.
    pub(super) fn leave(&self, batch: &mut dyn Batch) -> bool {
        let is_last = self.holders.fetch_sub(1, AcqRel) == 1;
        if is_last {
            batch.forget(self.id);
        }
        is_last
    }
}
