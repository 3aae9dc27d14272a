//! An event stream that has an HTTP/1.1 connection to itself: chunks are written straight to the socket (RFC 9112
//! §7.1).
//!
//! Hyper writes the head of the response and is then dropped with its buffers; an idle stream has none of its own.

use std::{future::poll_fn, io, rc::Rc};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{conn::Conn, follow::Follow, io::Io};
use crate::deadline::in_time;

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
        // Input is discarded: no further request can follow on this connection.
        let mut ignored = [0; 64];
        loop {
            tokio::select! {
                read = io.read(&mut ignored) => {
                    if read? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                chunk = poll_fn(|cx| self.follow.poll_chunk(cx)) => {
                    let Some(chunk) = chunk else { break };
                    io.write_all(&self.frame(&chunk)).await?;
                    flush(conn, io).await?;
                    conn.progress.flush(&conn.ctx);
                }
            }
        }
        if self.chunked {
            io.write_all(b"0\r\n\r\n").await?;
        }
        flush(conn, io).await
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

/// Flushes within the write timeout: TLS takes bytes as written that the socket has no room for yet, so that the
/// deadline on writes does not hold for them.
async fn flush<S: AsyncWrite + Unpin>(conn: &Conn, io: &mut Io<S>) -> io::Result<()> {
    let deadline = conn.ctx.running() + conn.ctx.door.config.write_timeout;
    in_time(&conn.ctx, deadline, io.flush()).await.unwrap_or_else(|late| {
        conn.ctx.shared.metrics.http.timed_out.increment();
        Err(late.into())
    })
}
