//! Recovery: which frames count, what is missing, and the index of what is live.
//!
//! All segments are read twice, whole: once to find the frames, once to apply them in the order of their numbers. What
//! was acknowledged and is not there is reported; what was never acknowledged is dropped without a word.

mod apply;
mod order;
mod scan;

use std::{
    collections::{BTreeSet, VecDeque},
    io,
};

use crate::{
    config::{Config, ConfigError},
    disk::{Disk, Slot},
    journal::{Journal, Start},
    record::STRIDE,
    segments::Segments,
};

/// Frames for which identifiers and epochs are left out at most, at a start that could not read all segments: there are
/// not as many starts and failed commits in them.
const BLIND_MAX: u64 = 4096;

/// The journal cannot be opened. Nothing on the disk was changed.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The sizes are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The segments cannot be listed.
    #[error("the segments cannot be listed: {0}")]
    List(io::Error),
    /// A segment cannot be read, for a reason that says nothing about what is in it: no permission, no descriptor, no
    /// memory.
    #[error("segment {} cannot be read: {error}", .slot.0)]
    Read {
        /// The segment.
        slot: Slot,
        /// The system's error.
        error: io::Error,
    },
    /// A newer release has written to it.
    #[error("the journal has format {found}, and this release reads {known}")]
    Newer {
        /// The version on the disk.
        found: u16,
        /// The version that is known.
        known: u16,
    },
}

/// Frames that the disk had and that are not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The number of the first one.
    pub first: u64,
    /// The number of the last one.
    pub last: u64,
    /// Bytes in which they were at most, or `None` if whole segments may be gone.
    pub bytes: Option<u64>,
}

/// A report of what opening the journal found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Live records.
    pub records: u64,
    /// Frames that were read.
    pub frames: u64,
    /// Frames that were on the disk and are damaged or gone, with what was put and forgotten in them. A record that was
    /// forgotten in one of them is there again.
    pub missing: Vec<Missing>,
    /// Records that lost some of their parts, and are dropped.
    pub incomplete: u64,
    /// Frames behind the last one that counts. The disk was never known to have them: a power cut came first, or they
    /// were refused.
    pub dropped: u64,
    /// Blocks that begin a frame behind the last one that counts, and are not one: a commit that was cut off, or the
    /// damage of the last one. Only after [`Recovery::closed`] is it known to be neither.
    pub torn: u64,
    /// Blocks that the medium did not give. Their segments are left alone.
    pub unreadable_blocks: u64,
    /// Segments that are shorter than they were.
    pub short_files: u64,
    /// Segments that are longer than they were.
    pub long_files: u64,
    /// The segment is not there in which the newest commits are, if there were any after the last that was read.
    pub lost_end: bool,
    /// Segments that there are.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Whether the journal was closed before. Then nothing at its end can be missing without being noticed.
    pub closed: bool,
}

impl Recovery {
    /// Whether anything that was acknowledged is known to be lost, or may be.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        !self.missing.is_empty()
            || self.incomplete > 0
            || self.unreadable_blocks > 0
            || self.short_files > 0
            || self.long_files > 0
            || self.lost_end
    }
}

/// The parts of the disk that a start could not read, and that may be readable at the next.
///
/// What is in them is unknown, so nothing is done that would make it void: the segments are left alone; frames, epochs
/// and identifiers go on behind those that may be there; and nothing is cleaned for a while, since a put in them may
/// have its forget elsewhere, and a forget in them its put.
struct Blind {
    /// Segments with unreadable blocks, and those with frames that would count if others could be read.
    held: BTreeSet<Slot>,
    blocks: u64,
}

impl Blind {
    fn of(scan: &scan::Scan, log: &order::Log, applied: &apply::Applied) -> Self {
        let mut held = applied.unreadable.clone();
        held.extend(scan.files.iter().filter(|file| file.unreadable > 0).map(|file| file.slot));
        if !held.is_empty() {
            held.extend(&log.dropped_in);
        }
        let at_first: u64 = scan.files.iter().map(|file| file.unreadable).sum();
        Self { held, blocks: at_first.max(applied.unreadable.len() as u64) }
    }
}

impl Journal {
    /// Opens a journal, or begins one if there is none.
    ///
    /// # Errors
    /// The sizes are wrong, the disk cannot be listed, a segment cannot be read for another reason than its medium, or
    /// a newer release has written to it. Damage is no error.
    pub fn open<D: Disk + ?Sized>(disk: &D, config: Config) -> Result<(Self, Recovery), RecoveryError> {
        config.check()?;
        let scan = scan::Scan::of(disk, &config)?;
        let log = order::Log::of(&scan);
        let applied = apply::Applied::of(disk, &log)?;
        let blind = Blind::of(&scan, &log, &applied);
        let mut segments = Segments::default();
        segments.held = blind.held;
        for file in &scan.files {
            let used = applied.segments.get(&file.slot).filter(|segment| segment.used > 0);
            segments.table.insert(file.slot, used.cloned().unwrap_or_default());
            if let Some(segment) = segments.table.get_mut(&file.slot) {
                segment.bytes = file.bytes;
                segments.live += segment.live;
            }
            if used.is_none() {
                segments.unused(file.slot, log.is_released(&scan, file.slot), &config);
            }
        }
        segments.use_next(log.next_slots);
        let mut order: Vec<_> = applied.segments.iter().filter(|(_, segment)| segment.used > 0).collect();
        order.sort_by_key(|(_, segment)| segment.first);
        segments.order = order.into_iter().map(|(slot, _)| *slot).collect::<VecDeque<_>>();
        let last = segments.order.back().and_then(|slot| segments.table.get(slot));
        segments.open = last.is_some_and(|last| last.bytes == config.segment_bytes) && segments.held.is_empty();
        segments.pinned = (!segments.held.is_empty()).then_some(log.oldest);
        let report = Recovery {
            records: applied.records,
            frames: log.frames.len() as u64 - applied.unread.len() as u64,
            missing: log.missing(&applied.unread),
            incomplete: applied.incomplete,
            dropped: log.dropped,
            torn: scan.broken.iter().filter(|number| **number >= log.next).count() as u64,
            unreadable_blocks: blind.blocks,
            short_files: scan.files.iter().filter(|file| file.is_short).count() as u64,
            long_files: scan.files.iter().filter(|file| file.is_long).count() as u64,
            lost_end: log.lost_end,
            files: scan.files.len() as u64,
            bytes: scan.files.iter().map(|file| u64::from(file.bytes)).sum(),
            closed: log.closed,
        };
        // Frames that another process wrote and did not synchronise may be in the kernel's memory only. If this fails,
        // they are as safe as they were.
        for slot in log.unsynced() {
            let _ = disk.sync(slot);
        }
        let segments_held = !segments.held.is_empty();
        let start = Start {
            config,
            index: applied.index,
            segments,
            next_id: scan.next_id.max(applied.next_id) + blind.blocks.min(BLIND_MAX) * STRIDE,
            number: if segments_held { log.next.max(log.last_seen + 1) + blind.blocks } else { log.next },
            epoch: log.epoch + 1 + u32::try_from(blind.blocks.min(BLIND_MAX)).unwrap_or_default(),
            closed: log.closed,
            after_gap: segments_held.then_some(log.next - 1),
        };
        Ok((Self::begin(start), report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, disk::Files, frame, journal::Occasion, work};

    #[test]
    fn a_newer_format_is_an_error_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::open(directory.path()).unwrap();
        let (mut journal, _) = Journal::open(&files, Config::default()).unwrap();
        let mut batch = Batch::new(&journal.ids());
        batch.put(1, &b"from the future"[..]);
        journal.append(batch).unwrap();
        while let Some(work) = journal.next_work(Occasion::Commit { sync: true }) {
            let done = work.run(&files);
            journal.settle(&done);
        }
        let mut block = work::read(&files, Slot(0), 0, 4096).unwrap();
        let length = 72 + 24 + b"from the future".len();
        block[4] = 2;
        frame::seal(&mut block[..length]);
        files.write(Slot(0), 0, &block).unwrap();
        let error = Journal::open(&files, Config::default()).unwrap_err();
        assert!(matches!(error, RecoveryError::Newer { found: 2, known: 1 }), "{error}");
        assert_eq!(work::read(&files, Slot(0), 0, 4096).unwrap(), block);
    }
}
