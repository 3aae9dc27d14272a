//! Reading records back from the disk.

use std::io;

use bytes::Bytes;

use crate::{
    batch::Record,
    blocks::{self, BLOCK},
    disk::{Disk, Slot},
    entry::Put,
    index::Place,
    journal::{Journal, Parts},
    record::{Key, RecordId},
};

/// Bytes of a piece of a segment that is kept in memory while records are visited.
const WINDOW: u32 = 64 << 10;
/// Pieces that are kept: records that were moved lie between others, so there are several places to read from.
const WINDOWS: usize = 32;

/// A record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system says so.
    #[error("the journal cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Its checksum is wrong. If the record was moved in the meantime it is elsewhere, whole.
    #[error("the record is damaged, or was moved")]
    Damaged,
}

impl Parts {
    /// Reads the record. The journal need not be held.
    ///
    /// # Errors
    /// The system refuses, or the record is not there whole. Ask for its location again then: if that has changed the
    /// record was moved, and if not it is damaged.
    pub fn read<D: Disk + ?Sized>(&self, disk: &D) -> Result<Record, ReadError> {
        let mut record = Assembly::default();
        for (key, place) in &self.0 {
            let (start, length) = blocks::range(place.position, place.entry_bytes());
            let mut raw = vec![0; length as usize];
            disk.read(place.slot, start, &mut raw)?;
            record.add(*key, *place, &raw, start)?;
        }
        record.finish()
    }
}

impl Parts {
    /// As [`Parts::read`], with pieces of segments that are kept in memory.
    pub(crate) fn read_by<D: Disk + ?Sized>(&self, windows: &mut Windows<'_, D>) -> Result<Record, ReadError> {
        let mut record = Assembly::default();
        for (key, place) in &self.0 {
            windows.add(&mut record, *key, *place)?;
        }
        record.finish()
    }
}

/// A record that is put together from its parts.
#[derive(Debug, Default)]
struct Assembly {
    kind: u8,
    total: usize,
    bytes: Vec<u8>,
    content: Vec<u8>,
}

impl Assembly {
    /// Adds a part, of which `raw` is the piece of the file at `start`.
    fn add(&mut self, key: Key, place: Place, raw: &[u8], start: u32) -> Result<(), ReadError> {
        self.content.clear();
        blocks::gather(raw, start, &mut self.content);
        let (put, _) = Put::read(&self.content).ok_or(ReadError::Damaged)?;
        if put.key != key || put.bytes.len() != place.bytes as usize || !put.is_intact() {
            return Err(ReadError::Damaged);
        }
        self.kind = put.kind;
        self.total = put.total as usize;
        self.bytes.reserve(put.bytes.len());
        self.bytes.extend_from_slice(put.bytes);
        Ok(())
    }

    fn finish(self) -> Result<Record, ReadError> {
        if self.bytes.len() == self.total {
            Ok(Record { kind: self.kind, bytes: Bytes::from(self.bytes) })
        } else {
            Err(ReadError::Damaged)
        }
    }
}

impl Journal {
    /// Reads all records that are committed, in order of their identifiers, with 2 MiB of memory. `visit` gets each
    /// outcome. Returns how many records could not be read.
    pub fn visit<D: Disk + ?Sized>(&self, disk: &D, mut visit: impl FnMut(RecordId, Result<Record, ReadError>)) -> u64 {
        let mut windows = Windows::new(disk);
        let mut failed = 0;
        let mut parts = self.parts().peekable();
        while let Some((key, place)) = parts.next() {
            let mut record = Assembly::default();
            let mut outcome = windows.add(&mut record, key, place);
            while let Some((key, place)) = parts.next_if(|(next, _)| next.id() == key.id()) {
                outcome = outcome.and_then(|()| windows.add(&mut record, key, place));
            }
            let outcome = outcome.and_then(|()| record.finish());
            failed += u64::from(outcome.is_err());
            visit(key.id(), outcome);
        }
        failed
    }
}

struct Window {
    slot: Slot,
    start: u32,
    bytes: Vec<u8>,
}

/// Pieces of segments, the most recently used at the end.
pub(crate) struct Windows<'a, D: ?Sized> {
    disk: &'a D,
    open: Vec<Window>,
}

impl<'a, D: Disk + ?Sized> Windows<'a, D> {
    pub(crate) const fn new(disk: &'a D) -> Self {
        Self { disk, open: Vec::new() }
    }

    fn add(&mut self, record: &mut Assembly, key: Key, place: Place) -> Result<(), ReadError> {
        let (start, length) = blocks::range(place.position, place.entry_bytes());
        let at = match self.open.iter().rposition(|window| window.piece(place.slot, start, length).is_some()) {
            Some(at) => at,
            None => self.load(place.slot, start, length)?,
        };
        // A swap, not a removal: exactness is not worth a move of all.
        let last = self.open.len() - 1;
        self.open.swap(at, last);
        let raw = self.open.last().and_then(|window| window.piece(place.slot, start, length)).unwrap_or_default();
        record.add(key, place, raw, start)
    }

    // Reads ahead, but no further than there is something.
    fn load(&mut self, slot: Slot, start: u32, length: u32) -> io::Result<usize> {
        let first = start / BLOCK * BLOCK;
        let least = (start + length - first).next_multiple_of(BLOCK);
        let mut bytes = vec![0; least.max(WINDOW) as usize];
        if self.disk.read(slot, first, &mut bytes).is_err() {
            // The segment ends before, or some of it cannot be read.
            bytes.truncate(least as usize);
            self.disk.read(slot, first, &mut bytes)?;
        }
        if self.open.len() >= WINDOWS {
            self.open.remove(0);
        }
        self.open.push(Window { slot, start: first, bytes });
        Ok(self.open.len() - 1)
    }
}

impl Window {
    fn piece(&self, slot: Slot, start: u32, length: u32) -> Option<&[u8]> {
        if self.slot != slot {
            return None;
        }
        let from = start.checked_sub(self.start)? as usize;
        self.bytes.get(from..from + length as usize)
    }
}
