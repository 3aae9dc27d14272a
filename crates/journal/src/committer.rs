//! The committer: a thread that does what the journal asks for, at the times that the mode says.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    batch::{Appended, Batch, Record},
    disk::Disk,
    journal::{Figures, Journal, Location, Occasion, Progress, Refused},
    loan::{Loan, LoanError},
    mode::Mode,
    read::{ReadError, Windows},
    record::{Ids, RecordId},
    times::CommitTimes,
};

/// Records that [`Committer::visit`] looks up at a time.
const PORTION: usize = 1024;

/// A journal with its thread. When it is dropped, what waits is committed and the thread ends.
#[derive(Debug)]
pub struct Committer<D: Disk + Send + Sync + 'static> {
    shared: Arc<Shared<D>>,
    ids: Ids,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
pub(crate) struct Shared<D> {
    state: Mutex<State>,
    wake: Condvar,
    /// Signalled when `flushes` counts up, and when the thread ends.
    over: Condvar,
    pub(crate) disk: D,
    mode: Mode,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) journal: Journal,
    /// When the first batch that waits was appended.
    since: Option<Instant>,
    /// Somebody waits until what waits is committed.
    flush: bool,
    /// How often all that waited was committed at such a request.
    flushes: u64,
    closing: bool,
    /// The thread has ended.
    ended: bool,
    times: CommitTimes,
}

impl<D: Disk + Send + Sync + 'static> Committer<D> {
    /// Starts the thread. `watch` is called on it, with nothing locked, when batches are done; it must not block, and
    /// tickets come in order.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(
        journal: Journal,
        disk: D,
        mode: Mode,
        watch: impl FnMut(Progress) + Send + 'static,
    ) -> std::io::Result<Self> {
        let ids = journal.ids();
        let state = Mutex::new(State {
            journal,
            since: None,
            flush: false,
            flushes: 0,
            closing: false,
            ended: false,
            times: CommitTimes::default(),
        });
        let shared = Arc::new(Shared { state, wake: Condvar::new(), over: Condvar::new(), disk, mode });
        let run = Arc::clone(&shared);
        let thread = Builder::new().name("journal".to_owned()).spawn(move || {
            let _closes = CloseAtEnd(&run);
            run.run(watch);
        })?;
        Ok(Self { shared, ids, thread: Mutex::new(Some(thread)) })
    }

    /// An empty batch.
    #[must_use]
    pub fn batch(&self) -> Batch {
        Batch::new(&self.ids)
    }

    /// Appends a batch. Never waits for the disk. Whether the acknowledgement has to is [`Mode::waits`].
    ///
    /// # Errors
    /// As [`Journal::append`], or the journal was closed.
    pub fn append(&self, batch: Batch) -> Result<Appended, Refused> {
        let mut state = self.shared.lock();
        if state.closing {
            return Err(Refused::Closed);
        }
        let appended = state.journal.append(batch)?;
        let sleeps = state.since.is_none();
        if sleeps {
            state.since = Some(Instant::now());
        }
        drop(state);
        if sleeps {
            self.shared.wake.notify_one();
        }
        Ok(appended)
    }

    /// Puts other bytes into a record that waits; see [`Journal::replace`].
    ///
    /// # Errors
    /// The bytes, as [`Journal::replace`], or the journal was closed.
    pub fn replace(&self, id: RecordId, bytes: Bytes) -> Result<(), Bytes> {
        let mut state = self.shared.lock();
        if state.closing {
            return Err(bytes);
        }
        state.journal.replace(id, bytes)
    }

    /// Reads a record, from memory if it is not on the disk yet. `None` if there is none, or it is to be forgotten.
    ///
    /// # Errors
    /// The record is damaged, or the system refuses.
    pub fn read(&self, id: RecordId) -> Result<Option<Record>, ReadError> {
        let find = || self.shared.lock().journal.find(id);
        let mut found = find();
        loop {
            let parts = match found {
                None => return Ok(None),
                Some(Location::Memory(record)) => return Ok(Some(record)),
                Some(Location::Disk(parts)) => parts,
            };
            match parts.read(&self.shared.disk) {
                Ok(record) => return Ok(Some(record)),
                Err(error) => {
                    found = find();
                    if found == Some(Location::Disk(parts)) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Reads all records that are committed, in order of their identifiers, in portions: the journal is not held while
    /// `visit` runs. A record that is forgotten meanwhile may be visited or not. Returns how many could not be read.
    pub fn visit(&self, mut visit: impl FnMut(RecordId, Result<Record, ReadError>)) -> u64 {
        let mut windows = Windows::new(&self.shared.disk);
        let mut failed = 0;
        let mut next = RecordId::new(0);
        while let Some(from) = next {
            let portion = self.shared.lock().journal.locations(from, PORTION);
            next = portion.last().and_then(|(id, _)| RecordId::new(id.get() + 1));
            for (id, parts) in portion {
                // One that was moved, or forgotten, since the portion was made up is looked for again.
                let outcome = parts.read_by(&mut windows).map(Some).or_else(|_| self.read(id));
                let Some(outcome) = outcome.transpose() else { continue };
                failed += u64::from(outcome.is_err());
                visit(id, outcome);
            }
        }
        failed
    }

    /// Lends the segments for a copy of everything that was appended before this call, however long acknowledgements
    /// wait. Waits for the disk, no longer than `patience`; what it has not taken by then may be missing.
    ///
    /// # Errors
    /// [`LoanError::Busy`].
    pub fn lend(&self, patience: Duration) -> Result<Loan<D>, LoanError> {
        let mut state = self.shared.lock();
        if state.journal.is_waiting() {
            let before = state.flushes;
            state.flush = true;
            self.shared.wake.notify_one();
            let waits = |state: &mut State| state.flushes == before && !state.ended;
            let waited = self.shared.over.wait_timeout_while(state, patience, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let lent = state.journal.lend().ok_or(LoanError::Busy)?;
        drop(state);
        Ok(Loan::new(Arc::clone(&self.shared), lent))
    }

    /// How long commits have taken.
    #[must_use]
    pub fn times(&self) -> CommitTimes {
        self.shared.lock().times
    }

    /// Figures as of now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.shared.lock().journal.figures()
    }

    /// Commits what waits, notes that the journal was closed, and waits for the thread. Batches are refused from now
    /// on.
    pub fn close(&self) {
        self.begin_to_close();
        if let Some(thread) = self.thread().take() {
            // A panic of `watch` has been printed; there is nothing more to say.
            let _ = thread.join();
        }
    }

    /// As [`Committer::close`], but waits no longer than `patience` for a disk that does not answer. Returns whether
    /// the thread has ended.
    pub fn close_within(&self, patience: Duration) -> bool {
        self.begin_to_close();
        let state = self.shared.lock();
        let waited = self.shared.over.wait_timeout_while(state, patience, |state| !state.ended);
        let ended = waited.unwrap_or_else(PoisonError::into_inner).0.ended;
        if ended {
            self.close();
        } else {
            *self.thread() = None;
        }
        ended
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_to_close(&self) {
        self.shared.lock().closing = true;
        self.shared.wake.notify_one();
    }
}

impl<D: Disk + Send + Sync + 'static> Drop for Committer<D> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Refuses batches when the thread has ended, also by a panic of the watcher: nobody would commit them.
struct CloseAtEnd<'a, D: Disk>(&'a Shared<D>);

impl<D: Disk> Drop for CloseAtEnd<'_, D> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.closing, state.ended) = (true, true);
        drop(state);
        self.0.over.notify_all();
    }
}

impl<D> Shared<D> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Disk> Shared<D> {
    fn run(&self, mut watch: impl FnMut(Progress)) {
        let mut last = None;
        let mut state = self.lock();
        loop {
            if state.flush && !state.journal.is_waiting() {
                self.flushed(&mut state);
            }
            let due = state.since.map(|since| self.mode.due(since, last));
            let occasion = match due {
                _ if state.closing => Occasion::Close,
                Some(_) if state.flush => Occasion::Commit { sync: self.mode.syncs() },
                Some(due) if due <= Instant::now() => Occasion::Commit { sync: self.mode.syncs() },
                Some(_) | None => Occasion::Idle,
            };
            let mut spent = None;
            if let Some(work) = state.journal.next_work(occasion) {
                if work.is_commit() && !state.journal.is_waiting() && state.since.take().is_some() {
                    last = Some(Instant::now());
                }
                // Where acknowledgements do not wait a commit takes all that waits.
                let flushes = state.flush && work.sets().next().is_some();
                let is_commit = work.is_commit();
                drop(state);
                let began = Instant::now();
                let done = work.run(&self.disk);
                let took = began.elapsed();
                state = self.lock();
                if is_commit {
                    state.times.commits.note(took);
                }
                if let Some(took) = done.synced {
                    state.times.syncs.note(took);
                }
                state.journal.settle(&done);
                spent = Some(done);
                if flushes {
                    self.flushed(&mut state);
                }
            } else if occasion == Occasion::Close {
                return self.report(state, &mut watch);
            } else if state.journal.is_reported() {
                state.since = state.since.filter(|_| state.journal.is_waiting());
                state = self.sleep(state, due);
                continue;
            }
            self.report(state, &mut watch);
            // It has thousands of records, and whoever appends would wait.
            drop(spent);
            state = self.lock();
        }
    }

    fn flushed(&self, state: &mut State) {
        state.flush = false;
        state.flushes += 1;
        self.over.notify_all();
    }

    // Tells the watcher without the lock.
    fn report(&self, mut state: MutexGuard<'_, State>, watch: &mut impl FnMut(Progress)) {
        let progress: Vec<_> = std::iter::from_fn(|| state.journal.progress()).collect();
        drop(state);
        progress.into_iter().for_each(watch);
    }

    fn sleep<'a>(&self, state: MutexGuard<'a, State>, due: Option<Instant>) -> MutexGuard<'a, State> {
        match (state.since, due) {
            (Some(_), Some(due)) => {
                let left = due.saturating_duration_since(Instant::now());
                self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            }
            // A batch came while nothing was due.
            (Some(_), None) => state,
            (None, _) => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}
