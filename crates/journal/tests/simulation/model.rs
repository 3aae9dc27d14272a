//! A journal beside a map that says what must be in it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fogmux_journal::{
    Appended, Batch, Config, Failure, Journal, Location, Occasion, Progress, ReadError, Record, RecordId, Recovery,
    Refused, Ticket,
};

use crate::{disk::SimulatedDisk, random::Random};

pub(crate) type Records = BTreeMap<RecordId, Record>;

/// The changes of a batch.
#[derive(Clone, Debug, Default)]
struct Change {
    puts: Vec<(RecordId, Record)>,
    forgets: Vec<RecordId>,
}

impl Change {
    fn apply(&self, records: &mut Records, dead: &mut BTreeSet<RecordId>) {
        records.extend(self.puts.iter().cloned());
        dead.extend(&self.forgets);
        records.retain(|id, _| !dead.contains(id));
    }
}

/// The journal, its disk, and what is known.
pub(crate) struct Subject {
    pub(crate) disk: SimulatedDisk,
    pub(crate) journal: Journal,
    pub(crate) config: Config,
    pub(crate) random: Random,
    /// The committed records after each commit since the last one that is on disk, in order.
    states: Vec<Records>,
    /// Batches whose outcome was not reported yet.
    open: VecDeque<(u64, Change)>,
    /// Records that were forgotten. One that was forgotten while it waited may be named by a later commit.
    dead: BTreeSet<RecordId>,
    /// The records that would follow from commits that are in progress, or that failed and may return.
    doubtful: Vec<Records>,
    /// Records that users expect to be stored, now or after a pending commit.
    pub(crate) known: Vec<RecordId>,
    pub(crate) failures: Vec<Failure>,
    /// Sets of batches that were refused.
    pub(crate) refused: Vec<u64>,
    /// Frames before the last operation.
    frames: u64,
    /// Lost parts of which there was word.
    pub(crate) told_lost_parts: u64,
}

impl Subject {
    pub(crate) fn new(seed: u64, config: Config) -> Self {
        let disk = SimulatedDisk::new(seed);
        let (journal, report) = Journal::open(&disk, config).unwrap();
        assert!(!report.is_damaged());
        Self {
            disk,
            journal,
            config,
            random: Random::new(seed),
            states: vec![Records::new()],
            open: VecDeque::new(),
            dead: BTreeSet::new(),
            doubtful: Vec::new(),
            known: Vec::new(),
            failures: Vec::new(),
            refused: Vec::new(),
            frames: 0,
            told_lost_parts: 0,
        }
    }

    /// The records committed so far.
    pub(crate) fn committed(&self) -> &Records {
        self.states.last().unwrap()
    }

    /// A record whose bytes repeat its number, so that it can be found in a file.
    fn record(&mut self, id: u64, length: usize) -> Record {
        let kind = self.random.next() as u8;
        Record { kind, bytes: id.to_be_bytes().into_iter().cycle().take(length).collect::<Vec<_>>().into() }
    }

    /// Appends a batch of some puts and forgets.
    pub(crate) fn append(&mut self, puts: usize, length_max: usize, forgets: usize) -> Result<Ticket, Refused> {
        let ids = self.journal.ids();
        let mut batch = Batch::new(&ids);
        let mut change = Change::default();
        for _ in 0..puts {
            let length = self.random.below(length_max + 1);
            // The identifier is only known afterwards, so its number is guessed from a put of nothing.
            let next = batch.put(0, Vec::new());
            batch.forget(next);
            let record = self.record(next.get() + 1, length);
            let id = batch.put(record.kind, record.bytes.clone());
            assert_eq!(id.get(), next.get() + 1);
            change.puts.push((id, record));
        }
        for _ in 0..forgets {
            if !self.known.is_empty() {
                let id = self.known.swap_remove(self.random.below(self.known.len()));
                batch.forget(id);
                change.forgets.push(id);
            }
        }
        let new: Vec<_> = change.puts.iter().map(|(id, _)| *id).collect();
        batch.own_by(self.random.below(3) as u64);
        if let Some((set, _)) = self.open.back().filter(|_| self.random.once_in(4)) {
            batch.join(*set);
        }
        let appended = self.journal.append(batch);
        match appended {
            Ok(Appended { set, .. }) => {
                self.known.extend(new);
                self.open.push_back((set, change));
            }
            Err(_) => self.known.extend(change.forgets),
        }
        appended.map(|appended| appended.ticket)
    }

    /// Puts other bytes into a record of a batch whose outcome is not known. Returns whether it still waited.
    pub(crate) fn replace(&mut self, length_max: usize) -> bool {
        let open = self.open.iter().enumerate();
        let puts: Vec<_> =
            open.flat_map(|(at, (_, change))| (0..change.puts.len()).map(move |put| (at, put))).collect();
        if puts.is_empty() {
            return false;
        }
        let (at, put) = puts[self.random.below(puts.len())];
        let (id, before) = self.open[at].1.puts[put].clone();
        let length = self.random.below(length_max + 1);
        let record = Record { kind: before.kind, ..self.record(id.get(), length) };
        let is_replaced = self.journal.replace(id, record.bytes.clone()).is_ok();
        if is_replaced {
            self.open[at].1.puts[put].1 = record;
        }
        is_replaced
    }

    /// Does all work of an occasion, with batches appended in between. Returns whether the power has failed.
    pub(crate) fn drive(&mut self, occasion: Occasion) -> bool {
        while let Some(work) = self.journal.next_work(occasion) {
            self.frames = self.journal.figures().frames;
            let commits = work.is_commit();
            if commits && !self.open.is_empty() {
                let mut after = self.committed().clone();
                let mut dead = self.dead.clone();
                // Which of them there is space for is checked by those that are.
                for (set, refused) in work.sets() {
                    let of_set = self.open.iter().filter(|(of, _)| *of == set);
                    let done = of_set.filter(|(_, change)| !refused || change.puts.is_empty());
                    done.for_each(|(_, change)| change.apply(&mut after, &mut dead));
                }
                self.doubtful.push(after);
            }
            let done = work.run(&self.disk);
            if self.disk.has_crashed() {
                return true;
            }
            if commits && self.random.once_in(8) {
                let _ = self.append(1, 100, 1);
            }
            self.journal.settle(&done);
            self.report(occasion);
            self.frames = self.journal.figures().frames;
        }
        self.report(occasion);
        false
    }

    fn report(&mut self, occasion: Occasion) {
        while let Some(Progress { sets, refused, outcome, lost_parts, is_full: _ }) = self.journal.progress() {
            self.told_lost_parts += lost_parts;
            let open = std::mem::take(&mut self.open);
            let (mut done, open): (Vec<_>, Vec<_>) = open.into_iter().partition(|(set, _)| sets.contains(set));
            self.open = open.into();
            done.retain(|(set, change)| !refused.contains(set) || change.puts.is_empty());
            match outcome {
                Ok(()) => {
                    let mut state = self.committed().clone();
                    done.iter().for_each(|(_, change)| change.apply(&mut state, &mut self.dead));
                    if occasion != (Occasion::Commit { sync: false }) {
                        self.states.clear();
                    }
                    self.states.push(state);
                    // A batch without effect is done without a frame that takes anything back.
                    let frames = self.journal.figures().frames;
                    if frames != self.frames {
                        self.doubtful.clear();
                    }
                    if !refused.is_empty() {
                        self.refused.extend(refused);
                        self.look();
                    }
                }
                Err(failure) => {
                    if !matches!(failure, Failure::Disk { may_return: true, .. }) {
                        self.doubtful.clear();
                    }
                    self.failures.push(failure);
                    self.look();
                }
            }
        }
    }

    // Users look what is there.
    fn look(&mut self) {
        self.known = self.committed().keys().copied().collect();
        let open = self.open.iter().flat_map(|(_, change)| change.puts.iter().map(|(id, _)| *id));
        self.known.extend(open);
        let gone: Vec<_> = self.open.iter().flat_map(|(_, change)| change.forgets.clone()).collect();
        self.known.retain(|id| !gone.contains(id));
    }

    /// Reads a record, and compares it with what was put.
    pub(crate) fn check_read(&mut self) {
        if self.known.is_empty() {
            return;
        }
        let id = self.known[self.random.below(self.known.len())];
        let open = self.open.iter().flat_map(|(_, change)| &change.puts).find(|(open, _)| *open == id);
        let expected = open.map(|(_, record)| record).or_else(|| self.committed().get(&id)).cloned();
        let found = match self.journal.find(id) {
            Some(Location::Memory(record)) => Some(record),
            Some(Location::Disk(parts)) => match parts.read(&self.disk) {
                Ok(record) => Some(record),
                // Only the simulated disk's own refusals.
                Err(ReadError::Io(error)) if error.raw_os_error().is_some() => return,
                Err(error) => panic!("{error}"),
            },
            None => None,
        };
        assert_eq!(found, expected, "{id:?}");
    }

    /// Returns the records that the journal visits, and checks their order.
    pub(crate) fn visit(&self) -> Records {
        let mut found = Records::new();
        self.journal.visit(&self.disk, |id, record| {
            assert!(found.last_key_value().is_none_or(|(last, _)| *last < id), "in order");
            found.insert(id, record.unwrap());
        });
        found
    }

    /// Opens the journal again. The records are as some commit left them that the disk did not have to forget.
    pub(crate) fn reopen(&mut self) -> Recovery {
        assert_eq!(self.journal.figures().lost_parts, 0);
        let report = self.reopen_damaged();
        let found = self.visit();
        assert!(!report.is_damaged(), "{report:?}");
        assert_eq!(report.records, found.len() as u64);
        let allowed = self.states.iter().chain(&self.doubtful).any(|state| *state == found);
        assert!(allowed, "{}", self.difference(&found));
        self.accept(found);
        report
    }

    /// Opens the journal again, whatever is in it.
    pub(crate) fn reopen_damaged(&mut self) -> Recovery {
        assert_eq!(self.told_lost_parts, self.journal.figures().lost_parts, "a loss without a word");
        self.told_lost_parts = 0;
        self.disk.restart();
        self.disk.set_faults(crate::disk::Faults::default());
        let (journal, report) = Journal::open(&self.disk, self.config).unwrap();
        self.journal = journal;
        report
    }

    /// Goes on from what was found.
    pub(crate) fn accept(&mut self, found: Records) {
        self.known = found.keys().copied().collect();
        self.states = vec![found];
        self.open.clear();
        self.dead.clear();
        self.doubtful.clear();
    }

    fn difference(&self, found: &Records) -> String {
        let describe = |expected: &Records| {
            let lost: Vec<_> = expected.keys().filter(|id| !found.contains_key(id)).collect();
            let risen: Vec<_> = found.keys().filter(|id| !expected.contains_key(id)).collect();
            format!("lost {lost:?}, risen {risen:?}; ")
        };
        self.states.iter().chain(&self.doubtful).map(describe).collect()
    }
}
