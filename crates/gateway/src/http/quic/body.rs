//! The body of an HTTP/3 request.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::{Buf as _, Bytes};
use h3::{
    error::{Code, StreamError},
    server::RequestStream,
};
use http_body::{Body, Frame};

type ReceiveHalf = RequestStream<h3_quinn::RecvStream, Bytes>;

/// Reads the stream until its end. Dropped before, it stops the sender without an error.
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
        let Some(mut recv) = self.recv.take() else { return };
        // Dropped before its end is read, the stream would be stopped with the code 0, which clients take for an error.
        // Most often the end is there and waits to be read.
        match poll_data(&mut recv, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(None) | Err(_)) => {}
            // No read is pending; h3-quinn would panic if one were.
            Poll::Ready(Ok(Some(_))) => recv.stop_sending(Code::H3_NO_ERROR),
            Poll::Pending => drop(tokio::task::spawn_local(await_end(recv))),
        }
    }
}

/// Waits for what comes next of a body that nobody wants: its end, or something to answer with a stop. Nothing may
/// come for long; then the stream stays counted against the client's own limit, and ends with the connection.
async fn await_end(mut recv: ReceiveHalf) {
    if let Ok(Some(_)) = poll_fn(|cx| poll_data(&mut recv, cx)).await {
        recv.stop_sending(Code::H3_NO_ERROR);
    }
}

fn poll_data(recv: &mut ReceiveHalf, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamError>> {
    recv.poll_recv_data(cx).map(|data| data.map(|data| data.map(|mut data| data.copy_to_bytes(data.remaining()))))
}
