//! One message as one JSON object, the form that SSE, NDJSON and WebSocket carry.
//!
//! ```json
//! {"id":"9c0ffee5.17","topic":"a/b","payload":"21.5","encoding":"utf8","content_type":"text/plain","qos":1,
//!  "retain":true,"time":"2026-11-21T05:39:10.123Z","properties":{"unit":"C"}}
//! ```
//!
//! Members without a value are left out. `encoding` follows from the bytes: `utf8` when they are UTF-8, else `base64`.
//! `time` is when the gateway took the message, RFC 3339 in UTC with milliseconds. `properties` are MQTT user
//! properties; a name that occurs more than once has an array of its values. `reply_to` and `correlation` (base64) are
//! MQTT's response topic and correlation data. `origin` has the door, the
//! publisher and its client identifier, on the streams of administrators that ask for it. One object never contains a
//! line break, so it is one line everywhere.

mod decode;
mod origin;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use decode::{Decoded, Malformed, decode};
pub use origin::Origin;

use crate::time::push_rfc3339;

/// A message about to be written.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Names the event on its stream; empty when it has no name.
    pub id: &'a str,
    /// Where it was published.
    pub topic: &'a str,
    /// Its bytes.
    pub payload: &'a [u8],
    /// Its MIME type.
    pub content_type: Option<&'a str>,
    /// 0, 1 or 2.
    pub qos: u8,
    /// Whether it was published to be kept.
    pub retain: bool,
    /// The time of arrival, in milliseconds since 1970.
    pub time_unix_ms: u64,
    /// User properties, in order.
    pub properties: &'a [(Box<str>, Box<str>)],
    /// The response topic.
    pub reply_to: Option<&'a str>,
    /// The correlation data that a response repeats.
    pub correlation: Option<&'a [u8]>,
}

impl Event<'_> {
    /// Appends the JSON object. Allocates only if `out` must grow.
    pub fn encode(&self, out: &mut Vec<u8>) {
        push_name(self.id, out);
        self.encode_rest(out);
    }

    /// Appends all of the object but what [`push_name`] does. It is the same on every stream.
    pub fn encode_rest(&self, out: &mut Vec<u8>) {
        out.reserve(self.payload.len() + self.topic.len() + 160);
        out.extend_from_slice(b"\"topic\":");
        push_json_string(self.topic, out);
        out.extend_from_slice(b",\"payload\":");
        match std::str::from_utf8(self.payload) {
            Ok(text) => {
                push_json_string(text, out);
                out.extend_from_slice(b",\"encoding\":\"utf8\"");
            }
            Err(_) => {
                push_base64(self.payload, out);
                out.extend_from_slice(b",\"encoding\":\"base64\"");
            }
        }
        if let Some(content_type) = self.content_type {
            out.extend_from_slice(b",\"content_type\":");
            push_json_string(content_type, out);
        }
        out.extend_from_slice(b",\"qos\":");
        out.push(b'0' + self.qos.min(2));
        out.extend_from_slice(if self.retain { b",\"retain\":true" } else { b",\"retain\":false" });
        out.extend_from_slice(b",\"time\":\"");
        push_rfc3339(self.time_unix_ms, out);
        out.push(b'"');
        self.encode_rare(out);
        out.push(b'}');
    }

    fn encode_rare(&self, out: &mut Vec<u8>) {
        if let Some(topic) = self.reply_to {
            out.extend_from_slice(b",\"reply_to\":");
            push_json_string(topic, out);
        }
        if let Some(correlation) = self.correlation {
            out.extend_from_slice(b",\"correlation\":");
            push_base64(correlation, out);
        }
        if !self.properties.is_empty() {
            out.extend_from_slice(b",\"properties\":");
            push_properties(self.properties, out);
        }
    }
}

/// Appends the beginning of an object: with the event's name on its stream, if it has one. [`Event::encode_rest`]
/// completes it.
pub fn push_name(id: &str, out: &mut Vec<u8>) {
    out.push(b'{');
    if !id.is_empty() {
        out.extend_from_slice(b"\"id\":");
        push_json_string(id, out);
        out.push(b',');
    }
}

/// The most properties that are encoded. Finding repeated names compares each with each, which must stay cheap.
const GROUPED_MAX: usize = 256;

fn push_properties(properties: &[(Box<str>, Box<str>)], out: &mut Vec<u8>) {
    // Properties beyond the limit are left out of the JSON form; MQTT subscribers receive all of them.
    let properties = properties.get(..GROUPED_MAX).unwrap_or(properties);
    out.push(b'{');
    let mut first = true;
    for (index, (name, value)) in properties.iter().enumerate() {
        let (before, rest) = properties.split_at_checked(index).unwrap_or_default();
        if before.iter().any(|(earlier, _)| earlier == name) {
            continue;
        }
        if !first {
            out.push(b',');
        }
        first = false;
        push_json_string(name, out);
        out.push(b':');
        let mut repeated = rest.iter().skip(1).filter(|(other, _)| other == name).peekable();
        if repeated.peek().is_none() {
            push_json_string(value, out);
            continue;
        }
        out.push(b'[');
        push_json_string(value, out);
        for (_, value) in repeated {
            out.push(b',');
            push_json_string(value, out);
        }
        out.push(b']');
    }
    out.push(b'}');
}

fn push_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    let length = base64::encoded_len(bytes.len(), true).unwrap_or(0);
    out.resize(start + length, 0);
    let written = out.get_mut(start..).map_or(0, |room| STANDARD.encode_slice(bytes, room).unwrap_or(0));
    out.truncate(start + written);
    out.push(b'"');
}

/// Appends a JSON string with its quotes (RFC 8259 §7).
pub fn push_json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        let Some((plain, [special, after @ ..])) = rest.split_at_checked(at) else { break };
        out.extend_from_slice(plain);
        push_escape(*special, out);
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn push_escape(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        other => {
            let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(other >> 4), digit(other & 0xf)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain<'a>(topic: &'a str, payload: &'a [u8]) -> Event<'a> {
        Event {
            id: "",
            topic,
            payload,
            content_type: None,
            qos: 0,
            retain: false,
            time_unix_ms: 0,
            properties: &[],
            reply_to: None,
            correlation: None,
        }
    }

    fn text(event: &Event<'_>) -> String {
        let mut out = Vec::new();
        event.encode(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn absent_members_are_left_out() {
        assert_eq!(
            text(&plain("a", b"x")),
            r#"{"topic":"a","payload":"x","encoding":"utf8","qos":0,"retain":false,"time":"1970-01-01T00:00:00.000Z"}"#
        );
    }

    #[test]
    fn repeated_properties_become_an_array() {
        let properties: [(Box<str>, Box<str>); 3] =
            [("a".into(), "1".into()), ("b".into(), "2".into()), ("a".into(), "3".into())];
        let event = Event { properties: &properties, ..plain("t", b"") };
        assert!(text(&event).ends_with(r#","properties":{"a":["1","3"],"b":"2"}}"#));
    }

    #[test]
    fn bytes_that_are_no_text_are_base64() {
        assert!(text(&plain("t", &[0, 0xff])).contains(r#""payload":"AP8=","encoding":"base64""#));
        assert!(text(&plain("t", b"a\0\n\"\\")).contains(r#""payload":"a\u0000\n\"\\","encoding":"utf8""#));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_the_same(
            topic in "[^\u{0}]{1,20}",
            payload in prop::collection::vec(any::<u8>(), 0..80),
            content_type in prop::option::of("\\PC{0,20}"),
            qos in 0_u8..3,
            retain: bool,
            time_unix_ms in 0_u64..253_402_300_799_999,
            correlation in prop::option::of(prop::collection::vec(any::<u8>(), 0..10)),
            properties in prop::collection::vec((any::<String>(), any::<String>()), 0..5),
        ) {
            let mut properties: Vec<(Box<str>, Box<str>)> = properties.into_iter().map(|(n, v)| (n.into(), v.into())).collect();
            properties.sort_by(|a, b| a.0.cmp(&b.0));
            let event = Event {
                id: "1.2", topic: &topic, payload: &payload, content_type: content_type.as_deref(), qos, retain,
                time_unix_ms, properties: &properties, reply_to: Some("r"), correlation: correlation.as_deref(),
            };
            let line = text(&event);
            prop_assert!(!line.contains(['\n', '\r']));
            let decoded = decode(line.as_bytes()).unwrap();
            prop_assert_eq!(&decoded.topic, &topic);
            prop_assert_eq!(&decoded.payload[..], &payload[..]);
            prop_assert_eq!(decoded.content_type.as_deref(), content_type.as_deref());
            prop_assert_eq!(decoded.qos, Some(qos));
            prop_assert_eq!(decoded.retain, retain);
            prop_assert_eq!(decoded.correlation, correlation);
            prop_assert_eq!(decoded.properties, properties);
            prop_assert_eq!(decoded.id.as_deref(), Some("1.2"));
        }

        #[test]
        fn any_bytes_are_answered(line in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&line);
        }
    }
}
