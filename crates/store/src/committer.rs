//! The committer: the thread that writes what has gathered, synchronises once, and resolves the completions.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
};

use fogmux_bus::{StoreFailed, Topic, Undo};

use crate::{
    counters::{Counters, State},
    durability::Durability,
    queue::{Batch, Queue, Write},
    record::Record,
};

/// Encoded bytes handed to the disk at once, which bounds the memory of a commit besides the messages.
const CHUNK_BYTES: usize = 1 << 20;

/// A change of a key: its new value, or `None` if it is removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// The retained message of a topic.
    Topic(Topic, Option<Vec<u8>>),
    /// A record that a door keeps.
    Record(Box<str>, Option<Box<[u8]>>),
}

/// The storage that the committer writes to.
pub(crate) trait Disk: Send {
    /// The error of a failed write.
    type Error: std::fmt::Display;

    /// Writes the changes in one atomic step.
    fn write(&self, changes: &mut Vec<Change>) -> Result<(), Self::Error>;

    /// Returns when everything written is on the disk.
    fn sync(&self) -> Result<(), Self::Error>;
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
    while let Some(mut batch) = queue.take() {
        result = guarded(|| commit(&mut batch, &disk, durability, counters));
        if let Err(error) = &result {
            // Before any completion fails, so that the reason is known by then.
            counters.stop(State::ReadOnly, error.clone());
            let waiting = queue.fail();
            // The later batch first: the messages it replaced may be those of the earlier one.
            for batch in [waiting, batch] {
                if let Some(undo) = undo.get() {
                    batch.undo(undo);
                }
                batch.complete(Err(StoreFailed));
            }
            queue.settled();
            break;
        }
        batch.complete(Ok(()));
        queue.settled();
    }
    if result.is_ok() && !durability.syncs() {
        result = guarded(|| disk.sync().map_err(|error| error.to_string()));
    }
    if let Err(error) = result {
        tracing::error!(%error, "the store failed and is read-only: nothing more is kept on disk; check it and restart");
        counters.stop(State::ReadOnly, error);
    }
    // Before the queue ends: whoever waits for that may open the disk again.
    drop(disk);
    queue.end();
}

// A panic in the database must not leave completions unresolved.
fn guarded(work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("the database panicked".to_owned()))
}

fn commit<D: Disk>(batch: &mut Batch, disk: &D, durability: Durability, counters: &Counters) -> Result<(), String> {
    let mut changes = Vec::new();
    let mut bytes = 0;
    let mut written = 0_u64;
    for (topic, write) in std::mem::take(&mut batch.writes) {
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
        if bytes >= CHUNK_BYTES {
            written += flush(disk, &mut changes, &mut bytes, counters)?;
        }
    }
    for (key, value) in batch.records.drain() {
        bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
        changes.push(Change::Record(key, value));
        if bytes >= CHUNK_BYTES {
            written += flush(disk, &mut changes, &mut bytes, counters)?;
        }
    }
    written += flush(disk, &mut changes, &mut bytes, counters)?;
    if durability.syncs() {
        disk.sync().map_err(|error| error.to_string())?;
    }
    counters.commits.fetch_add(1, Relaxed);
    counters.records.fetch_add(written, Relaxed);
    Ok(())
}

fn flush<D: Disk>(disk: &D, changes: &mut Vec<Change>, bytes: &mut usize, counters: &Counters) -> Result<u64, String> {
    let count = changes.len() as u64;
    disk.write(changes).map_err(|error| error.to_string())?;
    changes.clear();
    counters.bytes.fetch_add(std::mem::take(bytes) as u64, Relaxed);
    Ok(count)
}

#[cfg(test)]
mod tests;
