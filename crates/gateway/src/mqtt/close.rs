//! The end of a connection: DISCONNECT, metrics, session and will.

use std::{io, sync::Arc, task::Poll, time::Duration};

use fogmux_bus::SessionKey;
use fogmux_mqtt::{Disconnect, Packet, Properties, Property, PropertyBuffer, ReasonCode, SESSION_NEVER_EXPIRES};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{
    connection::{Connection, End},
    context::MqttContext,
    durable,
    mailbox::Ousted,
    receive::Input,
    will::{self, WILL_WAIT, Will},
};
use crate::shown::shown_client;

/// Bytes of a packet with a Reason String besides the string: an acknowledgement without codes, or one code.
const PACKET_BYTES: usize = 64;
/// How long sending DISCONNECT may take.
const GOODBYE: Duration = Duration::from_secs(2);
/// Bytes that are read and dropped after DISCONNECT, so that the peer can receive it (RFC 1122 §4.2.2.13: closing with
/// unread bytes resets the connection).
const LINGER_BYTES: usize = 8 << 20;

impl End {
    /// The end of a stream that failed. TCP's user timeout is an error of the system (ETIMEDOUT), the timeout of an
    /// HTTP connection is not.
    pub(super) fn of(error: &io::Error) -> Self {
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::TimedOut, Some(_)) => Self::Unreachable,
            (io::ErrorKind::TimedOut, None) => Self::Stalled,
            // Ours, not the system's: the certificate was revoked (`tls.cut_revoked`).
            (io::ErrorKind::ConnectionAborted, None) => Self::Withdrawn,
            _ => Self::Closed,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sends DISCONNECT if the version has it, leaves the session, and handles the will.
    pub(super) async fn close(mut self: Box<Self>, end: End) {
        if let Some(entry) = self.wakes.entry {
            self.ctx.door.unregister(entry);
        }
        let ousted = if end == End::Displaced { self.mailbox.slot.with(|mailbox| mailbox.ousted) } else { None };
        let end = match ousted {
            Some(Ousted::GaveWay) => End::GaveWay,
            Some(Ousted::Removed) => End::Removed,
            None => end,
        };
        self.count(end);
        self.publish_all_set_aside().await;
        self.leave_unsettled();
        if matches!(end, End::Displaced | End::Closed) && self.will.is_some() && self.has_disconnected().await {
            self.cancel_will();
        }
        // Nothing of it is handled any more, and the goodbye takes a while.
        (self.reading.input, self.reading.unfinished) = (Input::new(Vec::new()), None);
        let key = self.key();
        if let Some(will) = self.leave(end, &key) {
            // When many go at once, all of them give back what they held before the first will is published: otherwise
            // their mailboxes would take each other's wills, and clients that read pay for that.
            tokio::task::yield_now().await;
            self.wait_for_room().await;
            will.publish(&self.ctx);
        }
        self.ctx.door.sessions.end_departure(&key, &self.mailbox.slot, self.mailbox.claim);
        if matches!(end, End::Closed | End::Unreachable) {
            return;
        }
        if let Some(reason) = self.goodbye(end) {
            let mut list = PropertyBuffer::new();
            let why = self.rare.as_ref().and_then(|rare| rare.why.as_deref()).or(plainly(end));
            let properties = self.reason_string(why, &mut list);
            let packet = Packet::Disconnect(Disconnect { reason, properties });
            let buffer = self.output.buffer(&self.ctx);
            // The list took only properties that fit.
            let _ = packet.encode(self.facts.version, buffer);
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

    /// Waits while memory is tight, whoever holds most: nobody is held up by a will that waits. Clients that go one
    /// after the other take the wills of those before until their own end is noticed, and one that reads needs a turn
    /// to show that it does.
    async fn wait_for_room(&self) {
        let memory = self.ctx.bus().memory();
        if memory.pressure() && !self.ctx.is_draining() {
            let _ = tokio::time::timeout(WILL_WAIT, memory.eased()).await;
        }
    }

    /// The reason code for DISCONNECT, which a server sends in version 5 only.
    fn goodbye(&self, end: End) -> Option<ReasonCode> {
        if !self.facts.version.is_v5() {
            return None;
        }
        match end {
            End::Closed | End::Unreachable | End::Disconnected { .. } => None,
            End::Misbehaved(reason) => Some(reason),
            End::Silent => Some(ReasonCode::KEEP_ALIVE_TIMEOUT),
            End::Stalled | End::Overrun | End::GaveWay => Some(ReasonCode::QUOTA_EXCEEDED),
            End::Displaced => Some(ReasonCode::SESSION_TAKEN_OVER),
            End::Refused => Some(ReasonCode::QUOTA_EXCEEDED),
            End::Forbidden | End::Unauthorized | End::Withdrawn => Some(ReasonCode::NOT_AUTHORIZED),
            End::Kicked | End::Removed => Some(ReasonCode::ADMINISTRATIVE_ACTION),
            End::Expired => Some(ReasonCode::MAXIMUM_CONNECT_TIME),
            End::Draining => Some(ReasonCode::SERVER_SHUTTING_DOWN),
        }
    }

    /// A Reason String, unless it makes the packet too large for the client ([MQTT-3.14.2-3] and similar).
    fn reason_string<'l>(&self, text: Option<&str>, list: &'l mut PropertyBuffer) -> Properties<'l> {
        if let Some(text) = text {
            let fits = usize::try_from(self.facts.packet_bytes_max).is_ok_and(|max| text.len() + PACKET_BYTES <= max);
            if self.facts.version.is_v5() && fits {
                // Our texts are short.
                let _ = list.push(Property::ReasonString(text));
            }
        }
        list.properties()
    }

    /// A Reason String for an acknowledgement, unless the client has asked for none ([MQTT-3.1.2-29]).
    pub(super) fn explanation<'l>(&self, text: Option<&str>, list: &'l mut PropertyBuffer) -> Properties<'l> {
        self.reason_string(text.filter(|_| self.facts.problem_information), list)
    }

    /// Notes a protocol error: its description and the reason code for the client.
    pub(super) fn misbehaved(&mut self, how: &dyn std::fmt::Display, reason: ReasonCode) -> End {
        let how = how.to_string();
        tracing::debug!(%reason, %how, "client misbehaved");
        self.rare().why = Some(how.into());
        End::Misbehaved(reason)
    }

    fn count(&self, end: End) {
        let (metrics, cut) = (&self.ctx.shared.metrics.mqtt, &self.ctx.shared.metrics.mqtt_cut);
        match end {
            End::Misbehaved(_) => metrics.misbehaved.increment(),
            End::Silent => {
                metrics.timed_out.increment();
                cut.silent.increment();
                tracing::debug!(client = shown_client(&self.client.publisher.client), "keep alive exceeded");
            }
            End::Stalled => {
                metrics.timed_out.increment();
                cut.stalled.increment();
                self.log_slow("disconnected: it takes nothing of what there is for it");
            }
            End::Unreachable => {
                metrics.timed_out.increment();
                cut.unreachable.increment();
                self.log_slow("disconnected: its host acknowledges nothing");
            }
            End::Overrun => {
                metrics.timed_out.increment();
                cut.queue_full.increment();
                self.log_slow("disconnected: its queue of QoS 1 and 2 messages is full");
            }
            End::Expired | End::Unauthorized | End::Withdrawn => metrics.unauthenticated.increment(),
            End::Closed
            | End::Disconnected { .. }
            | End::Displaced
            | End::GaveWay
            | End::Refused
            | End::Forbidden
            | End::Kicked
            | End::Removed
            | End::Draining => {}
        }
    }

    /// Logs a subscriber that is too slow, at most once a second.
    pub(super) fn log_slow(&self, reason: &str) {
        if let Some(suppressed) = self.ctx.door.slow_log.admit(self.now) {
            let (client, peer) = (shown_client(&self.client.publisher.client), self.wakes.listed.address());
            tracing::warn!(client, %peer, suppressed, "slow MQTT subscriber {reason}");
        }
    }

    /// The will is not published.
    pub(super) fn cancel_will(&mut self) {
        if let Some(will) = self.will.take() {
            will.cancel(&self.ctx);
        }
    }

    /// Leaves the session, which may continue without a connection. Returns the will, if it is to be published now.
    fn leave(&mut self, end: End, key: &SessionKey) -> Option<Box<Will>> {
        let door = Arc::clone(&self.ctx.door);
        // §3.1.2.5: published unless the client sent DISCONNECT with reason 0x00.
        if end == (End::Disconnected { will: false }) {
            self.cancel_will();
        }
        // Nothing more happens in the name of a credential that was taken back (§5.4.2).
        if end == End::Withdrawn && self.will.is_some() {
            self.cancel_will();
            will::log_withheld(&self.ctx, &self.client.publisher);
        }
        let (ctx, will) = (&self.ctx, self.will.take());
        if matches!(end, End::Displaced | End::GaveWay | End::Removed) {
            // If the session continues with the new connection, that comes before the end of any delay
            // ([MQTT-3.1.3-9]); if the session has ended, so has the delay.
            let will = will?;
            if will.delay == 0 || !door.sessions.is_continued(key, &self.mailbox.slot, self.mailbox.claim) {
                return Some(will);
            }
            will.cancel(ctx);
            return None;
        }
        if end == End::Draining {
            let left = self.mailbox.with(|mailbox| mailbox.unacknowledged()).unwrap_or(0);
            ctx.shared.shutdown.left_unacknowledged(left);
        }
        self.leave_announcing();
        let ctx = &self.ctx;
        // Only this connection's claim can be affected: otherwise `with_claim` and `detach` fail.
        let (since, expiry_s) = (ctx.unix_ms(self.now), durable::expiry(self.facts.session_expiry));
        let dropped = self.mailbox.with(|mailbox| {
            let dropped = mailbox.disconnect();
            mailbox.leave_store(since, expiry_s, will.is_some());
            dropped
        });
        let dropped = dropped.unwrap_or(0);
        ctx.bus().counters().gone(u64::try_from(dropped).unwrap_or(u64::MAX));
        let keep = (self.facts.session_expiry != SESSION_NEVER_EXPIRES)
            .then(|| Duration::from_secs(u64::from(self.facts.session_expiry)));
        if will.is_some() {
            door.sessions.begin_departure(key, &self.mailbox.slot, self.mailbox.claim);
        }
        if let Some(slot) = door.sessions.detach(key, &self.mailbox.slot, self.mailbox.claim, keep, self.now) {
            door.end_session(ctx, key, &slot);
        }
        let will = will?;
        let delay = will.delay.min(self.facts.session_expiry);
        if delay == 0 {
            return Some(will);
        }
        door.delay_will(ctx, key.clone(), *will, self.now + Duration::from_secs(u64::from(delay)));
        None
    }
}

/// The text for the ends that need an explanation.
const fn plainly(end: End) -> Option<&'static str> {
    match end {
        End::Kicked => Some("disconnected by an administrator"),
        End::Removed => Some("the session was ended by an administrator"),
        End::Expired => Some("the credential has ended"),
        End::Unauthorized | End::Withdrawn => Some("not authorised any more"),
        End::Stalled => Some("nothing was read for too long"),
        End::Overrun => Some("the queue is full"),
        End::GaveWay => Some("there are too many sessions, and most are of this user"),
        End::Closed
        | End::Disconnected { .. }
        | End::Misbehaved(_)
        | End::Silent
        | End::Unreachable
        | End::Displaced
        | End::Refused
        | End::Forbidden
        | End::Draining => None,
    }
}

/// Closes our half of the stream, then reads and drops what still arrives, so that the peer can read the last packet.
pub(super) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(ctx: &MqttContext, stream: &mut S) {
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
