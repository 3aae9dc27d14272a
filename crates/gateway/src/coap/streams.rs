//! CoAP over TCP, TLS and WebSockets (RFC 8323): the connections of a worker share one machine and one mailbox, as the
//! peers of a socket do; each has a task of its own that reads and writes.

mod connection;
mod output;
mod wire;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use fogmux_auth::SourceSet;
use fogmux_bus::{SlowDown, Timestamp};
use fogmux_coap::{
    Token,
    server::{Room, StreamLimits},
    stream::{Abort, Frame, Heard, signal},
};
use foldhash::quality::RandomState;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Sleep,
};

pub(super) use self::wire::WireKind;
use super::{
    context::CoapContext,
    core::{Core, machine_time, session_time},
    publish::Batch,
    transport::{Listener, Path},
};
use crate::{Peer, turn::Deliveries};

/// Bytes that wait for a connection before it is not read any more and its notifications are held.
const OUTPUT_HIGH: usize = 64 << 10;

/// The work of a signal, in deliveries: some are two bytes, and a read holds twenty thousand of them.
const SIGNAL_DELIVERIES: u64 = 16;

/// Pings with custody that wait for answers; further ones are answered without.
const CUSTODIES_MAX: usize = 8;

/// The state that the CoAP connections of a worker share.
pub(crate) struct Hub {
    core: RefCell<Core>,
    lines: RefCell<HashMap<u64, Line, RandomState>>,
    last: Cell<u64>,
    waker: RefCell<Option<Waker>>,
    armed: Cell<Option<Timestamp>>,
    said_goodbye: Cell<bool>,
}

/// The output that waits for one connection.
struct Line {
    kind: WireKind,
    output: Vec<u8>,
    /// The largest message that the peer accepts.
    message_bytes_max: usize,
    congested: bool,
    custodies: Vec<Token>,
    waker: Option<Waker>,
}

/// The result of the messages that a connection has read.
struct Taken {
    /// All were handled.
    all: bool,
    /// The pause that subscribers ask of it.
    slow_down: Option<SlowDown>,
    /// Why the connection ends.
    end: Option<End>,
}

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The peer releases the connection; open requests are answered first (RFC 8323 §5.5).
    Released,
    /// The peer aborts (RFC 8323 §5.6).
    Aborted(Box<str>),
    /// We abort, with this signal.
    Abort(Abort),
}

impl Hub {
    /// The hub of a worker, made when there is none.
    fn of(ctx: &Rc<CoapContext>) -> std::io::Result<Rc<Self>> {
        if let Some(hub) = ctx.streams.borrow().upgrade() {
            return Ok(hub);
        }
        // Each connection has the policy of its own listener.
        let nobody = Listener { by: None, anonymous: false, sources: SourceSet::NONE };
        let core = Core::new(Rc::clone(ctx), ctx.door.config.stream_machine(), nobody)?;
        let hub = Rc::new(Self {
            core: RefCell::new(core),
            lines: RefCell::default(),
            last: Cell::new(0),
            waker: RefCell::default(),
            armed: Cell::new(None),
            said_goodbye: Cell::new(false),
        });
        *ctx.streams.borrow_mut() = Rc::downgrade(&hub);
        tokio::task::spawn_local(Rc::clone(&hub).run());
        Ok(hub)
    }

    /// Passes notifications and responses to the connections, for as long as the worker runs.
    async fn run(self: Rc<Self>) {
        let mut sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
        loop {
            poll_fn(|cx| self.poll(cx, sleep.as_mut())).await;
            tokio::task::yield_now().await;
        }
    }

    /// Ready when there is more to do.
    fn poll(&self, cx: &mut Context<'_>, mut sleep: Pin<&mut Sleep>) -> Poll<()> {
        note_waker(&mut self.waker.borrow_mut(), cx.waker());
        let mut core = self.core.borrow_mut();
        let mut busy = core.notify(cx);
        busy |= core.complete(cx);
        if let Some(at) = core.next_timeout() {
            if self.armed.get() != Some(at) {
                self.armed.set(Some(at));
                sleep.as_mut().reset(core.ctx.shared.clock.instant(at));
            }
            if sleep.as_mut().poll(cx).is_ready() {
                self.armed.set(None);
                core.handle_timeout();
                busy = true;
            }
        }
        core.settle();
        self.distribute(&mut core);
        self.release_custodies(&core);
        if busy || !core.watches.ready.is_empty() {
            return Poll::Ready(());
        }
        core.check_sleep();
        Poll::Pending
    }

    /// Adds a connection.
    fn open(&self, peer: Peer, kind: WireKind) -> Path {
        let mut lines = self.lines.borrow_mut();
        // 64 bits do not come to their end.
        let association = self.last.get() + 1;
        self.last.set(association);
        let path = Path { remote: peer.address, local: None, association };
        let line = Line {
            kind,
            output: Vec::new(),
            message_bytes_max: signal::MESSAGE_BYTES_BASE,
            congested: false,
            custodies: Vec::new(),
            waker: None,
        };
        lines.insert(association, line);
        drop(lines);
        self.core.borrow_mut().opened(path, peer);
        self.agree(path, StreamLimits { message_bytes_max: signal::MESSAGE_BYTES_BASE, bert: false });
        path
    }

    /// Removes a connection with its state.
    fn close(&self, path: Path) {
        self.lines.borrow_mut().remove(&path.association);
        let mut core = self.core.borrow_mut();
        core.admission.close(path.association);
        core.server.forget(&path);
        core.settle();
    }

    /// Notes the limits that the peer has announced.
    fn agree(&self, path: Path, limits: StreamLimits) {
        if let Some(line) = self.lines.borrow_mut().get_mut(&path.association) {
            line.message_bytes_max = limits.message_bytes_max;
        }
        let mut core = self.core.borrow_mut();
        let (now, chunk_max) = (core.machine_now(), core.ctx.door.config.message_bytes_max);
        core.server.connect(now, path, limits, chunk_max);
    }

    /// Handles the messages that a connection has read, as far as there is room for responses and others can wait, and
    /// publishes them in batches. `next` returns one message after the other, given the running time.
    fn take<'a>(
        &self,
        path: Path,
        room: &'a Room,
        mut next: impl FnMut(fogmux_coap::Timestamp) -> Result<Option<Heard<'a>>, Abort>,
    ) -> Taken {
        let mut guard = self.core.borrow_mut();
        let mut core = &mut *guard;
        let now = core.ctx.now();
        let mut batch = Batch::new(std::mem::take(&mut core.topics));
        let (mut all, mut end) = (false, None);
        core.deliveries = Deliveries::default();
        while core.out.bytes() < OUTPUT_HIGH && end.is_none() && !core.deliveries.are_enough() {
            match next(session_time(core.ctx.running_at(now))) {
                Ok(None) => {
                    all = true;
                    break;
                }
                Ok(Some(Heard::Message(message))) => {
                    let incoming = core.server.handle_stream(machine_time(now), path, message, room, &mut core.out);
                    if let Some(incoming) = incoming {
                        core.dispatch(now, incoming, &mut batch);
                    } else {
                        core.unopened.log(&core.ctx.shared, path.remote);
                    }
                }
                Ok(Some(Heard::Settings(limits))) => {
                    core.deliveries.add(SIGNAL_DELIVERIES);
                    drop(guard);
                    self.agree(path, limits);
                    guard = self.core.borrow_mut();
                    core = &mut *guard;
                }
                Ok(Some(Heard::Ping { token, custody })) => {
                    core.deliveries.add(SIGNAL_DELIVERIES);
                    core.publish(now, &mut batch);
                    self.pong(core, path, token, custody);
                }
                Ok(Some(Heard::Nothing)) => core.deliveries.add(SIGNAL_DELIVERIES),
                Ok(Some(Heard::Released(_))) => end = Some(End::Released),
                Ok(Some(Heard::Aborted(text))) => end = Some(End::Aborted(text)),
                Err(abort) => end = Some(End::Abort(abort)),
            }
        }
        core.publish(now, &mut batch);
        core.topics = batch.into_topics();
        let slow_down = core.slow_down.take();
        core.settle();
        self.distribute(core);
        let due = core.next_timeout();
        if (due != self.armed.get() || core.has_pending())
            && let Some(waker) = &*self.waker.borrow()
        {
            // The hub's task has to wait: for the store, a timeout, or retained messages.
            waker.wake_by_ref();
        }
        Taken { all: all || end.is_some(), slow_down, end }
    }

    /// RFC 8323 §5.4.1: with custody, the Pong waits for the responses to all earlier requests.
    fn pong(&self, core: &mut Core, path: Path, token: Token, custody: bool) {
        self.distribute(core);
        let owes = custody && core.owes(&path);
        if let Some(line) = self.lines.borrow_mut().get_mut(&path.association) {
            if owes && line.custodies.len() < CUSTODIES_MAX {
                line.custodies.push(token);
            } else {
                line.write(|framing, bytes| signal::push_pong(&token, custody && !owes, framing, bytes));
            }
        }
    }

    /// Hands what the machine wants sent to the connections.
    fn distribute(&self, core: &mut Core) {
        let mut lines = self.lines.borrow_mut();
        let mut congested: smallvec::SmallVec<[Path; 4]> = smallvec::SmallVec::new();
        for (path, datagram) in core.out.iter() {
            let Some(line) = lines.get_mut(&path.association) else { continue };
            if datagram.len() > line.message_bytes_max {
                // Responses and notifications come in blocks that fit: its options alone are too long.
                tracing::debug!(peer = %path.remote, bytes = datagram.len(), "a message is too long for its peer");
                core.ctx.shared.metrics.coap_too_long.increment();
            } else if let Some(frame) = Frame::of_datagram(datagram) {
                line.write(|framing, bytes| frame.write(framing, bytes));
            } else {
                core.ctx.shared.metrics.coap_too_long.increment();
            }
            if !line.congested && line.output.len() > OUTPUT_HIGH {
                line.congested = true;
                congested.push(path);
            }
        }
        core.out.clear();
        for path in congested {
            let now = core.machine_now();
            core.server.set_congested(now, &path, true, &mut core.out);
        }
    }

    /// RFC 8323 §5.4.1: answers the Pings with custody whose earlier requests have been answered.
    fn release_custodies(&self, core: &Core) {
        let mut lines = self.lines.borrow_mut();
        for association in core.pending.settled() {
            let Some(line) = lines.get_mut(&association) else { continue };
            for token in std::mem::take(&mut line.custodies) {
                line.write(|framing, bytes| signal::push_pong(&token, true, framing, bytes));
            }
        }
    }

    fn unwatch(&self, path: Path) {
        if let Some(line) = self.lines.borrow_mut().get_mut(&path.association) {
            line.waker = None;
        }
    }

    fn watch(&self, path: Path, waker: &Waker) {
        if let Some(line) = self.lines.borrow_mut().get_mut(&path.association) {
            note_waker(&mut line.waker, waker);
        }
    }

    /// Ends all observations, once, because the gateway shuts down.
    fn say_goodbye(&self) {
        if !self.said_goodbye.replace(true) {
            let mut core = self.core.borrow_mut();
            core.say_goodbye();
            core.count_outcomes();
            self.distribute(&mut core);
        }
    }
}

impl Line {
    fn write(&mut self, write: impl FnOnce(fogmux_coap::stream::Framing, &mut Vec<u8>)) {
        self.kind.write(&mut self.output, write);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

fn note_waker(held: &mut Option<Waker>, waker: &Waker) {
    if held.as_ref().is_none_or(|held| !held.will_wake(waker)) {
        *held = Some(waker.clone());
    }
}

/// Serves a connection over TCP or TLS until it ends.
pub async fn serve_stream<S: AsyncRead + AsyncWrite + Unpin>(ctx: Rc<CoapContext>, io: S, peer: Peer) {
    connection::serve(ctx, io, peer, WireKind::Stream).await;
}

/// Serves a WebSocket whose handshake is done (RFC 8323 §4, §8.1); `io` is what carries its frames.
pub async fn serve_websocket<S: AsyncRead + AsyncWrite + Unpin>(ctx: Rc<CoapContext>, io: S, peer: Peer) {
    connection::serve(ctx, io, peer, WireKind::WebSocket).await;
}

#[cfg(test)]
mod tests;
