//! Reads the data types of §1.5 from a packet's body; every read either advances or fails, nothing panics.

use crate::{DecodeError, PacketId};

/// The unread part of a packet's body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) const fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The unread rest, as the packet's last field.
    #[inline]
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        let (bytes, rest) = self.rest.split_first_chunk::<2>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        let (bytes, rest) = self.rest.split_first_chunk::<4>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// Variable Byte Integer, four bytes at most and in its shortest form ([MQTT-1.5.5-1]).
    #[inline]
    pub(crate) fn variable(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 { Err(DecodeError::VariableByteInteger) } else { Ok(value) };
            }
        }
        Err(DecodeError::VariableByteInteger)
    }

    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Binary Data (§1.5.6).
    #[inline]
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// UTF-8 Encoded String ([MQTT-1.5.4-1], [MQTT-1.5.4-2]).
    pub(crate) fn string(&mut self) -> Result<&'a str, DecodeError> {
        let text = utf8(self.binary()?)?;
        if text.as_bytes().contains(&0) { Err(DecodeError::Nul) } else { Ok(text) }
    }

    /// A Topic Name: a string without wildcards ([MQTT-3.3.2-2]); it may be empty here.
    #[inline]
    pub(crate) fn topic_name(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.binary()?;
        let text = utf8(bytes)?;
        if has_nul_or_wildcard(bytes) {
            return Err(if bytes.contains(&0) { DecodeError::Nul } else { DecodeError::TopicWildcard });
        }
        Ok(text)
    }

    #[inline]
    pub(crate) fn packet_id(&mut self) -> Result<PacketId, DecodeError> {
        PacketId::new(self.u16()?).ok_or(DecodeError::PacketIdZero)
    }

    /// The packet must be over.
    pub(crate) const fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }
}

#[inline]
fn utf8(bytes: &[u8]) -> Result<&str, DecodeError> {
    if bytes.len() < 64 {
        std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)
    } else {
        simdutf8::basic::from_utf8(bytes).map_err(|_| DecodeError::Utf8)
    }
}

/// Whether any byte is NUL, `+` or `#`: eight bytes at a time, the last eight overlapping.
#[inline]
fn has_nul_or_wildcard(bytes: &[u8]) -> bool {
    let (Some(last), (chunks, _)) = (bytes.last_chunk::<8>(), bytes.as_chunks::<8>()) else {
        return bytes.iter().any(|&byte| matches!(byte, 0 | b'+' | b'#'));
    };
    let mut found = has_special(u64::from_le_bytes(*last));
    for chunk in chunks {
        found |= has_special(u64::from_le_bytes(*chunk));
    }
    found != 0
}

/// Non-zero when one of the eight bytes is NUL, `+` or `#`.
#[inline]
const fn has_special(word: u64) -> u64 {
    has_zero(word) | has_zero(word ^ repeat(b'+')) | has_zero(word ^ repeat(b'#'))
}

/// Non-zero when one of the eight bytes is zero.
#[inline]
const fn has_zero(word: u64) -> u64 {
    word.wrapping_sub(repeat(1)) & !word & repeat(0x80)
}

#[inline]
const fn repeat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_bytes_are_found_at_every_place() {
        for length in 1..40 {
            assert!(!has_nul_or_wildcard(&vec![b'a'; length]));
            assert!(!has_nul_or_wildcard(&vec![0xAB; length]));
            for at in 0..length {
                for special in [0, b'+', b'#'] {
                    let mut bytes = vec![b'x'; length];
                    bytes[at] = special;
                    assert!(has_nul_or_wildcard(&bytes), "{special} at {at} of {length}");
                }
            }
        }
    }
}
