//! The socket below hyper: returns the bytes that were read to determine the protocol, tracks progress, and has a
//! deadline on writes.

use std::{
    cell::{Cell, RefCell},
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

use super::{context::HttpContext, unread::Step};
use crate::{
    phase::Phase,
    stops::Running,
    transport::Transport,
    turn::{self, Deliveries},
    unfinished::Waiter,
};

/// The interval at which a peer that takes nothing is checked: the gateway may be shutting down.
const TICK: Duration = Duration::from_secs(2);

/// The progress of a connection, shared by its task, its socket and its service.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// When the first byte of a request came in whose header section is not complete. HTTP/1.1 only: a byte of HTTP/2
    /// may belong to a PING or a WINDOW_UPDATE.
    pub(super) head_since: Cell<Option<Running>>,
    /// When a request last began or ended.
    pub(super) active: Cell<Running>,
    /// Requests being answered.
    pub(super) open: Cell<u32>,
    /// The peer has yet to take bytes that were written: hyper reads nothing meanwhile.
    pub(super) blocked: Cell<bool>,
    /// The version of HTTP that carries the requests.
    pub(super) carrier: Cell<Carrier>,
    /// The places of all unread answers of an HTTP/1.1 connection.
    pub(super) unread: RefCell<Option<Arc<Waiter>>>,
    /// The last step of the body that was polled last.
    pub(super) step: RefCell<Step>,
    /// Deliveries of all requests in this turn of the connection.
    deliveries: Cell<Deliveries>,
    /// The number of that turn; wraps.
    turn: Cell<u32>,
    /// A request was open when the connection was polled last.
    was_open: Cell<bool>,
    /// An answer of an HTTP/2 stream gave way.
    pub(super) gave_way: Cell<bool>,
    handover: Cell<Handover>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
}

impl Progress {
    /// Adds what was counted to the metrics.
    pub(super) fn flush(&self, ctx: &HttpContext) {
        let metrics = &ctx.shared.metrics.http;
        metrics.bytes_in.add(self.bytes_in.take());
        metrics.bytes_out.add(self.bytes_out.take());
    }

    /// Called when hyper asks for the body of a response that is written without it.
    pub(super) fn hand_over(&self) {
        if self.handover.get() == Handover::None {
            self.handover.set(Handover::Asked);
        }
    }

    /// Notes deliveries of a request.
    pub(super) fn delivered(&self, deliveries: u64) {
        let mut all = self.deliveries.get();
        all.add(deliveries);
        self.deliveries.set(all);
    }

    /// Waits until others have had their turn, if the requests of this connection have made enough deliveries: a
    /// connection may have a hundred streams, each with a publication to thousands (ADR 0020).
    pub(super) async fn take_turn(&self) {
        while self.deliveries.get().are_enough() {
            let number = self.turn.get();
            turn::others_first().await;
            // The first that goes on begins the next turn, of all.
            if self.turn.get() == number {
                self.turn.set(number.wrapping_add(1));
                self.deliveries.set(Deliveries::default());
            }
        }
    }

    /// Notes, after each poll of the connection, when its last request ended: from then on it is idle.
    pub(super) fn note_open(&self, ctx: &HttpContext) {
        let is_open = self.open.get() > 0;
        if self.was_open.replace(is_open) && !is_open {
            self.active.set(ctx.running());
        }
    }

    /// Whether hyper has written everything before that body.
    pub(super) fn is_handed_over(&self) -> bool {
        self.handover.get() == Handover::Done
    }

    /// Whether an HTTP/1.1 connection has to end for the answers of others.
    pub(super) fn has_given_way(&self, cx: &Context<'_>) -> bool {
        self.unread.borrow().as_ref().is_some_and(|waiter| waiter.poll_gave_way(cx).is_ready())
    }

    /// Forgets a place that no answer has. False if another answer has it too.
    pub(super) fn forget(&self, waiter: &Arc<Waiter>) -> bool {
        let mut unread = self.unread.borrow_mut();
        // The caller's, its place's and, over HTTP/1.1, the connection's.
        if Arc::strong_count(waiter) > 2 + usize::from(unread.is_some()) {
            return false;
        }
        *unread = None;
        true
    }

    fn read(&self, bytes: usize) {
        self.bytes_in.set(self.bytes_in.get() + bytes as u64);
    }

    fn wrote(&self, bytes: usize) {
        self.bytes_out.set(self.bytes_out.get() + bytes as u64);
    }
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Carrier {
    /// HTTP/1.1, and 1.0.
    #[default]
    One,
    /// HTTP/2.
    Two,
    /// HTTP/3.
    Three,
}

/// The progress of handing an HTTP/1.1 connection from hyper to an event stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Handover {
    /// Hyper has it.
    #[default]
    None,
    /// The head of the response is in hyper's buffer.
    Asked,
    /// The buffer has been written out.
    Done,
}

/// A stream with a prefix.
pub(super) struct Io<S> {
    inner: S,
    prefix: Bytes,
    ctx: Rc<HttpContext>,
    progress: Rc<Progress>,
    write_timeout: Duration,
    stalled: Option<Stalled>,
}

/// A peer that takes nothing.
struct Stalled {
    /// The deadline.
    until: Running,
    tick: Pin<Box<Sleep>>,
}

impl<S> Io<S> {
    pub(super) fn new(ctx: &Rc<HttpContext>, inner: S, prefix: Bytes, progress: &Rc<Progress>) -> Self {
        Self {
            inner,
            prefix,
            ctx: Rc::clone(ctx),
            progress: Rc::clone(progress),
            write_timeout: ctx.door.config.write_timeout,
            stalled: None,
        }
    }

    /// Puts back bytes that were read too far, as a copy, because their buffer is much larger.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        self.prefix = Bytes::copy_from_slice(bytes);
    }

    fn noted(&self, bytes: usize) {
        if bytes > 0 {
            self.progress.read(bytes);
            // Bytes while no request is open begin one; a body has a deadline of its own.
            let progress = &self.progress;
            if progress.carrier.get() == Carrier::One && progress.open.get() == 0 && progress.head_since.get().is_none()
            {
                progress.head_since.set(Some(self.ctx.running()));
            }
        }
    }

    /// Starts the write deadline when a write has to wait, and ends it when one succeeds.
    fn watch(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(written)) => {
                self.progress.wrote(written);
                self.progress.blocked.set(false);
                self.stalled = None;
                Poll::Ready(Ok(written))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let timeout = self.write_timeout;
                let tick = timeout.min(TICK);
                let ctx = &self.ctx;
                let fresh = || Stalled { until: ctx.running() + timeout, tick: Box::pin(tokio::time::sleep(tick)) };
                let stalled = self.stalled.get_or_insert_with(fresh);
                self.progress.blocked.set(true);
                while stalled.tick.as_mut().poll(cx).is_ready() {
                    if self.ctx.has_passed(stalled.until) {
                        self.ctx.shared.metrics.http.timed_out.increment();
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    if self.ctx.phase() == Phase::Closing {
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    stalled.tick.as_mut().reset(Instant::now() + tick);
                }
                Poll::Pending
            }
        }
    }
}

impl<S: Transport> Transport for Io<S> {
    fn set_user_timeout(&self, limit: Duration) {
        self.inner.set_user_timeout(limit);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Io<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.prefix.is_empty() {
            let count = self.prefix.len().min(buf.remaining());
            buf.put_slice(self.prefix.get(..count).unwrap_or_default());
            self.prefix.advance(count);
            self.noted(count);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.noted(buf.filled().len() - before);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Io<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watch(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.watch(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        // Hyper flushes when its own buffer is empty.
        if self.progress.handover.get() == Handover::Asked && matches!(polled, Poll::Ready(Ok(()))) {
            self.progress.handover.set(Handover::Done);
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
