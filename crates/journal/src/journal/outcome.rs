//! Handling of the outcome of an operation: progress, failure, taking a commit back.

use std::io;

use super::{Failure, Journal, Progress};
use crate::{
    batch::Changes,
    disk::is_of_medium,
    entry::Forget,
    index::Place,
    plan::{Item, Layout},
    record::Key,
    work::{Done, Task},
};

impl Journal {
    /// Takes the outcome of the last operation, which the caller drops: a large one takes a while.
    pub fn settle(&mut self, done: &Done) {
        self.working = false;
        let Done { task, outcome, synced: _ } = done;
        match (task, outcome) {
            (Task::Create { slot, bytes }, Ok(_)) => self.segments.created(*slot, *bytes),
            (Task::Create { .. }, Err(_)) => self.tight = true,
            (Task::Remove { slot }, Ok(_)) => self.segments.removed(*slot),
            (Task::Remove { slot }, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                self.segments.removed(*slot)
            }
            (Task::Remove { slot }, Err(_)) => self.segments.not_removed(*slot),
            (Task::Read { slot, .. }, Ok(chunk)) => {
                let used = self.segments.table.get(slot).map_or(0, |segment| segment.used);
                self.cleaner.found(chunk, used, &self.index);
            }
            (Task::Read { .. }, Err(error)) => self.cleaner.failed(is_of_medium(error)),
            (Task::Commit { layout, sync }, Ok(_)) => self.committed(layout, !sync.is_empty()),
            (Task::Commit { layout, .. }, Err(error)) => self.failed(layout, error),
        }
    }

    fn committed(&mut self, layout: &Layout, sync: bool) {
        self.flight = None;
        self.after_gap = None;
        for (header, frame) in layout.numbered() {
            self.segments.written(frame.slot, header.number, frame.end());
            self.figures.frames += 1;
            self.figures.written_bytes += u64::from(frame.blocks() * crate::blocks::BLOCK);
            for (position, item) in &frame.items {
                let place = |bytes| Place { slot: frame.slot, position: *position, bytes };
                match item {
                    Item::Put(key, range) => {
                        let bytes = u32::try_from(range.len()).unwrap_or_default();
                        self.placed(*key, place(bytes), header.number);
                    }
                    Item::Copy(copy) => {
                        self.figures.copied_bytes += u64::from(copy.from.entry_bytes());
                        self.placed(copy.key, place(copy.from.bytes), header.number);
                    }
                    Item::Forget(forget) => self.forgotten(*forget, header.number),
                }
            }
        }
        self.number = layout.last() + 1;
        if sync {
            self.synced = layout.last();
            self.dirty.clear();
        } else {
            self.dirty.extend(layout.slots());
        }
        self.cleaner.resume();
        self.segments.retry();
        self.segments.release(self.synced, &self.config);
        if !layout.changes.is_empty() {
            self.figures.commits += 1;
            self.closed = false;
            self.tight = false;
            // One way through all segments, and what it takes to begin.
            self.patience = 2 * self.segments.disk_bytes();
        }
        if let Some(progress) = self.revoking.take() {
            self.tell(progress);
        }
        self.done(&layout.changes, Ok(()));
    }

    fn placed(&mut self, key: Key, place: Place, number: u64) {
        if let Some(old) = self.index.insert(key, place) {
            self.segments.lost(old.slot, old.entry_bytes(), number);
        }
        self.segments.gained(place.slot, place.entry_bytes());
    }

    fn forgotten(&mut self, forget: Forget, number: u64) {
        let Some(ids) = forget.ids() else { return };
        for (_, place) in self.index.remove_records(ids) {
            self.segments.lost(place.slot, place.entry_bytes(), number);
        }
    }

    // The frames may be on the disk or not. Those that are written from now on belong to a new epoch, which says that
    // these never happened; one is written before anybody is told.
    fn failed(&mut self, layout: &Layout, error: &io::Error) {
        self.flight = None;
        self.figures.failures += 1;
        self.segments.failed(&layout.slots(), self.synced);
        self.epoch += 1;
        self.epoch_first = layout.header.number;
        self.dirty.clear();
        self.cleaner.restart();
        self.credit = 0;
        self.closed = layout.changes.is_empty();
        if self.revoking.is_some() {
            self.not_revoked();
            return;
        }
        let (picked, waiting) = (std::mem::take(&mut self.picked), self.waiting.take_all());
        let failure = Failure::Disk { kind: error.kind(), message: error.to_string(), may_return: false };
        let all = [&layout.changes, &picked, &waiting].map(Changes::numbers);
        let sets: Vec<u64> = all.into_iter().flatten().collect();
        if !sets.is_empty() {
            let refused = Vec::new();
            self.revoking = Some(Progress { sets, refused, outcome: Err(failure), lost_parts: 0, is_full: false });
        }
    }

    pub(super) fn not_revoked(&mut self) {
        let Some(mut progress) = self.revoking.take() else { return };
        if let Err(Failure::Disk { may_return, .. }) = &mut progress.outcome {
            *may_return = true;
        }
        self.tell(progress);
    }

    /// The sets of these changes are done, if there are any.
    pub(super) fn done(&mut self, changes: &Changes, outcome: Result<(), Failure>) {
        if changes.sets.is_empty() {
            return;
        }
        let refused = changes.refused.iter().copied().collect();
        let (sets, is_full) = (changes.numbers().collect(), changes.is_full);
        self.tell(Progress { sets, refused, outcome, lost_parts: 0, is_full });
    }

    pub(super) fn lost(&mut self, lost_parts: u64) {
        self.figures.lost_parts += lost_parts;
        self.tell(Progress { sets: Vec::new(), refused: Vec::new(), outcome: Ok(()), lost_parts, is_full: false });
    }

    fn tell(&mut self, progress: Progress) {
        self.progress.push_back(progress);
    }
}
