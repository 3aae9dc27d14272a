//! Reading into the worker's buffer: a connection holds only the beginning of a stanza that has not come whole.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::context::XmppContext;

/// Capacity beyond which unused room is given back.
const SPARE_BYTES: usize = 16 << 10;
/// Bytes that are read and discarded after the stream is closed, and for how long.
const LINGER_BYTES: u64 = 8 << 20;
const LINGER: Duration = Duration::from_secs(1);

/// Reads once and hands the bytes, behind those kept from before, to `take`, which says how many are done with. The
/// rest is kept. Gives how many were read; 0 is the end.
pub(super) fn poll_take<S: AsyncRead + Unpin>(
    ctx: &XmppContext,
    stream: &mut S,
    kept: &mut Vec<u8>,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> usize,
) -> Poll<io::Result<usize>> {
    let mut buffer = ctx.read_buffer.borrow_mut();
    let mut buffer = ReadBuf::new(&mut buffer);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    let read = buffer.filled();
    if read.is_empty() {
        return Poll::Ready(Ok(0));
    }
    ctx.shared.metrics.xmpp.bytes_in.add(u64::try_from(read.len()).unwrap_or(u64::MAX));
    if kept.is_empty() {
        let used = take(read);
        kept.extend_from_slice(read.get(used..).unwrap_or_default());
    } else {
        kept.extend_from_slice(read);
        let used = take(kept);
        if used >= kept.len() {
            *kept = Vec::new();
        } else {
            kept.drain(..used);
            // The buffer of a large stanza is not kept for the small beginning of the next.
            if kept.capacity() > SPARE_BYTES && kept.len() < kept.capacity() / 4 {
                kept.shrink_to_fit();
            }
        }
    }
    Poll::Ready(Ok(read.len()))
}

/// Closes our half, then reads what is still on its way (RFC 6120 §4.4: the peer closes its stream, too): a connection
/// closed with bytes unread is reset, which would take our last words back.
pub(super) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    let rest = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    // It may be gone already.
    let _ = tokio::time::timeout(LINGER, rest).await;
}
