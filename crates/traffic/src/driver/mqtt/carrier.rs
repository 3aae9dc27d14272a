//! The transport of MQTT packets: a plain byte stream, or binary messages of a WebSocket ([MQTT-6.0.0-1]).
//!
//! Each turn is one read into a buffer that all clients share, and one write. Only an incomplete packet is kept; the
//! rest of a large one is read in place, so that no byte is moved twice.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use fogmux_http::websocket::{CloseCode, Incoming, Opcode, Receiver, Role, push_close, push_frame};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use crate::driver::DriverError;

/// Bytes of one read at most.
pub(super) const READ_BYTES: usize = 128 << 10;
/// Bytes of one read of a WebSocket, whose buffer is its own.
const FRAME_READ_BYTES: usize = 64 << 10;
/// The largest incomplete packet that is copied, in bytes; a larger one stays in place.
const MOVED_BYTES_MAX: usize = 16 << 10;
/// The largest message of a WebSocket in bytes, above that of several packets of 256 MiB.
const MESSAGE_BYTES_MAX: u64 = 1 << 32;

/// A byte stream.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Io for S {}

/// A connection with the beginning of an incomplete packet, and the state of its WebSocket.
pub(super) struct Carrier {
    io: Box<dyn Io>,
    /// The beginning of a packet.
    rest: Vec<u8>,
    unflushed: bool,
    frames: Option<Box<Frames>>,
}

/// A WebSocket's state.
struct Frames {
    receiver: Receiver,
    input: BytesMut,
    /// Frames to be sent, and how much of them is.
    output: Vec<u8>,
    sent: usize,
    /// How many bytes of packets are in the frames.
    packets: usize,
    masks: u64,
}

/// Takes packets from the front and says how many bytes they were.
pub(super) type Take<'a> = &'a mut dyn FnMut(&[u8]) -> Result<usize, DriverError>;

impl Carrier {
    pub(super) fn stream(io: impl Io + 'static) -> Self {
        Self { io: Box::new(io), rest: Vec::new(), unflushed: false, frames: None }
    }

    /// A WebSocket, whose handshake is over; `seed` makes its masks.
    pub(super) fn websocket(io: impl Io + 'static, seed: u64) -> Self {
        let frames = Frames {
            receiver: Receiver::new(Role::Client, MESSAGE_BYTES_MAX),
            input: BytesMut::new(),
            output: Vec::new(),
            sent: 0,
            packets: 0,
            masks: seed,
        };
        Self { frames: Some(Box::new(frames)), ..Self::stream(io) }
    }

    /// Reads once; ready when something came.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        take: Take<'_>,
    ) -> Poll<Result<(), DriverError>> {
        let Self { io, rest, frames, .. } = self;
        if let Some(frames) = frames {
            frames.input.reserve(FRAME_READ_BYTES);
            let read = pin!(io.read_buf(&mut frames.input)).poll(cx);
            some(ready!(read).map_err(broken)?)?;
            return Poll::Ready(frames.unpack(rest, take));
        }
        let kept = rest.len();
        if kept > MOVED_BYTES_MAX.min(buffer.len() / 2) {
            rest.reserve(buffer.len());
            let read = pin!(io.read_buf(rest)).poll(cx);
            some(ready!(read).map_err(broken)?)?;
            let used = take(rest)?;
            rest.drain(..used);
            return Poll::Ready(Ok(()));
        }
        let (front, free) = buffer.split_at_mut(kept);
        front.copy_from_slice(rest);
        let mut free = ReadBuf::new(free);
        ready!(Pin::new(io).poll_read(cx, &mut free)).map_err(broken)?;
        let read = free.filled().len();
        some(read)?;
        let whole = buffer.get(..kept + read).unwrap_or_default();
        let used = take(whole)?;
        rest.clear();
        rest.extend_from_slice(whole.get(used..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }

    /// Whether there is something to be sent that is no packet.
    pub(super) fn is_waiting(&self) -> bool {
        self.frames.as_ref().is_some_and(|frames| frames.sent < frames.output.len())
    }

    /// Sends of `packets` as much as goes, and says how much that was. What was not sent must stand at the front the
    /// next time, too.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>, packets: &[u8]) -> Poll<io::Result<usize>> {
        let Some(frames) = &mut self.frames else {
            let sent = ready!(Pin::new(&mut self.io).poll_write(cx, packets))?;
            self.unflushed = true;
            return if sent == 0 { Poll::Ready(Err(io::ErrorKind::WriteZero.into())) } else { Poll::Ready(Ok(sent)) };
        };
        if frames.packets == 0 && !packets.is_empty() {
            frames.pack(packets);
        }
        while let Some(waiting) = frames.output.get(frames.sent..).filter(|waiting| !waiting.is_empty()) {
            let sent = ready!(Pin::new(&mut self.io).poll_write(cx, waiting))?;
            self.unflushed = true;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            frames.sent += sent;
        }
        frames.output.clear();
        frames.sent = 0;
        Poll::Ready(Ok(std::mem::take(&mut frames.packets)))
    }

    /// Flushes the output that TLS has buffered.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unflushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Puts a WebSocket's last word in line.
    pub(super) fn say_goodbye(&mut self) {
        if let Some(frames) = &mut self.frames {
            let mask = frames.mask();
            push_close(CloseCode::Normal, "", Some(mask), &mut frames.output);
        }
    }

    /// Ends TLS, and our side of TCP.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    /// Waits for the other side's end; what still comes is nobody's.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<()>> {
        loop {
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl Frames {
    /// Hands on what whole and half frames have brought.
    fn unpack(&mut self, rest: &mut Vec<u8>, take: Take<'_>) -> Result<(), DriverError> {
        loop {
            let received = self.receiver.receive(&mut self.input);
            match received.map_err(|error| DriverError::Protocol(error.to_string()))? {
                Some(Incoming::Binary { bytes, .. }) => hand_on(&bytes, rest, take)?,
                Some(Incoming::Ping(payload)) => {
                    let mask = self.mask();
                    push_frame(Opcode::Pong, &payload, Some(mask), &mut self.output);
                }
                Some(Incoming::Pong(_)) => {}
                // [MQTT-6.0.0-1].
                Some(Incoming::Text { .. }) => return Err(DriverError::Protocol("text in a WebSocket".to_owned())),
                Some(Incoming::Close(_)) => return Err(closed()),
                None => return Ok(()),
            }
        }
    }

    fn pack(&mut self, packets: &[u8]) {
        let mask = self.mask();
        push_frame(Opcode::Binary, packets, Some(mask), &mut self.output);
        self.packets = packets.len();
    }

    /// RFC 6455 §10.3 wants masks that no script in a browser can foresee; here is no browser, and a seed makes runs
    /// repeatable (splitmix64).
    fn mask(&mut self) -> [u8; 4] {
        self.masks = self.masks.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.masks ^ (self.masks >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let [a, b, c, d, ..] = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb).to_be_bytes();
        [a, b, c, d]
    }
}

fn hand_on(bytes: &Bytes, rest: &mut Vec<u8>, take: Take<'_>) -> Result<(), DriverError> {
    if rest.is_empty() {
        let used = take(bytes)?;
        rest.extend_from_slice(bytes.get(used..).unwrap_or_default());
    } else {
        rest.extend_from_slice(bytes);
        let used = take(rest)?;
        rest.drain(..used);
    }
    Ok(())
}

fn some(read: usize) -> Result<(), DriverError> {
    if read == 0 { Err(closed()) } else { Ok(()) }
}

fn closed() -> DriverError {
    DriverError::Connection("the server closed the connection".to_owned())
}

fn broken(error: io::Error) -> DriverError {
    DriverError::Connection(error.to_string())
}
