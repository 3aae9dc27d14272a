//! A stream that counts the bytes of its socket. It is below TLS, so that the overhead of records is included.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of one stream so far. Whoever made the stream reads them here while TLS, or hyper, has the stream.
#[derive(Debug, Default)]
pub struct Counter {
    up: AtomicU64,
    down: AtomicU64,
}

impl Counter {
    /// Bytes that were written.
    #[must_use]
    pub fn up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }

    /// Bytes that were read.
    #[must_use]
    pub fn down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }
}

/// A stream that counts.
#[derive(Debug)]
pub struct Counted<S> {
    stream: S,
    counter: Arc<Counter>,
}

impl<S> Counted<S> {
    /// Counts from here on.
    pub fn new(stream: S) -> Self {
        Self { stream, counter: Arc::default() }
    }

    /// The counts, which stay when the stream goes.
    #[must_use]
    pub fn counter(&self) -> Arc<Counter> {
        Arc::clone(&self.counter)
    }

    /// The stream below.
    #[must_use]
    pub const fn get_ref(&self) -> &S {
        &self.stream
    }

    fn written(&self, bytes: usize) {
        self.counter.up.fetch_add(u64::try_from(bytes).unwrap_or_default(), Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        let bytes = buffer.filled().len().saturating_sub(before);
        this.counter.down.fetch_add(u64::try_from(bytes).unwrap_or_default(), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.written(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, slices))?;
        this.written(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn what_goes_through_is_counted_and_can_be_read_meanwhile() {
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = Counted::new(near);
        let counter = near.counter();
        near.write_all(b"12345").await.unwrap();
        let slices = [IoSlice::new(b"6"), IoSlice::new(b"78")];
        let written = near.write_vectored(&slices).await.unwrap();
        far.write_all(b"abc").await.unwrap();
        near.read_exact(&mut [0; 2]).await.unwrap();
        assert_eq!((counter.up(), counter.down()), (5 + u64::try_from(written).unwrap(), 2));
        drop(near);
        assert_eq!(counter.down(), 2);
    }
}
