//! Block options (RFC 7959 §2.2): which block, how large, and whether more follow.

/// The largest block, 1024 bytes.
pub const BLOCK_BYTES_MAX: usize = 1024;

/// The largest block number: 20 bits.
pub const BLOCK_NUMBER_MAX: u32 = 0x000f_ffff;

/// The exponent of a block size, 0 to 6: sizes from 16 to 1024 bytes; 7 is BERT, any number of blocks of 1024 bytes in
/// one message (RFC 8323 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockSize(u8);

impl BlockSize {
    /// 1024 bytes.
    pub const MAX: Self = Self(6);

    /// Several blocks of 1024 bytes in one message: over reliable transports only (RFC 8323 §6).
    pub const BERT: Self = Self(7);

    /// From the exponent; 7 is reserved over datagrams (RFC 7959 §2.2).
    #[must_use]
    pub const fn from_exponent(exponent: u8) -> Option<Self> {
        if exponent <= 6 { Some(Self(exponent)) } else { None }
    }

    /// The largest block of at most `bytes`, and at least 16.
    #[must_use]
    pub fn at_most(bytes: usize) -> Self {
        let mut size = Self::MAX;
        while size.0 > 0 && size.bytes() > bytes {
            size = Self(size.0 - 1);
        }
        size
    }

    /// How many bytes a block of this size has.
    #[must_use]
    pub const fn bytes(self) -> usize {
        16 << self.without_bert().0
    }

    /// Whether a message may carry several blocks.
    #[must_use]
    pub const fn is_bert(self) -> bool {
        self.0 == Self::BERT.0
    }

    /// How many bytes all messages but the last may carry, when `room` are the most: whole blocks, at least one.
    #[must_use]
    pub const fn chunk(self, room: usize) -> usize {
        let block = self.bytes();
        if self.is_bert() && room > block { room - room % block } else { block }
    }

    const fn without_bert(self) -> Self {
        if self.0 > Self::MAX.0 { Self::MAX } else { self }
    }

    /// The exponent.
    #[must_use]
    pub const fn exponent(self) -> u8 {
        self.0
    }
}

/// The value of a Block1 or Block2 option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Which block, counted in blocks of this size.
    pub number: u32,
    /// Whether more follow.
    pub more: bool,
    /// The size of all blocks but the last.
    pub size: BlockSize,
}

impl Block {
    /// Reads an option value of up to three bytes; `None` when the size is the reserved one.
    #[must_use]
    pub fn decode(value: u32) -> Option<Self> {
        Some(Self::decode_reliable(value)).filter(|block| !block.size.is_bert())
    }

    /// Reads an option value as it is meant over reliable transports, where the size 7 is BERT (RFC 8323 §6).
    #[must_use]
    pub fn decode_reliable(value: u32) -> Self {
        let exponent = u8::try_from(value & 7).unwrap_or_default();
        let size = BlockSize::from_exponent(exponent).unwrap_or(BlockSize::BERT);
        Self { number: value >> 4, more: value & 8 != 0, size }
    }

    /// The option value.
    #[must_use]
    pub const fn encode(self) -> u32 {
        (self.number << 4) | ((self.more as u32) << 3) | self.size.0 as u32
    }

    /// Where the block begins in the whole.
    #[must_use]
    pub fn offset(&self) -> usize {
        usize::try_from(self.number).unwrap_or(usize::MAX).saturating_mul(self.size.bytes())
    }

    /// The part of `whole` that this block names, with `more` set as it should be. `None` when it begins behind the
    /// end; the first block of nothing is empty.
    #[must_use]
    pub fn slice(self, whole: &[u8]) -> Option<(Self, &[u8])> {
        self.slice_of(whole, self.size.bytes())
    }

    /// The same with `chunk` bytes in a message, a multiple of the block size, for BERT.
    #[must_use]
    pub fn slice_of(self, whole: &[u8], chunk: usize) -> Option<(Self, &[u8])> {
        let rest = whole.get(self.offset()..)?;
        if rest.is_empty() && self.number > 0 {
            return None;
        }
        let (block, more) = match rest.split_at_checked(chunk) {
            Some((block, after)) => (block, !after.is_empty()),
            None => (rest, false),
        };
        Some((Self { more, ..self }, block))
    }

    /// The same place in smaller blocks, as a server may ask for (RFC 7959 §2.3, §2.4).
    #[must_use]
    pub fn shrink(self, size: BlockSize) -> Self {
        if size >= self.size {
            return self;
        }
        let number =
            self.number.saturating_mul(1 << (self.size.without_bert().0 - size.without_bert().0)).min(BLOCK_NUMBER_MAX);
        Self { number, size, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_2_values() {
        assert_eq!(Block::decode(7), None);
        let block = Block::decode(0x0001_23be).unwrap();
        assert_eq!((block.number, block.more, block.size.bytes()), (0x123b, true, 1024));
        assert_eq!(block.encode(), 0x0001_23be);
        assert_eq!(BlockSize::at_most(1151).bytes(), 1024);
        assert_eq!(BlockSize::at_most(100).bytes(), 64);
        assert_eq!(BlockSize::at_most(3).bytes(), 16);
    }

    #[test]
    fn s2_4_slices_cover_the_whole_and_nothing_more() {
        let whole: Vec<u8> = (0..100).collect();
        let size = BlockSize::from_exponent(1).unwrap();
        let mut joined = Vec::new();
        let mut number = 0;
        loop {
            let (block, bytes) = Block { number, more: false, size }.slice(&whole).unwrap();
            joined.extend_from_slice(bytes);
            if !block.more {
                break;
            }
            number += 1;
        }
        assert_eq!(joined, whole);
        assert_eq!(Block { number: 4, more: false, size }.slice(&whole), None);
        assert_eq!(Block { number: 2, more: false, size }.slice(&whole[..64]), None);
        assert!(Block { number: 0, more: false, size }.slice(&[]).is_some());
    }

    #[test]
    fn s2_4_smaller_blocks_begin_at_the_same_byte() {
        let block = Block { number: 3, more: false, size: BlockSize::MAX };
        let smaller = block.shrink(BlockSize::from_exponent(2).unwrap());
        assert_eq!(smaller.offset(), block.offset());
        assert_eq!(smaller.size.bytes(), 64);
    }
}
