//! Commits: the waiting changes, and copies of old records where there is room.

use std::sync::Arc;

use super::Journal;
use crate::{
    batch::Changes,
    blocks::BLOCK,
    config::RESERVE,
    entry::PUT,
    frame::{AFTER_GAP, Header, NO_SLOT},
    plan::{Item, Layout, NoSegment, Plan},
    segments::Need,
    work::Task,
};

/// Bytes that cleaning may copy for each byte of a commit. What fits into the padding of the last block is copied
/// beyond that.
const COPIES_PER_BYTE: i64 = 4;

impl Journal {
    /// Lays out a commit. Gives the changes back if there is no room.
    pub(super) fn commit(&mut self, changes: Changes, sync: bool, flags: u16) -> Result<Task, Box<Changes>> {
        self.segments.retire(self.synced);
        let mut plan = Plan::new(&self.config, &self.segments);
        if plan.add_changes(&changes).is_err() {
            return Err(Box::new(changes));
        }
        let need = self.segments.need(&self.config);
        if !changes.is_empty() {
            let earned = if need == Need::Blocks { i64::from(plan.blocks() * BLOCK) * COPIES_PER_BYTE } else { 0 };
            // Debts are paid; what is left when the need is gone is not.
            self.credit = self.credit.min(0) + earned;
        }
        if need != Need::None || self.credit > 0 {
            while let Some(copy) = self.cleaner.peek() {
                let bytes = PUT + copy.from.bytes;
                let is_live = self.index.get(copy.key) == Some(copy.from) && !changes.forgets(copy.key.id());
                if is_live && plan.padding() < bytes && self.credit <= 0 {
                    break;
                }
                let free = is_live && plan.padding() >= bytes;
                let Some(copy) = self.cleaner.take().filter(|_| is_live) else { continue };
                if let Err(NoSegment) = plan.add(bytes, Item::Copy(copy.clone())) {
                    self.cleaner.put_back(copy);
                    break;
                }
                self.credit -= if free { 0 } else { i64::from(bytes) };
            }
        }
        let Plan { frames, taken, .. } = plan;
        let header = Header {
            flags: flags | self.after_gap.map_or(0, |_| AFTER_GAP),
            number: self.number,
            synced: self.after_gap.unwrap_or(self.synced),
            oldest: self.segments.oldest_number(self.number),
            epoch_first: self.epoch_first,
            next_id: self.ids.peek(),
            epoch: self.epoch,
            length: 0,
            next_slot: self.segments.free.get(taken).map_or(NO_SLOT, |slot| slot.0),
            segment_bytes: self.config.segment_bytes,
        };
        let changes = Arc::new(changes);
        let layout = Layout { frames, changes: Arc::clone(&changes), header };
        self.segments.announce(layout.last());
        self.flight = Some(changes);
        let sync = sync || self.segments.free.len() <= RESERVE && self.segments.waits_for_sync(self.synced);
        let sync = if sync { self.dirty.iter().copied().chain(layout.slots()).collect() } else { Vec::new() };
        Ok(Task::Commit { layout, sync })
    }
}
