//! The layout of a commit: which entry goes into which frame, and each frame to which block of which segment.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use crate::{
    batch::Changes,
    blocks::{self, BLOCK, ROOM, Spread},
    config::Config,
    disk::Slot,
    entry::{FORGET, Forget, PUT, Put},
    frame::{self, AFTER_GAP, FIRST, HEADER_CONTENT, Header, LAST},
    index::Place,
    record::Key,
    segments::Segments,
};

/// A live part that moves to another segment.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) key: Key,
    pub(crate) kind: u8,
    pub(crate) total: u32,
    pub(crate) sum: u32,
    pub(crate) bytes: Bytes,
    pub(crate) from: Place,
}

/// The content of an entry.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// A part of a record of the changes, and the range of its bytes.
    Put(Key, Range<usize>),
    Forget(Forget),
    Copy(Copy),
}

/// A frame of a commit.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) slot: Slot,
    pub(crate) block: u32,
    /// The entries, each with its position in the segment.
    pub(crate) items: Vec<(u32, Item)>,
    /// Bytes of content.
    content: u32,
    blocks_max: u32,
}

impl Frame {
    pub(crate) const fn blocks(&self) -> u32 {
        blocks::blocks_for(self.content)
    }

    /// Bytes from the beginning of the segment to the end of the frame's last block.
    pub(crate) const fn end(&self) -> u32 {
        (self.block + self.blocks()) * BLOCK
    }

    const fn padding(&self) -> u32 {
        self.blocks() * ROOM - self.content
    }

    /// The bytes of the frame in the file, whole blocks.
    pub(crate) fn encode(&self, mut header: Header, changes: &Changes) -> Vec<u8> {
        header.length = blocks::range(0, self.content).1 + blocks::MARK;
        let mut spread = Spread::begin(self.blocks());
        spread.push(&header.content());
        for (_, item) in &self.items {
            match item {
                Item::Put(key, range) => {
                    let Some(record) = changes.put(key.id()) else { continue };
                    let total = u32::try_from(record.bytes.len()).unwrap_or(u32::MAX);
                    let bytes = record.bytes.get(range.clone()).unwrap_or_default();
                    Put::new(*key, record.kind, total, bytes).write(&mut spread);
                }
                Item::Forget(forget) => forget.write(&mut spread),
                Item::Copy(Copy { key, kind, total, sum, bytes, .. }) => {
                    Put { key: *key, kind: *kind, total: *total, sum: *sum, bytes }.write(&mut spread);
                }
            }
        }
        let mut bytes = spread.into_bytes();
        frame::seal(&mut bytes);
        bytes.resize((self.blocks() * BLOCK) as usize, 0);
        bytes
    }
}

/// More segments are needed than are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSegment;

/// A commit that is being laid out.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    config: &'a Config,
    segments: &'a Segments,
    pub(crate) frames: Vec<Frame>,
    /// The segment that takes the next frame, its next block, and its blocks.
    at: Option<(Slot, u32, u32)>,
    /// Free segments that the plan takes.
    pub(crate) taken: usize,
}

impl<'a> Plan<'a> {
    /// Begins behind the last frame.
    pub(crate) fn new(config: &'a Config, segments: &'a Segments) -> Self {
        let at = segments.current().and_then(|slot| {
            let segment = segments.table.get(&slot)?;
            Some((slot, segment.used / BLOCK, segment.bytes / BLOCK))
        });
        Self { config, segments, frames: Vec::new(), at, taken: 0 }
    }

    /// Lays out all changes, in at least one frame.
    pub(crate) fn add_changes(&mut self, changes: &Changes) -> Result<(), NoSegment> {
        let part = self.config.part_bytes() as usize;
        for (id, record) in &changes.puts {
            let length = record.bytes.len();
            let mut start = 0;
            let mut key = Some(id.key(0));
            while let Some(this) = key.filter(|_| start < length || start == 0) {
                let end = length.min(start + part);
                self.add(u32::try_from(end - start).unwrap_or_default() + PUT, Item::Put(this, start..end))?;
                key = this.next_part().filter(|_| end < length);
                start = end;
            }
        }
        for forget in changes.forget_ranges() {
            self.add(FORGET, Item::Forget(forget))?;
        }
        if self.frames.is_empty() { self.open(0) } else { Ok(()) }
    }

    /// Adds an entry of `bytes` to the last frame, or to a new one.
    pub(crate) fn add(&mut self, bytes: u32, item: Item) -> Result<(), NoSegment> {
        if self.frames.last().is_none_or(|frame| frame.content + bytes > frame.blocks_max * ROOM) {
            self.open(bytes)?;
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.items.push((blocks::position_of_block(frame.block) + frame.content, item));
            frame.content += bytes;
        }
        Ok(())
    }

    /// Bytes of the last frame's last block that nothing uses.
    pub(crate) fn padding(&self) -> u32 {
        self.frames.last().map_or(0, Frame::padding)
    }

    /// Blocks of all frames.
    pub(crate) fn blocks(&self) -> u32 {
        self.frames.iter().map(Frame::blocks).sum()
    }

    // A new frame, with room for an entry.
    fn open(&mut self, bytes: u32) -> Result<(), NoSegment> {
        if let Some(frame) = self.frames.last()
            && let Some((slot, block, _)) = &mut self.at
            && *slot == frame.slot
        {
            *block = frame.block + frame.blocks();
        }
        loop {
            if let Some((slot, block, blocks)) = self.at {
                let blocks_max = blocks.saturating_sub(block).min(self.config.frame_blocks());
                if blocks_max * ROOM >= HEADER_CONTENT + bytes {
                    self.frames.push(Frame { slot, block, items: Vec::new(), content: HEADER_CONTENT, blocks_max });
                    return Ok(());
                }
            }
            let slot = *self.segments.free.get(self.taken).ok_or(NoSegment)?;
            self.taken += 1;
            self.at = Some((slot, 0, self.segments.table.get(&slot).map_or(0, |segment| segment.bytes / BLOCK)));
        }
    }
}

/// A commit as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) frames: Vec<Frame>,
    pub(crate) changes: Arc<Changes>,
    /// The header of the first frame. The others differ in number, flags, length and the next segment.
    pub(crate) header: Header,
}

impl Layout {
    /// The number of the last frame.
    pub(crate) fn last(&self) -> u64 {
        self.header.number + (self.frames.len() as u64).saturating_sub(1)
    }

    /// The frames with their headers, but for the lengths.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (Header, &Frame)> {
        let last = self.last();
        self.frames.iter().zip(self.header.number..).map(move |(frame, number)| {
            let first = if number == self.header.number { FIRST } else { 0 };
            let others = if number == self.header.number { 0 } else { AFTER_GAP };
            let flags = self.header.flags & !others | first | if number == last { LAST } else { 0 };
            // The next frame of the commit that is elsewhere, or else what the header says already.
            let mut later = self.frames.iter().skip_while(move |other| !std::ptr::eq(*other, frame));
            let next = later.find(|other| other.slot != frame.slot).map_or(self.header.next_slot, |other| other.slot.0);
            (Header { number, flags, next_slot: next, ..self.header }, frame)
        })
    }

    /// The segments that are written to.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        let mut slots: Vec<_> = self.frames.iter().map(|frame| frame.slot).collect();
        slots.dedup();
        slots
    }
}
