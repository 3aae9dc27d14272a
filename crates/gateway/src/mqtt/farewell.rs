//! DISCONNECT behind input that was not read when its connection ended, because its publisher pauses or its session was
//! taken over. The will is not published then ([MQTT-3.14.4-3]).

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use fogmux_mqtt::{Frame, Packet, PacketType, ReasonCode, decode};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, timeout_at},
};

use super::{connection::Connection, receive::Input};

/// The most that is read to find DISCONNECT: what the send queues of both hosts can hold.
const LOOKED_THROUGH: usize = 8 << 20;
/// The longest DISCONNECT that is read whole: the rest of its connection's input is in no account of memory. Of a
/// longer one the reason code decides; before version 5 none is so long.
const WHOLE_MAX: usize = 4 << 10;
/// Bytes read at a time.
const STEP: usize = 16 << 10;
/// How long the rest of a client's send queue may take: it comes when the client's host learns that there is room.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// The longest silence within that: a host whose peer had no room asks again after a fifth of a second at the earliest
/// (RFC 9293 §3.8.6.1), and after twice that if the answer is lost.
const SILENCE: Duration = Duration::from_millis(500);
/// Turns of the worker after which it has noticed what its kernel has: one for the socket, one for a stream on it.
const TURNS: usize = 2;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Whether the client has sent DISCONNECT with reason 0x00. Reads what has arrived; the other packets are dropped,
    /// as all are that follow the end of a connection, and its client has no acknowledgement of them.
    ///
    /// Waits for more only if the client was not being read, or has sent much recently: otherwise there is nothing else
    /// in its send queue.
    pub(super) async fn has_disconnected(&mut self) -> bool {
        let input = std::mem::replace(&mut self.reading.input, Input::new(Vec::new()));
        self.reading.boundary.check(input.filled());
        let mut waits = self.is_unread() || input.is_unhandled() || self.reading.recent.is_much(self.ctx.now());
        let (mut bytes, mut skip) = input.into_rest();
        let (mut read, mut turns) = (0, 0);
        let deadline = Instant::now() + LINGER;
        loop {
            match self.walk(&mut bytes, &mut skip) {
                Walk::Left(left) => return left,
                Walk::More if read < LOOKED_THROUGH => {}
                Walk::More => return false,
            }
            let more = poll_fn(|cx| match self.poll_more(cx, &mut bytes) {
                Poll::Pending if !waits => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
                Poll::Ready(count) => Poll::Ready(Some(count)),
            });
            let count = match timeout_at(deadline.min(Instant::now() + SILENCE), more).await {
                Ok(None) if turns < TURNS => {
                    turns += 1;
                    tokio::task::yield_now().await;
                    continue;
                }
                Ok(None | Some(0)) | Err(_) => return false,
                Ok(Some(count)) => count,
            };
            (read, turns) = (read + count, 0);
            let now = self.ctx.now();
            self.reading.recent.add(count, now);
            waits |= self.reading.recent.is_much(now);
        }
    }

    /// Reads once and appends to `bytes`. Ready with 0 at the end of the stream.
    fn poll_more(&mut self, cx: &mut Context<'_>, bytes: &mut Vec<u8>) -> Poll<usize> {
        let length = bytes.len();
        bytes.resize(length + STEP, 0);
        let mut buffer = ReadBuf::new(bytes.get_mut(length..).unwrap_or_default());
        let poll = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        let count = buffer.filled().len();
        bytes.truncate(length + count);
        poll.map(|_| count)
    }

    /// Goes through the whole packets and drops them; `skip` bytes of the next are without interest.
    fn walk(&self, bytes: &mut Vec<u8>, skip: &mut usize) -> Walk {
        let (version, limits) = (self.facts.version, self.limits());
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
            if frame.total_len() > WHOLE_MAX {
                // MQTT 5 §3.14.2.1: the first byte behind the fixed header. 3.1.1 has nothing there (§3.14.1).
                break match rest.get(frame.header_len()).copied() {
                    _ if !version.is_v5() => Walk::Left(false),
                    Some(reason) => Walk::Left(reason == ReasonCode::SUCCESS.0),
                    None => Walk::More,
                };
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
