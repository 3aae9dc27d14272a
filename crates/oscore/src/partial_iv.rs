//! Partial IVs (RFC 8613 §5, §6.1): sequence numbers as they stand on the wire, in one to five bytes.

use std::fmt;

/// The largest Sender Sequence Number (RFC 8613 §7.2.1, §12.6).
pub const SEQUENCE_MAX: u64 = (1 << 40) - 1;

/// The longest Partial IV.
pub(crate) const PARTIAL_IV_BYTES_MAX: usize = 5;

/// A Partial IV. It keeps the bytes that came, because those are what the AAD holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartialIv {
    bytes: [u8; PARTIAL_IV_BYTES_MAX],
    length: u8,
}

impl PartialIv {
    /// Of one to five bytes.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let length = u8::try_from(value.len()).ok().filter(|length| *length > 0)?;
        let mut bytes = [0; PARTIAL_IV_BYTES_MAX];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self { bytes, length })
    }

    /// Of a sequence number: without leading zeros, and one zero for nought (RFC 8613 §5). `None` beyond 2^40 - 1.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        if number > SEQUENCE_MAX {
            return None;
        }
        let bytes = number.to_be_bytes();
        let zeros = usize::try_from(number.leading_zeros() / 8).unwrap_or(0).min(bytes.len() - 1);
        Self::decode(bytes.get(zeros..)?)
    }

    /// The number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.as_slice().iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    }

    /// The bytes, one to five.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&[])
    }

    /// How many bytes.
    pub(crate) const fn length(&self) -> u8 {
        self.length
    }
}

impl fmt::Debug for PartialIv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s5_leading_zeros_are_left_out_but_nought_is_one_byte() {
        let cases: [(u64, &[u8]); 4] =
            [(0, &[0]), (20, &[0x14]), (256, &[1, 0]), (SEQUENCE_MAX, &[255, 255, 255, 255, 255])];
        for (number, bytes) in cases {
            let partial_iv = PartialIv::of(number).unwrap();
            assert_eq!((partial_iv.as_slice(), partial_iv.number()), (bytes, number));
        }
        assert_eq!(PartialIv::of(SEQUENCE_MAX + 1), None);
        assert_eq!(PartialIv::decode(&[]), None);
        assert_eq!(PartialIv::decode(&[0; 6]), None);
        assert_eq!(PartialIv::decode(&[0, 7]).unwrap().number(), 7);
    }
}
