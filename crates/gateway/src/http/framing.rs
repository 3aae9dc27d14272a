//! The framing of an event stream: server-sent events, lines of JSON or WebSocket messages.

use bytes::Bytes;
use fogmux_http::{
    sse,
    websocket::{Opcode, push_frame},
};

/// The framing of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Sse,
    Ndjson,
    WebSocket,
}

impl Format {
    /// Appends a message, whose JSON `encode` appends.
    pub(super) fn push_event(self, id: &str, out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
        match self {
            Self::Sse => sse::push_event(None, id, out, encode),
            Self::Ndjson => {
                encode(out);
                out.push(b'\n');
            }
            Self::WebSocket => {
                let mut text = Vec::new();
                encode(&mut text);
                push_frame(Opcode::Text, &text, None, out);
            }
        }
    }

    /// Appends a notice: a named event, or a line or message of its own.
    pub(super) fn push_notice(self, name: &str, id: Option<&str>, json: &str, out: &mut Vec<u8>) {
        match self {
            Self::Sse => {
                let text = |out: &mut Vec<u8>| out.extend_from_slice(json.as_bytes());
                sse::push_event(Some(name), id.unwrap_or_default(), out, text);
            }
            Self::Ndjson => {
                out.extend_from_slice(json.as_bytes());
                out.push(b'\n');
            }
            Self::WebSocket => push_frame(Opcode::Text, json.as_bytes(), None, out),
        }
    }

    /// Bytes that keep a quiet connection alive and mean nothing.
    pub(super) fn keep_alive(self) -> Bytes {
        match self {
            Self::Sse => Bytes::from_static(sse::KEEP_ALIVE),
            // Space before a line's object is nothing to a JSON parser; a blank line would be an error to many.
            Self::Ndjson => Bytes::from_static(b" "),
            Self::WebSocket => {
                let mut out = Vec::new();
                push_frame(Opcode::Ping, b"", None, &mut out);
                out.into()
            }
        }
    }
}
