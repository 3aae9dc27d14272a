//! The connection below requests, and its successors: servers close behind an answer when they have had enough of a
//! connection (RFC 9112 §9.6; nginx after 1 000 requests), and that is no reason to stop.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fogmux_client::{Counter, Dialer};
use tokio::io::{AsyncRead as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};

use super::super::{Tcp, unreachable};
use crate::driver::{DriverError, Pending};

/// One connection after the other.
pub(in crate::driver::http) struct Line {
    dialer: Rc<Dialer>,
    state: State,
    socket: Arc<Counter>,
    /// Through the sockets before: up and down.
    before: (u64, u64),
}

enum State {
    Open(Tcp),
    Opening(Pending<'static, Result<(Tcp, Arc<Counter>), DriverError>>),
    Closed,
}

impl Line {
    pub(in crate::driver::http) fn new(dialer: Rc<Dialer>, stream: Tcp, socket: Arc<Counter>) -> Self {
        Self { dialer, state: State::Open(stream), socket, before: (0, 0) }
    }

    /// Bytes through all sockets: up and down.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.before.0 + self.socket.up(), self.before.1 + self.socket.down())
    }

    /// The other end has closed, or will: what comes next goes through a new connection.
    pub(super) fn leave(&mut self) {
        self.state = State::Closed;
    }

    /// Whether there is a connection.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Ready when there is a connection, which is made if there is none.
    pub(super) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DriverError>> {
        loop {
            match &mut self.state {
                State::Open(_) => return Poll::Ready(Ok(())),
                State::Opening(opening) => {
                    let (stream, socket) = ready!(opening.as_mut().poll(cx))?;
                    self.before = self.bytes();
                    self.socket = socket;
                    self.state = State::Open(stream);
                }
                State::Closed => {
                    let dialer = Rc::clone(&self.dialer);
                    let opening = async move { dialer.dial().await.map_err(unreachable) };
                    self.state = State::Opening(Box::pin(opening));
                }
            }
        }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.state {
            State::Open(stream) => Pin::new(stream).poll_write(cx, bytes),
            State::Opening(_) | State::Closed => Poll::Pending,
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Open(stream) => Pin::new(stream).poll_flush(cx),
            State::Opening(_) | State::Closed => Poll::Pending,
        }
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Open(stream) => Pin::new(stream).poll_read(cx, buffer),
            State::Opening(_) | State::Closed => Poll::Pending,
        }
    }

    /// Ends in good order.
    pub(super) async fn close(self) {
        if let State::Open(mut stream) = self.state {
            // It is over anyway.
            let _ = stream.shutdown().await;
        }
    }
}
