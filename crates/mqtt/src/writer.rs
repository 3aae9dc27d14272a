//! Writes the data types of §1.5 behind what the caller's buffer already holds.

use crate::EncodeError;

/// The largest Variable Byte Integer (§1.5.5).
pub(crate) const VARIABLE_MAX: usize = 268_435_455;

/// How many bytes a Variable Byte Integer takes.
#[inline]
pub(crate) const fn variable_len(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

/// Appends a Variable Byte Integer of at most [`VARIABLE_MAX`].
#[inline]
pub(crate) fn put_variable(out: &mut Vec<u8>, value: usize) {
    let low = |shift| seven_bits(value, shift);
    match variable_len(value) {
        1 => out.push(low(0)),
        2 => out.extend_from_slice(&[low(0) | 0x80, low(7)]),
        3 => out.extend_from_slice(&[low(0) | 0x80, low(7) | 0x80, low(14)]),
        _ => out.extend_from_slice(&[low(0) | 0x80, low(7) | 0x80, low(14) | 0x80, low(21)]),
    }
}

/// Seven bits of a number.
#[inline]
const fn seven_bits(value: usize, shift: u32) -> u8 {
    let [low, ..] = (value >> shift).to_le_bytes();
    low & 0x7F
}

/// The two-byte length of a field.
#[inline]
pub(crate) fn field_len(bytes: &[u8]) -> Result<u16, EncodeError> {
    u16::try_from(bytes.len()).map_err(|_| EncodeError::FieldTooLong(bytes.len()))
}

/// Appends Binary Data or a string with its length.
#[inline]
pub(crate) fn put_field(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), EncodeError> {
    out.extend_from_slice(&field_len(bytes)?.to_be_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}
