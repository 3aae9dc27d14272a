//! A connection's task: read a turn, drain the mailbox, write once, sleep. Polled by hand, so that an idle connection is
//! no larger than what it has to remember.

use std::{
    collections::VecDeque,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fogmux_bus::{Claim, Publisher, SessionKey, Slot, Timestamp};
use fogmux_mqtt::{
    Disconnect, Inbound, InboundConfig, Limits, Negotiation, Packet, Properties, Property, PropertyBuffer, ReasonCode,
    Role, SESSION_NEVER_EXPIRES, Version,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::Sleep,
};

use super::{
    access::{Gate, WriteCache},
    mailbox::MqttMailbox,
    output::Output,
    publish::Pending,
    receive::Input,
    retained::Pull,
    session::ConnectionId,
    will::Will,
};
use crate::WorkerContext;

/// Turns a connection takes before others get theirs.
const TURNS: usize = 4;
/// Bytes a connection reads before others get their turn.
const TURN_BYTES: usize = 32 << 10;
/// Unwritten bytes above which nothing more is drained or read: the peer is not reading.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// More than a packet with a Reason String has beside the string: an acknowledgement without codes, or one code.
const PACKET_BYTES: usize = 64;
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(2);
/// What is read and thrown away after a goodbye, so that the peer gets to read it (RFC 1122 §4.2.2.13: closing with
/// unread bytes resets the connection).
const LINGER_BYTES: usize = 8 << 20;
/// How long a client may be at one packet once unfinished packets take too much memory.
const UNFINISHED_PATIENCE: Duration = Duration::from_secs(2);
/// How long a publisher waits for those who read slower than it writes. A turn is 64 KiB at most, so this still leaves
/// it some ten megabytes a second; short of that its messages would be refused.
const BREATH: Duration = Duration::from_millis(4);
/// Between the wills and the goodbye of a drain: time for the wills to arrive.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(100);

/// What a login gave.
pub(super) struct Granted {
    pub(super) negotiation: Negotiation,
    pub(super) slot: Arc<Slot<MqttMailbox>>,
    pub(super) claim: Claim,
    pub(super) gate: Arc<Gate>,
    pub(super) publisher: Arc<Publisher>,
    pub(super) will: Option<Will>,
    pub(super) greeting: Vec<u8>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The stream is closed or broken.
    Closed,
    /// The client said goodbye; `will`: and wants its will published all the same (§3.14.2.1).
    Disconnected {
        /// Reason 0x04, or any other but 0x00.
        will: bool,
    },
    /// The client broke the protocol.
    Misbehaved(ReasonCode),
    /// The client was silent, or took nothing, for too long.
    TimedOut(ReasonCode),
    /// Another connection took the session over.
    Displaced,
    /// A message of a client that cannot be told otherwise was refused.
    Refused,
    /// The gateway shuts down.
    Draining,
}

/// One client's connection.
pub(super) struct Connection<S> {
    pub(super) ctx: Rc<WorkerContext>,
    pub(super) stream: S,
    pub(super) slot: Arc<Slot<MqttMailbox>>,
    pub(super) claim: Claim,
    pub(super) gate: Arc<Gate>,
    pub(super) publisher: Arc<Publisher>,
    pub(super) inbound: Inbound,
    pub(super) input: Input,
    pub(super) output: Output,
    rare: Option<Box<Rare>>,
    pub(super) writable: Option<Box<WriteCache>>,
    pub(super) will: Option<Box<Will>>,
    pub(super) session_expiry: u32,
    pub(super) version: Version,
    /// Reason strings may be sent in every packet ([MQTT-3.1.2-29]).
    problem_information: bool,
    /// The client's Maximum Packet Size.
    packet_bytes_max: u32,
    /// The last turn had a PUBLISH in it.
    pub(super) publishes: bool,
    /// The client owes acknowledgements: it must be read whatever the memory says.
    pub(super) awaiting: bool,
    pub(super) now: Timestamp,
    pub(super) last_read: Timestamp,
    /// Bytes read since the task was woken.
    pub(super) read_bytes: usize,
    /// Since when the packet at the front of the input is not whole.
    pub(super) unfinished_since: Timestamp,
    id: Option<ConnectionId>,
    keep_alive: u16,
    stalled_since: Option<Timestamp>,
    overflowed: bool,
    draining_since: Option<Timestamp>,
    /// When the door wakes us at the latest.
    alarm: Timestamp,
}

/// What most connections have nothing of most of the time.
#[derive(Default)]
pub(super) struct Rare {
    /// Acknowledgements that wait for the store.
    pub(super) pending: VecDeque<Pending>,
    /// Subscriptions whose retained messages have not all been sent.
    pub(super) pulls: VecDeque<Pull>,
    /// What to say beside the reason of the end.
    why: Option<Box<str>>,
    /// A breath that this publisher takes, so that somebody can catch up.
    breath: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(ctx: Rc<WorkerContext>, stream: S, granted: Granted, rest: Vec<u8>) -> Self {
        let config = &ctx.shared.mqtt.config;
        let negotiation = granted.negotiation;
        let inbound = InboundConfig {
            role: Role::Server,
            receive_maximum: config.receive_maximum,
            topic_alias_maximum: config.topic_alias_maximum,
            alias_bytes_max: config.alias_bytes_max,
        };
        let now = ctx.now();
        let mut output = Output::default();
        output.buffer(&ctx).extend_from_slice(&granted.greeting);
        Self {
            stream,
            slot: granted.slot,
            claim: granted.claim,
            gate: granted.gate,
            publisher: granted.publisher,
            inbound: Inbound::new(negotiation.version, inbound),
            input: Input::new(rest),
            output,
            rare: None,
            writable: None,
            will: granted.will.map(Box::new),
            session_expiry: negotiation.session_expiry,
            version: negotiation.version,
            problem_information: negotiation.problem_information,
            packet_bytes_max: negotiation.packet_bytes_max,
            publishes: false,
            awaiting: false,
            now,
            last_read: now,
            read_bytes: 0,
            unfinished_since: Timestamp::NEVER,
            id: None,
            keep_alive: negotiation.keep_alive,
            stalled_since: None,
            overflowed: false,
            draining_since: None,
            alarm: Timestamp::NEVER,
            ctx,
        }
    }

    pub(super) fn limits(&self) -> Limits {
        let max = self.ctx.shared.mqtt.config.packet_bytes_max;
        Limits { packet_bytes_max: usize::try_from(max).unwrap_or(usize::MAX) }
    }

    /// What few connections have, made if it is not there.
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Acknowledgements that wait for the store.
    pub(super) fn pending(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.pending.len())
    }

    /// Subscriptions whose retained messages have not all been sent.
    pub(super) fn pulls(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.pulls.len())
    }

    /// The session's name.
    fn key(&self) -> SessionKey {
        SessionKey(Arc::clone(&self.publisher.client))
    }

    /// Does what can be done now; ready when the connection is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.now = self.ctx.now();
        self.read_bytes = 0;
        if self.id.is_none() {
            self.id = Some(self.ctx.shared.mqtt.register(cx.waker()));
        }
        match self.turns(cx) {
            Ok(true) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(false) => self.poll_deadline(),
            Err(end) => Poll::Ready(end),
        }
    }

    /// Takes turns while there is something to do; says whether there still is.
    fn turns(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.ctx.is_draining() {
            self.begin_drain()?;
        }
        for turn in 0..TURNS {
            let mut progress = self.may_read(cx) && self.poll_receive(cx)?.is_ready();
            if self.pending() > 0 {
                progress |= self.poll_pending(cx)?;
            }
            if progress || turn == 0 {
                progress |= self.poll_send(cx)?;
            }
            if !progress {
                return Ok(false);
            }
            if self.read_bytes >= TURN_BYTES {
                break;
            }
        }
        Ok(true)
    }

    /// Lets somebody catch up who reads slower than we publish to them.
    pub(super) fn breathe(&mut self) {
        self.rare().breath = Some(Box::pin(tokio::time::sleep(BREATH)));
    }

    fn is_breathing(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(rare) = &mut self.rare else { return false };
        let breathing = rare.breath.as_mut().is_some_and(|breath| breath.as_mut().poll(cx).is_pending());
        if !breathing {
            rare.breath = None;
        }
        breathing
    }

    /// Publishers are not read while memory is tight, those who wait for completions not beyond what they may have,
    /// nobody who does not read, and no large packet while there are too many.
    fn may_read(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_breathing(cx) {
            return false;
        }
        if self.input.is_large() && self.ctx.shared.mqtt.unfinished_share() > 0 {
            return false;
        }
        if self.output.len() > OUTPUT_BYTES_MAX || self.pending() > 64 {
            return false;
        }
        let memory = self.ctx.bus().memory();
        if !self.publishes || self.awaiting || !memory.pressure() {
            return true;
        }
        std::pin::pin!(memory.relieved()).poll(cx).is_ready()
    }

    /// Drains the mailbox and writes, until there is nothing more or the peer takes no more; says whether it stopped
    /// before that.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        for _ in 0..TURNS {
            let more = self.drain(cx)?;
            match self.output.poll_write(&mut self.stream, cx) {
                Poll::Ready(Ok(0)) if more => {}
                Poll::Ready(Ok(0)) => {
                    self.output.release(&self.ctx);
                    return Ok(false);
                }
                Poll::Ready(Ok(written)) => {
                    self.ctx.shared.metrics.mqtt.bytes_out.add(u64::try_from(written).unwrap_or_default());
                    self.stalled_since = None;
                    if self.output.is_empty() && Pin::new(&mut self.stream).poll_flush(cx).is_pending() {
                        return Ok(false);
                    }
                }
                Poll::Ready(Err(_)) => return Err(End::Closed),
                Poll::Pending => {
                    self.stalled_since.get_or_insert(self.now);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Takes what the mailbox has, unless there is still enough to write. Says whether it has more.
    fn drain(&mut self, cx: &Context<'_>) -> Result<bool, End> {
        if self.output.has_tail() || self.output.len() > OUTPUT_BYTES_MAX || self.stalled_since.is_some() {
            return self.slot.with_claim(self.claim, |_| ()).map(|()| false).map_err(|_| End::Displaced);
        }
        let (ctx, now, output) = (&self.ctx, self.now, &mut self.output);
        let drain = |mailbox: &mut MqttMailbox| mailbox.drain(output.buffer(ctx), now);
        let drained = self.slot.poll_with(self.claim, cx, drain).map_err(|_| End::Displaced)?;
        if drained.expired > 0 {
            self.ctx.bus().counters().expired(drained.expired);
        }
        if let Some(tail) = drained.tail {
            self.output.set_tail(tail);
        }
        self.awaiting = drained.awaiting;
        // Until a drain finds that nothing was refused since the last one, the client counts as too slow.
        self.overflowed = drained.overflowed || (self.overflowed && !drained.queue_empty);
        let pulled = drained.queue_empty && self.pulls() > 0 && self.pull()?;
        Ok(pulled || drained.more)
    }

    fn keep_alive_deadline(&self) -> Timestamp {
        match self.keep_alive {
            0 => Timestamp::NEVER,
            // [MQTT-3.1.2-22]: one and a half times.
            seconds => self.last_read + Duration::from_millis(u64::from(seconds) * 1500),
        }
    }

    fn stall_deadline(&self) -> Timestamp {
        self.stalled_since.map_or(Timestamp::NEVER, |since| since + self.ctx.shared.mqtt.config.stall_max)
    }

    /// When to look whether there is too much unfinished.
    fn unfinished_deadline(&self) -> Timestamp {
        if self.unfinished_since == Timestamp::NEVER {
            return Timestamp::NEVER;
        }
        self.unfinished_since + UNFINISHED_PATIENCE
    }

    fn drain_deadline(&self) -> Timestamp {
        self.draining_since.map_or(Timestamp::NEVER, |since| since + DRAIN_GRACE)
    }

    /// Looks whether a deadline is over, otherwise sets the alarm for the next. It is set again only when it has rung or
    /// a deadline comes before it: a client that speaks costs no timer operation.
    fn poll_deadline(&mut self) -> Poll<End> {
        if self.drain_deadline() <= self.now {
            return Poll::Ready(End::Draining);
        }
        if self.keep_alive_deadline() <= self.now {
            return Poll::Ready(End::TimedOut(ReasonCode::KEEP_ALIVE_TIMEOUT));
        }
        if self.stall_deadline() <= self.now {
            if self.is_overflowing() {
                return Poll::Ready(End::TimedOut(ReasonCode::QUOTA_EXCEEDED));
            }
            self.stalled_since = Some(self.now);
        }
        let mut next = self.keep_alive_deadline().min(self.stall_deadline()).min(self.drain_deadline());
        if self.unfinished_deadline() <= self.now {
            if self.ctx.shared.mqtt.unfinished_share() > 0 {
                return Poll::Ready(self.too_much_unfinished());
            }
            next = next.min(self.now + UNFINISHED_PATIENCE);
        } else {
            next = next.min(self.unfinished_deadline());
        }
        if next < self.alarm || self.alarm <= self.now {
            self.alarm = next;
            if let Some(id) = self.id {
                self.ctx.shared.mqtt.set_alarm(id, next);
            }
        }
        Poll::Pending
    }

    fn is_overflowing(&self) -> bool {
        self.overflowed || self.slot.with(|mailbox| mailbox.has_overflowed())
    }

    /// The gateway shuts down: the will goes out at once, the goodbye when it had time to arrive.
    fn begin_drain(&mut self) -> Result<(), End> {
        if self.draining_since.is_none() {
            self.draining_since = Some(self.now);
            if let Some(will) = self.will.take() {
                will.publish(&self.ctx);
            }
        }
        if self.drain_deadline() <= self.now { Err(End::Draining) } else { Ok(()) }
    }

    /// Says goodbye as the version allows, leaves the session, and sees to the will.
    pub(super) async fn close(mut self: Box<Self>, end: End) {
        if let Some(id) = self.id {
            self.ctx.shared.mqtt.unregister(id);
        }
        self.count(end);
        self.leave(end);
        if end == End::Closed {
            return;
        }
        if let Some(reason) = self.goodbye(end) {
            let mut list = PropertyBuffer::new();
            let properties = self.reason_string(self.rare.as_ref().and_then(|rare| rare.why.as_deref()), &mut list);
            let packet = Packet::Disconnect(Disconnect { reason, properties });
            let buffer = self.output.buffer(&self.ctx);
            // What the list took fits.
            let _ = packet.encode(self.version, buffer);
        }
        let Self { ctx, stream, output, .. } = &mut *self;
        let write = std::future::poll_fn(|cx| {
            loop {
                match std::task::ready!(output.poll_write(stream, cx)) {
                    Ok(0) => return Poll::Ready(true),
                    Ok(_) => {}
                    Err(_) => return Poll::Ready(false),
                }
            }
        });
        if tokio::time::timeout(GOODBYE, write).await == Ok(true) {
            linger(ctx, stream).await;
        }
    }

    /// The reason to give in DISCONNECT, which a server sends in version 5 only.
    fn goodbye(&self, end: End) -> Option<ReasonCode> {
        if !self.version.is_v5() {
            return None;
        }
        match end {
            End::Closed | End::Disconnected { .. } => None,
            End::Misbehaved(reason) | End::TimedOut(reason) => Some(reason),
            End::Displaced => Some(ReasonCode::SESSION_TAKEN_OVER),
            End::Refused => Some(ReasonCode::QUOTA_EXCEEDED),
            End::Draining => Some(ReasonCode::SERVER_SHUTTING_DOWN),
        }
    }

    /// A Reason String, unless the client takes no packet that large ([MQTT-3.14.2-3] and its like).
    fn reason_string<'l>(&self, text: Option<&str>, list: &'l mut PropertyBuffer) -> Properties<'l> {
        if let Some(text) = text {
            let fits = usize::try_from(self.packet_bytes_max).is_ok_and(|max| text.len() + PACKET_BYTES <= max);
            if self.version.is_v5() && fits {
                // Our texts are short.
                let _ = list.push(Property::ReasonString(text));
            }
        }
        list.properties()
    }

    /// A Reason String for an acknowledgement, which the client may have asked not to be sent ([MQTT-3.1.2-29]).
    pub(super) fn explanation<'l>(&self, text: Option<&str>, list: &'l mut PropertyBuffer) -> Properties<'l> {
        self.reason_string(text.filter(|_| self.problem_information), list)
    }

    /// The client broke the protocol: how, and what it is told.
    pub(super) fn misbehaved(&mut self, how: &dyn std::fmt::Display, reason: ReasonCode) -> End {
        let how = how.to_string();
        tracing::debug!(%reason, %how, "client misbehaved");
        self.rare().why = Some(how.into());
        End::Misbehaved(reason)
    }

    fn count(&self, end: End) {
        let metrics = &self.ctx.shared.metrics.mqtt;
        match end {
            End::Misbehaved(_) => metrics.misbehaved.increment(),
            End::TimedOut(reason) => {
                metrics.timed_out.increment();
                tracing::debug!(%reason, "client timed out");
            }
            End::Closed | End::Disconnected { .. } | End::Displaced | End::Refused | End::Draining => {}
        }
    }

    /// Leaves the session, which may go on without a connection, and publishes or keeps the will.
    fn leave(&mut self, end: End) {
        let (ctx, key) = (&self.ctx, self.key());
        let door = &ctx.shared.mqtt;
        // §3.1.2.5: published unless the client said a plain goodbye.
        let will = self.will.take().filter(|_| end != End::Disconnected { will: false });
        if end == End::Displaced {
            let resumed = door.sessions.get(&key).is_some_and(|slot| Arc::ptr_eq(&slot, &self.slot));
            // The session goes on with the new connection, which comes before any delay ([MQTT-3.1.3-9]); if it
            // ended, its delay is over.
            if let Some(will) = will.filter(|will| !resumed || will.delay == 0) {
                will.publish(ctx);
            }
            return;
        }
        // Nobody else's claim can be lost by this: `with_claim` fails then, and so does `detach`.
        let _ = self.slot.with_claim(self.claim, MqttMailbox::disconnect);
        let keep =
            (self.session_expiry != SESSION_NEVER_EXPIRES).then(|| Duration::from_secs(u64::from(self.session_expiry)));
        if let Some(slot) = door.sessions.detach(&key, &self.slot, self.claim, keep, self.now) {
            door.end_session(ctx, &slot);
        }
        let Some(will) = will else { return };
        let delay = will.delay.min(self.session_expiry);
        if delay == 0 {
            will.publish(ctx);
        } else {
            door.delay_will(key, *will, self.now + Duration::from_secs(u64::from(delay)));
        }
    }
}

/// Closes the stream's own end, then reads and drops what still comes, so that the peer can read what was said last.
pub(super) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(ctx: &WorkerContext, stream: &mut S) {
    let wait = async {
        if stream.shutdown().await.is_err() {
            return;
        }
        let mut left = LINGER_BYTES;
        let mut sink = [0; 1024];
        while let Ok(read) = stream.read(&mut sink).await {
            left = left.saturating_sub(read);
            if read == 0 || left == 0 || ctx.is_draining() {
                return;
            }
        }
    };
    // Too slow a peer does not get to read it.
    let _ = tokio::time::timeout(GOODBYE, wait).await;
}
