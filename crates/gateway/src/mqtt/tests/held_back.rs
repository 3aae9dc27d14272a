//! A stream that takes everything and lets go of it only when it is flushed, later: as TLS does over a full socket.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::*;

/// Writes reach `io` a moment after a flush was asked for.
struct HeldBack {
    io: DuplexStream,
    held: Vec<u8>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl crate::transport::Transport for HeldBack {}

impl AsyncRead for HeldBack {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for HeldBack {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.held.extend_from_slice(bytes);
        self.wait.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(5))));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        let Self { io, held, .. } = &mut *self;
        while !held.is_empty() {
            let written = ready!(Pin::new(&mut *io).poll_write(cx, held))?;
            held.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[test]
fn what_the_stream_holds_back_is_flushed_when_it_can_be() {
    run(MqttConfig::default(), async |house| {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let stream = HeldBack { io: theirs, held: Vec::new(), wait: None };
        let peer = Peer::plain(SocketAddr::from(([127, 0, 0, 1], 1)), true);
        tokio::task::spawn_local(serve(Rc::clone(&house.ctx), stream, peer));
        // No CONNACK would come, and the test would hang, if a flush that had to wait were forgotten.
        house.try_connect(ours, &connect(Version::V311, "held back")).await.unwrap();
    });
}
