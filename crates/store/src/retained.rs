//! The store of retained messages on disk.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use fogmux_bus::{Completion, Message, RetainedStore, Stored, Topic, Undo};

use crate::{
    batch::Write,
    committer,
    counters::{Counters, NotKept, Snapshot, State},
    durability::Durability,
    open::{self, OpenError, Opened},
    queue::Queue,
    record,
    tree::Tree,
};

/// How long [`FjallStore::close`] waits for a disk that does not answer.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// Longest key of a record, in bytes; a limit of the database.
pub const RECORD_KEY_BYTES_MAX: usize = 65_535;

/// The configuration of a store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Directory of the tree; created if missing.
    pub path: PathBuf,
    /// The data that a power cut may cost.
    pub durability: Durability,
    /// Most bytes of topics (and 200 for each) that may wait for the disk; the messages themselves are the bus's and
    /// bounded there. Writes beyond are refused.
    pub queue_bytes_max: usize,
}

impl StoreConfig {
    /// The defaults, in a directory: room for a hundred thousand topics to change within one commit.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), durability: Durability::default(), queue_bytes_max: 64 << 20 }
    }
}

/// Retained messages on disk. Clones are handles on the same store.
#[derive(Clone, Debug)]
pub struct FjallStore(Arc<Inner>);

struct Inner {
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    opened: Mutex<Opened>,
    undo: Arc<OnceLock<Undo>>,
}

impl FjallStore {
    /// Opens the store and starts its committer. The store is read-only if the disk is full, read-only or failing.
    ///
    /// # Errors
    /// When another process has it, its format is unknown, or it may not be read. Never because of damage.
    pub fn open(config: &StoreConfig) -> Result<Self, OpenError> {
        let counters = Arc::new(Counters::default());
        let opened = open::open(&config.path, &counters)?;
        let queue = Arc::new(Queue::new(config.durability, config.queue_bytes_max));
        let undo = Arc::new(OnceLock::new());
        match opened.tree.clone().filter(|_| counters.state() == State::Writable) {
            Some(tree) => {
                let (queue, counters, undo) = (Arc::clone(&queue), Arc::clone(&counters), Arc::clone(&undo));
                let durability = config.durability;
                thread::Builder::new()
                    .name("store".to_owned())
                    .spawn(move || committer::run(&queue, tree, durability, &counters, &undo))
                    .map_err(|source| OpenError::Io { path: config.path.clone(), source })?;
            }
            None => {
                drop(queue.fail());
                queue.end();
            }
        }
        Ok(Self(Arc::new(Inner { queue, counters, opened: Mutex::new(opened), undo })))
    }

    /// To be called when everything stored has been read: a store that is read from a copy deletes the copy.
    pub fn has_been_read(&self) {
        let mut opened = self.0.opened();
        if opened.scratch.is_some() {
            opened.tree = None;
            opened.scratch = None;
        }
    }

    /// The reason why nothing is written any more, if so.
    #[must_use]
    pub fn why_stopped(&self) -> Option<&str> {
        self.0.counters.why_stopped()
    }

    /// Closes the store and waits until everything is on the disk. Blocks: for the end of the process.
    ///
    /// # Errors
    /// When something is not on the disk that the store was given, or the disk does not answer.
    pub fn close(&self) -> Result<(), NotKept> {
        self.0.close()
    }

    /// Stores or removes a door's record; the completion is like that of a retained message. Keys begin with the door's
    /// name and have at most [`RECORD_KEY_BYTES_MAX`] bytes; values are opaque.
    #[must_use]
    pub fn put_record(&self, key: &str, value: Option<Box<[u8]>>) -> Completion {
        if key.len() > RECORD_KEY_BYTES_MAX {
            return Completion::Failed;
        }
        let completion = self.0.queue.push_record(key, value);
        if matches!(completion, Completion::Failed) {
            self.0.counters.refuse();
        }
        completion
    }

    /// Visits the records with this prefix in order of their keys, as they were when the store was opened.
    pub fn records(&self, prefix: &str, visit: &mut dyn FnMut(&str, &[u8])) {
        let Some(tree) = self.0.tree() else { return };
        tree.read_records(prefix, &self.0.counters, &mut |key, value| match std::str::from_utf8(key) {
            Ok(key) => visit(key, value),
            Err(_) => {
                self.0.counters.damaged_records.fetch_add(1, Relaxed);
                tracing::warn!(bytes = value.len(), "skipped a damaged record");
            }
        });
    }

    /// A reading of the counters.
    #[must_use]
    pub fn counters(&self) -> Snapshot {
        let unflushed_bytes = self.0.tree().map_or(0, |tree| tree.unflushed_bytes());
        Snapshot { unflushed_bytes, ..self.0.counters.snapshot() }
    }

    fn push(&self, topic: &Topic, write: Write, before: Option<&Arc<Message>>) -> Completion {
        let completion = self.0.queue.push(topic, write, before);
        if matches!(completion, Completion::Failed) {
            self.0.counters.refuse();
        }
        completion
    }
}

impl Inner {
    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree(&self) -> Option<Tree> {
        self.opened().tree.clone()
    }

    fn close(&self) -> Result<(), NotKept> {
        self.queue.close();
        let unwritten = self.queue.wait_for_end(CLOSE_PATIENCE);
        let (failed, refused) = (self.counters.failed.load(Relaxed), self.counters.shut_out.load(Relaxed));
        let reason = match (unwritten, self.counters.why_stopped()) {
            (Some(_), _) => "the disk does not answer",
            (None, Some(reason)) if failed + refused > 0 => reason,
            // A store that could not be written and that nobody wrote to has kept everything.
            (None, _) => return Ok(()),
        };
        Err(NotKept { reason: reason.to_owned(), failed: failed + unwritten.unwrap_or_default(), refused })
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The result is of interest only to callers that close the store themselves, before this.
        let _ = self.close();
    }
}

impl RetainedStore for FjallStore {
    fn put(&self, message: &Arc<Message>, expires_unix_ms: Option<u64>, before: Option<&Arc<Message>>) -> Completion {
        self.push(&message.topic, Write::Put(Arc::clone(message), expires_unix_ms), before)
    }

    fn remove(&self, topic: &Topic, before: Option<&Arc<Message>>) -> Completion {
        self.push(topic, Write::Remove, before)
    }

    fn pending(&self, topic: &str) -> Completion {
        self.0.queue.pending(topic)
    }

    fn undo_by(&self, undo: Undo) {
        // A store belongs to one bus.
        let _ = self.0.undo.set(undo);
    }

    fn load(&self, visit: &mut dyn FnMut(Stored)) {
        let damaged = &self.0.counters.damaged_records;
        let mut loaded = 0_u64;
        let Some(tree) = self.0.tree() else { return };
        tree.read_all(&self.0.counters, &mut |key, value| match read(key, value) {
            Ok(stored) => {
                loaded += 1;
                visit(stored);
            }
            Err(error) => {
                damaged.fetch_add(1, Relaxed);
                tracing::warn!(%error, bytes = value.len(), "skipped a damaged retained message");
            }
        });
        tracing::info!(loaded, damaged = damaged.load(Relaxed), "retained messages are back");
    }
}

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("its topic is not UTF-8")]
    NotText,
    #[error(transparent)]
    Topic(#[from] fogmux_bus::TopicError),
    #[error(transparent)]
    Record(#[from] record::RecordError),
}

fn read(key: &[u8], value: &[u8]) -> Result<Stored, ReadError> {
    let topic = Topic::new(std::str::from_utf8(key).map_err(|_| ReadError::NotText)?)?;
    Ok(record::decode(topic, value)?)
}
