//! The first reading: where frames are, whatever they are worth.

use std::collections::BTreeSet;

use super::RecoveryError;
use crate::{
    blocks::BLOCK,
    config::Config,
    disk::{Disk, Slot},
    frame::{FORMAT, Found, Header},
    work,
};

/// Larger files are no segments.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// A file of the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentFile {
    pub(super) slot: Slot,
    /// Whole blocks of it, in bytes.
    pub(super) bytes: u32,
    /// All of it.
    length: u32,
    pub(super) unreadable: u64,
    /// Nothing was written to it yet.
    is_blank: bool,
    /// Something was, and it is shorter than segments are, or longer.
    pub(super) is_short: bool,
    pub(super) is_long: bool,
}

/// A frame whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) header: Header,
    pub(super) slot: Slot,
    /// Its offset in the file.
    pub(super) offset: u32,
}

impl Seen {
    /// The offset behind its last block.
    pub(super) const fn end(&self) -> u32 {
        self.offset + self.header.blocks() * BLOCK
    }
}

/// All that is on a disk.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) files: Vec<SegmentFile>,
    pub(super) frames: Vec<Seen>,
    /// The numbers of frames whose beginning is there and nothing more, as far as they can be read.
    pub(super) broken: Vec<u64>,
    pub(super) next_id: u64,
}

impl Scan {
    pub(super) fn of<D: Disk + ?Sized>(disk: &D, config: &Config) -> Result<Self, RecoveryError> {
        let mut list = disk.list().map_err(RecoveryError::List)?;
        list.sort_unstable();
        let mut scan = Self::default();
        for (slot, bytes) in list {
            let length = u32::try_from(bytes.min(SEGMENT_BYTES_MAX)).unwrap_or_default();
            scan.file(disk, slot, length)?;
        }
        let mut sizes: BTreeSet<u32> = scan.frames.iter().map(|frame| frame.header.segment_bytes).collect();
        sizes.insert(config.segment_bytes);
        for file in &mut scan.files {
            let is_odd = !file.is_blank && !sizes.contains(&file.length);
            file.is_long = is_odd && sizes.last().is_some_and(|largest| file.length > *largest);
            file.is_short = is_odd && !file.is_long;
        }
        Ok(scan)
    }

    fn file<D: Disk + ?Sized>(&mut self, disk: &D, slot: Slot, length: u32) -> Result<(), RecoveryError> {
        let bytes = length / BLOCK * BLOCK;
        let (content, unreadable) =
            work::salvage(disk, slot, 0, bytes).map_err(|error| RecoveryError::Read { slot, error })?;
        let mut offset = 0;
        while let Some(rest) = content.get(offset as usize..).filter(|rest| !rest.is_empty()) {
            match Found::at(rest) {
                Found::Frame(header) => {
                    self.next_id = self.next_id.max(header.next_id);
                    self.frames.push(Seen { header, slot, offset });
                    offset += header.blocks() * BLOCK;
                    continue;
                }
                Found::Broken(number) => self.broken.push(number),
                Found::Nothing => {}
                Found::Newer(found) => return Err(RecoveryError::Newer { found, known: FORMAT }),
            }
            offset += BLOCK;
        }
        let is_blank = length > 0 && length == bytes && content.iter().all(|byte| *byte == 0);
        self.files.push(SegmentFile { slot, length, bytes, unreadable, is_blank, is_short: false, is_long: false });
        Ok(())
    }
}
