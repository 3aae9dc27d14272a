//! One connection: reads messages, writes what waits for it, and keeps its deadlines.

mod deadlines;

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use fogmux_coap::{
    server::Room,
    stream::{Abort, Session, signal},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::Sleep,
};

use super::{
    End, Hub, Taken, WireKind,
    wire::{Frames, Said},
};
use crate::{
    Peer, coap::CoapContext, coap::core::session_time, coap::transport::Path, pause::Pause, shutdown::Reading,
    stops::Running, turn,
};

/// The largest read once a message has begun.
const READ_MORE: usize = 16 << 10;

/// Turns before other connections have theirs.
const TURNS_MAX: usize = 2;

/// How long the last words may take.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long and how much is read on after the last words, so that they are not lost by a reset.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1 << 20;

/// Its state.
struct Connection<S> {
    ctx: Rc<CoapContext>,
    hub: Rc<Hub>,
    io: S,
    path: Path,
    session: Session,
    /// Of a stream: what was read and not taken yet.
    input: Vec<u8>,
    /// Of a WebSocket.
    frames: Option<Frames>,
    /// There may be whole messages in what was read.
    unread: bool,
    writing: Vec<u8>,
    written: usize,
    /// Since when nothing was written of what waits.
    stuck: Option<Running>,
    /// Since when the peer is not read, for our own reasons: such time counts against no deadline of the session.
    unread_since: Option<Running>,
    sleep: Pin<Box<Sleep>>,
    armed: Option<Running>,
    /// Nothing is read any more; at this time the connection ends at the latest.
    closing: Option<Running>,
    /// A pause of this publisher, for a subscriber to catch up.
    pause: Option<Box<Pause>>,
    /// A shutdown waits for it, until everything is written.
    reading: Option<Reading>,
    /// The gateway shuts down.
    empties: bool,
}

/// Serves a connection until it ends.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(ctx: Rc<CoapContext>, io: S, peer: Peer, kind: WireKind) {
    let hub = match Hub::of(&ctx) {
        Ok(hub) => hub,
        Err(error) => return tracing::error!(%error, "CoAP connections cannot be served"),
    };
    let path = hub.open(peer, kind);
    let config = ctx.door.config.session();
    let mut settings = Vec::new();
    let session = Session::open(config, kind.framing(), session_time(ctx.running()), &mut settings);
    hub.write(path, |_, bytes| bytes.extend_from_slice(&settings));
    let mut connection = Connection {
        frames: (kind == WireKind::WebSocket).then(|| Frames::new(config.message_bytes_max)),
        hub,
        io,
        path,
        session,
        input: Vec::new(),
        unread: false,
        writing: Vec::new(),
        written: 0,
        stuck: None,
        unread_since: None,
        sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
        armed: None,
        closing: None,
        pause: None,
        reading: Some(Reading::begin(&ctx.shared.shutdown)),
        empties: false,
        ctx,
    };
    let mut closing = Some(Box::pin(connection.ctx.closing()));
    let mut emptying = Some(Box::pin(connection.ctx.emptying()));
    let ended = poll_fn(|cx| {
        if emptying.as_mut().is_some_and(|emptying| emptying.as_mut().poll(cx).is_ready()) {
            emptying = None;
            connection.empties = true;
        }
        if closing.as_mut().is_some_and(|closing| closing.as_mut().poll(cx).is_ready()) {
            closing = None;
            connection.say_goodbye();
        }
        connection.poll(cx)
    });
    // An error is the peer's going.
    if ended.await.is_ok() {
        let _ = tokio::time::timeout(LINGER_TIMEOUT, connection.linger()).await;
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.hub.close(self.path);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Output that these turns write needs no wake.
        self.hub.unwatch(self.path);
        let ended = self.poll_turns(cx);
        if ended.is_pending() {
            self.hub.watch(self.path, cx.waker());
            if self.stuck.is_none() && self.hub.has_output(self.path) {
                turn::again(cx);
            }
        }
        ended
    }

    fn poll_turns(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for _ in 0..TURNS_MAX {
            if self.poll_deadline(cx) {
                return Poll::Ready(Ok(()));
            }
            let written = self.poll_write(cx)?;
            if self.empties && written.is_ready() && !self.hub.owes(self.path) {
                self.reading = None;
            }
            if written.is_pending() && self.poll_deadline(cx) {
                return Poll::Ready(Ok(()));
            }
            if self.closing.is_some() {
                // Responses that are owed are still made; nothing more is read.
                return if written.is_ready() && !self.hub.owes(self.path) {
                    Poll::Ready(Ok(()))
                } else {
                    Poll::Pending
                };
            }
            // While it does not read, nothing more is done for it.
            if written.is_pending() || self.poll_pause(cx).is_pending() {
                self.unread_since.get_or_insert(self.ctx.running());
                return Poll::Pending;
            }
            if let Some(since) = self.unread_since.take() {
                self.session.excuse(self.ctx.running().since(since));
                // Its deadlines run again.
                if self.poll_deadline(cx) {
                    return Poll::Ready(Ok(()));
                }
            }
            if !self.unread && ready!(self.poll_read(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
            self.take();
        }
        turn::again(cx);
        Poll::Pending
    }

    /// Whether this publisher does not pause any more.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.poll(&self.ctx, cx));
            self.pause = None;
        }
        Poll::Ready(())
    }

    /// Writes what waits. Pending while the other end does not take it.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        loop {
            if self.written == self.writing.len() {
                self.writing.clear();
                self.written = 0;
                self.hub.swap_output(self.path, &mut self.writing);
                if self.writing.is_empty() {
                    // Idle, it holds no buffer.
                    self.writing = Vec::new();
                    self.stuck = None;
                    self.hub.relieve(self.path);
                    if self.hub.has_output(self.path) {
                        continue;
                    }
                    return match Pin::new(&mut self.io).poll_flush(cx) {
                        Poll::Ready(result) => result.map(Poll::Ready),
                        Poll::Pending => Ok(Poll::Ready(())),
                    };
                }
            }
            let rest = self.writing.get(self.written..).unwrap_or_default();
            match Pin::new(&mut self.io).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(bytes)) => {
                    self.written += bytes;
                    self.stuck = None;
                    if let Some(reading) = self.reading.as_ref().filter(|_| self.empties) {
                        reading.note_progress();
                    }
                    self.ctx.shared.metrics.coap.bytes_out.add(u64::try_from(bytes).unwrap_or_default());
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    self.stuck.get_or_insert_with(|| self.ctx.running());
                    return Ok(Poll::Pending);
                }
            }
        }
    }

    /// Reads once, behind what is there.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut shared = self.ctx.read_buffer.borrow_mut();
        // A message that has begun is read on in small steps; so nobody's buffer grows by announcing much.
        let begun = !self.input.is_empty() || self.frames.is_some();
        let limit = if begun { READ_MORE.min(shared.len()) } else { shared.len() };
        let mut buffer = ReadBuf::new(shared.get_mut(..limit).unwrap_or_default());
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
        let bytes = buffer.filled();
        self.ctx.shared.metrics.coap.bytes_in.add(u64::try_from(bytes.len()).unwrap_or_default());
        match &mut self.frames {
            Some(frames) => frames.input.extend_from_slice(bytes),
            None => self.input.extend_from_slice(bytes),
        }
        self.unread = true;
        Poll::Ready(Ok(bytes.len()))
    }

    /// Takes in the messages that are there.
    fn take(&mut self) {
        let end = if self.frames.is_some() { self.take_frames() } else { self.take_stream() };
        match end {
            None => {}
            Some(End::Released) => self.close_soon(),
            Some(End::Aborted(text)) => {
                tracing::debug!(%text, "a CoAP connection was aborted by the other end");
                self.close_soon();
            }
            Some(End::Abort(abort)) => self.abort(abort),
        }
    }

    fn take_stream(&mut self) -> Option<End> {
        let input = std::mem::take(&mut self.input);
        let (room, mut used) = (Room::default(), 0);
        let session = &mut self.session;
        let Taken { all, slow_down, end } = self.hub.take(self.path, &room, |now| {
            let taken = session.take(now, input.get(used..).unwrap_or_default())?;
            Ok(taken.map(|(heard, bytes)| {
                used += bytes;
                heard
            }))
        });
        self.unread = !all;
        self.pause = Pause::of(slow_down).map(Box::new);
        self.input = input;
        if used == self.input.len() {
            // Idle, it holds no buffer.
            self.input = Vec::new();
        } else {
            self.input.drain(..used);
        }
        end
    }

    fn take_frames(&mut self) -> Option<End> {
        let frames = self.frames.as_mut()?;
        let said = match frames.next() {
            Ok(said) => said,
            Err(abort) => return Some(End::Abort(abort)),
        };
        let now = session_time(self.ctx.running());
        match said {
            Said::Nothing => {
                self.unread = false;
                self.session.set_incomplete(now, frames.is_incomplete());
                None
            }
            Said::Answer(bytes) => {
                self.session.touch(now);
                self.hub.write_raw(self.path, &bytes);
                None
            }
            Said::Closed(bytes) => {
                self.hub.write_raw(self.path, &bytes);
                Some(End::Released)
            }
            Said::Message(message) => {
                self.session.set_incomplete(now, false);
                let (room, session) = (Room::default(), &mut self.session);
                let mut message = Some(&message);
                let Taken { slow_down, end, .. } = self.hub.take(self.path, &room, |now| {
                    message.take().map(|message| session.take_whole(now, message)).transpose()
                });
                self.pause = Pause::of(slow_down).map(Box::new);
                end
            }
        }
    }

    /// The last word, and why (RFC 8323 §5.6).
    fn abort(&mut self, abort: Abort) {
        tracing::debug!(reason = %abort, "a CoAP connection is aborted");
        self.ctx.shared.metrics.coap.misbehaved.increment();
        self.hub.write(self.path, |framing, bytes| abort.push(framing, bytes));
        self.close_soon();
    }

    /// RFC 8323 §5.5: come back later, or to another.
    fn say_goodbye(&mut self) {
        self.hub.say_goodbye();
        self.hub.write(self.path, |framing, bytes| signal::push_release(None, framing, bytes));
        self.close_soon();
    }

    /// Closes in such a way that the last words arrive: with bytes unread, the other end would be told of a reset, and
    /// forget what it has not read yet.
    async fn linger(&mut self) -> io::Result<()> {
        self.io.shutdown().await?;
        let mut ignored = [0; 1024];
        let mut left = LINGER_BYTES_MAX;
        while left > 0 {
            match self.io.read(&mut ignored).await? {
                0 => break,
                bytes => left = left.saturating_sub(bytes),
            }
        }
        Ok(())
    }

    fn close_soon(&mut self) {
        if self.closing.is_none() {
            self.closing = Some(self.ctx.running() + FAREWELL_TIMEOUT);
        }
    }
}
