//! CoAP over TCP and WebSockets: any stream gives the same messages however it is cut, none longer than was promised,
//! and what was framed is framed the same again.
#![no_main]

use std::time::Duration;

use fogmux_coap::{
    Timestamp,
    stream::{Frame, Framing, Heard, Session, SessionConfig},
};
use libfuzzer_sys::fuzz_target;

const MESSAGE_BYTES_MAX: usize = 4096;
const CONFIG: SessionConfig = SessionConfig {
    message_bytes_max: MESSAGE_BYTES_MAX,
    settings_timeout: Duration::from_secs(10),
    message_timeout: Duration::from_secs(10),
    idle_timeout: Duration::from_secs(60),
    pong_timeout: Duration::from_secs(10),
};

/// Reads a stream in pieces of this size. Returns the number of messages, their bytes, and whether the stream was
/// aborted.
fn heard(bytes: &[u8], piece: usize) -> (usize, usize, bool) {
    let now = Timestamp::from_millis(1);
    let mut out = Vec::new();
    let mut session = Session::open(CONFIG, Framing::Stream, now, &mut out);
    let (mut start, mut end, mut messages, mut used_bytes) = (0, 0, 0, 0);
    while end < bytes.len() {
        end = (end + piece).min(bytes.len());
        loop {
            match session.take(now, &bytes[start..end]) {
                Ok(Some((Heard::Message(message), used))) => {
                    assert!(used <= MESSAGE_BYTES_MAX && message.payload().len() <= used);
                    (messages, used_bytes, start) = (messages + 1, used_bytes + used, start + used);
                }
                Ok(Some((_, used))) => {
                    assert!(used > 0);
                    (used_bytes, start) = (used_bytes + used, start + used);
                }
                Ok(None) => break,
                Err(_) => return (messages, used_bytes, true),
            }
        }
        assert!(end - start <= MESSAGE_BYTES_MAX, "it waits for more than it promised to take");
    }
    (messages, used_bytes, false)
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, stream)) = data.split_first() else { return };
    assert_eq!(heard(stream, stream.len().max(1)), heard(stream, usize::from(first).max(1)));
    if let Ok(Some((frame, used))) = Frame::split(stream, MESSAGE_BYTES_MAX) {
        let mut again = Vec::new();
        frame.write(Framing::Stream, &mut again);
        assert!(again.len() <= used);
        assert_eq!(Frame::split(&again, MESSAGE_BYTES_MAX), Ok(Some((frame, again.len()))));
    }
    if let Ok(frame) = Frame::whole(stream) {
        let mut again = Vec::new();
        frame.write(Framing::WebSocket, &mut again);
        assert_eq!(again, stream);
    }
});
