//! One retained message as bytes.
//!
//! Version 1: a head of twelve bytes – version, QoS, door, flags, time of ingest (milliseconds since 1970, 8 bytes) –
//! and fields, each a tag (1 byte), a length (4 bytes) and that many bytes; numbers are little-endian. Unknown tags are
//! skipped, so that a field can be added without a new version. The topic is the key, not part of the record. Decoding
//! trusts nothing: whatever the bytes, it gives a message or an error, and allocates no more than they are long.

mod decode;

use fogmux_bus::{Door, Message, Properties, Qos, Stored};

pub use self::decode::decode;

/// The version that this release writes and reads.
pub const VERSION: u8 = 1;

/// Version, QoS, door, flags and the time.
const HEAD_BYTES: usize = 12;
/// The tag and the length of a field.
const FIELD_BYTES: usize = 5;

const FLAG_PROPERTIES: u8 = 1;
const FLAG_UTF8: u8 = 2;

const TAG_PAYLOAD: u8 = 1;
const TAG_CONTENT_TYPE: u8 = 2;
const TAG_EXPIRES: u8 = 3;
const TAG_PRINCIPAL: u8 = 4;
const TAG_REPLY_TO: u8 = 5;
const TAG_CORRELATION: u8 = 6;
const TAG_USER: u8 = 7;
const TAG_ITEM_ID: u8 = 8;

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Written by another release.
    #[error("record version {0} is not {VERSION}")]
    Version(u8),
    /// A length that reaches behind the end.
    #[error("the record ends too early")]
    Truncated,
    /// A field whose value is impossible.
    #[error("the record's {0} is impossible")]
    Impossible(&'static str),
    /// A field that may be there once is there twice.
    #[error("the record's {0} is there twice")]
    Repeated(&'static str),
    /// A field that must be there is not.
    #[error("the record has no {0}")]
    Missing(&'static str),
}

/// A record's fields, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The payload.
    pub payload: &'a [u8],
    /// The QoS it was published with.
    pub qos: Qos,
    /// MIME type.
    pub content_type: Option<&'a str>,
    /// When it expires, in milliseconds since 1970: a monotonic clock would end with the process.
    pub expires_unix_ms: Option<u64>,
    /// Rare fields.
    pub properties: Option<&'a Properties>,
    /// When it came in, in milliseconds since 1970.
    pub ingest_unix_ms: u64,
    /// The name of the publisher's principal.
    pub principal: &'a str,
    /// The door it came in by; `None` for the gateway itself.
    pub door: Option<Door>,
}

impl<'a> Record<'a> {
    /// The fields of a message, with its expiry in wall-clock time.
    #[must_use]
    pub fn of(message: &'a Message, expires_unix_ms: Option<u64>) -> Self {
        Self {
            payload: &message.payload,
            qos: message.qos,
            content_type: message.content_type.as_deref(),
            expires_unix_ms,
            properties: message.properties.as_deref(),
            ingest_unix_ms: message.ingest_unix_ms,
            principal: &message.publisher.principal,
            door: message.publisher.door,
        }
    }

    /// The bytes that [`encode`](Self::encode) appends, without those of properties.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let content_type = self.content_type.map_or(0, |text| FIELD_BYTES + text.len());
        let expiry = self.expires_unix_ms.map_or(0, |_| FIELD_BYTES + 8);
        HEAD_BYTES + 2 * FIELD_BYTES + self.principal.len() + content_type + expiry + self.payload.len()
    }

    /// Appends the bytes. `None`, with `out` as it was, when a field is longer than 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        let done = self.encode_fields(out);
        if done.is_none() {
            out.truncate(start);
        }
        done
    }

    fn encode_fields(&self, out: &mut Vec<u8>) -> Option<()> {
        let flags =
            self.properties.map_or(0, |properties| FLAG_PROPERTIES | if properties.utf8 { FLAG_UTF8 } else { 0 });
        out.extend_from_slice(&[VERSION, self.qos as u8, self.door.map_or(0, Door::number), flags]);
        out.extend_from_slice(&self.ingest_unix_ms.to_le_bytes());
        field(out, TAG_PRINCIPAL, self.principal.as_bytes())?;
        if let Some(content_type) = self.content_type {
            field(out, TAG_CONTENT_TYPE, content_type.as_bytes())?;
        }
        if let Some(expires) = self.expires_unix_ms {
            field(out, TAG_EXPIRES, &expires.to_le_bytes())?;
        }
        if let Some(properties) = self.properties {
            encode_properties(out, properties)?;
        }
        field(out, TAG_PAYLOAD, self.payload)
    }
}

impl<'a> From<&'a Stored> for Record<'a> {
    fn from(stored: &'a Stored) -> Self {
        Self {
            payload: &stored.payload,
            qos: stored.qos,
            content_type: stored.content_type.as_deref(),
            expires_unix_ms: stored.expires_unix_ms,
            properties: stored.properties.as_ref(),
            ingest_unix_ms: stored.ingest_unix_ms,
            principal: &stored.principal,
            door: stored.door,
        }
    }
}

fn encode_properties(out: &mut Vec<u8>, properties: &Properties) -> Option<()> {
    if let Some(reply_to) = &properties.reply_to {
        field(out, TAG_REPLY_TO, reply_to.as_bytes())?;
    }
    if let Some(correlation) = &properties.correlation {
        field(out, TAG_CORRELATION, correlation)?;
    }
    for (name, value) in &properties.user {
        let name_len = u32::try_from(name.len()).ok()?;
        let len = u32::try_from(name.len().checked_add(value.len())?.checked_add(4)?).ok()?;
        out.push(TAG_USER);
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&name_len.to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(value.as_bytes());
    }
    if let Some(item_id) = &properties.item_id {
        field(out, TAG_ITEM_ID, item_id.as_bytes())?;
    }
    Some(())
}

fn field(out: &mut Vec<u8>, tag: u8, value: &[u8]) -> Option<()> {
    let len = u32::try_from(value.len()).ok()?;
    out.push(tag);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(value);
    Some(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use fogmux_bus::Topic;
    use proptest::{collection::vec, option, prelude::*};

    use super::*;

    fn topic() -> Topic {
        Topic::new("a/b").unwrap()
    }

    fn any_properties() -> impl Strategy<Value = Properties> {
        let user = vec((".{0,12}", ".{0,12}"), 0..4);
        (any::<bool>(), option::of(".*"), option::of(vec(any::<u8>(), 0..40)), user, option::of(".{0,12}")).prop_map(
            |(utf8, reply_to, correlation, user, item_id)| Properties {
                utf8,
                reply_to: reply_to.map(String::into_boxed_str),
                correlation: correlation.map(Bytes::from),
                user: user.into_iter().map(|(n, v)| (n.into_boxed_str(), v.into_boxed_str())).collect(),
                item_id: item_id.map(String::into_boxed_str),
            },
        )
    }

    fn any_stored() -> impl Strategy<Value = Stored> {
        (
            vec(any::<u8>(), 0..300),
            0_u8..3,
            option::of(".*"),
            option::of(any::<u64>()),
            option::of(any_properties()),
            any::<u64>(),
            ".*",
            0_u8..5,
        )
            .prop_map(|(payload, qos, content_type, expires, properties, ingest, principal, door)| Stored {
                topic: topic(),
                payload: Bytes::from(payload),
                qos: Qos::from_u8(qos).unwrap(),
                content_type: content_type.map(Arc::from),
                expires_unix_ms: expires,
                properties,
                ingest_unix_ms: ingest,
                principal: Arc::from(principal),
                door: decode::door_of(door).unwrap(),
            })
    }

    fn encoded(stored: &Stored) -> Vec<u8> {
        let mut out = Vec::new();
        Record::from(stored).encode(&mut out).unwrap();
        out
    }

    proptest! {
        #[test]
        fn what_was_encoded_comes_back(stored in any_stored()) {
            prop_assert_eq!(decode(topic(), &encoded(&stored)), Ok(stored));
        }

        #[test]
        fn without_properties_the_length_is_known(stored in any_stored()) {
            let stored = Stored { properties: None, ..stored };
            prop_assert_eq!(Record::from(&stored).encoded_bytes(), encoded(&stored).len());
        }

        #[test]
        fn any_bytes_give_a_message_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(stored) = decode(topic(), &bytes) {
                prop_assert_eq!(decode(topic(), &encoded(&stored)), Ok(stored));
            }
        }

        #[test]
        fn a_record_cut_anywhere_is_refused(stored in any_stored(), cut in any::<prop::sample::Index>()) {
            let bytes = encoded(&stored);
            prop_assert!(decode(topic(), &bytes[..cut.index(bytes.len())]).is_err());
        }

        #[test]
        fn a_changed_byte_does_no_harm(stored in any_stored(), at in any::<prop::sample::Index>(), value in any::<u8>()) {
            let mut bytes = encoded(&stored);
            let at = at.index(bytes.len());
            bytes[at] = value;
            if let Ok(stored) = decode(topic(), &bytes) {
                prop_assert_eq!(decode(topic(), &encoded(&stored)), Ok(stored));
            }
        }
    }

    #[test]
    fn a_field_of_a_later_release_is_skipped() {
        let stored = Stored {
            topic: topic(),
            payload: Bytes::from_static(b"21.5"),
            qos: Qos::AtLeastOnce,
            content_type: None,
            expires_unix_ms: None,
            properties: None,
            ingest_unix_ms: 7,
            principal: Arc::from("ann"),
            door: Some(Door::Coap),
        };
        let mut bytes = encoded(&stored);
        bytes.extend_from_slice(&[200, 3, 0, 0, 0, 1, 2, 3]);
        assert_eq!(decode(topic(), &bytes), Ok(stored));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(decode(topic(), &[]), Err(RecordError::Truncated));
        assert_eq!(decode(topic(), &[9]), Err(RecordError::Version(9)));
        let head = [VERSION, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(decode(topic(), &head), Err(RecordError::Missing("payload")));
        let lies = [head.as_slice(), &[TAG_PAYLOAD, 255, 255, 255, 255]].concat();
        assert_eq!(decode(topic(), &lies), Err(RecordError::Truncated));
        let twice = [head.as_slice(), &[TAG_PAYLOAD, 0, 0, 0, 0, TAG_PAYLOAD, 0, 0, 0, 0]].concat();
        assert_eq!(decode(topic(), &twice), Err(RecordError::Repeated("payload")));
    }
}
