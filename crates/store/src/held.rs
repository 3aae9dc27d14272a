//! Batches of sessions that are not appended yet: all clients were sent what is in them, and may acknowledge it before
//! anything has to be written (ADR 0070).

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{
            AtomicUsize,
            Ordering::{AcqRel, Acquire},
        },
    },
    thread::{self, Builder, ThreadId},
    time::{Duration, Instant},
};

use fogmux_bus::durable::Gathering;

/// As many entries as this are not searched for those that are over.
const UNSWEPT_MAX: usize = 1024;

/// The part of the queue that batches may have before they are in it.
const PART: usize = 8;

/// Appending goes through the journal; nothing of it is deep.
const STACK_BYTES: usize = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Held {
    list: Mutex<List>,
    wake: Condvar,
    /// Locked while what was taken out of the list is appended, so that who releases all waits for that as well. Locked
    /// before the list.
    appending: Mutex<()>,
    /// Bytes of the batches.
    bytes: AtomicUsize,
    bytes_max: usize,
    /// How long one is held, and up to a quarter more.
    delay: Duration,
}

#[derive(Debug, Default)]
struct List {
    /// In order of the times. Some are over: their batches and bytes are gone.
    held: VecDeque<(Instant, Weak<Gathering>)>,
    /// How many there were after the last sweep.
    swept: usize,
    thread: Thread,
    id: Option<ThreadId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Thread {
    #[default]
    Unborn,
    /// It sleeps until it is woken.
    Asleep,
    /// It looks again by itself.
    Awake,
    /// There is none, or none any more: nothing is held.
    Gone,
}

impl List {
    /// Removes the entries that are over, if there may be many. Returns the others.
    fn sweep(&mut self) -> Vec<Arc<Gathering>> {
        if self.held.len() < 2 * self.swept + UNSWEPT_MAX {
            return Vec::new();
        }
        let mut looked_at = Vec::new();
        self.held.retain(|(_, gathering)| {
            let Some(gathering) = gathering.upgrade() else { return false };
            let is_held = gathering.is_held();
            looked_at.push(gathering);
            is_held
        });
        self.swept = self.held.len();
        looked_at
    }
}

/// The bytes of a batch as long as it is held.
#[derive(Debug)]
pub(crate) struct Room {
    held: Arc<Held>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.held.bytes.fetch_sub(self.bytes, AcqRel);
    }
}

impl Held {
    /// Holds batches so long, beside a queue of so many bytes.
    pub(crate) fn new(delay: Duration, queue_bytes_max: usize) -> Arc<Self> {
        let bytes_max = queue_bytes_max / PART;
        let (list, wake, appending, bytes) = Default::default();
        Arc::new(Self { list, wake, appending, bytes, bytes_max, delay })
    }

    fn appending(&self) -> MutexGuard<'_, ()> {
        self.appending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a batch of so many bytes, if there is room for it. It is to keep what this returns.
    pub(crate) fn hold(self: &Arc<Self>, gathering: &Arc<Gathering>, bytes: usize) -> Option<Room> {
        if self.bytes.load(Acquire) + bytes > self.bytes_max {
            return None;
        }
        let mut list = self.lock();
        if list.thread == Thread::Unborn {
            let run = Arc::clone(self);
            let born = Builder::new().name("held".to_owned()).stack_size(STACK_BYTES).spawn(move || run.run());
            list.id = born.as_ref().ok().map(|handle| handle.thread().id());
            list.thread = if born.is_ok() { Thread::Awake } else { Thread::Gone };
        }
        if list.thread == Thread::Gone {
            return None;
        }
        // Dropped when the list is unlocked, for the same reason as in `append`.
        let looked_at = list.sweep();
        list.held.push_back((Instant::now() + self.delay, Arc::downgrade(gathering)));
        let wakes = list.thread == Thread::Asleep;
        drop(list);
        drop(looked_at);
        if wakes {
            self.wake.notify_one();
        }
        self.bytes.fetch_add(bytes, AcqRel);
        Some(Room { held: Arc::clone(self), bytes })
    }

    /// Appends everything that is held.
    pub(crate) fn release_all(&self) {
        // The thread itself gets here if it has had the last handle of the store.
        let is_own = self.lock().id == Some(thread::current().id());
        let _appending = (!is_own).then(|| self.appending());
        let released = std::mem::take(&mut self.lock().held);
        append(released);
    }

    /// The same, and nothing is held any more.
    pub(crate) fn close(&self) {
        self.lock().thread = Thread::Gone;
        self.wake.notify_one();
        self.release_all();
    }

    /// Appends what is due, as long as the store is open.
    fn run(&self) {
        loop {
            let appending = self.appending();
            let mut list = self.lock();
            if list.thread == Thread::Gone {
                return;
            }
            let now = Instant::now();
            let due = list.held.partition_point(|(due, _)| *due <= now);
            if due > 0 {
                let released: VecDeque<_> = list.held.drain(..due).collect();
                drop(list);
                append(released);
                continue;
            }
            drop(appending);
            match list.held.front() {
                None => {
                    list.thread = Thread::Asleep;
                    let mut list = self.wake.wait(list).unwrap_or_else(PoisonError::into_inner);
                    if list.thread == Thread::Asleep {
                        list.thread = Thread::Awake;
                    }
                }
                // In a flow something is due at any moment: it is looked after a few times in the delay.
                Some((due, _)) => {
                    let left = due.saturating_duration_since(now).max(self.delay / 4);
                    drop(self.wake.wait_timeout(list, left).unwrap_or_else(PoisonError::into_inner));
                }
            }
        }
    }
}

/// With nothing locked, because batches go into the journal, and the last handle of a store may be in one.
fn append(released: VecDeque<(Instant, Weak<Gathering>)>) {
    released.into_iter().filter_map(|(_, gathering)| gathering.upgrade()).for_each(|gathering| gathering.append_held());
}
