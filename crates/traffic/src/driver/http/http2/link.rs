//! The connection below streams, and its successors: servers say GOAWAY when they have had enough of a connection
//! (RFC 9113 §6.8; nginx after 1 000 requests). What is under way then is answered, what comes next goes through a new
//! connection, and what came too late is asked again there.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes as Chunk;
use fogmux_client::{Counted, Counter, Dialer};
use h2::Reason;
use h2::client::{Builder, Connection, SendRequest};

use super::super::{Tcp, over, unreachable};
use crate::driver::{DriverError, Pending};
use crate::outcome::Bytes;

/// The flow-control windows of one stream and of the connection, in bytes. They are those of hyper's client; the
/// standard's initial 64 KiB (RFC 9113 §6.9.2) would limit the measured server.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 5 << 20;

/// One connection.
pub(in crate::driver::http) struct Link {
    pub(super) sender: SendRequest<Chunk>,
    wire: Wire,
    pub(in crate::driver::http) cipher: String,
}

struct Wire {
    connection: Connection<Counted<Tcp>, Chunk>,
    /// Above TLS.
    frames: Arc<Counter>,
    /// Below it.
    socket: Arc<Counter>,
}

impl Link {
    /// Connects and sends the preface and our settings; with TLS the protocol has been agreed on by ALPN, without by
    /// prior knowledge (RFC 9113 §3.3).
    pub(in crate::driver::http) async fn open(dialer: &Dialer) -> Result<Self, DriverError> {
        let (stream, socket) = dialer.dial().await.map_err(unreachable)?;
        let cipher = stream.cipher();
        let stream = Counted::new(stream);
        let frames = stream.counter();
        let mut builder = Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .enable_push(false);
        let (sender, mut connection) = builder.handshake(stream).await.map_err(over)?;
        // Our settings go out now, and not with the first request.
        let begun = poll_fn(|cx| Poll::Ready(Pin::new(&mut connection).poll(cx))).await;
        if let Poll::Ready(ended) = begun {
            ended.map_err(over)?;
        }
        Ok(Self { sender, wire: Wire { connection, frames, socket }, cipher })
    }
}

impl Wire {
    fn bytes(&self) -> Bytes {
        Bytes {
            protocol_up: self.frames.up(),
            protocol_down: self.frames.down(),
            socket_up: self.socket.up(),
            socket_down: self.socket.down(),
            ..Bytes::default()
        }
    }
}

/// The connection that takes requests, and those that still answer some.
pub(super) struct Links {
    dialer: Rc<Dialer>,
    current: Option<Link>,
    opening: Option<Pending<'static, Result<Link, DriverError>>>,
    leaving: Vec<Wire>,
    /// The bytes of closed connections.
    before: Bytes,
}

impl Links {
    pub(super) fn new(dialer: Rc<Dialer>, link: Link) -> Self {
        Self { dialer, current: Some(link), opening: None, leaving: Vec::new(), before: Bytes::default() }
    }

    /// Whether there is a connection that takes requests.
    pub(super) fn is_open(&self) -> bool {
        self.current.is_some()
    }

    /// The connection that takes requests, which is made if there is none.
    pub(super) fn poll_current(&mut self, cx: &mut Context<'_>) -> Poll<Result<&mut Link, DriverError>> {
        if self.current.is_none() {
            let dialer = &self.dialer;
            let opening = self.opening.get_or_insert_with(|| {
                let dialer = Rc::clone(dialer);
                Box::pin(async move { Link::open(&dialer).await })
            });
            let opened = ready!(opening.as_mut().poll(cx));
            self.opening = None;
            self.current = Some(opened?);
        }
        match &mut self.current {
            Some(link) => Poll::Ready(Ok(link)),
            None => Poll::Pending,
        }
    }

    /// The other end takes no more requests on the current connection.
    pub(super) fn leave(&mut self) {
        if let Some(Link { wire, .. }) = self.current.take() {
            self.leaving.push(wire);
        }
    }

    /// Writes queued frames, and reads available ones. Ready when the current connection is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let before = &mut self.before;
        self.leaving.retain_mut(|wire| {
            // Its streams report the error that ended it.
            let over = Pin::new(&mut wire.connection).poll(cx).is_ready();
            if over {
                *before = before.plus(wire.bytes());
            }
            !over
        });
        match &mut self.current {
            Some(link) => Pin::new(&mut link.wire.connection).poll(cx),
            None => Poll::Pending,
        }
    }

    /// Protocol and socket bytes of all connections.
    pub(super) fn bytes(&self) -> Bytes {
        let current = self.current.as_ref().map(|link| &link.wire);
        current.into_iter().chain(&self.leaving).fold(self.before, |sum, wire| sum.plus(wire.bytes()))
    }

    /// GOAWAY goes out when nobody can ask any more (RFC 9113 §6.8): streams must be gone.
    pub(super) async fn close(self) {
        if let Some(Link { sender, wire, .. }) = self.current {
            drop(sender);
            let _ = wire.connection.await;
        }
    }
}

/// Whether an error says only that the other end wants no more of this connection: what it is about was not done, and
/// may be asked again (RFC 9113 §8.7).
pub(super) fn is_farewell(error: &h2::Error) -> bool {
    let reason = error.reason();
    error.is_remote()
        && (reason == Some(Reason::REFUSED_STREAM) || error.is_go_away() && reason == Some(Reason::NO_ERROR))
}
