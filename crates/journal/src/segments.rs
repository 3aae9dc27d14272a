//! Segments: which are in use and in what order, which are free, and when one may be used again.
//!
//! A segment leaves in three steps: nothing live is in it any more, and the disk has what made it so; a frame on the
//! disk says that it is not needed; then it is overwritten or removed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    config::{Config, RESERVE},
    disk::Slot,
    loan::Lent,
};

/// Segments by which the files may grow while the medium fails to give what is to be cleaned: with 512 KiB, 16 MiB.
const HOLD: u64 = 32;

/// A segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) bytes: u32,
    /// Bytes from the beginning to the end of the last frame.
    pub(crate) used: u32,
    /// Bytes of live entries.
    pub(crate) live: u64,
    /// The number of the first frame.
    pub(crate) first: u64,
    /// The last frame in it, or that took something live away.
    pub(crate) changed: u64,
    /// A write to it failed: its file is removed, not used again.
    pub(crate) suspect: bool,
}

/// A segment that waits until a frame that says so is on the disk.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    slot: Slot,
    announced: Option<u64>,
}

impl Leaving {
    fn is_announced(&self, synced: u64) -> bool {
        self.announced.is_some_and(|number| number <= synced)
    }
}

/// How much cleaning is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// None.
    None,
    /// As much as costs nothing: into blocks that are written anyway.
    Padding,
    /// As much as keeps the files in proportion.
    Blocks,
}

/// All segments.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) table: BTreeMap<Slot, Segment>,
    /// Those with frames, the oldest first.
    pub(crate) order: VecDeque<Slot>,
    /// Whether the last of `order` takes more frames.
    pub(crate) open: bool,
    pub(crate) free: VecDeque<Slot>,
    leaving: Vec<Leaving>,
    /// Files to remove.
    doomed: Vec<Slot>,
    /// Files that could not be removed, and are tried again after the next commit.
    stuck: Vec<Slot>,
    /// Segments of which the medium did not give everything. They are left alone, for it may at another start: they are
    /// neither written to nor removed.
    pub(crate) held: BTreeSet<Slot>,
    /// Segments that a copy has yet to read: they stay as they are.
    lent: BTreeSet<Slot>,
    /// The first frame that is needed for the sake of those that the start could not read. While there is one, no
    /// segment leaves.
    pub(crate) pinned: Option<u64>,
    /// Bytes of live entries in all segments.
    pub(crate) live: u64,
}

impl Segments {
    /// The segment that takes the next frame, if there is room in one.
    pub(crate) fn current(&self) -> Option<Slot> {
        self.order.back().copied().filter(|_| self.open)
    }

    /// The segment that is cleaned next. Its place may be the current one's.
    pub(crate) fn oldest(&self) -> Option<Slot> {
        let slot = self.order.front().copied().filter(|_| self.pinned.is_none())?;
        (self.current() != Some(slot)).then_some(slot)
    }

    /// The first frame that is needed. `next` is the number of the next.
    pub(crate) fn oldest_number(&self, next: u64) -> u64 {
        let first = self.order.front().and_then(|slot| self.table.get(slot)).map_or(next, |segment| segment.first);
        self.pinned.map_or(first, |pinned| pinned.min(first))
    }

    /// Files that stay and are in use.
    pub(crate) fn files(&self) -> usize {
        self.table.len() - self.doomed.len() - self.stuck.len() - self.left_alone().count()
    }

    fn left_alone(&self) -> impl Iterator<Item = Slot> {
        self.held.iter().copied().filter(|slot| self.table.contains_key(slot) && !self.order.contains(slot))
    }

    /// Bytes of the files in use.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        let others = self.doomed.iter().chain(&self.stuck).copied().chain(self.left_alone());
        self.disk_bytes() - others.map(|slot| self.size(slot)).sum::<u64>()
    }

    /// Bytes of all files.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.table.values().map(|segment| u64::from(segment.bytes)).sum()
    }

    fn used_bytes(&self) -> u64 {
        self.order.iter().map(|slot| self.size(*slot)).sum()
    }

    fn size(&self, slot: Slot) -> u64 {
        self.table.get(&slot).map_or(0, |segment| u64::from(segment.bytes))
    }

    /// How much the oldest segment needs to be cleaned.
    ///
    /// From 1.75 times the live bytes and three segments on, four bytes are copied for each that is committed, so
    /// cleaning has been through all live bytes before another quarter of them is used: [`Segments::bytes_max`] holds.
    pub(crate) fn need(&self, config: &Config) -> Need {
        let segment = u64::from(config.segment_bytes);
        match self.used_bytes().saturating_sub(self.live + self.live / 4 * 3) {
            used if used > 3 * segment => Need::Blocks,
            used if used > 2 * segment => Need::Padding,
            _ => Need::None,
        }
    }

    /// Bytes that the files may take: twice the live bytes, and six segments.
    pub(crate) fn bytes_max(&self, config: &Config) -> u64 {
        2 * self.live + 6 * u64::from(config.segment_bytes)
    }

    /// Whether the files are as much larger as it is worth to wait for a medium that fails.
    pub(crate) fn is_over(&self, config: &Config) -> bool {
        self.used_bytes() > self.bytes_max(config) + HOLD * u64::from(config.segment_bytes)
    }

    /// Gives up what the start could not read, since room is needed.
    pub(crate) const fn unpin(&mut self) {
        self.pinned = None;
    }

    /// The lowest number that no file has.
    pub(crate) fn unused_slot(&self) -> Slot {
        let taken = self.table.keys().zip(0..).take_while(|(slot, n)| slot.0 == *n).count();
        Slot(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    /// Adds a file that was created.
    pub(crate) fn created(&mut self, slot: Slot, bytes: u32) {
        self.table.insert(slot, Segment { bytes, ..Segment::default() });
        self.free.push_back(slot);
    }

    /// A live entry is in a segment from now on.
    pub(crate) fn gained(&mut self, slot: Slot, bytes: u32) {
        self.live += u64::from(bytes);
        if let Some(segment) = self.table.get_mut(&slot) {
            segment.live += u64::from(bytes);
        }
    }

    /// A live entry is no longer in a segment, because of the frame `number`.
    pub(crate) fn lost(&mut self, slot: Slot, bytes: u32, number: u64) {
        self.live = self.live.saturating_sub(u64::from(bytes));
        if let Some(segment) = self.table.get_mut(&slot) {
            segment.live = segment.live.saturating_sub(u64::from(bytes));
            segment.changed = segment.changed.max(number);
        }
    }

    /// A frame was written to `slot`.
    pub(crate) fn written(&mut self, slot: Slot, number: u64, end: u32) {
        if self.order.back() != Some(&slot) || !self.open {
            self.free.retain(|free| *free != slot);
            self.order.push_back(slot);
            self.open = true;
            if let Some(segment) = self.table.get_mut(&slot) {
                *segment = Segment { bytes: segment.bytes, first: number, ..Segment::default() };
            }
        }
        if let Some(segment) = self.table.get_mut(&slot) {
            segment.used = end;
            segment.changed = segment.changed.max(number);
        }
    }

    /// A commit failed that wrote to `slots`: no frame follows in the current segment, and what has begun is begun in
    /// another one next time.
    pub(crate) fn failed(&mut self, slots: &[Slot], synced: u64) {
        if let Some(current) = self.current()
            && slots.contains(&current)
        {
            self.open = false;
            if let Some(segment) = self.table.get_mut(&current) {
                segment.suspect = true;
            }
        }
        let (tried, mut free): (VecDeque<_>, VecDeque<_>) = self.free.iter().partition(|slot| slots.contains(slot));
        free.extend(tried);
        self.free = free;
        for leaving in &mut self.leaving {
            leaving.announced = leaving.announced.filter(|number| *number <= synced);
        }
    }

    /// Takes the oldest segments that hold nothing live out of the order.
    pub(crate) fn retire(&mut self, synced: u64) {
        while let Some(slot) = self.oldest()
            && self.table.get(&slot).is_some_and(|segment| segment.live == 0 && segment.changed <= synced)
        {
            self.order.pop_front();
            self.leaving.push(Leaving { slot, announced: None });
        }
    }

    /// The frame `number`, whose header says what is not needed any more, is about to be written.
    pub(crate) fn announce(&mut self, number: u64) {
        for leaving in &mut self.leaving {
            leaving.announced.get_or_insert(number);
        }
    }

    /// Whether something waits for a frame that announces it.
    pub(crate) fn has_unannounced(&self) -> bool {
        self.leaving.iter().any(|leaving| leaving.announced.is_none())
    }

    /// Whether a segment would be free if the disk had what was written.
    pub(crate) fn waits_for_sync(&self, synced: u64) -> bool {
        self.leaving.iter().any(|leaving| leaving.announced.is_none_or(|number| number > synced))
            || self.oldest().and_then(|slot| self.table.get(&slot)).is_some_and(|segment| segment.live == 0)
    }

    /// Lends all segments for a copy, as they are now. `None` if some are lent already.
    ///
    /// Free segments have no content that counts, but the last frame may name one as the place where the log goes on.
    pub(crate) fn lend(&mut self) -> Option<Vec<Lent>> {
        if !self.lent.is_empty() {
            return None;
        }
        let with_content = |slot: &Slot| !self.free.contains(slot) && !self.doomed.contains(slot);
        let all: Vec<Lent> = self
            .table
            .iter()
            .map(|(slot, segment)| {
                let used = if with_content(slot) { segment.used } else { 0 };
                // Of a segment that the start could not read it is not known how much of it counts.
                let used = if self.held.contains(slot) { segment.bytes } else { used };
                Lent { slot: *slot, bytes: segment.bytes, used }
            })
            .collect();
        self.lent = all.iter().filter(|lent| lent.used > 0).map(|lent| lent.slot).collect();
        Some(all)
    }

    /// A lent segment was read. Whether it was still lent.
    pub(crate) fn give_back(&mut self, slot: Slot) -> bool {
        self.lent.remove(&slot)
    }

    /// Ends the loan. Whether there was one.
    pub(crate) fn recall(&mut self) -> bool {
        !std::mem::take(&mut self.lent).is_empty()
    }

    /// Makes free what was announced and is not lent, and gives up what is too much.
    pub(crate) fn release(&mut self, synced: u64, config: &Config) {
        let is_free = |leaving: &&Leaving| leaving.is_announced(synced) && !self.lent.contains(&leaving.slot);
        let (released, leaving) = self.leaving.iter().partition(is_free);
        self.leaving = leaving;
        let released: Vec<Leaving> = released;
        released.into_iter().for_each(|Leaving { slot, .. }| self.unused(slot, true, config));
        if self.is_over(config) {
            self.unpin();
        }
        while self.free.len() > RESERVE + 1 && self.bytes_in_use() > self.bytes_max(config) {
            if let Some(slot) = self.free.pop_back() {
                self.doom(slot);
            }
        }
    }

    /// Nothing in a segment is needed. If that is not said on the disk yet, the next frame has to say it.
    pub(crate) fn unused(&mut self, slot: Slot, said: bool, config: &Config) {
        if self.held.contains(&slot) {
            return;
        }
        let fits = self.table.get(&slot).is_some_and(|old| !old.suspect && old.bytes == config.segment_bytes);
        match (said, fits) {
            (false, _) => self.leaving.push(Leaving { slot, announced: None }),
            (true, true) => self.free.push_back(slot),
            (true, false) => self.doom(slot),
        }
    }

    /// Has these segments taken first, of which frames say that the log goes on there. So they are not given up either.
    pub(crate) fn use_next(&mut self, slots: [Slot; 2]) {
        for slot in slots.into_iter().rev() {
            if let Some(at) = self.free.iter().position(|free| *free == slot) {
                self.free.remove(at);
                self.free.push_front(slot);
            }
        }
    }

    /// Has a file that is not in use removed.
    pub(crate) fn doom(&mut self, slot: Slot) {
        self.doomed.push(slot);
    }

    /// A file to remove.
    pub(crate) fn removable(&self) -> Option<Slot> {
        self.doomed.first().copied()
    }

    /// A file is gone.
    pub(crate) fn removed(&mut self, slot: Slot) {
        self.doomed.retain(|doomed| *doomed != slot);
        self.table.remove(&slot);
    }

    /// A file could not be removed.
    pub(crate) fn not_removed(&mut self, slot: Slot) {
        self.doomed.retain(|doomed| *doomed != slot);
        self.stuck.push(slot);
    }

    /// Something was committed: files that could not be removed may be tried again.
    pub(crate) fn retry(&mut self) {
        self.doomed.append(&mut self.stuck);
    }
}
