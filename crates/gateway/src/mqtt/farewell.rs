//! A client that ended its connection before it opened the one that replaces it: DISCONNECT may lie behind publications
//! that were not read yet, because their publisher pauses. Its will is not published ([MQTT-3.14.4-3]).

use std::task::{Context, Poll, Waker};

use fogmux_mqtt::{Frame, Packet, PacketType, ReasonCode, decode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{connection::Connection, receive::Input};

/// The most that is read to find DISCONNECT.
const LOOKED_THROUGH: usize = 1 << 20;
/// Bytes read at a time.
const STEP: usize = 16 << 10;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Whether the client has sent DISCONNECT with reason 0x00. Reads what has arrived; the other packets are dropped,
    /// as all are that follow the end of a connection, and its client has no acknowledgement of them.
    pub(super) fn has_taken_leave(&mut self) -> bool {
        let input = std::mem::replace(&mut self.input, Input::new(Vec::new()));
        let (mut bytes, mut skip) = input.into_rest();
        let mut read = 0;
        loop {
            match self.walk(&mut bytes, &mut skip) {
                Walk::Left(left) => return left,
                Walk::More if read < LOOKED_THROUGH => {}
                Walk::More => return false,
            }
            let length = bytes.len();
            bytes.resize(length + STEP, 0);
            let mut buffer = ReadBuf::new(bytes.get_mut(length..).unwrap_or_default());
            let mut cx = Context::from_waker(Waker::noop());
            let poll = std::pin::Pin::new(&mut self.stream).poll_read(&mut cx, &mut buffer);
            let count = buffer.filled().len();
            bytes.truncate(length + count);
            read += count;
            if count == 0 || !matches!(poll, Poll::Ready(Ok(()))) {
                return false;
            }
        }
    }

    /// Goes through the whole packets and drops them; `skip` bytes of the next are without interest.
    fn walk(&self, bytes: &mut Vec<u8>, skip: &mut usize) -> Walk {
        let (version, limits) = (self.version, self.limits());
        let mut at = 0;
        let walk = loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let skipped = rest.len().min(*skip);
            (at, *skip) = (at + skipped, *skip - skipped);
            let rest = bytes.get(at..).unwrap_or_default();
            let frame = match Frame::read(rest, version, &limits) {
                Ok(Some(frame)) if *skip == 0 => frame,
                Ok(_) => break Walk::More,
                Err(_) => break Walk::Left(false),
            };
            if frame.kind != PacketType::Disconnect {
                *skip = frame.total_len();
                continue;
            }
            break match decode(rest, version, &limits) {
                Ok(Some((Packet::Disconnect(disconnect), _))) => Walk::Left(disconnect.reason == ReasonCode::SUCCESS),
                Ok(None) => Walk::More,
                Ok(Some(_)) | Err(_) => Walk::Left(false),
            };
        };
        bytes.drain(..at);
        walk
    }
}

/// The result of looking through some bytes.
enum Walk {
    /// DISCONNECT or an error was found: whether the will is void.
    Left(bool),
    /// More bytes are needed.
    More,
}
