//! The wire format of Protocol Buffers, as far as OTLP needs it: <https://protobuf.dev/programming-guides/encoding/>.

/// Appends the fields of a message. A field that has its default is left out, as proto3 does.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

/// The types of fields on the wire.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn tag(&mut self, field: u64, kind: u64) {
        self.number(field << 3 | kind);
    }

    fn number(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    /// A field of type uint64, int64 above zero, or an enumeration.
    pub(super) fn varint(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.tag(field, VARINT);
            self.number(value);
        }
    }

    /// The same for a field that is there whatever its value (`oneof`).
    pub(super) fn present_varint(&mut self, field: u64, value: u64) {
        self.tag(field, VARINT);
        self.number(value);
    }

    /// A string that is there whatever its value (`oneof`).
    pub(super) fn present_bytes(&mut self, field: u64, value: &str) {
        self.tag(field, LENGTH);
        self.number(value.len() as u64);
        self.0.extend_from_slice(value.as_bytes());
    }

    /// A field of type fixed64.
    pub(super) fn fixed64(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.tag(field, FIXED64);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// A field of type fixed32.
    pub(super) fn fixed32(&mut self, field: u64, value: u32) {
        if value != 0 {
            self.tag(field, FIXED32);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// A field of type string or bytes.
    pub(super) fn bytes(&mut self, field: u64, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        if !value.is_empty() {
            self.tag(field, LENGTH);
            self.number(value.len() as u64);
            self.0.extend_from_slice(value);
        }
    }

    /// A field whose type is a message, also an empty one.
    pub(super) fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.tag(field, LENGTH);
        self.number(inner.0.len() as u64);
        self.0.extend_from_slice(&inner.0);
    }
}

/// The value of a field that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'b> {
    /// A varint.
    Number(u64),
    /// A string, bytes or a message.
    Bytes(&'b [u8]),
    /// A field of fixed length, of which nothing is read.
    Fixed,
}

/// Reads the fields of a message, until its end or the first that is malformed.
pub(super) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        let tag = number(&mut bytes)?;
        let value = match tag & 7 {
            VARINT => Value::Number(number(&mut bytes)?),
            FIXED64 => take(&mut bytes, 8).map(|_| Value::Fixed)?,
            LENGTH => {
                let length = usize::try_from(number(&mut bytes)?).ok()?;
                Value::Bytes(take(&mut bytes, length)?)
            }
            FIXED32 => take(&mut bytes, 4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    })
}

fn take<'b>(bytes: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    // Ten bytes have seventy bits; those that are too many are dropped.
    for place in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_documentation_shows() {
        let mut writer = Writer::default();
        writer.varint(1, 150);
        writer.bytes(2, "testing");
        writer.message(3, |inner| inner.varint(1, 150));
        writer.fixed32(4, 1);
        writer.fixed64(5, 2);
        // Defaults.
        writer.varint(6, 0);
        writer.bytes(6, "");
        writer.fixed64(6, 0);
        let expected = [
            &[0x08, 0x96, 0x01][..],
            &[0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67],
            &[0x1a, 0x03, 0x08, 0x96, 0x01],
            &[0x25, 1, 0, 0, 0],
            &[0x29, 2, 0, 0, 0, 0, 0, 0, 0],
        ];
        let bytes = writer.into_bytes();
        assert_eq!(bytes, expected.concat());
        let read: Vec<_> = fields(&bytes).collect();
        assert_eq!(
            read,
            [
                (1, Value::Number(150)),
                (2, Value::Bytes(b"testing")),
                (3, Value::Bytes(&[0x08, 0x96, 0x01])),
                (4, Value::Fixed),
                (5, Value::Fixed),
            ]
        );
    }

    #[test]
    fn what_is_malformed_ends_a_message() {
        for bytes in [&[0x08][..], &[0x08, 0x80], &[0x12, 5, 1], &[0x0b], &[0xff; 20], &[0x29, 1]] {
            assert_eq!(fields(bytes).count(), 0, "{bytes:?}");
        }
    }

    #[test]
    fn any_number_is_read_as_it_was_written() {
        for value in [1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut writer = Writer::default();
            writer.varint(1, value);
            assert_eq!(fields(&writer.into_bytes()).collect::<Vec<_>>(), [(1, Value::Number(value))]);
        }
    }
}
