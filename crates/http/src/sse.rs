//! Server-sent events (WHATWG HTML §9.2): framing, and the identifiers by which a stream is resumed.

use std::fmt;
use std::str::FromStr;

use crate::event::push_json_string;

/// The media type.
pub const CONTENT_TYPE: &str = "text/event-stream";

/// The beginning of a stream: how long a browser waits before it reconnects.
pub const PREAMBLE: &[u8] = b"retry: 1000\n\n";
/// A comment, sent to find dead peers and to keep proxies from closing.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// An event's identifier, `<stream>.<sequence>`: sixteen hexadecimal digits, a dot and a decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventId {
    /// The stream; random, because it is the reader's proof when it resumes.
    pub stream: u64,
    /// The number of the event within the stream, from 1; 0 precedes the first event.
    pub sequence: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}.{}", self.stream, self.sequence)
    }
}

/// The identifier was not given by this gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no identifier of an event")]
pub struct NotAnEventId;

impl FromStr for EventId {
    type Err = NotAnEventId;

    fn from_str(text: &str) -> Result<Self, NotAnEventId> {
        let (stream, sequence) = text.trim().split_once('.').ok_or(NotAnEventId)?;
        if stream.len() != 16 || sequence.starts_with('+') {
            return Err(NotAnEventId);
        }
        let stream = u64::from_str_radix(stream, 16).map_err(|_| NotAnEventId)?;
        Ok(Self { stream, sequence: sequence.parse().map_err(|_| NotAnEventId)? })
    }
}

/// Why events are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapReason {
    /// The reader was slower than the bounded mailbox allows.
    Slow,
    /// The stream to resume is gone, or no longer has what is asked for.
    Expired,
}

impl GapReason {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Expired => "expired",
        }
    }
}

/// The JSON of a gap. `missed` is left out if the number is unknown, `id` if there is no event to resume after.
#[must_use]
pub fn gap_json(reason: GapReason, missed: Option<u64>, id: Option<&str>) -> String {
    let missed = missed.map_or_else(String::new, |missed| format!(",\"missed\":{missed}"));
    let id = id.map_or_else(String::new, |id| format!(",\"id\":\"{id}\""));
    format!("{{\"gap\":\"{}\"{missed}{id}}}", reason.name())
}

/// The JSON of the retained messages that a resumed stream has still to send: its remaining filters in order, the first
/// with the topic to continue after.
#[must_use]
pub fn rest_json<'a>(rest: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut out = b"{\"retained\":[".to_vec();
    for (index, (filter, after)) in rest.enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"filter\":" } else { b",{\"filter\":" });
        push_json_string(filter, &mut out);
        if let Some(after) = after {
            out.extend_from_slice(b",\"after\":");
            push_json_string(after, &mut out);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    String::from_utf8(out).unwrap_or_default()
}

/// Appends one event around what `data` appends. `data` must not append line breaks.
pub fn push_event(name: Option<&str>, id: &str, out: &mut Vec<u8>, data: impl FnOnce(&mut Vec<u8>)) {
    if let Some(name) = name {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
    if !id.is_empty() {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    data(out);
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_event_is_lines_and_a_blank_one() {
        let mut out = Vec::new();
        push_event(None, "1.2", &mut out, |out| out.extend_from_slice(b"{}"));
        push_event(Some("gap"), "", &mut out, |out| {
            out.extend_from_slice(gap_json(GapReason::Slow, Some(3), None).as_bytes())
        });
        assert_eq!(out, b"id: 1.2\ndata: {}\n\nevent: gap\ndata: {\"gap\":\"slow\",\"missed\":3}\n\n");
    }

    proptest! {
        #[test]
        fn identifiers_round_trip(stream: u64, sequence: u64) {
            let id = EventId { stream, sequence };
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn any_text_is_answered(text: String) {
            let _ = text.parse::<EventId>();
        }
    }
}
