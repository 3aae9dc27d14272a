//! An event stream (WHATWG HTML §9.2) as it comes in, to the payloads of the messages in it.
//!
//! Pure: bytes are put in, topics and payloads come out. What is no message – comments, `event: gap` – is passed over:
//! what a gap left out is missing at the subscriber, and counted there as lost.

use fogmux_http::event;

use crate::driver::{Arrival, DriverError};

/// Reads one stream.
#[derive(Debug)]
pub(super) struct Events {
    /// Bytes of the longest event.
    bytes_max: usize,
    /// The beginning of a line.
    partial: Vec<u8>,
    /// The `data` fields of the event so far; each ends with a line feed.
    data: Vec<u8>,
    /// The event has a type of its own, which no message has.
    named: bool,
    /// The last byte was a carriage return, of which a line feed may be the second half.
    returned: bool,
}

impl Events {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, partial: Vec::new(), data: Vec::new(), named: false, returned: false }
    }

    /// Takes some of the stream, and hands on every message that it completes.
    pub(super) fn read(&mut self, mut bytes: &[u8], mut message: impl FnMut(Arrival<'_>)) -> Result<(), DriverError> {
        if self.returned && !bytes.is_empty() {
            self.returned = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let Some((line, [ending, rest @ ..])) = bytes.split_at_checked(end) else { break };
            bytes = match (ending, rest) {
                (b'\r', [b'\n', rest @ ..]) => rest,
                (b'\r', []) => {
                    self.returned = true;
                    rest
                }
                (_, rest) => rest,
            };
            if self.partial.is_empty() {
                self.line(line, &mut message)?;
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole, &mut message)?;
                whole.clear();
                self.partial = whole;
            }
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.len().max(self.data.len()) > self.bytes_max {
            return Err(DriverError::Protocol(format!("an event of more than {} bytes", self.bytes_max)));
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], message: &mut impl FnMut(Arrival<'_>)) -> Result<(), DriverError> {
        if line.is_empty() {
            return self.dispatch(message);
        }
        if let Some(value) = field(line, b"data") {
            self.data.extend_from_slice(value);
            self.data.push(b'\n');
        } else if let Some(value) = field(line, b"event") {
            self.named = value != b"message";
        }
        Ok(())
    }

    fn dispatch(&mut self, message: &mut impl FnMut(Arrival<'_>)) -> Result<(), DriverError> {
        if !self.data.is_empty() && !self.named {
            let decoded = event::decode(&self.data);
            let decoded = decoded.map_err(|error| DriverError::Protocol(format!("an event: {error}")))?;
            // Not kept before the subscription, but when it was published.
            message(Arrival { topic: Some(&*decoded.topic), is_kept: false, payload: &decoded.payload });
        }
        self.data.clear();
        self.named = false;
        Ok(())
    }
}

/// The value of a line that begins with `name`, without the one space that may stand before it.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        [] => Some(&[]),
        [_, ..] => None,
    }
}

#[cfg(test)]
mod tests {
    use fogmux_http::sse;

    use super::*;

    fn payloads(bytes: &[u8], step: usize) -> Result<Vec<Vec<u8>>, DriverError> {
        let (mut events, mut payloads) = (Events::new(bytes.len()), Vec::new());
        for piece in bytes.chunks(step) {
            events.read(piece, |arrival| {
                assert!(matches!(arrival.topic, Some("a" | "a/b")), "{arrival:?}");
                payloads.push(arrival.payload.to_vec());
            })?;
        }
        Ok(payloads)
    }

    fn stream() -> Vec<u8> {
        let mut bytes = sse::PREAMBLE.to_vec();
        for (number, payload) in [&b"21.5"[..], &[0, 0xff, b'\n'], b"", b"two\nlines"].into_iter().enumerate() {
            let message = fogmux_http::Event {
                id: "",
                topic: "a/b",
                payload,
                content_type: None,
                qos: 1,
                retain: false,
                time_unix_ms: 0,
                properties: &[],
                reply_to: None,
                correlation: None,
            };
            sse::push_event(None, &number.to_string(), &mut bytes, |out| message.encode(out));
            bytes.extend_from_slice(sse::KEEP_ALIVE);
        }
        sse::push_event(Some("gap"), "", &mut bytes, |out| {
            out.extend_from_slice(sse::gap_json(sse::GapReason::Slow, Some(3), None).as_bytes());
        });
        bytes
    }

    #[test]
    fn messages_are_the_same_in_whatever_pieces_they_come() {
        let whole = [&b"21.5"[..], &[0, 0xff, b'\n'], b"", b"two\nlines"].map(<[u8]>::to_vec);
        let bytes = stream();
        for step in 1..=bytes.len() {
            assert_eq!(payloads(&bytes, step).unwrap(), whole, "in pieces of {step}");
        }
    }

    #[test]
    fn lines_end_in_every_way_that_the_standard_has() {
        let text = String::from_utf8(stream()).unwrap();
        for ending in ["\r\n", "\r"] {
            let bytes = text.replace('\n', ending).into_bytes();
            for step in [1, 2, 3, bytes.len()] {
                assert_eq!(payloads(&bytes, step).unwrap().len(), 4);
            }
        }
    }

    #[test]
    fn data_in_several_lines_is_one_event() {
        let bytes = b"data:{\"topic\":\"a\",\ndata: \"payload\":\"x\"}\nid\n\n";
        assert_eq!(payloads(bytes, bytes.len()).unwrap(), [b"x"]);
    }

    #[test]
    fn an_event_without_end_is_an_error() {
        let mut events = Events::new(1_000);
        let endless = [&b"data:"[..], &[b'x'; 900]].concat();
        assert_eq!(events.read(&endless, |_| {}), Ok(()));
        assert!(matches!(events.read(&endless, |_| {}), Err(DriverError::Protocol(_))));
        // Lines of one event count together.
        let (mut events, line) = (Events::new(1_000), [&endless, &b"\n"[..]].concat());
        assert_eq!(events.read(&line, |_| {}), Ok(()));
        assert!(matches!(events.read(&line, |_| {}), Err(DriverError::Protocol(_))));
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        assert!(payloads(b"data: 21.5\n\n", 20).is_err());
    }
}
