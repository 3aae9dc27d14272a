//! The second reading: puts and forgets, in order, into the index.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::RangeInclusive,
};

use super::{RecoveryError, order::Log, scan::Seen};
use crate::{
    blocks,
    disk::{Disk, Slot},
    entry::{Entries, Entry, Forget, Put},
    frame::Found,
    index::{Index, Place},
    record::{Key, RecordId},
    segments::Segment,
    work,
};

/// Bytes that are read at a time, or more if a frame is longer.
const CHUNK: u32 = 256 << 10;

/// The state of the journal according to its log.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) index: Index,
    pub(super) segments: BTreeMap<Slot, Segment>,
    pub(super) next_id: u64,
    pub(super) records: u64,
    pub(super) incomplete: u64,
    /// Frames that could be read the first time and not the second.
    pub(super) unread: Vec<u64>,
    /// Segments of which the medium did not give all blocks the second time.
    pub(super) unreadable: BTreeSet<Slot>,
    /// The bytes of records that have several parts.
    totals: HashMap<RecordId, u64>,
}

impl Applied {
    pub(super) fn of<D: Disk + ?Sized>(disk: &D, log: &Log) -> Result<Self, RecoveryError> {
        let mut applied = Self::default();
        let mut frames = log.frames.as_slice();
        while let Some(first) = frames.first() {
            let near = |frame: &Seen| frame.slot == first.slot && frame.offset >= first.offset;
            let fits = |frame: &Seen| near(frame) && frame.end() - first.offset <= CHUNK;
            let count = frames.iter().take_while(|frame| fits(frame)).count().max(1);
            let (these, rest) = frames.split_at(count);
            let bytes = these.last().map_or(0, |last| last.end() - first.offset);
            let slot = first.slot;
            let (chunk, unreadable) =
                work::salvage(disk, slot, first.offset, bytes).map_err(|error| RecoveryError::Read { slot, error })?;
            applied.unreadable.extend((unreadable > 0).then_some(slot));
            for frame in these {
                let start = (frame.offset - first.offset) as usize;
                applied.frame(frame, chunk.get(start..).unwrap_or_default());
            }
            frames = rest;
        }
        applied.drop_incomplete();
        Ok(applied)
    }

    fn frame(&mut self, frame: &Seen, bytes: &[u8]) {
        if Found::at(bytes) != Found::Frame(frame.header) {
            self.unread.push(frame.header.number);
            return;
        }
        let number = frame.header.number;
        let mut content = Vec::with_capacity(bytes.len());
        blocks::gather(bytes.get(..frame.header.length as usize).unwrap_or_default(), 0, &mut content);
        // A record whose identifier was not given out yet was forged.
        let is_given = |put: Put<'_>| put.key.id().get() < frame.header.next_id;
        if Entries::of(&content).any(|(_, entry)| matches!(entry, Entry::Put(put) if !is_given(put))) {
            self.unread.push(number);
            return;
        }
        let segment =
            self.segments.entry(frame.slot).or_insert_with(|| Segment { first: number, ..Segment::default() });
        segment.used = segment.used.max(frame.end());
        segment.changed = number;
        let base = blocks::position_of_block(frame.offset / blocks::BLOCK);
        let mut forgets = Vec::new();
        for (position, entry) in Entries::of(&content) {
            match entry {
                Entry::Put(put) => {
                    let bytes = u32::try_from(put.bytes.len()).unwrap_or_default();
                    if put.key.is_first() && put.total > bytes {
                        self.totals.insert(put.key.id(), u64::from(put.total));
                    }
                    self.put(put.key, Place { slot: frame.slot, position: base + position, bytes }, number);
                }
                Entry::Forget(forget) => forgets.push(forget),
            }
        }
        for ids in forgets.into_iter().filter_map(Forget::ids) {
            self.forget(ids, number);
        }
    }

    fn put(&mut self, key: Key, place: Place, number: u64) {
        self.next_id = self.next_id.max(key.id().get() + 1);
        if let Some(old) = self.index.insert(key, place) {
            self.lost(old, number);
        }
        if let Some(segment) = self.segments.get_mut(&place.slot) {
            segment.live += u64::from(place.entry_bytes());
        }
    }

    /// Returns how many records of which the first part was there are gone.
    fn forget(&mut self, ids: RangeInclusive<RecordId>, number: u64) -> u64 {
        let removed: Vec<_> = self.index.remove_records(ids).collect();
        for (key, place) in &removed {
            self.totals.remove(&key.id());
            self.lost(*place, number);
        }
        removed.iter().filter(|(key, _)| key.is_first()).count() as u64
    }

    fn lost(&mut self, place: Place, number: u64) {
        if let Some(segment) = self.segments.get_mut(&place.slot) {
            segment.live = segment.live.saturating_sub(u64::from(place.entry_bytes()));
            segment.changed = segment.changed.max(number);
        }
    }

    // Parts whose record lost others are of no use.
    fn drop_incomplete(&mut self) {
        let mut found: HashMap<RecordId, u64> = HashMap::new();
        let mut dropped: BTreeSet<RecordId> = BTreeSet::new();
        let mut before: Option<Key> = None;
        for (key, place) in self.index.iter() {
            let follows = key.is_first() || before.and_then(Key::next_part) == Some(key);
            if !follows {
                dropped.insert(key.id());
            }
            if !key.is_first() || self.totals.contains_key(&key.id()) {
                *found.entry(key.id()).or_default() += u64::from(place.bytes);
            }
            self.records += u64::from(key.is_first());
            before = Some(key);
        }
        let partial = self.totals.iter().filter(|(id, total)| found.get(id).is_none_or(|bytes| bytes != *total));
        dropped.extend(partial.map(|(id, _)| *id));
        self.incomplete = dropped.len() as u64;
        for id in dropped {
            self.records -= self.forget(id..=id, 0);
        }
    }
}
