//! The outcomes of commits: what they mean for names, readers, and those who wait.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::Ordering::Relaxed},
};

use fogmux_bus::{Completer, Message, StoreFailed, Topic, Undo};
use fogmux_journal::{Failure, Progress};

use crate::{
    counters::{Counters, State},
    ledger::{Ledger, Set},
    losses,
    names::Fate,
};

/// State that publishers share with the committer's thread.
pub(crate) struct Shared {
    ledger: Mutex<Ledger>,
    pub(crate) counters: Counters,
    pub(crate) undo: OnceLock<Undo>,
    /// Whether acknowledgements wait for commits.
    pub(crate) waits: bool,
    /// The directory of the store, for word of losses.
    pub(crate) path: PathBuf,
}

/// Work that follows from the outcomes.
#[derive(Default)]
struct Aftermath {
    undone: Vec<(Topic, Option<Arc<Message>>)>,
    resolved: Vec<(Arc<Completer>, Result<(), StoreFailed>)>,
    /// Something that was put is on the disk.
    takes: bool,
    /// Changes that were refused for lack of space, and that failed.
    no_space: u64,
    failed: u64,
}

impl Shared {
    pub(crate) fn new(waits: bool, path: PathBuf, queue_bytes_max: usize) -> Self {
        let ledger = Mutex::new(Ledger::new(queue_bytes_max));
        Self { ledger, counters: Counters::default(), undo: OnceLock::new(), waits, path }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of batches that are done. Readers see the earlier messages again before anybody is told that a newer
    /// one was not kept.
    pub(crate) fn progress(&self, progress: &Progress) {
        if progress.lost_parts > 0 {
            return losses::tell(&self.path, progress.lost_parts);
        }
        let mut aftermath = Aftermath::default();
        let mut ledger = self.ledger();
        for number in &progress.sets {
            let Some(set) = ledger.settled(*number) else { continue };
            let fate = match progress.outcome {
                Err(_) => Fate::Failed,
                Ok(()) if progress.refused.binary_search(number).is_ok() => Fate::NoSpace,
                Ok(()) => Fate::Done,
            };
            self.settle(&mut ledger, *number, set, fate, &mut aftermath);
        }
        ledger.undoing = !aftermath.undone.is_empty();
        drop(ledger);
        self.note(progress, &aftermath);
        let Aftermath { undone, resolved, .. } = aftermath;
        if !undone.is_empty() {
            if let Some(undo) = self.undo.get() {
                undone.iter().for_each(|(topic, before)| undo(topic, before.as_ref()));
            }
            self.ledger().undoing = false;
        }
        // The last ones first: who waits for several, in order, is woken once.
        resolved.into_iter().rev().for_each(|(completer, result)| completer.complete(result));
    }

    fn settle(&self, ledger: &mut Ledger, number: u64, set: Set, fate: Fate, aftermath: &mut Aftermath) {
        let changes = set.changes();
        let mut unkept = match fate {
            Fate::Done => 0,
            Fate::NoSpace => set.others[0],
            Fate::Failed => set.others.iter().sum(),
        };
        let Set { puts, forgets, topics, records, has_puts, charges, forgotten, swept, trial, .. } = set;
        // A trial that failed is not on the disk, or is taken back with the next commit.
        ledger.spare(if fate == Fate::Done { trial.as_slice() } else { &swept });
        if fate == Fate::Failed {
            ledger.spare(&forgotten);
        }
        ledger.trying &= trial.is_none();
        charges.iter().for_each(|charge| ledger.queue.remove(charge));
        for topic in topics {
            unkept += u64::from(fate.refuses(ledger.topics.puts_in(&topic, number)));
            let (charge, undone) = ledger.topics.settle(topic.clone(), number, fate);
            ledger.queue.remove(&charge);
            if let Some(before) = undone
                && self.waits
            {
                aftermath.undone.push((topic, before));
            }
        }
        for key in records {
            unkept += u64::from(fate.refuses(ledger.records.puts_in(&key, number)));
            let (charge, _) = ledger.records.settle(key, number, fate);
            ledger.queue.remove(&charge);
        }
        self.counters.records.fetch_add(changes - unkept, Relaxed);
        aftermath.takes |= fate == Fate::Done && has_puts;
        *(if fate == Fate::NoSpace { &mut aftermath.no_space } else { &mut aftermath.failed }) += unkept;
        let resolve = |puts| if fate.refuses(puts) { Err(StoreFailed) } else { Ok(()) };
        aftermath.resolved.extend(puts.map(|completer| (completer, resolve(true))));
        aftermath.resolved.extend(forgets.map(|completer| (completer, resolve(false))));
    }

    /// The state is known before anybody hears of a failure.
    fn note(&self, progress: &Progress, aftermath: &Aftermath) {
        match &progress.outcome {
            Ok(()) => {
                if !progress.refused.is_empty() {
                    self.counters.stop(State::Full, "the disk has no space for more".to_owned());
                } else if aftermath.takes && !progress.is_full {
                    self.counters.recover();
                }
            }
            Err(failure @ Failure::Full) => self.counters.stop(State::Full, failure.to_string()),
            Err(Failure::Disk { kind, message, may_return }) => {
                if *may_return {
                    self.counters.not_revoked(message);
                }
                let full = matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
                self.counters.stop(if full { State::Full } else { State::ReadOnly }, message.clone());
            }
        }
        let Aftermath { no_space, failed, .. } = aftermath;
        if self.waits {
            self.counters.refuse(*no_space);
            self.counters.failed.fetch_add(*failed, Relaxed);
            self.counters.tell(*failed);
        } else {
            self.counters.failed.fetch_add(*no_space + *failed, Relaxed);
            self.counters.lost.fetch_add(*no_space + *failed, Relaxed);
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("counters", &self.counters).finish_non_exhaustive()
    }
}
