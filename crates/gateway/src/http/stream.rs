//! An event stream that has an HTTP/1.1 connection to itself: chunks are written straight to the socket (RFC 9112
//! §7.1).
//!
//! Hyper writes the head of the response and is then dropped with its buffers; an idle stream has none of its own.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::{conn::Conn, follow::Follow, io::Io};
use crate::{deadline::in_time, turn};

/// The stream, to be run once the head of its response is written.
pub(super) struct EventStream {
    follow: Box<Follow>,
    /// HTTP/1.0 has no chunks: the end of the connection is the end of the body.
    chunked: bool,
}

impl EventStream {
    pub(super) fn new(follow: Follow, chunked: bool) -> Self {
        Self { follow: Box::new(follow), chunked }
    }

    /// Writes events until the stream or the connection ends.
    ///
    /// # Errors
    /// The peer has gone, or takes nothing for longer than the write timeout.
    pub(super) async fn run<S>(mut self, conn: &Rc<Conn>, io: &mut Io<S>) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        while let Some(frame) = poll_fn(|cx| self.poll_frame(cx, io)).await? {
            // In a box, which an idle stream does not have.
            Box::pin(write(conn, io, frame)).await?;
        }
        let end = if self.chunked { b"0\r\n\r\n".to_vec() } else { Vec::new() };
        Box::pin(write(conn, io, end)).await
    }

    /// The next bytes to write. Input is discarded: no further request can follow on this connection.
    fn poll_frame<S>(&mut self, cx: &mut Context<'_>, io: &mut Io<S>) -> Poll<io::Result<Option<Vec<u8>>>>
    where
        S: AsyncRead + Unpin,
    {
        let mut ignored = [0; 64];
        let mut read = ReadBuf::new(&mut ignored);
        if Pin::new(io).poll_read(cx, &mut read)?.is_ready() {
            if read.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            turn::again(cx);
        }
        let chunk = self.follow.poll_chunk(cx);
        chunk.map(|chunk| Ok(chunk.map(|chunk| self.frame(&chunk))))
    }

    fn frame(&self, chunk: &[u8]) -> Vec<u8> {
        if !self.chunked {
            return chunk.to_vec();
        }
        let mut frame = format!("{:x}\r\n", chunk.len()).into_bytes();
        frame.reserve_exact(chunk.len() + 2);
        frame.extend_from_slice(chunk);
        frame.extend_from_slice(b"\r\n");
        frame
    }
}

async fn write<S: AsyncWrite + Unpin>(conn: &Conn, io: &mut Io<S>, bytes: Vec<u8>) -> io::Result<()> {
    io.write_all(&bytes).await?;
    flush(conn, io).await?;
    conn.progress.flush(&conn.ctx);
    Ok(())
}

/// Flushes within the write timeout: TLS takes bytes as written that the socket has no room for yet, so that the
/// deadline on writes does not hold for them.
async fn flush<S: AsyncWrite + Unpin>(conn: &Conn, io: &mut Io<S>) -> io::Result<()> {
    let deadline = conn.ctx.running() + conn.ctx.door.config.write_timeout;
    in_time(&conn.ctx, deadline, io.flush()).await.unwrap_or_else(|late| {
        conn.ctx.shared.metrics.http.timed_out.increment();
        Err(late.into())
    })
}
