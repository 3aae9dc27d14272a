//! Frames: the unit of writing, with a header that says what the frame is and what was known when it was written.
//!
//! A commit is one frame or several, which have consecutive numbers; the first and the last are flagged. A frame begins
//! at the beginning of a block, lies in one segment, and never shares a block with another.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    blocks::{BEGINS, BLOCK, CONTINUES, MARK},
    record::NEXT_ID_MAX,
};

/// The version of the format that is written here. The header's beginning, the checksum and the marks of blocks are
/// those of any version.
pub const FORMAT: u16 = 1;
/// Bytes of a header in the file, the mark of its block included.
pub(crate) const HEADER: u32 = 72;
/// Content of a frame before its entries, in bytes.
pub(crate) const HEADER_CONTENT: u32 = HEADER - MARK;

const CHECKSUM_AT: usize = 8;
const CHECKED_FROM: usize = 16;

/// The frame begins a commit.
pub(crate) const FIRST: u16 = 1;
/// The frame ends a commit.
pub(crate) const LAST: u16 = 2;
/// The journal was closed after this frame, and everything before it was on the disk.
pub(crate) const CLOSED: u16 = 4;
/// The frame is the first of a start that could not read all segments. Numbers were left out before it, for as many
/// frames as may be there: from the one on behind its `synced`.
pub(crate) const AFTER_GAP: u16 = 8;

/// No segment.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// The largest number of a frame: a thousand frames a second for 146 million years. A larger one was forged, and sums
/// with it could overflow.
const NUMBER_MAX: u64 = 1 << 62;
/// The largest epoch, of which each start and each failed commit takes one.
const EPOCH_MAX: u32 = 1 << 31;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) flags: u16,
    /// The number of the frame: consecutive over all segments, beginning with 1.
    pub(crate) number: u64,
    /// All frames up to this one were on the disk when this one was written.
    pub(crate) synced: u64,
    /// No frame below this one is needed any more.
    pub(crate) oldest: u64,
    /// The epoch begins with this frame. Frames of earlier epochs from this number on never happened.
    pub(crate) epoch_first: u64,
    /// No record has had this identifier, or a higher one, yet.
    pub(crate) next_id: u64,
    pub(crate) epoch: u32,
    /// Bytes of the frame in the file, from its mark to the end of its last entry.
    pub(crate) length: u32,
    /// The segment in which the log goes on after the frame's, if there was one. If it is gone, so may be commits.
    pub(crate) next_slot: u32,
    /// Bytes of the segment. A file that is shorter was cut.
    pub(crate) segment_bytes: u32,
}

impl Header {
    /// Blocks that the frame takes.
    pub(crate) const fn blocks(&self) -> u32 {
        self.length.div_ceil(BLOCK)
    }

    /// Whether a journal can have written it. A checksum that is right does not say so: it has no key.
    const fn is_possible(&self) -> bool {
        self.number <= NUMBER_MAX
            && self.synced < self.number
            && 0 < self.oldest
            && self.oldest <= self.number
            && 0 < self.epoch_first
            && self.epoch_first <= self.number
            && self.next_id <= NEXT_ID_MAX
            && self.epoch <= EPOCH_MAX
    }

    /// The header's content, with room for the checksum.
    pub(crate) fn content(&self) -> [u8; HEADER_CONTENT as usize] {
        let mut content = [0; HEADER_CONTENT as usize];
        let fields: [&[u8]; 12] = [
            &FORMAT.to_le_bytes(),
            &self.flags.to_le_bytes(),
            &[0; 8],
            &self.number.to_le_bytes(),
            &self.synced.to_le_bytes(),
            &self.oldest.to_le_bytes(),
            &self.epoch_first.to_le_bytes(),
            &self.next_id.to_le_bytes(),
            &self.epoch.to_le_bytes(),
            &self.length.to_le_bytes(),
            &self.next_slot.to_le_bytes(),
            &self.segment_bytes.to_le_bytes(),
        ];
        let mut bytes = fields.into_iter().flatten();
        content.iter_mut().for_each(|to| *to = bytes.next().copied().unwrap_or_default());
        content
    }

    fn parse(mut bytes: &[u8]) -> Option<(u16, Self)> {
        let bytes = &mut bytes;
        let _mark: [u8; 4] = take(bytes)?;
        let version = u16::from_le_bytes(take(bytes)?);
        let flags = u16::from_le_bytes(take(bytes)?);
        let _checksum: [u8; 8] = take(bytes)?;
        let header = Self {
            flags,
            number: u64::from_le_bytes(take(bytes)?),
            synced: u64::from_le_bytes(take(bytes)?),
            oldest: u64::from_le_bytes(take(bytes)?),
            epoch_first: u64::from_le_bytes(take(bytes)?),
            next_id: u64::from_le_bytes(take(bytes)?),
            epoch: u32::from_le_bytes(take(bytes)?),
            length: u32::from_le_bytes(take(bytes)?),
            next_slot: u32::from_le_bytes(take(bytes)?),
            segment_bytes: u32::from_le_bytes(take(bytes)?),
        };
        Some((version, header))
    }
}

/// Takes the next `N` bytes from the front.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

/// Writes the checksum into a finished frame, which begins with its mark.
pub(crate) fn seal(frame: &mut [u8]) {
    if let Some(checksum) = checksum(frame)
        && let Some(place) = frame.get_mut(CHECKSUM_AT..CHECKED_FROM)
    {
        place.copy_from_slice(&checksum);
    }
}

// Mark, version and flags are the seed.
fn checksum(frame: &[u8]) -> Option<[u8; 8]> {
    let seed = u64::from_le_bytes(*frame.first_chunk()?);
    Some(xxh3_64_with_seed(frame.get(CHECKED_FROM..)?, seed).to_le_bytes())
}

/// The content of the beginning of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A frame whose checksum is right, and whose header is possible.
    Frame(Header),
    /// The mark of a frame, but not a frame that a journal has written. The number is what its header says, and may be
    /// wrong.
    Broken(u64),
    /// No frame begins here.
    Nothing,
    /// A frame of another version of the format.
    Newer(u16),
}

impl Found {
    /// Looks at `bytes`, which begin with a block and have all that follows in the segment.
    pub(crate) fn at(bytes: &[u8]) -> Self {
        if !bytes.starts_with(&BEGINS) {
            return Self::Nothing;
        }
        let Some((version, header)) = Header::parse(bytes) else { return Self::Broken(0) };
        let whole = bytes.get(..header.length as usize).filter(|frame| frame.len() >= HEADER as usize);
        // Looked at first: a file in which each block claims to begin a long frame would be read as often as it has
        // blocks otherwise.
        let whole =
            whole.filter(|frame| frame.chunks(BLOCK as usize).skip(1).all(|block| block.starts_with(&CONTINUES)));
        let right = whole.is_some_and(|frame| {
            checksum(frame).as_ref() == frame.get(CHECKSUM_AT..CHECKED_FROM).and_then(<[u8]>::first_chunk)
        });
        match (right, version) {
            (false, _) => Self::Broken(header.number),
            (true, FORMAT) if header.is_possible() => Self::Frame(header),
            (true, FORMAT) => Self::Broken(header.number),
            (true, version) => Self::Newer(version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Spread;

    const HEADER_OF_9: Header = Header {
        flags: 3,
        number: 9,
        synced: 8,
        oldest: 2,
        epoch_first: 4,
        next_id: 77,
        epoch: 5,
        length: 0,
        next_slot: 3,
        segment_bytes: 8192,
    };

    fn frame(body: &[u8]) -> Vec<u8> {
        frame_of(HEADER_OF_9, body)
    }

    fn frame_of(header: Header, body: &[u8]) -> Vec<u8> {
        let mut spread = Spread::begin(2);
        spread.push(&header.content());
        spread.push(body);
        let mut bytes = spread.into_bytes();
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[60..64].copy_from_slice(&length.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    #[test]
    fn each_flipped_bit_is_found() {
        let frame = frame(b"payload");
        let Found::Frame(header) = Found::at(&frame) else { panic!() };
        assert_eq!((header.number, header.next_id, header.next_slot, header.length), (9, 77, 3, 79));
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Found::at(&damaged), Found::Broken(_) | Found::Nothing), "bit {bit}");
        }
        for length in 0..frame.len() {
            assert!(matches!(Found::at(&frame[..length]), Found::Broken(_) | Found::Nothing), "{length} bytes");
        }
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut frame = frame(b"something new");
        frame[4] = 2;
        assert_eq!(Found::at(&frame), Found::Broken(9));
        seal(&mut frame);
        assert_eq!(Found::at(&frame), Found::Newer(2));
    }

    #[test]
    fn impossible_headers_are_broken_at_each_bound() {
        let is_frame = |header| matches!(Found::at(&frame_of(header, b"")), Found::Frame(_));
        let of = |change: fn(&mut Header, u64), value| {
            let mut header = Header { number: NUMBER_MAX, ..HEADER_OF_9 };
            change(&mut header, value);
            is_frame(header)
        };
        let number = |header: &mut Header, value| header.number = value;
        assert_eq!(
            [0, 8, 9, NUMBER_MAX, NUMBER_MAX + 1, u64::MAX].map(|n| of(number, n)),
            [false, false, true, true, false, false]
        );
        let synced = |header: &mut Header, value| header.synced = value;
        assert_eq!([0, NUMBER_MAX - 1, NUMBER_MAX, u64::MAX].map(|n| of(synced, n)), [true, true, false, false]);
        let oldest = |header: &mut Header, value| header.oldest = value;
        assert_eq!([0, 1, NUMBER_MAX, NUMBER_MAX + 1].map(|n| of(oldest, n)), [false, true, true, false]);
        let first = |header: &mut Header, value| header.epoch_first = value;
        assert_eq!([0, 1, NUMBER_MAX, NUMBER_MAX + 1].map(|n| of(first, n)), [false, true, true, false]);
        let next_id = |header: &mut Header, value| header.next_id = value;
        assert_eq!([0, NEXT_ID_MAX, NEXT_ID_MAX + 1, u64::MAX].map(|n| of(next_id, n)), [true, true, false, false]);
        let epoch = |header: &mut Header, value| header.epoch = u32::try_from(value).unwrap();
        let epochs = [0, EPOCH_MAX, EPOCH_MAX + 1, u32::MAX].map(u64::from);
        assert_eq!(epochs.map(|n| of(epoch, n)), [true, true, false, false]);
    }

    #[test]
    fn a_frame_goes_on_in_blocks_that_say_so() {
        let mut frame = frame(&[7; 5000]);
        assert!(matches!(Found::at(&frame), Found::Frame(_)));
        frame[BLOCK as usize..][..4].copy_from_slice(&BEGINS);
        seal(&mut frame);
        assert_eq!(Found::at(&frame), Found::Broken(9));
    }
}
