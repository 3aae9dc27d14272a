//! A byte stream over a WebSocket of binary frames, for MQTT ([MQTT-6.0.0-1], [MQTT-6.0.0-2]). Frames need not end
//! where packets end.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes, BytesMut};
use fogmux_http::websocket::{CloseCode, Header, Incoming, Opcode, Receiver, Role, push_close, push_frame};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::Transport;

/// Bytes that may wait to be written before the caller has to wait.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Largest payload of a frame, in bytes. A longer write becomes several frames, so that no more than one of them waits
/// here and the caller sees how fast the peer reads.
const FRAME_BYTES_MAX: usize = 64 << 10;

/// The stream. Idle, it holds no buffer.
pub(super) struct ByteStream<T> {
    io: T,
    receiver: Receiver,
    /// Frames that are not taken apart yet.
    input: BytesMut,
    /// Of a data frame, not handed on yet.
    data: Bytes,
    /// Frames that are not written yet.
    output: Vec<u8>,
    written: usize,
    ended: bool,
    closed: bool,
}

impl<T> ByteStream<T> {
    pub(super) fn new(io: T) -> Self {
        Self {
            io,
            receiver: Receiver::new(Role::Server, u64::MAX),
            input: BytesMut::new(),
            data: Bytes::new(),
            output: Vec::new(),
            written: 0,
            ended: false,
            closed: false,
        }
    }

    fn close(&mut self, code: CloseCode) {
        if !self.closed {
            self.closed = true;
            push_close(code, "", None, &mut self.output);
        }
    }

    /// Takes the next data out of the frames that are there. False when there is none.
    fn decode(&mut self) -> bool {
        loop {
            match self.receiver.receive(&mut self.input) {
                Ok(None) => {
                    if self.input.is_empty() {
                        self.input = BytesMut::new();
                    }
                    return false;
                }
                Ok(Some(Incoming::Binary { bytes, .. })) if bytes.is_empty() => {}
                Ok(Some(Incoming::Binary { bytes, .. })) => {
                    self.data = bytes;
                    return true;
                }
                Ok(Some(Incoming::Ping(payload))) => {
                    // A peer that pings but does not read loses pongs (§5.5.3 allows to answer only the last ping).
                    if !self.closed && self.output.len() < OUTPUT_BYTES_MAX {
                        push_frame(Opcode::Pong, &payload, None, &mut self.output);
                    }
                }
                Ok(Some(Incoming::Pong(_))) => {}
                Ok(Some(Incoming::Close(_))) => {
                    self.close(CloseCode::Normal);
                    self.ended = true;
                    return false;
                }
                Ok(Some(Incoming::Text { .. })) => {
                    self.close(CloseCode::Unsupported);
                    self.ended = true;
                    return false;
                }
                Err(violation) => {
                    self.close(violation.close_code());
                    self.ended = true;
                    return false;
                }
            }
        }
    }

    fn pending(&self) -> &[u8] {
        self.output.get(self.written..).unwrap_or_default()
    }
}

impl<T: AsyncWrite + Unpin> ByteStream<T> {
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.output.len() {
            let pending = self.output.get(self.written..).unwrap_or_default();
            let count = ready!(Pin::new(&mut self.io).poll_write(cx, pending))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        self.output = Vec::new();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Sends up to [`FRAME_BYTES_MAX`] as one binary message: the payload goes straight to the socket if possible, the
    /// rest waits here. Header and payload are joined for a stream without vectored writes, such as one of HTTP/2,
    /// which would send the header in a DATA frame of its own.
    fn send(&mut self, cx: &mut Context<'_>, payload: &[u8]) -> io::Result<usize> {
        let payload = payload.get(..FRAME_BYTES_MAX).unwrap_or(payload);
        let header = Header::new(Opcode::Binary, payload.len(), None);
        let mut count = 0;
        if self.pending().is_empty() && self.io.is_write_vectored() {
            let slices = [IoSlice::new(header.as_slice()), IoSlice::new(payload)];
            match Pin::new(&mut self.io).poll_write_vectored(cx, &slices) {
                Poll::Ready(written) => count = written?,
                Poll::Pending => {}
            }
        }
        let header = header.as_slice();
        self.output.extend_from_slice(header.get(count..).unwrap_or_default());
        let from = count.saturating_sub(header.len());
        self.output.extend_from_slice(payload.get(from..).unwrap_or_default());
        // Not every stream writes both slices at once, and the caller may not come back to flush.
        match self.poll_output(cx) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(payload.len()),
        }
    }
}

impl<T: Transport> Transport for ByteStream<T> {
    fn set_user_timeout(&self, limit: Duration) {
        self.io.set_user_timeout(limit);
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for ByteStream<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if !this.data.is_empty() || (!this.ended && this.decode()) {
                let count = this.data.len().min(buf.remaining());
                buf.put_slice(this.data.get(..count).unwrap_or_default());
                this.data.advance(count);
                return Poll::Ready(Ok(()));
            }
            if !this.pending().is_empty()
                && let Poll::Ready(Err(error)) = this.poll_output(cx)
            {
                return Poll::Ready(Err(error));
            }
            if this.ended {
                return Poll::Ready(Ok(()));
            }
            // The caller's buffer is empty still: frames are read into it and taken out again, so that an idle
            // connection needs none of its own.
            let count = {
                let mut frames = ReadBuf::new(buf.initialize_unfilled());
                ready!(Pin::new(&mut this.io).poll_read(cx, &mut frames))?;
                this.input.extend_from_slice(frames.filled());
                frames.filled().len()
            };
            if count == 0 {
                this.ended = true;
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ByteStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if !self.pending().is_empty() {
            match self.poll_output(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if self.output.len() - self.written >= OUTPUT_BYTES_MAX => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        Poll::Ready(self.send(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_output(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close(CloseCode::Normal);
        ready!(self.poll_output(cx))?;
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const MASK: Option<[u8; 4]> = Some([9, 8, 7, 6]);

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn mqtt_6_0_0_1_text_ends_the_connection() {
        block_on(async {
            let (mut client, server) = duplex(1024);
            let mut stream = ByteStream::new(server);
            let mut frame = Vec::new();
            push_frame(Opcode::Text, b"x", MASK, &mut frame);
            client.write_all(&frame).await.unwrap();
            assert_eq!(stream.read(&mut [0; 10]).await.unwrap(), 0);
            let mut answer = [0; 4];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, [0x88, 2, 0x03, 0xeb]);
        });
    }

    #[test]
    fn a_ping_is_answered_while_reading() {
        block_on(async {
            let (mut client, server) = duplex(1024);
            let mut stream = ByteStream::new(server);
            let mut frames = Vec::new();
            push_frame(Opcode::Ping, b"?", MASK, &mut frames);
            push_frame(Opcode::Binary, b"ab", MASK, &mut frames);
            client.write_all(&frames).await.unwrap();
            let mut data = [0; 2];
            stream.read_exact(&mut data).await.unwrap();
            assert_eq!(&data, b"ab");
            stream.flush().await.unwrap();
            let mut answer = [0; 3];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, [0x8a, 1, b'?']);
        });
    }

    proptest! {
        #[test]
        fn bytes_arrive_as_they_were_sent_whatever_the_frames(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            pipe in 1_usize..64,
        ) {
            let sent = parts.concat();
            let got = block_on(async {
                let (mut client, server) = duplex(pipe);
                let feed = async {
                    for part in &parts {
                        let mut frame = Vec::new();
                        push_frame(Opcode::Binary, part, MASK, &mut frame);
                        client.write_all(&frame).await.unwrap();
                    }
                    client.shutdown().await.unwrap();
                    // Keeps the other half open.
                    client
                };
                let mut stream = ByteStream::new(server);
                let mut got = Vec::new();
                let (_client, read) = tokio::join!(feed, stream.read_to_end(&mut got));
                read.unwrap();
                got
            });
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn a_write_is_one_binary_frame(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..20),
            pipe in 1_usize..64,
        ) {
            let got = block_on(async {
                let (mut client, server) = duplex(pipe);
                let mut stream = ByteStream::new(server);
                let send = async {
                    for part in &parts {
                        stream.write_all(part).await.unwrap();
                    }
                    stream.shutdown().await.unwrap();
                };
                let mut got = Vec::new();
                let (_sent, read) = tokio::join!(send, client.read_to_end(&mut got));
                read.unwrap();
                got
            });
            let mut expected = Vec::new();
            for part in &parts {
                push_frame(Opcode::Binary, part, None, &mut expected);
            }
            push_close(CloseCode::Normal, "", None, &mut expected);
            prop_assert_eq!(got, expected);
        }
    }
}
