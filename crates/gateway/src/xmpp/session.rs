//! A bound connection: the loop over socket, mailbox and deadlines.

mod deadlines;
mod stay;

use std::{
    future::{Future as _, poll_fn},
    net::Ipv4Addr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use fogmux_bus::{Claim, Door};
use fogmux_xmpp::{StreamCondition, StreamError};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep},
};

use self::{deadlines::Stalled, stay::Login};
use super::{core::Core, divided::Divided, read};
use crate::{
    clients::Listed,
    credential::Handshake,
    deadline::Deadline,
    liveness,
    phase::Phase,
    shutdown::{DRAIN_TICK, Reading, Written},
    stops::Running,
    tasks::Stage,
    turn,
    unfinished::{Place, SMALL_BYTES},
};

/// Bytes of output that each client may have yet to take, and that are not counted.
const UNREAD_SMALL_BYTES: usize = 4 << 10;
/// Turns before other tasks of the worker run.
const TURNS: usize = 8;

/// A bound connection.
pub(super) struct Session<S> {
    stream: S,
    core: Core,
    /// Its place in the list of connections.
    listed: Listed,
    claim: Claim,
    /// The beginning of a stanza.
    kept: Vec<u8>,
    /// How much of the output is written.
    written: usize,
    /// The stream below may hold bytes back.
    unflushed: bool,
    /// Runs while the client reads nothing.
    stalled: Option<Box<Stalled>>,
    /// Runs while a stanza has begun and not ended.
    open: Option<Box<Deadline>>,
    /// Runs while the limit of unacknowledged stanzas is reached.
    unacknowledged: Option<Box<Deadline>>,
    /// Since when the client is not read, for our own reasons: such time counts against no deadline.
    unread_since: Option<Running>,
    /// Its place among the unfinished stanzas and the output of all clients, while it has more than a little.
    place: Option<Box<Place>>,
    /// In a box, because most connections have nothing of it.
    login: Option<Box<Login>>,
    /// Until then, by the clock as it was when the rules were last looked at.
    expires: Option<Pin<Box<Sleep>>>,
    /// The lower half of the generation of the rules under which the client was last checked.
    generation: u32,
    /// A shutdown waits for it.
    reading: Option<Reading>,
    /// The gateway shuts down: the connection ends when everything is sent.
    empties: bool,
}

/// The connection has ended: nothing can be written any more.
struct Over;

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    pub(super) fn new(
        stream: S,
        (core, listed): (Core, Listed),
        claim: Claim,
        kept: Vec<u8>,
        (expires_unix_s, handshake): (Option<u64>, Option<Handshake>),
    ) -> Self {
        let reading = Some(Reading::begin(&core.ctx.shared.shutdown));
        let ends = expires_unix_s.is_some() || handshake.is_some();
        Self {
            stream,
            core,
            listed,
            reading,
            empties: false,
            claim,
            kept,
            written: 0,
            unflushed: false,
            stalled: None,
            open: None,
            unacknowledged: None,
            unread_since: None,
            place: None,
            login: ends.then(|| Box::new(Login { expires_unix_s, handshake })),
            expires: None,
            // The first turn checks: the rules may have changed since the login.
            generation: 0,
        }
    }

    /// Runs the connection until it ends. Nothing comes after it.
    pub(super) async fn run(mut self: Box<Self>) -> Option<Stage> {
        let ctx = std::rc::Rc::clone(&self.core.ctx);
        if !self.kept.is_empty() {
            // Input that followed the bind request.
            let kept = std::mem::take(&mut self.kept);
            let used = self.core.take(&kept);
            self.kept = kept.get(used..).unwrap_or_default().to_vec();
        }
        {
            let mut phase = std::pin::pin!(ctx.reached(Phase::Emptying));
            let mut written = Written::default();
            let mut tick: Option<Pin<Box<Sleep>>> = None;
            let drained = poll_fn(|cx| {
                if self.poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                while phase.as_mut().poll(cx).is_ready() {
                    if self.empties {
                        return Poll::Ready(true);
                    }
                    self.empties = true;
                    phase.set(ctx.reached(Phase::Closing));
                }
                if !self.empties {
                    return Poll::Pending;
                }
                let peer = self.core.me.gate.access().peer().unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
                if written.is_taken(self.is_drained(), &ctx.shared.shutdown, peer) {
                    return Poll::Ready(true);
                }
                // Nothing else tells when its host has taken everything.
                let tick = tick.get_or_insert_with(|| Box::pin(tokio::time::sleep(DRAIN_TICK)));
                while tick.as_mut().poll(cx).is_ready() {
                    tick.as_mut().reset(Instant::now() + DRAIN_TICK);
                }
                Poll::Pending
            });
            let drained = drained.await;
            let left = self.core.me.inbox.with_claim(self.claim, |inbox| inbox.len()).unwrap_or(0);
            if let Some(reading) = self.reading.take().filter(|_| drained) {
                reading.leave(left);
            }
            if drained {
                Box::pin(self.shut_down()).await;
            }
        }
        if self.core.divided().is_some() {
            Box::pin(self.core.publish_all_divided()).await;
        }
        Box::pin(read::linger(&mut self.stream)).await;
        None
    }

    /// Whether everything that was published is sent, and everything said is answered.
    fn is_drained(&self) -> bool {
        self.core.held.is_empty()
            && self.core.divided().is_none()
            && !self.core.owes()
            && !self.is_unwritten()
            && self.core.me.inbox.with_claim(self.claim, |inbox| inbox.is_empty()).unwrap_or(true)
    }

    /// Closes the stream, with a second for the last output.
    async fn shut_down(&mut self) {
        // The store may take longer than the shutdown, and fail: what waits for it is not known to be true.
        self.core.held.drop_all(self.written, &mut self.core.out);
        let error = StreamError::new(StreamCondition::SystemShutdown, "");
        self.core.machine.fail(error, &mut self.core.out);
        let goodbye = poll_fn(|cx| self.poll_write(cx));
        let _ = tokio::time::timeout(Duration::from_secs(1), goodbye).await;
    }

    /// Turns, until there is nothing to do; ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.poll_turns(cx);
        if polled.is_pending() && !self.is_over() && self.poll_gave_way(cx) {
            // It is not even told why, because it takes nothing.
            if self.unread_bytes() > 0 {
                return Poll::Ready(());
            }
            let error = StreamError::new(StreamCondition::ResourceConstraint, "too many large stanzas at once");
            self.core.machine.fail(error, &mut self.core.out);
            self.kept = Vec::new();
            drop(self.core.take_divided());
            self.place = None;
            turn::again(cx);
        }
        polled
    }

    fn poll_turns(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS {
            if self.poll_stored(cx).is_pending() {
                self.note_unread();
                return Poll::Pending;
            }
            self.check_control(cx);
            let Ok(()) = self.core.fill(self.claim, cx) else { return Poll::Ready(()) };
            match self.poll_write(cx) {
                Poll::Ready(Err(Over)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => self.stalled = None,
                // It is not even told why, because it takes nothing.
                Poll::Pending if self.listed.is_kicked() => return Poll::Ready(()),
                // The mailbox's ready flag is not cleared, so deliveries do not wake the task.
                Poll::Pending => {
                    self.note_unread();
                    return self.poll_stalled(cx);
                }
            }
            if self.is_over() {
                return Poll::Ready(());
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(())) if self.core.deliveries.are_enough() => break,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Over)) => return Poll::Ready(()),
                Poll::Pending if self.unread_since.is_none() && self.is_overdue(cx) => {
                    let error = StreamError::new(StreamCondition::PolicyViolation, "a stanza took too long");
                    self.core.machine.fail(error, &mut self.core.out);
                }
                Poll::Pending if self.is_forgotten(cx) => {
                    let error = StreamError::new(StreamCondition::ConnectionTimeout, "stanzas were not acknowledged");
                    self.core.machine.fail(error, &mut self.core.out);
                }
                // The output has room again.
                Poll::Pending if self.core.has_more() => {}
                Poll::Pending => {
                    self.check_sleep(self.core.may_send() && (self.core.owes() || self.is_unwritten()));
                    return Poll::Pending;
                }
            }
        }
        turn::again(cx);
        Poll::Pending
    }

    /// Whether the stream is closed. One that its client has closed goes on until everything before that is published
    /// and answered.
    fn is_over(&self) -> bool {
        let finishes = |divided: &Divided| divided.tail.ends_with(b"</stream:stream>");
        self.core.machine.is_closed() && !self.core.divided().is_some_and(finishes)
    }

    /// Whether output is left that the stream has not taken or not flushed.
    const fn is_unwritten(&self) -> bool {
        self.written < self.core.out.len() || self.unflushed
    }

    /// Asks the liveness oracle; `stuck` when the task sleeps although it could go on.
    fn check_sleep(&self, stuck: bool) {
        let state = || (self.written, self.core.out.len(), self.unflushed, self.core.backlog, self.core.replays.len());
        liveness::check_sleep(&self.core.ctx, "xmpp", || stuck.then(state));
    }

    /// Holds answers back until what they promise is stored. What was not is undone before its author is told.
    fn poll_stored(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Core { held, out, ctx, .. } = &mut self.core;
        held.poll(out, cx, || ctx.door.undo(ctx.bus()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Over>> {
        while let Some(rest) = self.core.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            let Ok(written) = ready!(Pin::new(&mut self.stream).poll_write(cx, rest)) else {
                return Poll::Ready(Err(Over));
            };
            if written == 0 {
                return Poll::Ready(Err(Over));
            }
            self.stalled = None;
            self.unflushed = true;
            self.written += written;
            if let Some(reading) = self.reading.as_ref().filter(|_| self.empties) {
                reading.note_progress();
            }
            let bytes = u64::try_from(written).unwrap_or(u64::MAX);
            self.core.ctx.shared.metrics.xmpp.bytes_out.add(bytes);
        }
        if self.core.out.capacity() > 0 {
            self.core.give_back();
            self.written = 0;
        }
        self.core.ctx.written(&mut self.core.marks, Door::Xmpp, &self.core.me.publisher);
        if self.unflushed {
            if ready!(Pin::new(&mut self.stream).poll_flush(cx)).is_err() {
                return Poll::Ready(Err(Over));
            }
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether it has to wait as a publisher: for what its principal's own queues hold, or for a subscriber. A client
    /// whose acknowledgement is awaited is read, or is read again soon: its own queue may be what others wait for.
    fn poll_held_back(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ctx = &self.core.ctx;
        let is_awaited = !self.core.machine.management().has_room();
        if !is_awaited && ctx.bus().memory().pressure() {
            let owner = self.core.owner();
            ready!(Pin::new(&mut ctx.bus().memory().relieved(owner)).poll(cx));
        }
        if let Some(held_back) = &mut self.core.held_back {
            if is_awaited {
                held_back.shorten();
            }
            ready!(held_back.poll(ctx, cx));
            if self.core.divided().is_none() {
                self.core.held_back = None;
            }
        }
        Poll::Ready(())
    }

    /// So many bytes are done with; the others are kept, and counted.
    fn note_kept(&mut self, used: usize) {
        if used > 0 {
            self.open = None;
        }
        if self.kept.is_empty() {
            self.kept = Vec::new();
        }
    }

    /// Bytes of the output, if they are more than a little and the client has taken none of them for a while. A client
    /// that reads, however slowly, is not cut for the sake of others: it did not choose what is published.
    fn unread_bytes(&self) -> usize {
        let rests = self.stalled.as_ref().is_some_and(|stalled| stalled.rests());
        let waits = self.core.out.len().saturating_sub(self.written) > UNREAD_SMALL_BYTES;
        if rests && waits { self.core.out.capacity() } else { 0 }
    }

    /// Counts the stanza that has not come whole and the output that is not taken, before the task sleeps. Says whether
    /// they have to end for others.
    fn poll_gave_way(&mut self, cx: &Context<'_>) -> bool {
        let unfinished = if self.kept.len() <= SMALL_BYTES { 0 } else { self.kept.capacity() };
        let divided = self.core.divided().map_or(0, Divided::bytes);
        let bytes = unfinished + divided + self.unread_bytes();
        if bytes == 0 {
            self.place = None;
            return false;
        }
        let (ctx, core) = (&self.core.ctx, &self.core);
        let fresh = || Box::new(Place::new(&ctx.door.unfinished, core.owner()));
        let place = self.place.get_or_insert_with(fresh);
        !place.set(ctx, bytes, self.kept.len() + self.written) || place.waiter().poll_gave_way(cx).is_ready()
    }

    /// Reads once and handles the input. Publishers are paused while mailboxes hold too much.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Over>> {
        if self.poll_held_back(cx).is_pending() {
            self.note_unread();
            return Poll::Pending;
        }
        self.excuse();
        let core = &mut self.core;
        let ctx = std::rc::Rc::clone(&core.ctx);
        core.reserve();
        if let Some(divided) = core.take_divided() {
            core.publish_divided(divided);
            return Poll::Ready(Ok(()));
        }
        if core.stopped {
            // Input that was read earlier comes first.
            let used = core.take(&self.kept);
            self.kept.drain(..used.min(self.kept.len()));
            self.note_kept(used);
            return Poll::Ready(Ok(()));
        }
        let mut used = 0;
        let read = read::poll_take(&ctx, &mut self.stream, &mut self.kept, cx, |bytes| {
            used = core.take(bytes);
            used
        });
        match read {
            Poll::Ready(Ok(1..)) => {
                self.note_kept(used);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Err(Over)),
            Poll::Pending => {
                if self.core.out.is_empty() {
                    self.core.give_back();
                }
                Poll::Pending
            }
        }
    }
}
