//! The journal as a state machine: changes come in, operations for the disk go out, and their outcomes come back.

mod commit;
mod outcome;
mod space;

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    sync::Arc,
};

use bytes::Bytes;

use crate::{
    batch::{Appended, Batch, Changes, Record, Ticket},
    cleaning::Cleaner,
    config::Config,
    disk::Slot,
    index::{Index, Place},
    loan::Lent,
    record::{Ids, Key, RecordId},
    segments::Segments,
    waiting::Waiting,
    work::Work,
};

/// Why a batch was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A record is larger than [`Config::record_bytes_max`].
    #[error("a record of {0} bytes is too large")]
    TooLarge(usize),
    /// [`Config::pending_bytes_max`] wait for a commit already.
    #[error("{0} bytes wait for the disk")]
    Busy(usize),
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
}

/// Why a commit failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There is no space, not even for forgets. Other programs may have cut or removed segments.
    #[error("there is no space for more records")]
    Full,
    /// The disk failed.
    #[error("{message}")]
    Disk {
        /// The kind of the system's error.
        kind: io::ErrorKind,
        /// The system's error.
        message: String,
        /// The commit could not be taken back on the disk either, so the next start may find it. It is taken back as
        /// soon as anything can be written.
        may_return: bool,
    },
}

/// Batches that are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Their sets; see [`Appended::set`].
    pub sets: Vec<u64>,
    /// Sets among them for which there is no space, in ascending order. Those of their batches that put something did
    /// not happen.
    pub refused: Vec<u64>,
    /// Whether the others were committed. If not, none of them happened.
    pub outcome: Result<(), Failure>,
    /// Live parts of records that the medium did not give when they were to be moved, and that were given up since the
    /// last progress. Told for itself: there are no batches in it then.
    pub lost_parts: u64,
    /// Whether the disk is full, and took them for the space that they give back: others would be refused.
    pub is_full: bool,
}

/// The occasion on which the journal is asked for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The waiting batches are to be committed, and synchronised to the disk if `sync`.
    Commit {
        /// Whether to synchronise.
        sync: bool,
    },
    /// Nothing is urgent: free segments are created, and surplus ones removed.
    Idle,
    /// The journal ends: everything is synchronised, and a last frame records that it was closed.
    Close,
}

/// Where the bytes of a record are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In memory, because the disk may not have them yet.
    Memory(Record),
    /// On the disk.
    Disk(Parts),
}

/// The parts of a record on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts(pub(crate) Vec<(Key, Place)>);

/// Figures of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Live parts of records: one for each that fits into a frame.
    pub parts: u64,
    /// Bytes of live records, with 24 for each part.
    pub live_bytes: u64,
    /// Bytes of all segments.
    pub disk_bytes: u64,
    /// Commits since the start. Batches of which nothing is left to write take none.
    pub commits: u64,
    /// Frames since the start.
    pub frames: u64,
    /// Bytes written in frames since the start, whole blocks.
    pub written_bytes: u64,
    /// Bytes among them that cleaning appended again.
    pub copied_bytes: u64,
    /// Live parts that could not be read when they were to be moved, and are gone.
    pub lost_parts: u64,
    /// Commits that failed.
    pub failures: u64,
    /// Bytes of memory that the index takes.
    pub index_bytes: u64,
}

/// The state of a journal. It does nothing by itself: [`Journal::next_work`] says what to do next.
#[derive(Debug)]
pub struct Journal {
    config: Config,
    ids: Ids,
    index: Index,
    segments: Segments,
    cleaner: Cleaner,
    /// Bytes that cleaning may copy for what was committed.
    credit: i64,
    /// The number of the next frame.
    number: u64,
    /// The disk has all frames up to this one.
    synced: u64,
    epoch: u32,
    epoch_first: u64,
    /// Whether nothing is left to note at the end: the last frame says that the journal was closed, or the disk fails.
    closed: bool,
    /// Numbers of frames were left out before the next, from behind this one on.
    after_gap: Option<u64>,
    waiting: Waiting,
    /// The changes of the next commit, while room is made for them.
    picked: Changes,
    /// The changes that are being committed.
    flight: Option<Arc<Changes>>,
    last_ticket: Ticket,
    /// Written since the last synchronisation.
    dirty: BTreeSet<Slot>,
    /// A commit that failed and is to be taken back.
    revoking: Option<Progress>,
    /// No segment could be created since the last commit.
    tight: bool,
    /// Bytes that are cleaned at most before a commit is refused.
    patience: u64,
    working: bool,
    progress: VecDeque<Progress>,
    figures: Figures,
}

/// The state that recovery found, from which the journal starts.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) config: Config,
    pub(crate) index: Index,
    pub(crate) segments: Segments,
    pub(crate) next_id: u64,
    pub(crate) number: u64,
    pub(crate) epoch: u32,
    pub(crate) closed: bool,
    /// Numbers of frames were left out before the next, from behind this one on.
    pub(crate) after_gap: Option<u64>,
}

impl Journal {
    pub(crate) fn begin(start: Start) -> Self {
        let Start { config, index, segments, next_id, number, epoch, closed, after_gap } = start;
        Self {
            config,
            ids: Ids::from(next_id),
            index,
            segments,
            cleaner: Cleaner::default(),
            credit: 0,
            number,
            synced: number - 1,
            epoch,
            epoch_first: number,
            closed,
            after_gap,
            waiting: Waiting::default(),
            picked: Changes::default(),
            flight: None,
            last_ticket: Ticket::default(),
            dirty: BTreeSet::new(),
            revoking: None,
            tight: false,
            patience: 0,
            working: false,
            progress: VecDeque::new(),
            figures: Figures::default(),
        }
    }

    /// The source of identifiers, for [`Batch::new`].
    #[must_use]
    pub fn ids(&self) -> Ids {
        self.ids.clone()
    }

    /// Appends a batch to what waits for the next commit. A record that is put and forgotten before that is never
    /// written.
    ///
    /// # Errors
    /// A record is too large, or too much waits already. Nothing of the batch happens.
    pub fn append(&mut self, batch: Batch) -> Result<Appended, Refused> {
        let Batch { puts, forgets, .. } = &batch;
        let limit = self.config.record_bytes_max() as usize;
        if let Some(length) = puts.iter().map(|(_, record)| record.bytes.len()).find(|length| *length > limit) {
            return Err(Refused::TooLarge(length));
        }
        let pending = self.waiting.bytes() + self.picked.bytes;
        let more: usize = puts.iter().map(|(_, record)| record.bytes.len()).sum();
        let unwritten = |id: &RecordId| self.waiting.put(*id).map_or(0, |record| record.bytes.len());
        let less: usize = forgets.iter().map(unwritten).sum();
        // Forgets make room and are never refused, and neither is what takes the place of as much that waits.
        if pending > 0 && more > less && pending + more - less > self.config.pending_bytes_max {
            return Err(Refused::Busy(pending));
        }
        let (picked, flight, index) = (&self.picked, self.flight.as_deref(), &self.index);
        let is_committed = |id: RecordId| match flight {
            Some(flight) if flight.forgets(id) => false,
            Some(flight) if flight.put(id).is_some() => true,
            // The picked changes may be refused yet, so a record that they forget is forgotten again.
            Some(_) | None => picked.put(id).is_some() || index.get(id.key(0)).is_some(),
        };
        let set = self.waiting.append(batch, is_committed);
        self.last_ticket.0 += 1;
        Ok(Appended { ticket: self.last_ticket, set })
    }

    /// Puts other bytes into a record that waits for a commit, as if a batch that joins its set forgot it and put the
    /// bytes, but under the same identifier and at the cost of a look-up.
    ///
    /// # Errors
    /// The bytes, if that cannot be done: the record does not wait any more or is to be forgotten, it becomes too
    /// large, or too much waits. A batch can do it, or says why not.
    pub fn replace(&mut self, id: RecordId, bytes: Bytes) -> Result<(), Bytes> {
        let Some(before) = self.waiting.put(id) else { return Err(bytes) };
        let more = bytes.len().saturating_sub(before.bytes.len());
        let pending = self.waiting.bytes() + self.picked.bytes + more;
        let is_too_large = bytes.len() > self.config.record_bytes_max() as usize;
        if is_too_large || more > 0 && pending > self.config.pending_bytes_max {
            return Err(bytes);
        }
        self.waiting.replace(id, bytes)
    }

    /// Where a record is. One that is to be forgotten is not there.
    #[must_use]
    pub fn find(&self, id: RecordId) -> Option<Location> {
        if self.waiting.forgets(id) {
            return None;
        }
        if let Some(record) = self.waiting.put(id) {
            return Some(Location::Memory(record.clone()));
        }
        for changes in [Some(&self.picked), self.flight.as_deref()].into_iter().flatten() {
            if changes.forgets(id) {
                return None;
            }
            if let Some(record) = changes.put(id) {
                return Some(Location::Memory(record.clone()));
            }
        }
        let mut parts = Vec::new();
        let mut key = Some(id.key(0));
        while let Some((part, place)) = key.and_then(|key| Some((key, self.index.get(key)?))) {
            parts.push((part, place));
            key = part.next_part();
        }
        (!parts.is_empty()).then_some(Location::Disk(Parts(parts)))
    }

    /// Some records that are committed, in order of their identifiers, from one on.
    pub(crate) fn locations(&self, from: RecordId, count: usize) -> Vec<(RecordId, Parts)> {
        let mut found: Vec<(RecordId, Parts)> = Vec::with_capacity(count);
        for (key, place) in self.index.from(from.key(0)) {
            let is_full = found.len() == count;
            match found.last_mut() {
                Some((id, parts)) if *id == key.id() => parts.0.push((key, place)),
                Some(_) if is_full => break,
                Some(_) | None => found.push((key.id(), Parts(vec![(key, place)]))),
            }
        }
        found
    }

    /// Lends all segments for a copy; see [`Committer::lend`](crate::Committer::lend).
    pub(crate) fn lend(&mut self) -> Option<Vec<Lent>> {
        self.segments.lend()
    }

    /// A lent segment was read. Whether it was still lent.
    pub(crate) fn give_back(&mut self, slot: Slot) -> bool {
        self.segments.give_back(slot)
    }

    /// Ends the loan, if there is one.
    pub(crate) fn recall(&mut self) {
        self.segments.recall();
    }

    /// The parts of all records that are committed, in order of their identifiers.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Key, Place)> {
        self.index.iter()
    }

    /// Whether something waits for a commit.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.picked.sets.is_empty() || !self.waiting.is_empty()
    }

    /// Whether nothing is done that [`Journal::progress`] has not told.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        self.progress.is_empty()
    }

    /// The next batches that are done, if there are any.
    pub fn progress(&mut self) -> Option<Progress> {
        self.progress.pop_front()
    }

    /// Figures as of now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            parts: self.index.len() as u64,
            live_bytes: self.segments.live,
            disk_bytes: self.segments.disk_bytes(),
            index_bytes: self.index.memory() as u64,
            ..self.figures
        }
    }

    /// The next operation for the disk, or `None` if there is nothing to do. Each is run, and settled by
    /// [`Journal::settle`], before the next is asked for.
    pub fn next_work(&mut self, occasion: Occasion) -> Option<Work> {
        debug_assert!(!self.working, "the last operation was not settled");
        let task = self.next_task(occasion)?;
        self.working = true;
        Some(Work(task))
    }
}
