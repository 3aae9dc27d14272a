//! Output of a message by the client commands, equal for all doors.

use std::borrow::Cow;
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fogmux_client::{Arrived, printable};
use serde::Serialize;

use crate::cli::Format;

/// The gateway's JSON object of a message, as far as the clients print it.
#[derive(Serialize)]
struct Json {
    topic: String,
    payload: String,
    encoding: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    qos: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retain: Option<bool>,
}

/// Prints the message and flushes it, so that a subscriber does not wait for a buffer to fill.
pub(crate) fn print(message: &Arrived, format: Format, out: &mut impl Write) -> std::io::Result<()> {
    match format {
        Format::Raw => out.write_all(&message.payload)?,
        Format::Json => {
            let line = serde_json::to_string(&json(message))?;
            writeln!(out, "{}", escaped(&line))?;
        }
        Format::Text => writeln!(out, "{} {}", printable(&message.topic), text(message))?,
    }
    out.flush()
}

fn json(message: &Arrived) -> Json {
    let (payload, encoding) = match std::str::from_utf8(&message.payload) {
        Ok(text) => (text.to_owned(), "utf8"),
        Err(_) => (STANDARD.encode(&message.payload), "base64"),
    };
    Json {
        topic: message.topic.clone(),
        payload,
        encoding,
        content_type: message.content_type.clone(),
        qos: message.qos,
        retain: message.retain,
    }
}

fn text(message: &Arrived) -> String {
    match std::str::from_utf8(&message.payload) {
        Ok(text) => printable(text),
        Err(_) => format!("base64:{}", STANDARD.encode(&message.payload)),
    }
}

/// Escapes the control characters that JSON lets stand (RFC 8259 §7): DEL, and those from U+0080 to U+009F.
fn escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(char::is_control) {
        return json.into();
    }
    let mut line = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() {
            line.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            line.push(character);
        }
    }
    line.into()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn printed(payload: &'static [u8], format: Format) -> String {
        let mut out = Vec::new();
        let message = Arrived { topic: "a/b".to_owned(), payload: Bytes::from_static(payload), ..Arrived::default() };
        print(&message, format, &mut out).unwrap();
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn text_is_one_line_and_cannot_steer_a_terminal() {
        assert_eq!(printed(b"21.5", Format::Text), "a/b 21.5\n");
        assert_eq!(printed(b"a\n\x1b[2J", Format::Text), "a/b a\\n\\u{1b}[2J\n");
        assert_eq!(printed(b"\x00\xff", Format::Text), "a/b base64:AP8=\n");
    }

    #[test]
    fn json_is_what_the_gateway_says_itself() {
        for payload in [&b"21.5"[..], b"", b"\x00\xff", "ä\n\"".as_bytes(), "\u{9b}2J\x7f\x1b".as_bytes()] {
            let message = Arrived {
                topic: "a".to_owned(),
                payload: Bytes::copy_from_slice(payload),
                content_type: Some("text/plain".to_owned()),
                qos: Some(1),
                retain: Some(true),
            };
            let mut out = Vec::new();
            print(&message, Format::Json, &mut out).unwrap();
            let shown = std::str::from_utf8(&out).unwrap().trim_end();
            assert!(!shown.contains(char::is_control), "{shown:?}");
            let read = fogmux_http::event::decode(out.trim_ascii_end()).unwrap();
            assert_eq!((read.topic.as_ref(), read.payload.as_ref()), ("a", payload));
            assert_eq!((read.content_type.as_deref(), read.qos, read.retain), (Some("text/plain"), Some(1), true));
        }
    }

    #[test]
    fn raw_is_the_payload_and_nothing_else() {
        assert_eq!(printed(b"21.5", Format::Raw), "21.5");
    }
}
