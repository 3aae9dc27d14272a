//! Retained messages: the latest value of each topic, in order of topics, and the store that outlives the process.

mod clock;
mod keep;
mod map;
mod restored;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

pub use self::clock::ClockSet;
pub(crate) use self::clock::{expires_unix_ms, left_ms};
pub(crate) use self::keep::Kept;
use self::{clock::Clocked, map::Map};
use crate::{
    Timestamp,
    door::Door,
    filter::Filter,
    limits::RETAINED_SCAN_MAX,
    message::{Message, Properties, Qos},
    share::Room,
    topic::Topic,
};

/// The store has not kept something: its disk is full, read-only or failing, or too much waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store takes nothing: the disk is full, or has failed")]
pub struct StoreFailed;

/// A promise that acknowledgements wait for: the store has written what it has to keep. Completions of one store
/// resolve in the order of its commits, and each says how its own commit went: one does not stand for another.
#[derive(Clone, Debug, Default)]
pub enum Completion {
    /// Nothing to wait for.
    #[default]
    Ready,
    /// The store is read-only; nothing was kept.
    Failed,
    /// Not resolved yet.
    Waiting(Arc<Completer>),
    /// Resolved when both are: a retained message, and deliveries of it to sessions. Fails if one of them does.
    Both(Arc<[Self; 2]>),
    /// Resolved when the store has what it is to keep, or sooner if nobody needs that any more. Then success does not
    /// say that the store has taken it, or will.
    Sooner(Arc<dyn Eventual>),
}

/// An outcome that is known some time.
pub trait Eventual: fmt::Debug + Send + Sync {
    /// Ready with the outcome, or has the task woken when it is known.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), StoreFailed>>;
}

impl Completion {
    /// Whether an acknowledgement may go out without waiting.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }
}

impl Future for Completion {
    type Output = Result<(), StoreFailed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &*self {
            Self::Ready => Poll::Ready(Ok(())),
            Self::Failed => Poll::Ready(Err(StoreFailed)),
            Self::Waiting(completer) => completer.poll(cx),
            Self::Both(both) => {
                let [one, other] = both.each_ref().map(|one| Pin::new(&mut one.clone()).poll(cx));
                match (one, other) {
                    (Poll::Ready(one), Poll::Ready(other)) => Poll::Ready(one.and(other)),
                    (Poll::Pending, _) | (_, Poll::Pending) => Poll::Pending,
                }
            }
            Self::Sooner(outcome) => outcome.poll(cx),
        }
    }
}

/// The store's end of a [`Completion`]; shared by everything that one commit writes.
#[derive(Debug, Default)]
pub struct Completer(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    result: Option<Result<(), StoreFailed>>,
    wakers: Vec<Waker>,
}

impl Completer {
    /// Resolves the completion for everyone who waits.
    pub fn complete(&self, result: Result<(), StoreFailed>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.result = Some(result);
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Result<(), StoreFailed>> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = waiting.result {
            return Poll::Ready(result);
        }
        if !waiting.wakers.iter().any(|w| w.will_wake(cx.waker())) {
            waiting.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// A retained message as a store gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The topic.
    pub topic: Topic,
    /// The payload.
    pub payload: Bytes,
    /// The QoS it was published with.
    pub qos: Qos,
    /// MIME type.
    pub content_type: Option<Arc<str>>,
    /// When it expires, in milliseconds since 1970.
    pub expires_unix_ms: Option<u64>,
    /// Rare fields.
    pub properties: Option<Properties>,
    /// When it came in, in milliseconds since 1970.
    pub ingest_unix_ms: u64,
    /// The name of the publisher's principal.
    pub principal: Arc<str>,
    /// The door it came in by; `None` for the gateway itself.
    pub door: Option<Door>,
}

/// Restores the retained message that a topic had before writes of it failed. A store calls it before it resolves the
/// completions of those writes, and while it holds no lock that [`RetainedStore::put`] takes.
pub type Undo = Box<dyn Fn(&Topic, Option<&Arc<Message>>) + Send + Sync>;

/// Storage of retained messages that outlives the process. Calls return at once; another thread writes.
pub trait RetainedStore: Send + Sync {
    /// Stores a message as its topic's latest. `expires_unix_ms` is its expiry in wall-clock time, `before` the message
    /// that it replaces. Returns [`Completion::Failed`] if it is not taken; the caller must not retain it either.
    fn put(&self, message: &Arc<Message>, expires_unix_ms: Option<u64>, before: Option<&Arc<Message>>) -> Completion;
    /// Removes a topic's message, which was `before`; otherwise as [`RetainedStore::put`].
    fn remove(&self, topic: &Topic, before: Option<&Arc<Message>>) -> Completion;
    /// The completion of writes of a topic that are under way; ready if there are none. A client that clears a topic
    /// twice is told so when the first removal is on the disk, for until then it may be undone.
    fn pending(&self, topic: &str) -> Completion;
    /// Visits every stored message, at the start, and again when a clock turns out to have been ahead. A store whose
    /// disk cannot be written may visit none then.
    fn load(&self, visit: &mut dyn FnMut(Stored));
    /// Registers the function to call for each topic whose write failed after its completion was handed out. A store
    /// whose completions are never [`Completion::Waiting`] does not need it.
    fn undo_by(&self, _undo: Undo) {}
}

/// A store that keeps nothing beyond the process: every completion is ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forgetful;

impl RetainedStore for Forgetful {
    fn put(&self, _: &Arc<Message>, _: Option<u64>, _: Option<&Arc<Message>>) -> Completion {
        Completion::Ready
    }

    fn remove(&self, _: &Topic, _: Option<&Arc<Message>>) -> Completion {
        Completion::Ready
    }

    fn pending(&self, _: &str) -> Completion {
        Completion::Ready
    }

    fn load(&self, _visit: &mut dyn FnMut(Stored)) {}
}

/// Why a publication was not retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetainedError {
    /// The publisher's precondition does not hold.
    #[error("the precondition does not hold")]
    Precondition,
    /// The limit on retained messages or their bytes is reached.
    #[error("no room for more retained messages")]
    Full,
    /// The rest of the table is reserved for other principals.
    #[error("no room for more retained messages of this publisher")]
    Share,
    /// The store is read-only, or too many writes wait for it.
    #[error(transparent)]
    Store(#[from] StoreFailed),
}

/// Some of the retained messages that match a filter, in order of topic.
#[derive(Debug, Default)]
pub struct RetainedChunk {
    /// The messages.
    pub messages: Vec<Arc<Message>>,
    /// Where to go on; `None` when that was all.
    pub next: Option<Topic>,
    /// How many retained messages were looked at, those that do not match included: the work that it took.
    pub scanned: usize,
}

/// All retained messages.
pub(crate) struct Retained {
    /// Shared with the store, which undoes failed writes.
    map: Arc<RwLock<Map>>,
    store: Box<dyn RetainedStore>,
    messages: Room,
    bytes: Room,
    /// Locked after `map`.
    clocked: Mutex<Clocked>,
    /// How often publications locked the map.
    #[cfg(test)]
    locked: std::sync::atomic::AtomicUsize,
}

impl Retained {
    pub(crate) fn new(store: Box<dyn RetainedStore>, messages: Room, bytes: Room) -> Self {
        let map: Arc<RwLock<Map>> = Arc::default();
        let undone = Arc::clone(&map);
        store.undo_by(Box::new(move |topic, before| {
            let mut map = undone.write().unwrap_or_else(PoisonError::into_inner);
            let hash = map.hash(topic);
            match before {
                Some(message) => map.insert(hash, message),
                None => map.remove(hash, topic),
            }
        }));
        Self {
            map,
            store,
            messages,
            bytes,
            clocked: Mutex::default(),
            #[cfg(test)]
            locked: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    /// Locks the map for publications.
    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        #[cfg(test)]
        self.locked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The largest number of retained messages that one principal has.
    pub(crate) fn largest_share(&self) -> usize {
        self.read().shares().largest()
    }

    pub(crate) fn latest(&self, topic: &str, now: Timestamp) -> Option<Arc<Message>> {
        self.read().get(topic).filter(|m| !m.is_expired(now)).cloned()
    }

    /// Up to `limit` messages that match, of topics behind `after`.
    pub(crate) fn chunk(&self, filter: &Filter, after: Option<&Topic>, limit: usize, now: Timestamp) -> RetainedChunk {
        let map = self.read();
        let mut chunk = RetainedChunk::default();
        if filter.is_exact() {
            chunk.scanned = 1;
            if after.is_none() {
                chunk.messages.extend(map.get(filter.as_str()).filter(|m| !m.is_expired(now)).cloned());
            }
            return chunk;
        }
        // `a/#` also matches `a`, which sorts before `a/`.
        let prefix = filter.literal_prefix();
        let start = prefix.strip_suffix('/').unwrap_or(prefix);
        let mut last: Option<&Topic> = None;
        for topic in map.topics(start, after.map(Topic::as_str)) {
            if chunk.scanned >= RETAINED_SCAN_MAX || chunk.messages.len() >= limit {
                chunk.next = last.cloned();
                return chunk;
            }
            if !topic.starts_with(start) {
                return chunk;
            }
            (last, chunk.scanned) = (Some(topic), chunk.scanned + 1);
            if filter.matches(topic) {
                chunk.messages.extend(map.get(topic).filter(|m| !m.is_expired(now)).cloned());
            }
        }
        chunk
    }

    /// Up to `limit` messages whose topics begin with `prefix`, of topics behind `after`.
    pub(crate) fn page(&self, prefix: &str, after: Option<&str>, limit: usize, now: Timestamp) -> RetainedChunk {
        let map = self.read();
        let mut chunk = RetainedChunk::default();
        let mut last: Option<&Topic> = None;
        for topic in map.topics(prefix, after).take_while(|topic| topic.starts_with(prefix)) {
            if chunk.scanned >= RETAINED_SCAN_MAX || chunk.messages.len() >= limit {
                chunk.next = last.cloned();
                return chunk;
            }
            (last, chunk.scanned) = (Some(topic), chunk.scanned + 1);
            chunk.messages.extend(map.get(topic).filter(|m| !m.is_expired(now)).cloned());
        }
        chunk
    }

    /// Removes expired messages among up to `limit` behind `after`. Returns where to go on.
    pub(crate) fn sweep(&self, after: Option<&Topic>, limit: usize, now: Timestamp) -> Option<Topic> {
        self.sweep_loaded(limit, now);
        let (expired, next) = {
            let map = self.read();
            let mut last = None;
            let mut expired = Vec::new();
            for topic in map.topics("", after.map(Topic::as_str)).take(limit) {
                last = Some(topic.clone());
                if map.get(topic).is_some_and(|m| m.is_expired(now)) {
                    expired.push(topic.clone());
                }
            }
            (expired, last)
        };
        if !expired.is_empty() {
            let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
            for topic in expired {
                if !map.get(&topic).is_some_and(|m| m.is_expired(now)) {
                    continue;
                }
                let hash = map.hash(&topic);
                map.remove(hash, &topic);
                // Nobody waits for the completion: an expired message that is loaded again is dropped then.
                drop(self.store.remove(&topic, None));
            }
        }
        next
    }

    pub(crate) fn size(&self) -> (usize, usize) {
        let map = self.read();
        (map.len(), map.bytes())
    }
}

impl fmt::Debug for Retained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retained").field("size", &self.size()).finish_non_exhaustive()
    }
}
