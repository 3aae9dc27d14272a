//! The committer: the thread that writes what has gathered, synchronises once, and resolves the completions.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
};

use fogmux_bus::{StoreFailed, Topic, Undo};

use crate::{
    batch::{Portion, Write},
    counters::{Counters, State},
    durability::Durability,
    queue::Queue,
    record::Record,
};

/// A change of a key: its new value, or `None` if it is removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// The retained message of a topic.
    Topic(Topic, Option<Vec<u8>>),
    /// A record that a door keeps.
    Record(Box<str>, Option<Box<[u8]>>),
}

/// How far a write has come when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The kernel has it.
    Written,
    /// The disk has it.
    Synced,
}

/// The storage that the committer writes to.
pub(crate) trait Disk: Send {
    /// The error of a failed write.
    type Error: std::fmt::Display;

    /// Writes the changes in one atomic step.
    fn write(&self, changes: &mut Vec<Change>, until: Until) -> Result<(), Self::Error>;

    /// Returns when everything written is on the disk.
    fn sync(&self) -> Result<(), Self::Error>;

    /// Sees to it that the last write, which failed, is not found when the disk is opened again: some of it, or all,
    /// may have been written.
    fn take_back(&self);
}

/// Writes until the queue is closed or a write fails. A failure is final: after a failed fsync the kernel may have
/// dropped the data, and a second fsync would succeed without it.
///
/// `undo` restores in the bus what failed writes had replaced.
pub(crate) fn run<D: Disk>(
    queue: &Queue,
    disk: D,
    durability: Durability,
    counters: &Arc<Counters>,
    undo: &OnceLock<Undo>,
) {
    let mut result = Ok(());
    let (mut failed, mut unsynced) = (0, 0);
    while let Some(gathered) = queue.take() {
        let (changes, before) = (gathered.changes() as u64, counters.records.load(Relaxed));
        let mut portions = gathered.into_portions().into();
        result = commit(&mut portions, &disk, durability, counters);
        if !durability.syncs() {
            unsynced += changes;
        }
        if let Err(error) = &result {
            if durability.waits() {
                // Before anybody is told.
                let _ = guarded(|| {
                    disk.take_back();
                    Ok(())
                });
            }
            // Before any completion fails, so that the reason is known by then.
            counters.stop(State::ReadOnly, error.clone());
            let waiting = queue.fail();
            // Of what was not synchronised nobody knows whether the disk has it.
            let synced = if durability.waits() { counters.records.load(Relaxed) - before } else { 0 };
            failed = changes.saturating_sub(synced) + waiting.changes() as u64;
            portions.extend(waiting.into_portions());
            if let Some(undo) = undo.get() {
                // The later writes first: the messages they replaced may be those of the earlier ones.
                portions.iter().rev().for_each(|portion| portion.undo(undo));
            }
            portions.into_iter().for_each(|portion| portion.complete(Err(StoreFailed)));
            queue.settled();
            break;
        }
        queue.settled();
    }
    if result.is_ok() && !durability.syncs() {
        result = guarded(|| disk.sync().map_err(|error| error.to_string()));
        failed = unsynced;
    }
    if let Err(error) = result {
        tracing::error!(%error, "the store failed and is read-only: nothing more is kept on disk; check it and restart");
        counters.stop(State::ReadOnly, error);
        counters.failed.store(failed, Relaxed);
    }
    // Before the queue ends: whoever waits for that may open the disk again.
    drop(disk);
    queue.end();
}

// A panic in the database must not leave completions unresolved.
fn guarded(work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("the database panicked".to_owned()))
}

/// Commits the portions in order, and takes those that are done out. Where acknowledgements wait, each is synchronised
/// and acknowledged before the next is written.
fn commit<D: Disk>(
    portions: &mut VecDeque<Portion>,
    disk: &D,
    durability: Durability,
    counters: &Counters,
) -> Result<(), String> {
    let until = if durability.waits() { Until::Synced } else { Until::Written };
    let mut changes = Vec::new();
    while let Some(portion) = portions.front_mut() {
        let bytes = encode(portion, &mut changes)?;
        let count = changes.len() as u64;
        guarded(|| disk.write(&mut changes, until).map_err(|error| error.to_string()))?;
        changes.clear();
        counters.bytes.fetch_add(bytes as u64, Relaxed);
        counters.records.fetch_add(count, Relaxed);
        if let Some(done) = portions.pop_front()
            && until == Until::Synced
        {
            counters.commits.fetch_add(1, Relaxed);
            done.complete(Ok(()));
        }
    }
    if until == Until::Written {
        if durability.syncs() {
            guarded(|| disk.sync().map_err(|error| error.to_string()))?;
        }
        counters.commits.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Moves the writes of a portion into `changes`. Returns their bytes.
fn encode(portion: &mut Portion, changes: &mut Vec<Change>) -> Result<usize, String> {
    let mut bytes = 0;
    for (topic, write) in std::mem::take(&mut portion.writes) {
        let record = match write {
            Write::Put(message, expires) => {
                let mut record = Vec::with_capacity(message.payload.len() + 64);
                Record::of(&message, expires).encode(&mut record).ok_or("a message is longer than 4 GiB")?;
                Some(record)
            }
            Write::Remove => None,
        };
        bytes += topic.len() + record.as_ref().map_or(0, Vec::len);
        changes.push(Change::Topic(topic, record));
    }
    for (key, value) in std::mem::take(&mut portion.records) {
        bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
        changes.push(Change::Record(key, value));
    }
    Ok(bytes)
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
