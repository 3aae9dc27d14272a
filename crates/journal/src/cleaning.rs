//! Cleaning: what is live in the oldest segment is appended again, so that the segment can be overwritten.
//!
//! Segments are cleaned in the order in which they were written. A forget is newer than the put that it names, so when
//! its segment is cleaned the put is gone, and no forget is ever appended again.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    blocks::{self, BLOCK},
    disk::Slot,
    entry::{Entries, Entry},
    frame::Found,
    index::{Index, Place},
    plan::Copy,
    work::Task,
};

/// After so many reads that the medium failed, its blocks are given up, if room is needed.
const FAILURES_MAX: u32 = 8;
/// Most commits between two such reads, which may take a second each.
const PAUSE_MAX: u32 = 64;

/// The way through the oldest segment.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    slot: Option<Slot>,
    /// The number of the segment's first frame, since segments are used again.
    first: u64,
    /// The block that is read next, as an offset.
    offset: u32,
    /// Bytes that the frame there needs, if it is known to be larger than frames are.
    frame_bytes: u32,
    /// Parts that were live when they were read.
    copies: VecDeque<Copy>,
    /// Reads that the medium failed, one after another.
    failures: u32,
    /// Commits until the next such read.
    pause: u32,
    /// A read failed, and nothing was committed since.
    paused: bool,
}

impl Cleaner {
    /// Begins with a segment, if it is not this one.
    pub(crate) fn aim(&mut self, slot: Slot, first: u64) {
        if self.slot != Some(slot) || self.first != first {
            *self = Self { slot: Some(slot), first, ..Self::default() };
        }
    }

    /// Begins again: copies that were taken did not happen.
    pub(crate) fn restart(&mut self) {
        *self = Self { failures: self.failures, ..Self::default() };
    }

    /// Resumes after a commit, which shows that the disk works.
    pub(crate) const fn resume(&mut self) {
        self.paused = false;
        self.pause = self.pause.saturating_sub(1);
    }

    /// The read that must precede copying, if any. `used` is the number of bytes of the segment that hold frames.
    /// Blocks that the medium fails to give are waited for, unless the journal `hurries` because room is needed.
    pub(crate) fn reads(&self, used: u32, chunk: u32, hurries: bool) -> Option<Task> {
        let waits = self.paused || self.pause > 0 && !hurries;
        let slot = self.slot.filter(|_| self.copies.is_empty() && self.offset < used && !waits)?;
        let bytes = chunk.max(self.frame_bytes).min(used - self.offset);
        Some(Task::Read { slot, offset: self.offset, bytes, salvage: hurries && self.failures >= FAILURES_MAX })
    }

    /// Whether all of the segment was read and copied.
    pub(crate) fn is_through(&self, used: u32) -> bool {
        self.slot.is_some() && self.copies.is_empty() && self.offset >= used
    }

    /// A read failed. It is tried again after a commit, in case the disk is gone for a while only. Only if it is the
    /// medium that fails are its blocks given up in the end.
    pub(crate) fn failed(&mut self, of_medium: bool) {
        self.paused = true;
        if of_medium {
            self.failures = self.failures.saturating_add(1);
            self.pause = 1_u32.checked_shl(self.failures).unwrap_or(PAUSE_MAX).min(PAUSE_MAX);
        }
    }

    /// Finds the live parts in what was read, and goes on behind the last whole frame.
    pub(crate) fn found(&mut self, chunk: &[u8], used: u32, index: &Index) {
        let Some(slot) = self.slot else { return };
        let last = self.offset + u32::try_from(chunk.len()).unwrap_or_default() >= used;
        let mut at = 0;
        while let Some(rest) = chunk.get(at as usize..).filter(|rest| !rest.is_empty()) {
            match Found::at(rest) {
                Found::Frame(header) => {
                    self.take_live(
                        rest.get(..header.length as usize).unwrap_or_default(),
                        slot,
                        self.offset + at,
                        index,
                    );
                    at += header.blocks() * BLOCK;
                }
                // It may go on behind this chunk, which then begins with it.
                Found::Broken(_) if at > 0 && !last => break,
                Found::Broken(_) if !last && claimed(rest) > chunk.len() => {
                    self.frame_bytes = u32::try_from(claimed(rest)).unwrap_or(u32::MAX);
                    return;
                }
                Found::Broken(_) | Found::Nothing | Found::Newer(_) => at += BLOCK,
            }
        }
        self.offset += at;
        self.frame_bytes = 0;
        self.failures = 0;
    }

    fn take_live(&mut self, frame: &[u8], slot: Slot, offset: u32, index: &Index) {
        let mut content = Vec::with_capacity(frame.len());
        blocks::gather(frame, 0, &mut content);
        let content = Bytes::from(content);
        let base = blocks::position_of_block(offset / BLOCK);
        for (position, entry) in Entries::of(&content) {
            let Entry::Put(put) = entry else { continue };
            let bytes = u32::try_from(put.bytes.len()).unwrap_or_default();
            let from = Place { slot, position: base + position, bytes };
            if index.get(put.key) == Some(from) {
                let bytes = content.slice_ref(put.bytes);
                self.copies.push_back(Copy {
                    key: put.key,
                    kind: put.kind,
                    total: put.total,
                    sum: put.sum,
                    bytes,
                    from,
                });
            }
        }
    }

    /// The next part to copy.
    pub(crate) fn peek(&self) -> Option<&Copy> {
        self.copies.front()
    }

    /// Takes the next part to copy.
    pub(crate) fn take(&mut self) -> Option<Copy> {
        self.copies.pop_front()
    }

    /// Has a part that was taken copied later.
    pub(crate) fn put_back(&mut self, copy: Copy) {
        self.copies.push_front(copy);
    }
}

/// Bytes that a broken frame claims to have.
fn claimed(frame: &[u8]) -> usize {
    frame.get(60..64).and_then(<[u8]>::first_chunk).map_or(0, |length| u32::from_le_bytes(*length) as usize)
}
