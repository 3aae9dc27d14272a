//! Operations that a journal requests of its disk: one at a time, run while the journal is not borrowed.

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    blocks::BLOCK,
    disk::{Disk, Slot, is_of_medium},
    plan::Layout,
};

/// An operation that the journal waits for.
#[derive(Debug)]
#[must_use = "the journal waits for it"]
pub struct Work(pub(crate) Task);

#[derive(Debug)]
pub(crate) enum Task {
    Create {
        slot: Slot,
        bytes: u32,
    },
    Remove {
        slot: Slot,
    },
    /// Reads for cleaning. With `salvage`, blocks that the medium does not give are taken for zeros.
    Read {
        slot: Slot,
        offset: u32,
        bytes: u32,
        salvage: bool,
    },
    /// Writes the frames, and synchronises these segments afterwards.
    Commit {
        layout: Layout,
        sync: Vec<Slot>,
    },
}

/// The outcome of an operation.
#[derive(Debug)]
#[must_use = "the journal waits for it"]
pub struct Done {
    pub(crate) task: Task,
    pub(crate) outcome: io::Result<Vec<u8>>,
    /// The time of the synchronisations, if there were any.
    pub(crate) synced: Option<Duration>,
}

impl Work {
    /// Runs the operation. This is the only function that waits for the disk.
    pub fn run<D: Disk + ?Sized>(self, disk: &D) -> Done {
        let Self(task) = self;
        let mut synced = None;
        let outcome = match &task {
            Task::Create { slot, bytes } => disk.create(*slot, *bytes).map(|()| Vec::new()),
            Task::Remove { slot } => disk.remove(*slot).map(|()| Vec::new()),
            Task::Read { slot, offset, bytes, salvage: false } => read(disk, *slot, *offset, *bytes),
            Task::Read { slot, offset, bytes, salvage: true } => {
                salvage(disk, *slot, *offset, *bytes).map(|(read, _)| read)
            }
            Task::Commit { layout, sync } => commit(disk, layout, sync, &mut synced).map(|()| Vec::new()),
        };
        Done { task, outcome, synced }
    }

    /// The sets of batches that this commits, and whether their puts are refused for lack of space.
    pub fn sets(&self) -> impl Iterator<Item = (u64, bool)> {
        let changes = match &self.0 {
            Task::Commit { layout, .. } => Some(&layout.changes),
            Task::Create { .. } | Task::Remove { .. } | Task::Read { .. } => None,
        };
        changes.into_iter().flat_map(|changes| changes.numbers().map(|set| (set, changes.refused.contains(&set))))
    }

    /// Whether this is a commit, and not a preparation for one.
    #[must_use]
    pub const fn is_commit(&self) -> bool {
        matches!(self.0, Task::Commit { .. })
    }
}

fn commit<D: Disk + ?Sized>(disk: &D, layout: &Layout, sync: &[Slot], synced: &mut Option<Duration>) -> io::Result<()> {
    for (header, frame) in layout.numbered() {
        disk.write(frame.slot, frame.block * BLOCK, &frame.encode(header, &layout.changes))?;
    }
    if sync.is_empty() {
        return Ok(());
    }
    let began = Instant::now();
    let outcome = sync.iter().try_for_each(|slot| disk.sync(*slot));
    *synced = Some(began.elapsed());
    outcome
}

pub(crate) fn read<D: Disk + ?Sized>(disk: &D, slot: Slot, offset: u32, bytes: u32) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes as usize];
    disk.read(slot, offset, &mut buffer)?;
    Ok(buffer)
}

/// Reads what the medium gives. The rest is zeros, and counted in blocks.
///
/// # Errors
/// Those that say nothing about the medium.
pub(crate) fn salvage<D: Disk + ?Sized>(disk: &D, slot: Slot, offset: u32, bytes: u32) -> io::Result<(Vec<u8>, u64)> {
    let mut buffer = vec![0; bytes as usize];
    let is_read = |outcome: io::Result<()>| match outcome {
        Ok(()) => Ok(true),
        Err(error) if is_of_medium(&error) => Ok(false),
        Err(error) => Err(error),
    };
    if is_read(disk.read(slot, offset, &mut buffer))? {
        return Ok((buffer, 0));
    }
    let mut unreadable = 0;
    let mut at = offset;
    for block in buffer.chunks_mut(BLOCK as usize) {
        if !is_read(disk.read(slot, at, block))? {
            block.fill(0);
            unreadable += 1;
        }
        at += BLOCK;
    }
    Ok((buffer, unreadable))
}
