//! The body of an HTTP/3 request.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use h3::{error::StreamError, server::RequestStream};
use http_body::{Body, Frame};

pub(super) type ReceiveHalf = RequestStream<h3_quinn::RecvStream, Bytes>;

/// Bytes of an unwanted body that are still read and thrown away.
const DRAIN_BYTES_MAX: usize = 2 << 20;

/// Reads the stream until its end. Dropped before, it has the rest read elsewhere, within bounds.
pub(super) struct RequestBody {
    recv: Option<ReceiveHalf>,
}

impl RequestBody {
    pub(super) fn new(recv: ReceiveHalf) -> Self {
        Self { recv: Some(recv) }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let Some(recv) = &mut self.recv else { return Poll::Ready(None) };
        match poll_data(recv, cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(Some(data))) => Poll::Ready(Some(Ok(Frame::data(data)))),
            Poll::Ready(Ok(None)) => {
                self.recv = None;
                Poll::Ready(None)
            }
            Poll::Ready(Err(error)) => {
                self.recv = None;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(recv) = self.recv.take() {
            tokio::task::spawn_local(super::drain(recv, DRAIN_BYTES_MAX));
        }
    }
}

fn poll_data(recv: &mut ReceiveHalf, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamError>> {
    recv.poll_recv_data(cx).map(|data| data.map(|data| data.map(|mut data| data.copy_to_bytes(data.remaining()))))
}

pub(super) async fn next_data(recv: &mut ReceiveHalf) -> Result<Option<Bytes>, StreamError> {
    poll_fn(|cx| poll_data(recv, cx)).await
}
