//! A store that takes a message while the task is about to sleep.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;

/// When the store commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Never,
    /// At the first read without input behind the next write: the mailbox was drained before that write, and is not
    /// drained again before the task sleeps.
    AfterWrite,
    Now,
}

/// A stream that has the store commit.
struct Committing {
    io: DuplexStream,
    store: MemoryStore,
    moment: Rc<Cell<Moment>>,
}

impl crate::transport::Transport for Committing {}

impl AsyncRead for Committing {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if read.is_pending() && self.moment.get() == Moment::Now {
            self.moment.set(Moment::Never);
            self.store.commit(usize::MAX);
        }
        read
    }
}

impl AsyncWrite for Committing {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.moment.get() == Moment::AfterWrite {
            self.moment.set(Moment::Now);
        }
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The oracle panics in unit tests. That the message comes shows that the task was woken.
#[test]
fn a_commit_between_the_last_drain_and_sleep_wakes_the_task_and_is_no_missed_wake() {
    let store = MemoryStore::default();
    let moment = Rc::new(Cell::new(Moment::Never));
    run_stored(&store, async |house: House| {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let stream = Committing { io: theirs, store: store.clone(), moment: Rc::clone(&moment) };
        let peer = Peer::plain(SocketAddr::from(([127, 0, 0, 1], 1)), true);
        tokio::task::spawn_local(serve(Rc::clone(&house.ctx), stream, peer));
        let mut list = PropertyBuffer::new();
        let mut reader = committing(&store, async {
            let mut reader = house.try_connect(ours, &lasting(&mut list, "s")).await.unwrap();
            reader.subscribe("q", Qos::ExactlyOnce).await;
            reader
        })
        .await;
        let mut writer = house.client(Version::V5, "writer").await;
        writer.send(&message("q", b"1", Qos::ExactlyOnce)).await;
        writer.nothing().await;
        reader.silence().await;
        moment.set(Moment::AfterWrite);
        reader.nothing().await;
        assert_eq!(publish_of(&reader.packet().await), (1, false, 2));
        assert_eq!(moment.get(), Moment::Never, "the store has committed in between");
    });
}
