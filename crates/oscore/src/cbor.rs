//! The part of CBOR (RFC 8949) that key derivation and AAD need: an encoder that uses the shortest form.

use smallvec::SmallVec;

/// A buffer that the encoder appends to.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<const N: usize> Sink for SmallVec<[u8; N]> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

const UNSIGNED: u8 = 0;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const NULL: u8 = 0xf6;

/// An unsigned integer.
pub(crate) fn unsigned(out: &mut impl Sink, number: usize) {
    head(out, UNSIGNED, number);
}

/// A byte string.
pub(crate) fn bytes(out: &mut impl Sink, bytes: &[u8]) {
    head(out, BYTES, bytes.len());
    out.put(bytes);
}

/// A text string.
pub(crate) fn text(out: &mut impl Sink, text: &str) {
    head(out, TEXT, text.len());
    out.put(text.as_bytes());
}

/// The head of an array; its items follow.
pub(crate) fn array(out: &mut impl Sink, length: usize) {
    head(out, ARRAY, length);
}

/// Null.
pub(crate) fn null(out: &mut impl Sink) {
    out.put(&[NULL]);
}

/// Major type and argument (RFC 8949 §3).
fn head(out: &mut impl Sink, major: u8, argument: usize) {
    let major = major << 5;
    match (u8::try_from(argument), u16::try_from(argument)) {
        (Ok(small @ 0..=23), _) => out.put(&[major | small]),
        (Ok(byte), _) => out.put(&[major | 24, byte]),
        (Err(_), Ok(two)) => {
            let [high, low] = two.to_be_bytes();
            out.put(&[major | 25, high, low]);
        }
        (Err(_), Err(_)) => {
            out.put(&[major | 27]);
            out.put(&u64::try_from(argument).unwrap_or(u64::MAX).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_heads_are_as_short_as_can_be() {
        let written = |number| {
            let mut out = Vec::new();
            unsigned(&mut out, number);
            out
        };
        assert_eq!(written(23), [0x17]);
        assert_eq!(written(24), [0x18, 24]);
        assert_eq!(written(255), [0x18, 255]);
        assert_eq!(written(256), [0x19, 1, 0]);
        assert_eq!(written(65536), [0x1b, 0, 0, 0, 0, 0, 1, 0, 0]);
    }
}
