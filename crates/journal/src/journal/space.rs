//! The choice of the next operation: commits first, then free segments for later commits.

use super::{Failure, Journal, Occasion};
use crate::{
    batch::Changes,
    blocks::BLOCK,
    config::RESERVE,
    disk::Slot,
    frame::CLOSED,
    plan::{NoSegment, Plan},
    record::RecordId,
    segments::Need,
    work::Task,
};

/// The picked changes cannot be written. Their puts may take `room` bytes at most.
struct NoSpace {
    room: u64,
}

impl Journal {
    pub(super) fn next_task(&mut self, occasion: Occasion) -> Option<Task> {
        if let Some(slot) = self.segments.removable() {
            return Some(Task::Remove { slot });
        }
        if self.revoking.is_some() {
            match self.commit(Changes::default(), true, 0) {
                Ok(task) => return Some(task),
                Err(_) => self.not_revoked(),
            }
        }
        match occasion {
            Occasion::Commit { sync } => self.commit_task(sync),
            Occasion::Idle => self.idle_task(),
            Occasion::Close => self.close_task(),
        }
    }

    fn commit_task(&mut self, sync: bool) -> Option<Task> {
        loop {
            while self.picked.is_empty() {
                // All of it was forgotten before, or refused: nothing is to be written.
                let done = std::mem::take(&mut self.picked);
                self.done(&done, Ok(()));
                if self.waiting.is_empty() {
                    return None;
                }
                self.picked = self.waiting.pick(self.config.commit_bytes_max);
                // There may be space again.
                self.tight = false;
            }
            match self.prepare(sync) {
                Ok(task) => return Some(task),
                Err(NoSpace { room }) => self.refuse(room),
            }
        }
    }

    // The commit of what is picked, or what has to be done before.
    fn prepare(&mut self, sync: bool) -> Result<Task, NoSpace> {
        if self.segments.need(&self.config) != Need::None
            && let Some(read) = self.cleaning_read()
        {
            return Ok(read);
        }
        let puts = !self.picked.puts.is_empty();
        let taken = self.segments_for_picked();
        if taken.is_ok_and(|taken| self.segments.free.len() >= taken + RESERVE) {
            return self.commit_picked(sync);
        }
        if !self.tight {
            return Ok(self.create());
        }
        if self.segments.recall() {
            // A copy has to begin again; nobody is refused for its sake.
            self.segments.release(self.synced, &self.config);
            return self.prepare(sync);
        }
        self.segments.unpin();
        let freed = self.freed_bytes();
        let (admitted, writable) = (self.admitted_bytes(freed), self.writable_bytes());
        // Small records in the place of larger ones make room, as forgets do.
        let shrinks = self.picked.bytes as u64 <= freed.min(u64::from(self.config.frame_bytes));
        if puts && self.picked.bytes as u64 > admitted {
            if !shrinks {
                return Err(NoSpace { room: admitted.max(writable) });
            }
            self.picked.is_full = true;
        }
        if let Some(task) = self.clean() {
            return Ok(task);
        }
        if (!puts || shrinks) && taken.is_ok() {
            self.picked.is_full = puts;
            return self.commit_picked(sync);
        }
        Err(NoSpace { room: writable })
    }

    fn commit_picked(&mut self, sync: bool) -> Result<Task, NoSpace> {
        let picked = std::mem::take(&mut self.picked);
        self.commit(picked, sync, 0).map_err(|picked| {
            self.picked = *picked;
            NoSpace { room: self.writable_bytes() }
        })
    }

    // Batches that put something are refused as far as there is no `room` for them. The others, and those that only
    // forget, are committed.
    fn refuse(&mut self, room: u64) {
        self.figures.failures += u64::from(self.picked.refused.is_empty());
        if !self.picked.puts.is_empty() {
            return self.picked.refuse_beyond(room);
        }
        let picked = std::mem::take(&mut self.picked);
        self.done(&picked, Err(Failure::Full));
    }

    fn idle_task(&mut self) -> Option<Task> {
        // One beside the reserve: with it, a journal that holds little goes round when the disk is full.
        if self.segments.free.len() <= RESERVE && !self.tight {
            return Some(self.create());
        }
        if self.segments.need(&self.config) != Need::None
            && let Some(read) = self.cleaning_read()
        {
            return Some(read);
        }
        if self.segments.bytes_in_use() > self.segments.bytes_max(&self.config) { self.clean() } else { None }
    }

    fn close_task(&mut self) -> Option<Task> {
        if let Some(task) = self.commit_task(true) {
            return Some(task);
        }
        if self.closed || self.number == 1 {
            return None;
        }
        // Only a frame that is written when the disk has all others can say so.
        let flags = if self.synced + 1 == self.number { CLOSED } else { 0 };
        self.closed = flags == CLOSED;
        self.commit(Changes::default(), true, flags).ok()
    }

    fn create(&self) -> Task {
        Task::Create { slot: self.segments.unused_slot(), bytes: self.config.segment_bytes }
    }

    // Free segments that the next commit takes.
    fn segments_for_picked(&self) -> Result<usize, NoSegment> {
        let mut plan = Plan::new(&self.config, &self.segments);
        plan.add_changes(&self.picked)?;
        Ok(plan.taken)
    }

    // With no more segments to be had, an eighth and one segment beside the reserve stay unused, so that cleaning
    // gains something and forgets find room. The bytes that may be put by who forgets so many.
    fn admitted_bytes(&self, freed: u64) -> u64 {
        let segment = u64::from(self.config.segment_bytes);
        let room = (self.segments.files() as u64).saturating_sub(RESERVE as u64 + 1) * segment / 8 * 7;
        (room + freed).saturating_sub(self.segments.live)
    }

    // Bytes of what is on the disk and the picked changes forget.
    fn freed_bytes(&self) -> u64 {
        let of_record = |id: &RecordId| {
            let mut key = Some(id.key(0));
            let parts = std::iter::from_fn(move || {
                let part = key?;
                let place = self.index.get(part)?;
                key = part.next_part();
                Some(u64::from(place.entry_bytes()))
            });
            parts.sum::<u64>()
        };
        self.picked.forgotten().iter().map(of_record).sum()
    }

    // Bytes that can be written without cleaning: at most, for frames need some of them.
    fn writable_bytes(&self) -> u64 {
        let current = self.segments.current().and_then(|slot| self.segments.table.get(&slot));
        let rest = current.map_or(0, |segment| u64::from(segment.bytes.saturating_sub(segment.used)));
        let free = self.segments.free.len().saturating_sub(RESERVE) as u64;
        rest + free * u64::from(self.config.segment_bytes)
    }

    /// Cleans, as a commit of its own. `None` if that would gain nothing.
    fn clean(&mut self) -> Option<Task> {
        if let Some(read) = self.cleaning_read() {
            return Some(read);
        }
        self.segments.retire(self.synced);
        let useful = self.cleaner.peek().is_some()
            || self.segments.has_unannounced()
            || self.segments.waits_for_sync(self.synced);
        if !useful || self.patience == 0 {
            return None;
        }
        self.credit = i64::from(self.config.frame_bytes);
        let task = self.commit(Changes::default(), true, 0).ok()?;
        if let Task::Commit { layout, .. } = &task {
            let bytes: u64 = layout.frames.iter().map(|frame| u64::from(frame.blocks() * BLOCK)).sum();
            self.patience = self.patience.saturating_sub(bytes);
        }
        Some(task)
    }

    // The read that cleaning waits for. What is live in the oldest segment and was not found in it is lost.
    fn cleaning_read(&mut self) -> Option<Task> {
        let slot = self.segments.oldest()?;
        let segment = self.segments.table.get(&slot).filter(|segment| segment.live > 0)?;
        let used = segment.used;
        self.cleaner.aim(slot, segment.first);
        if self.cleaner.is_through(used) {
            self.lose(slot);
            return None;
        }
        let hurries = self.tight || self.segments.is_over(&self.config);
        self.cleaner.reads(used, self.config.frame_bytes, hurries)
    }

    fn lose(&mut self, slot: Slot) {
        let mut lost = Vec::new();
        self.index.retain(|_, place| {
            if place.slot == slot {
                lost.push(place.entry_bytes());
            }
            place.slot != slot
        });
        if lost.is_empty() {
            return;
        }
        self.segments.held.insert(slot);
        self.lost(lost.len() as u64);
        lost.into_iter().for_each(|bytes| self.segments.lost(slot, bytes, 0));
    }
}
