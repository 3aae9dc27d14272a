//! The log: which of the frames count, in what order, and which are missing between them.
//!
//! Headers tell facts: what was on the disk when they were written, and what was not needed any more. A fact stays true
//! even if the frame itself does not count.

use std::{collections::BTreeMap, ops::Bound};

use super::{
    Missing,
    scan::{Scan, Seen},
};
use crate::{
    disk::Slot,
    frame::{AFTER_GAP, CLOSED, LAST, NO_SLOT},
};

/// The frames that count.
#[derive(Debug)]
pub(super) struct Log {
    /// In order of their numbers.
    pub(super) frames: Vec<Seen>,
    /// The first frame that is needed.
    pub(super) oldest: u64,
    /// The disk had all frames up to this one.
    synced: u64,
    /// The number of the next frame.
    pub(super) next: u64,
    pub(super) epoch: u32,
    /// The segments in which the log goes on, as the last frame says that counts, and the last of all.
    pub(super) next_slots: [Slot; 2],
    /// Whether one of them is gone.
    pub(super) lost_end: bool,
    pub(super) dropped: u64,
    /// The segments of those, and the number of the last of all frames that no epoch has superseded.
    pub(super) dropped_in: Vec<Slot>,
    pub(super) last_seen: u64,
    pub(super) closed: bool,
}

impl Log {
    pub(super) fn of(scan: &Scan) -> Self {
        let headers = || scan.frames.iter().map(|frame| frame.header);
        let mut log = Self {
            oldest: headers().map(|header| header.oldest).max().unwrap_or(1),
            synced: headers().map(|header| header.synced).max().unwrap_or_default(),
            epoch: headers().map(|header| header.epoch).max().unwrap_or_default(),
            frames: Vec::new(),
            next: 0,
            next_slots: [Slot(0); 2],
            lost_end: false,
            dropped: 0,
            dropped_in: Vec::new(),
            last_seen: 0,
            closed: false,
        };
        let epochs = Epochs::of(&scan.frames);
        let mut frames: Vec<_> = scan
            .frames
            .iter()
            .filter(|frame| frame.header.number >= log.oldest && !epochs.supersede(frame))
            .copied()
            .collect();
        // A file that was copied has each frame twice.
        frames.sort_by_key(|frame| (frame.header.number, frame.slot));
        frames.dedup_by_key(|frame| frame.header.number);
        let counted = log.counted(&frames);
        // Without any frame the first segment is meant, which has the lowest number.
        let none = if frames.is_empty() { 0 } else { NO_SLOT };
        let next = |frame: Option<&Seen>| Slot(frame.map_or(none, |frame| frame.header.next_slot));
        log.next_slots = [next(frames.get(..counted).and_then(<[Seen]>::last)), next(frames.last())];
        let is_gone = |slot: &Slot| slot.0 != NO_SLOT && scan.files.iter().all(|file| file.slot != *slot);
        log.lost_end = !scan.files.is_empty() && log.next_slots.iter().any(is_gone);
        log.dropped = (frames.len() - counted) as u64;
        log.dropped_in = frames.iter().skip(counted).map(|frame| frame.slot).collect();
        log.last_seen = frames.last().map_or(0, |last| last.header.number);
        frames.truncate(counted);
        log.next = frames.last().map_or(0, |last| last.header.number).max(log.synced).max(log.oldest - 1) + 1;
        let last = frames.last().filter(|last| last.header.number + 1 == log.next);
        log.closed = last.is_some_and(|last| last.header.flags & CLOSED != 0);
        log.frames = frames;
        log
    }

    // The log ends before the first frame that is missing and was not known to be on the disk, and behind a whole
    // commit.
    fn counted(&self, frames: &[Seen]) -> usize {
        let mut count = 0;
        let mut whole = 0;
        let mut expected = self.oldest;
        for frame in frames {
            let number = frame.header.number;
            let follows = number - 1 <= self.synced || frame.header.flags & AFTER_GAP != 0;
            if number > expected && !follows {
                break;
            }
            count += 1;
            expected = number + 1;
            if number <= self.synced || frame.header.flags & LAST != 0 {
                whole = count;
            }
        }
        whole
    }

    /// Whether a segment of which no frame counts may be overwritten at once. If only a frame that does not count says
    /// that another is not needed, one that counts has to say it first.
    pub(super) fn is_released(&self, scan: &Scan, slot: Slot) -> bool {
        let said = self.frames.iter().map(|frame| frame.header.oldest).max().unwrap_or_default();
        let doubtful = |frame: &Seen| (said..self.oldest).contains(&frame.header.number);
        !scan.frames.iter().any(|frame| frame.slot == slot && doubtful(frame))
    }

    /// The frames that are missing, those included that could not be read again.
    pub(super) fn missing(&self, unread: &[u64]) -> Vec<Missing> {
        let mut missing: Vec<Missing> = Vec::new();
        let mut expected = self.oldest;
        let mut before: Option<Seen> = None;
        for frame in &self.frames {
            let number = frame.header.number;
            if unread.contains(&number) {
                continue;
            }
            // Numbers that a start has left out are none that are missing: it has reported what it could not read.
            let is_after_gap = frame.header.flags & AFTER_GAP != 0;
            let last = if is_after_gap { frame.header.synced.min(number - 1) } else { number - 1 };
            if last >= expected {
                let bytes = match before {
                    Some(before) if before.slot == frame.slot => Some(frame.offset.saturating_sub(before.end())),
                    Some(_) => None,
                    None => Some(frame.offset).filter(|bytes| *bytes > 0),
                };
                missing.push(Missing { first: expected, last, bytes: bytes.map(u64::from) });
            }
            expected = number + 1;
            before = Some(*frame);
        }
        if expected < self.next {
            missing.push(Missing { first: expected, last: self.next - 1, bytes: None });
        }
        missing
    }

    /// Segments with frames that were not known to be on the disk.
    pub(super) fn unsynced(&self) -> Vec<Slot> {
        let unsynced = self.frames.iter().rev().take_while(|frame| frame.header.number > self.synced);
        let mut slots: Vec<_> = unsynced.map(|frame| frame.slot).collect();
        slots.dedup();
        slots
    }
}

/// For each epoch the first frame of it or of a later one.
struct Epochs(BTreeMap<u32, u64>);

impl Epochs {
    fn of(frames: &[Seen]) -> Self {
        let mut epochs: BTreeMap<_, _> =
            frames.iter().map(|frame| (frame.header.epoch, frame.header.epoch_first)).collect();
        let mut least = u64::MAX;
        for first in epochs.values_mut().rev() {
            least = least.min(*first);
            *first = least;
        }
        Self(epochs)
    }

    /// Whether a later epoch began at the frame or before it.
    fn supersede(&self, frame: &Seen) -> bool {
        let later = (Bound::Excluded(frame.header.epoch), Bound::Unbounded);
        self.0.range(later).next().is_some_and(|(_, first)| *first <= frame.header.number)
    }
}
