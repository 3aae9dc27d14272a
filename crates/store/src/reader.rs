//! Reading messages of sessions back from the disk, on a thread of its own (ADR 0073): workers do not wait for a disk.

use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    thread::{self, Builder},
    time::Duration,
};

use fogmux_bus::durable::{ReadBack, ReadBackAnswer, RecordId, StoredMessage};
use fogmux_journal::ReadError;

/// Reading a record goes through the journal; nothing of it is deep.
const STACK_BYTES: usize = 256 << 10;

/// When the system refuses, as without a file descriptor, it is asked again after this.
const AGAIN: Duration = Duration::from_millis(100);
/// As often as this for a question, or others would wait for all its messages.
const TRIES: usize = 3;

/// Reads a message.
pub(crate) trait Reads: Send + Sync {
    /// Reads it. `Ok(None)`: it is not there.
    fn read_message(&self, id: RecordId) -> Result<Option<StoredMessage>, Unread>;
}

/// A message was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    /// It is damaged, or the medium does not have it.
    #[error(transparent)]
    Lost(ReadError),
    /// The system refuses, now.
    #[error(transparent)]
    Refused(io::Error),
}

/// See the module. The thread ends with this.
pub(crate) struct Reader {
    turns: Arc<Turns>,
    /// Whether there is a thread.
    born: OnceLock<bool>,
}

#[derive(Default)]
struct Turns {
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

/// Questions by their principals, who take turns.
#[derive(Default)]
struct Waiting {
    of: HashMap<Arc<str>, VecDeque<Question>>,
    order: VecDeque<Arc<str>>,
    closed: bool,
}

struct Question {
    messages: Vec<RecordId>,
    answer: ReadBackAnswer,
}

impl Waiting {
    fn push(&mut self, principal: &Arc<str>, question: Question) {
        let own = self.of.entry(Arc::clone(principal)).or_default();
        if own.is_empty() {
            self.order.push_back(Arc::clone(principal));
        }
        own.push_back(question);
    }

    fn pop(&mut self) -> Option<Question> {
        let principal = self.order.pop_front()?;
        let own = self.of.get_mut(&principal)?;
        let question = own.pop_front();
        if own.is_empty() {
            self.of.remove(&principal);
        } else {
            self.order.push_back(principal);
        }
        question
    }
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next question; `None` when the store is closed.
    fn next(&self) -> Option<Question> {
        let mut waiting = self.lock();
        loop {
            if waiting.closed {
                return None;
            }
            if let Some(question) = waiting.pop() {
                return Some(question);
            }
            waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Question {
    fn answer(self, from: &dyn Reads) {
        let Self { messages, answer } = self;
        if answer.is_abandoned() {
            return;
        }
        let mut unread = (0_u64, None);
        let mut tries = TRIES;
        let mut read = |id| {
            read(from, id, &mut tries).unwrap_or_else(|error| {
                unread = (unread.0 + 1, Some(error));
                None
            })
        };
        let read = messages.into_iter().map(|id| (id, read(id))).collect();
        if let (messages, Some(error)) = unread {
            tracing::error!(%error, messages, "messages are lost to a session");
        }
        answer.answer(read);
    }
}

fn read(from: &dyn Reads, id: RecordId, tries: &mut usize) -> Result<Option<StoredMessage>, Unread> {
    loop {
        match from.read_message(id) {
            Err(Unread::Refused(_)) if *tries > 0 => {
                *tries -= 1;
                thread::sleep(AGAIN);
            }
            read => return read,
        }
    }
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self { turns: Arc::default(), born: OnceLock::new() }
    }

    /// Asks for messages of a principal. The thread begins with the first question, and reads by `from`.
    pub(crate) fn ask(&self, from: Weak<dyn Reads>, principal: &Arc<str>, messages: Vec<RecordId>) -> ReadBack {
        let (read_back, answer) = ReadBack::ask();
        let question = Question { messages, answer };
        let turns = &self.turns;
        let born = *self.born.get_or_init(|| {
            let (turns, from) = (Arc::clone(turns), Weak::clone(&from));
            let run = move || {
                while let Some(question) = turns.next() {
                    let Some(from) = from.upgrade() else { return };
                    question.answer(&*from);
                }
            };
            Builder::new().name("read-back".to_owned()).stack_size(STACK_BYTES).spawn(run).is_ok()
        });
        if born {
            turns.lock().push(principal, question);
            turns.wake.notify_one();
        } else if let Some(from) = from.upgrade() {
            // The system has no thread for it: slower for the others, but nothing is held up for good.
            question.answer(&*from);
        }
        read_back
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.turns.lock().closed = true;
        self.turns.wake.notify_one();
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::{Context, Poll, Waker};
    use std::time::Instant;

    use super::*;

    /// A disk that reads a record when it is told to, and says which.
    struct Told {
        read: Mutex<Sender<u64>>,
        go: Mutex<Receiver<Result<(), Unread>>>,
    }

    impl Reads for Told {
        fn read_message(&self, id: RecordId) -> Result<Option<StoredMessage>, Unread> {
            self.read.lock().unwrap().send(id.0).unwrap();
            self.go.lock().unwrap().recv().unwrap().map(|()| None)
        }
    }

    fn refused() -> Unread {
        Unread::Refused(io::Error::other("no descriptors"))
    }

    fn ids(range: std::ops::Range<u64>) -> Vec<RecordId> {
        range.map(RecordId).collect()
    }

    #[test]
    fn a_principal_with_many_questions_waits_for_one_of_another() {
        let (read, reads) = channel();
        let (goes, go) = channel();
        let told: Arc<dyn Reads> = Arc::new(Told { read: Mutex::new(read), go: Mutex::new(go) });
        let reader = Reader::new();
        let (busy, other): (Arc<str>, Arc<str>) = (Arc::from("busy"), Arc::from("other"));
        let many: Vec<ReadBack> =
            (0..100).map(|one| reader.ask(Arc::downgrade(&told), &busy, ids(one..one + 1))).collect();
        // The thread is at the first one.
        assert_eq!(reads.recv().unwrap(), 0);
        let mut own = reader.ask(Arc::downgrade(&told), &other, ids(1000..1002));
        (0..4).for_each(|_| goes.send(Ok(())).unwrap());
        let order: Vec<u64> = (0..4).map(|_| reads.recv().unwrap()).collect();
        assert_eq!(order, [1, 1000, 1001, 2]);
        let Poll::Ready(found) = own.poll(&Context::from_waker(Waker::noop())) else { panic!("it is read") };
        assert_eq!(found, [(RecordId(1000), None), (RecordId(1001), None)]);
        // Nobody waits for these any more.
        drop(many);
        goes.send(Ok(())).unwrap();
        let mut last = reader.ask(Arc::downgrade(&told), &busy, ids(2000..2001));
        assert_eq!(reads.recv().unwrap(), 2000);
        goes.send(Err(refused())).unwrap();
        assert_eq!(reads.recv().unwrap(), 2000, "a disk that refuses is asked again");
        goes.send(Ok(())).unwrap();
        while last.poll(&Context::from_waker(Waker::noop())).is_pending() {
            thread::yield_now();
        }
        // One question does not hold the others up for each of its messages.
        let began = Instant::now();
        let mut last = reader.ask(Arc::downgrade(&told), &busy, ids(3000..3100));
        (0..100 + TRIES).for_each(|_| goes.send(Err(refused())).unwrap());
        while last.poll(&Context::from_waker(Waker::noop())).is_pending() {
            thread::yield_now();
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
