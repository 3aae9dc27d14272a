//! Writes messages into a buffer of the caller, option by option in the order of their numbers (RFC 7252 §3).

use crate::code::Code;
use crate::etag::ETag;
use crate::message::{PAYLOAD_MARKER, Type};
use crate::option::{OptionNumber, UintValue};
use crate::token::Token;

/// A message on its way into a buffer, to which it is appended. The options must come in ascending order; one that
/// comes too late, or is longer than an option can be, is left out, and a debug build says so.
#[derive(Debug)]
#[must_use = "`finish` or `payload` ends the message"]
pub struct Encoder<'b> {
    buffer: &'b mut Vec<u8>,
    last: u16,
}

impl<'b> Encoder<'b> {
    /// Begins a message behind what the buffer holds.
    pub fn new(buffer: &'b mut Vec<u8>, kind: Type, code: Code, message_id: u16, token: &Token) -> Self {
        let [id_high, id_low] = message_id.to_be_bytes();
        let first = 0x40 | (kind.bits() << 4) | token.length();
        let [a, b, c, d, e, f, g, h] = token.padded();
        let head = [first, code.as_byte(), id_high, id_low, a, b, c, d, e, f, g, h];
        extend_short(buffer, head, 4 + usize::from(token.length()));
        Self { buffer, last: 0 }
    }

    /// Begins only options and payload behind what the buffer holds: where the head is of another form, or elsewhere.
    pub const fn body(buffer: &'b mut Vec<u8>) -> Self {
        Self { buffer, last: 0 }
    }

    /// Adds an option.
    pub fn option(mut self, number: OptionNumber, value: &[u8]) -> Self {
        self.push(number, value);
        self
    }

    /// Adds an option that is an unsigned integer.
    pub fn uint(mut self, number: OptionNumber, value: u32) -> Self {
        let value = UintValue::new(value);
        self.push_short(number, value.with_room(), value.length());
        self
    }

    /// Adds an `ETag` option.
    pub(crate) fn etag(&mut self, tag: ETag) {
        self.push_short(OptionNumber::ETAG, tag.with_room(), tag.length());
    }

    /// Adds an option whose value is the first `length` bytes behind the first of `option`, which is written here.
    #[inline]
    fn push_short<const N: usize>(&mut self, number: OptionNumber, mut option: [u8; N], length: usize) {
        let delta = number.get().wrapping_sub(self.last);
        let (0..=12, Ok(short @ 0..=12), Some(first)) = (delta, u8::try_from(length), option.first_mut()) else {
            return self.push(number, option.get(1..=length).unwrap_or(&[]));
        };
        // As in `push`.
        let [_, delta] = delta.to_be_bytes();
        *first = (delta << 4) | short;
        self.last = number.get();
        extend_short(self.buffer, option, 1 + length);
    }

    /// Ends the message with options and payload that [`Encoder::body_behind`] has written for this place.
    pub(crate) fn append(self, written: &[u8]) {
        self.buffer.extend_from_slice(written);
    }

    /// As [`Encoder::body`], behind options of which `last` is the last.
    pub(crate) const fn body_behind(buffer: &'b mut Vec<u8>, last: OptionNumber) -> Self {
        Self { buffer, last: last.get() }
    }

    /// Adds an option that is an unsigned integer, if there is one.
    pub fn uint_if(self, number: OptionNumber, value: Option<u32>) -> Self {
        match value {
            Some(value) => self.uint(number, value),
            None => self,
        }
    }

    /// Adds an option; as [`Encoder::option`], for loops.
    pub fn push(&mut self, number: OptionNumber, value: &[u8]) {
        let (Some(delta), Ok(length)) = (number.get().checked_sub(self.last), u16::try_from(value.len())) else {
            debug_assert!(false, "{number} out of order or too long");
            return;
        };
        self.last = number.get();
        if let (delta @ 0..=12, length @ 0..=12) = (delta, length) {
            // Most options: one byte before the value (RFC 7252 §3.1).
            let [_, delta] = delta.to_be_bytes();
            let [_, length] = length.to_be_bytes();
            self.buffer.reserve(1 + value.len());
            self.buffer.push((delta << 4) | length);
            self.buffer.extend_from_slice(value);
            return;
        }
        let ((delta_nibble, delta_bytes), (length_nibble, length_bytes)) = (extend(delta), extend(length));
        self.buffer.push((delta_nibble << 4) | length_nibble);
        self.buffer.extend_from_slice(delta_bytes.as_slice());
        self.buffer.extend_from_slice(length_bytes.as_slice());
        self.buffer.extend_from_slice(value);
    }

    /// Ends the message with this payload; without marker when it is empty (RFC 7252 §3).
    pub fn payload(self, payload: &[u8]) {
        if !payload.is_empty() {
            self.buffer.push(PAYLOAD_MARKER);
            self.buffer.extend_from_slice(payload);
        }
    }

    /// Ends the message without payload.
    pub fn finish(self) {}
}

/// Writes an Empty message: an acknowledgement, a reset or a ping (RFC 7252 §4.1, §4.3).
pub fn empty(buffer: &mut Vec<u8>, kind: Type, message_id: u16) {
    Encoder::new(buffer, kind, Code::EMPTY, message_id, &Token::EMPTY).finish();
}

/// Appends the first `length` of a few bytes: all of them, and cuts. A copy of a known length is no call.
fn extend_short<const N: usize>(buffer: &mut Vec<u8>, bytes: [u8; N], length: usize) {
    let end = buffer.len() + length;
    buffer.extend_from_slice(&bytes);
    buffer.truncate(end);
}

/// Nought to two bytes.
struct Extension {
    bytes: [u8; 2],
    length: usize,
}

impl Extension {
    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

/// The nibble and the extension of a delta or length (RFC 7252 §3.1).
fn extend(number: u16) -> (u8, Extension) {
    match u8::try_from(number) {
        Ok(small @ 0..=12) => (small, Extension { bytes: [0; 2], length: 0 }),
        Ok(medium) => (13, Extension { bytes: [medium - 13, 0], length: 1 }),
        Err(_) => match number.checked_sub(269) {
            Some(rest) => (14, Extension { bytes: rest.to_be_bytes(), length: 2 }),
            None => {
                let [_, low] = (number - 13).to_be_bytes();
                (13, Extension { bytes: [low, 0], length: 1 })
            }
        },
    }
}
