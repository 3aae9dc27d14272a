//! QUIC streams as h3 wants them, counted: quinn knows datagrams and frames, but not the bytes that streams carry.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use h3_quinn::{BidiStream, OpenStreams, RecvStream, SendStream};

/// Bytes of all streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) up: Cell<u64>,
    pub(super) down: Cell<u64>,
}

impl Meter {
    fn sent(&self, count: usize) {
        self.up.set(self.up.get() + count as u64);
    }

    fn received(&self, count: usize) {
        self.down.set(self.down.get() + count as u64);
    }
}

/// Any of h3-quinn's things, with a meter.
pub(super) struct Metered<T> {
    inner: T,
    meter: Rc<Meter>,
}

pub(super) type MeteredConnection = Metered<h3_quinn::Connection>;
pub(super) type MeteredOpener = Metered<OpenStreams>;
pub(super) type MeteredBidi = Metered<BidiStream<Bytes>>;

impl MeteredConnection {
    pub(super) fn new(connection: quinn::Connection, meter: Rc<Meter>) -> Self {
        Self { inner: h3_quinn::Connection::new(connection), meter }
    }
}

impl Clone for MeteredOpener {
    fn clone(&self) -> Self {
        self.with(self.inner.clone())
    }
}

impl<T> Metered<T> {
    fn with<U>(&self, inner: U) -> Metered<U> {
        Metered { inner, meter: Rc::clone(&self.meter) }
    }
}

impl<T> quic::OpenStreams<Bytes> for Metered<T>
where
    T: quic::OpenStreams<Bytes, BidiStream = BidiStream<Bytes>, SendStream = SendStream<Bytes>>,
{
    type BidiStream = MeteredBidi;
    type SendStream = Metered<SendStream<Bytes>>;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::BidiStream, StreamErrorIncoming>> {
        let stream = ready!(self.inner.poll_open_bidi(cx))?;
        Poll::Ready(Ok(self.with(stream)))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        let stream = ready!(self.inner.poll_open_send(cx))?;
        Poll::Ready(Ok(self.with(stream)))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.inner.close(code, reason);
    }
}

impl quic::Connection<Bytes> for MeteredConnection {
    type RecvStream = Metered<RecvStream>;
    type OpenStreams = MeteredOpener;

    fn poll_accept_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::RecvStream, ConnectionErrorIncoming>> {
        let stream = ready!(quic::Connection::<Bytes>::poll_accept_recv(&mut self.inner, cx))?;
        Poll::Ready(Ok(self.with(stream)))
    }

    fn poll_accept_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        let stream = ready!(quic::Connection::<Bytes>::poll_accept_bidi(&mut self.inner, cx))?;
        Poll::Ready(Ok(self.with(stream)))
    }

    fn opener(&self) -> Self::OpenStreams {
        self.with(quic::Connection::<Bytes>::opener(&self.inner))
    }
}

impl<T: quic::SendStream<Bytes>> quic::SendStream<Bytes> for Metered<T> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.inner.poll_ready(cx)
    }

    fn send_data<D: Into<WriteBuf<Bytes>>>(&mut self, data: D) -> Result<(), StreamErrorIncoming> {
        let data = data.into();
        self.meter.sent(data.remaining());
        self.inner.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.inner.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.inner.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.inner.send_id()
    }
}

impl<T: quic::RecvStream<Buf = Bytes>> quic::RecvStream for Metered<T> {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let data = ready!(self.inner.poll_data(cx))?;
        self.meter.received(data.as_ref().map_or(0, Bytes::len));
        Poll::Ready(Ok(data))
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.inner.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.inner.recv_id()
    }
}
