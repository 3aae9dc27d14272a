//! One connection of a link: a byte stream, the bytes that came and those to send.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fogmux_mqtt::{Connack, ConnackProperties, Connect, Limits, Packet, Version, decode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::failure::{Failure, side};
use super::mapping::Direction;
use super::relay::Receiver;

/// Bytes that are read at a time.
const READ_BYTES: usize = 32 << 10;
/// The memory that an empty buffer keeps at most, in bytes.
const KEPT_BYTES: usize = 256 << 10;

/// One connection of a link.
pub(super) struct Side<S> {
    stream: S,
    /// Messages of this direction come from here.
    from: Direction,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    /// Bytes of the output that were written.
    written: usize,
    /// Bytes that were written while packets were passed on.
    taken: u64,
    is_flushed: bool,
    limits: Limits,
    read: Box<[u8]>,
}

/// The terms of a broker's CONNACK.
#[derive(Clone, Copy, Debug)]
pub(super) struct Welcome {
    pub(super) session_present: bool,
    pub(super) receive_maximum: u16,
    pub(super) keep_alive: Option<u16>,
    pub(super) receiver: Receiver,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Side<S> {
    /// A connection on which nothing was said yet; larger packets than `packet_bytes_max` were not asked for.
    pub(super) fn new(stream: S, from: Direction, packet_bytes_max: u32) -> Self {
        let limits = Limits { packet_bytes_max: usize::try_from(packet_bytes_max).unwrap_or(usize::MAX) };
        let read = vec![0; READ_BYTES].into_boxed_slice();
        let (input, output) = (Vec::new(), Vec::new());
        Self { stream, from, input, output, written: 0, taken: 0, is_flushed: true, limits, read }
    }

    /// Sends CONNECT and waits for CONNACK.
    pub(super) async fn connect(&mut self, connect: &Connect<'_>) -> Result<Welcome, Failure> {
        self.send(&Packet::Connect(*connect)).await?;
        loop {
            if let Some((welcome, used)) = self.welcome()? {
                if connect.clean_start && welcome.session_present {
                    return Err(Failure::misbehaved(self.from, "has a session after Clean Start ([MQTT-3.2.2-4])"));
                }
                self.input.drain(..used);
                return Ok(welcome);
            }
            self.receive().await?;
        }
    }

    fn welcome(&self) -> Result<Option<(Welcome, usize)>, Failure> {
        let broken = |error| Failure::misbehaved(self.from, error);
        let Some((packet, used)) = decode(&self.input, Version::V5, &self.limits).map_err(broken)? else {
            return Ok(None);
        };
        let Packet::Connack(Connack { session_present, reason, properties }) = packet else {
            return Err(Failure::misbehaved(self.from, "answers CONNECT with another packet than CONNACK"));
        };
        let said = ConnackProperties::from(properties);
        if reason.is_error() {
            return Err(Failure::refused(self.from, reason, said.reason_string));
        }
        let qos_max = u8::from(said.qos_1) + u8::from(said.qos_2);
        let receiver = Receiver { packet_bytes_max: said.packet_bytes_max, qos_max, retains: said.retain };
        let (receive_maximum, keep_alive) = (said.receive_maximum, said.server_keep_alive);
        Ok(Some((Welcome { session_present, receive_maximum, keep_alive, receiver }, used)))
    }

    /// Sends a packet at once.
    pub(super) async fn send(&mut self, packet: &Packet<'_>) -> Result<(), Failure> {
        packet.encode(Version::V5, &mut self.output).map_err(Failure::new)?;
        let sent = async {
            self.stream.write_all(self.output.get(self.written..).unwrap_or_default()).await?;
            self.stream.flush().await
        };
        sent.await.map_err(|error| self.lost(&error))?;
        (self.written, self.is_flushed) = (0, true);
        self.output.clear();
        Ok(())
    }

    /// Waits for more bytes.
    pub(super) async fn receive(&mut self) -> Result<(), Failure> {
        let bytes = self.stream.read(&mut self.read).await.map_err(|error| self.lost(&error))?;
        if bytes == 0 {
            return Err(self.closed());
        }
        self.input.extend_from_slice(self.read.get(..bytes).unwrap_or_default());
        Ok(())
    }

    /// Hands each whole packet that came to `handle`. Returns whether there was any.
    pub(super) fn take(
        &mut self,
        mut handle: impl FnMut(&Packet<'_>, &mut Vec<u8>) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let mut taken = 0;
        loop {
            let rest = self.input.get(taken..).unwrap_or_default();
            let decoded = decode(rest, Version::V5, &self.limits);
            let Some((packet, used)) = decoded.map_err(|error| Failure::misbehaved(self.from, error))? else { break };
            handle(&packet, &mut self.output)?;
            taken += used;
        }
        self.input.drain(..taken);
        give_back(&mut self.input);
        Ok(taken > 0)
    }

    /// Writes what can be written now.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        match self.poll_write_all(cx) {
            Poll::Ready(Err(error)) => Err(self.lost(&error)),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    fn poll_write_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            let bytes = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if bytes == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += bytes;
            self.taken += u64::try_from(bytes).unwrap_or_default();
            self.is_flushed = false;
            // The beginning is not kept for as long as something is behind it.
            if self.written >= READ_BYTES {
                self.output.drain(..self.written);
                self.written = 0;
            }
        }
        self.output.clear();
        give_back(&mut self.output);
        self.written = 0;
        if !self.is_flushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// The number of bytes that the other end has taken.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Where the output begins, and where it ends, counted like [`taken`](Self::taken).
    pub(super) fn span(&self) -> (u64, u64) {
        let begin = self.taken - u64::try_from(self.written).unwrap_or_default();
        (begin, begin + u64::try_from(self.output.len()).unwrap_or_default())
    }

    /// Reads once.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let mut read = ReadBuf::new(&mut self.read);
        match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read)) {
            Ok(()) if read.filled().is_empty() => Poll::Ready(Err(self.closed())),
            Ok(()) => {
                self.input.extend_from_slice(read.filled());
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(self.lost(&error))),
        }
    }

    fn closed(&self) -> Failure {
        Failure::closed(self.from)
    }

    fn lost(&self, error: &io::Error) -> Failure {
        // A program that ends under TLS, and nobody says so.
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return self.closed();
        }
        Failure::new(format!("the connection to {} broke: {error}", side(self.from)))
    }
}

/// Gives the memory of one large packet back.
fn give_back(buffer: &mut Vec<u8>) {
    if buffer.is_empty() && buffer.capacity() > KEPT_BYTES {
        buffer.shrink_to(READ_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use fogmux_mqtt::Properties;

    use super::*;

    #[tokio::test]
    async fn a_session_after_clean_start_is_an_error() {
        for (clean_start, is_welcome) in [(false, true), (true, false)] {
            let (near, mut far) = tokio::io::duplex(1000);
            far.write_all(&[0x20, 3, 1, 0, 0]).await.unwrap();
            let connect = Connect {
                version: Version::V5,
                bridge: false,
                clean_start,
                keep_alive: 0,
                client_id: "north",
                will: None,
                user: None,
                password: None,
                properties: Properties::NONE,
            };
            let welcome = Side::new(near, Direction::In, 1000).connect(&connect).await;
            assert_eq!(welcome.is_ok(), is_welcome, "{welcome:?}");
        }
    }

    #[test]
    fn the_memory_of_a_large_packet_is_given_back() {
        let mut buffer = Vec::with_capacity(1 << 20);
        buffer.push(1);
        give_back(&mut buffer);
        assert!(buffer.capacity() >= 1 << 20, "it is in use");
        buffer.clear();
        give_back(&mut buffer);
        assert!(buffer.capacity() <= KEPT_BYTES);
    }
}
