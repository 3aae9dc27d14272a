//! A message as the client commands send and print it, whatever the door.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;

use crate::cli::Format;

/// What is sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) payload: Bytes,
    pub(crate) content_type: Option<String>,
    pub(crate) qos: u8,
    pub(crate) retain: bool,
}

/// What arrives; a door leaves out what it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) topic: String,
    pub(crate) payload: Bytes,
    pub(crate) content_type: Option<String>,
    pub(crate) qos: Option<u8>,
    pub(crate) retain: Option<bool>,
}

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

impl Arrived {
    fn to_json(&self) -> Json {
        let (payload, encoding) = match std::str::from_utf8(&self.payload) {
            Ok(text) => (text.to_owned(), "utf8"),
            Err(_) => (STANDARD.encode(&self.payload), "base64"),
        };
        Json {
            topic: self.topic.clone(),
            payload,
            encoding,
            content_type: self.content_type.clone(),
            qos: self.qos,
            retain: self.retain,
        }
    }

    /// Prints the message and hands it on at once: who follows a topic does not wait for a buffer to fill.
    pub(crate) fn print(&self, format: Format, out: &mut impl Write) -> std::io::Result<()> {
        match format {
            Format::Raw => out.write_all(&self.payload)?,
            Format::Json => {
                serde_json::to_writer(&mut *out, &self.to_json())?;
                out.write_all(b"\n")?;
            }
            Format::Text => writeln!(out, "{} {}", printable(&self.topic), self.text())?,
        }
        out.flush()
    }

    fn text(&self) -> String {
        match std::str::from_utf8(&self.payload) {
            Ok(text) => printable(text),
            Err(_) => format!("base64:{}", STANDARD.encode(&self.payload)),
        }
    }
}

/// One line that does nothing to a terminal: control characters are escaped.
fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\t' {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(payload: &'static [u8], format: Format) -> String {
        let mut out = Vec::new();
        let message = Arrived { topic: "a/b".to_owned(), payload: Bytes::from_static(payload), ..Arrived::default() };
        message.print(format, &mut out).unwrap();
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
        for payload in [&b"21.5"[..], b"", b"\x00\xff", "ä\n\"".as_bytes()] {
            let message = Arrived {
                topic: "a".to_owned(),
                payload: Bytes::copy_from_slice(payload),
                content_type: Some("text/plain".to_owned()),
                qos: Some(1),
                retain: Some(true),
            };
            let mut out = Vec::new();
            message.print(Format::Json, &mut out).unwrap();
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
