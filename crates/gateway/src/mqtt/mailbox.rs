//! A client's mailbox: the state of its session, into which publishers on any worker encode.
//!
//! While the client keeps up, a delivery is bytes appended to `out`. When it does not – too much unread, the window of
//! QoS 1 and 2 closed, no connection, a large payload – the message itself is queued, within bounds. In a full queue
//! the oldest messages are dropped (ADR 0018); a client that loses any of QoS 1 or 2 is disconnected by default.

mod acknowledged;
mod described;
mod drained;
mod giving;
mod level;
mod queue;
mod reading;
mod received;
mod sending;
mod shared;
mod stored;
mod subscriptions;

use std::{sync::Arc, task::Context};

use fogmux_bus::{
    Account, Completion, Delivered, Delivery, Door, Mailbox, Message, Publication, Qos, Readiness, SlowDown, Timestamp,
};
use fogmux_mqtt::{Outbound, OutboundConfig, Sent};
use smallvec::SmallVec;

pub(super) use described::Ousted;
use drained::Drained;
use queue::Queue;
use received::Unreleased;
pub(super) use shared::{ForOthers, Left, Remainder, Unread};
use stored::Fate;
use subscriptions::Subscriptions;

use super::{
    access::Gate,
    bounds::Bounds,
    durable::Durable,
    kept::{Body, Kept},
    pace::Pace,
    translate,
};
use crate::{delivery_times::Marks, shown::cut};

/// Payloads above this are shared, not copied: they are written from where they are.
pub(super) const LARGE_BYTES: usize = 16 << 10;
/// The capacity reserved for a first delivery, so that a batch does not grow the buffer byte by byte.
const OUT_BYTES_MIN: usize = 512;
/// The same where the client took so much at once the last time.
const OUT_BYTES_USUAL_MAX: usize = 128 << 10;
/// Bytes.
const USUAL_UNIT: usize = 64;
/// Messages dropped at most for one that is queued, unless it needs more room.
const DISPLACED_MAX: u32 = 4;

/// The mailbox; see the module's documentation.
#[derive(Debug)]
pub(super) struct MqttMailbox {
    out: Vec<u8>,
    /// The deliveries in `out` that are timed.
    marks: Marks,
    outbound: Outbound<Kept>,
    inflight_bytes: usize,
    queue: Queue,
    /// Bytes that the connection has taken and that its socket has no room for.
    unwritten: usize,
    /// The pace at which the client takes its queue, while it is behind.
    pace: Option<Box<Pace>>,
    /// A connected client has lost messages of QoS 1 or 2 since the last drain.
    lost: bool,
    /// Bytes that the client has taken, ever; wraps.
    taken: u32,
    /// Bytes handed over at once the last time, in [`USUAL_UNIT`]s. The next buffer begins with as much: doubling it
    /// from the least would copy everything once more.
    usual: u16,
    connected: bool,
    /// The client has acknowledged something on this connection.
    acknowledges: bool,
    /// When it began to hold something, or the client came back to what it held, in milliseconds; wraps.
    held_since: u32,
    /// The client is to be disconnected for what it holds.
    evicted: bool,
    /// Of what is to be sent again some was restored at the start.
    doubtful: bool,
    /// Why the session has ended, if its client did not end it.
    pub(super) ousted: Option<Ousted>,
    pub(super) received: Unreleased,
    /// Its records in the store, if it outlives its connection.
    pub(super) durable: Option<Box<Durable>>,
    /// Resolved when the store has forgotten it, once it has ended.
    pub(super) ended: Option<Box<Completion>>,
    /// In a box: many clients only publish, and each byte here is paid ten thousand times.
    pub(super) subscriptions: Option<Box<Subscriptions>>,
    pub(super) gate: Arc<Gate>,
    bounds: Arc<Bounds>,
    account: Arc<Account>,
}

impl MqttMailbox {
    pub(super) fn new(config: OutboundConfig, gate: Arc<Gate>, bounds: Arc<Bounds>, account: Arc<Account>) -> Self {
        Self {
            out: Vec::new(),
            marks: Marks::default(),
            outbound: Outbound::new(config),
            inflight_bytes: 0,
            queue: Queue::default(),
            unwritten: 0,
            pace: None,
            lost: false,
            taken: 0,
            usual: 0,
            connected: true,
            acknowledges: false,
            held_since: 0,
            evicted: false,
            doubtful: false,
            ousted: None,
            received: Unreleased::default(),
            durable: None,
            ended: None,
            subscriptions: None,
            gate,
            bounds,
            account,
        }
    }

    /// Continues with a new connection: bytes encoded for the old one are dropped, messages in flight are sent again.
    /// Returns how many messages were dropped, because the store had not taken them.
    pub(super) fn resume(&mut self, config: OutboundConfig, now: Timestamp) -> u32 {
        self.outbound.resume(config);
        // The connection holds all PUBRELs back that it has to, these among them.
        drop(self.give_up_too_large(now));
        self.out = Vec::new();
        self.marks.clear();
        self.queue.untime();
        self.unwritten = 0;
        self.lost = false;
        (self.connected, self.evicted, self.acknowledges, self.held_since) = (true, false, false, giving::wrapped(now));
        self.drop_refused()
    }

    /// Continues without a connection: only QoS 1 and 2 messages are queued from now on. Returns how many were dropped.
    pub(super) fn disconnect(&mut self) -> usize {
        self.out = Vec::new();
        self.marks.clear();
        self.unwritten = 0;
        self.pace = None;
        self.connected = false;
        let dropped = self.queue.take_unless(|kept| kept.qos != Qos::AtMostOnce).len();
        self.send_away();
        dropped
    }

    fn may_encode(&self, qos: Qos) -> bool {
        self.connected
            && self.queue.is_empty()
            && !self.outbound.is_resending()
            && self.out.len() < self.bounds.scale(self.bounds.out_bytes, &self.account)
            && (qos == Qos::AtMostOnce || self.window_open())
    }

    fn window_open(&self) -> bool {
        self.outbound.has_room() && self.inflight_bytes < self.bounds.inflight_bytes
    }

    fn encode(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>, qos: Qos, retain: bool) -> Delivered {
        if self.out.capacity() == 0 {
            self.note_begun(publication.ingest);
            self.reserve();
        }
        let outgoing = translate::outgoing(publication, qos, retain, delivery.ids);
        let inflight_bytes = &mut self.inflight_bytes;
        let keep = || {
            let kept = share(publication, delivery, qos, retain);
            *inflight_bytes += kept.cost();
            kept
        };
        match self.outbound.publish(&outgoing, keep, &mut self.out) {
            Sent::Sent(_) => {
                self.marks.note_publication(publication);
                Delivered::Sent
            }
            Sent::TooLarge => Delivered::TooLarge,
            Sent::NoRoom => self.enqueue(share(publication, delivery, qos, retain), publication.ingest, delivery.held),
        }
    }

    /// Queues a message. Without room the oldest messages are dropped, but none of QoS 1 or 2 for one of QoS 0.
    fn enqueue(&mut self, mut kept: Kept, now: Timestamp, held: usize) -> Delivered {
        // Named in the log if it makes others go.
        let cause = if self.connected { None } else { kept.message().cloned() };
        self.keep_away(&mut kept);
        let (cost, qos, before) = (kept.cost(), kept.qos, self.queue.bytes());
        let bytes = cost + kept.away_bytes();
        let (mut displaced, mut lost) = (0, false);
        if !self.may_grow(cost) || !self.may_take(cost, qos, held, now) {
            self.note_lost(qos, cause.as_deref(), now);
            self.discard(kept);
            return Delivered::Full(1);
        }
        if self.durable.as_ref().is_some_and(|durable| durable.looked.is_worth_it())
            && !self.fits(cost, bytes, qos, now)
        {
            displaced = self.drop_refused();
        }
        let refused = displaced;
        while !self.fits(cost, bytes, qos, now) {
            if displaced >= DISPLACED_MAX && self.queue.bytes() + bytes <= before {
                // The bounds have shrunk: the queue follows step by step, or one publication would pay for all.
                break;
            }
            let oldest = self.queue.front().map_or(Qos::AtMostOnce, |oldest| oldest.qos);
            if oldest > Qos::AtMostOnce && qos == Qos::AtMostOnce && self.connected {
                return Delivered::Full(displaced + 1);
            }
            lost |= oldest > Qos::AtMostOnce && self.connected;
            self.drop_oldest();
            displaced += 1;
        }
        self.queue.push_back(kept);
        if displaced > refused {
            self.note_lost(qos, cause.as_deref(), now);
        }
        if qos != Qos::AtMostOnce && self.connected {
            self.note_came(cost, now);
            self.mark_backlog();
        }
        let is_news = lost && !self.lost;
        self.lost |= lost;
        match displaced {
            0 => Delivered::Queued,
            _ if is_news && self.is_overrun() => Delivered::Overrun(displaced),
            _ => Delivered::Displaced(displaced),
        }
    }

    /// Logs that an absent client loses a message that its publisher has an acknowledgement for, a line a second at
    /// most. One that is connected is disconnected for it, or its operator wants it so (`mqtt.slow_subscriber`).
    #[cold]
    fn note_lost(&self, qos: Qos, cause: Option<&Message>, now: Timestamp) {
        if self.connected || qos == Qos::AtMostOnce {
            return;
        }
        let Some(suppressed) = self.bounds.lost_log.admit(now) else { return };
        let (access, topic) = (self.gate.access(), cause.map_or("", |message| cut(&message.topic)));
        let (principal, messages, bytes) = (&*access.principal().name, self.queue.len(), self.queue.bytes());
        tracing::warn!(
            ?principal,
            ?topic,
            messages,
            bytes,
            suppressed,
            "messages are dropped that wait for an absent client: its queue is full, or memory is tight"
        );
    }

    /// Queues a retained message. It is shared with the retained map, and retained messages are pulled in small chunks
    /// while the queue is empty, so that no further bound is needed.
    pub(super) fn enqueue_retained(&mut self, kept: Kept) {
        self.queue.push_back(kept);
    }

    /// Drops the oldest message. Returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let Some(kept) = self.queue.pop_front() else { return false };
        self.discard(kept);
        true
    }

    /// Whether a drain would yield something, retransmissions aside.
    pub(super) fn is_sendable(&self) -> bool {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let mut is_due = |kept: &Kept| match self.fate(kept, cx) {
            Fate::Sendable => !kept.is_away() || self.would_read_back(),
            Fate::Refused => true,
            Fate::Unmarked => self.durable.as_ref().is_none_or(|durable| durable.mark.is_moved()),
            Fate::Behind | Fate::Unstored => false,
        };
        let mut may_send = |kept: &Kept| kept.qos == Qos::AtMostOnce || (self.window_open() && is_due(kept));
        if !self.out.is_empty() {
            return true;
        }
        if self.outbound.is_resending() {
            return self.outbound.next_to_resend().is_some_and(Kept::is_away) && self.would_read_back();
        }
        self.queue.front().is_some_and(&mut may_send)
    }

    /// Whether nothing is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether everything was handed to the connection and is acknowledged.
    pub(super) fn is_drained(&self) -> bool {
        self.out.is_empty() && self.queue.is_empty() && self.outbound.in_flight() == 0
    }

    /// Messages of QoS 1 and 2 that the client has not acknowledged, those in flight included.
    pub(super) fn unacknowledged(&self) -> usize {
        self.outbound.unfinished() + self.queue.iter().filter(|kept| kept.qos > Qos::AtMostOnce).count()
    }
}

fn share(publication: &Publication<'_>, delivery: &Delivery<'_>, qos: Qos, retain: bool) -> Kept {
    Kept {
        body: Body::Here(Arc::clone(delivery.share(publication))),
        qos,
        retain,
        timed: publication.sample().is_some(),
        ids: SmallVec::from_slice(delivery.ids),
        share: u32::try_from(delivery.tag).unwrap_or(0),
        stored: None,
    }
}

impl Mailbox for MqttMailbox {
    fn deliver(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>) -> Delivered {
        let qos = delivery.qos(publication);
        let retain = publication.meaning.is_state() && delivery.retain_as_published;
        if self.durable.is_some() && qos != Qos::AtMostOnce {
            return self.deliver_stored(publication, delivery, qos, retain);
        }
        if publication.payload.as_slice().len() <= LARGE_BYTES && self.may_encode(qos) {
            return self.encode(publication, delivery, qos, retain);
        }
        if !self.connected && qos == Qos::AtMostOnce {
            return Delivered::Gone;
        }
        self.enqueue(share(publication, delivery, qos, retain), publication.ingest, delivery.held)
    }

    fn buffered_bytes(&self) -> usize {
        let received = self.received.bytes(self.durable.is_some());
        self.out.len() + self.unwritten + self.queue.memory() + self.inflight_bytes + received
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn close(&mut self) {
        self.disconnect();
        if self.durable.is_some() {
            self.ended = Some(Box::new(self.end_durable()));
        }
        self.queue = Queue::default();
        self.outbound = Outbound::new(*self.outbound.config());
        self.inflight_bytes = 0;
        self.received = Unreleased::default();
    }

    fn door(&self) -> Option<Door> {
        Some(Door::Mqtt)
    }

    fn readiness(&self) -> Readiness {
        self.shared_readiness()
    }

    fn account(&self) -> Option<&Arc<Account>> {
        Some(&self.account)
    }

    fn slow_down(&mut self) -> Option<SlowDown> {
        // Behind all deliveries of a batch: of what had to make room for them.
        if self.durable.is_some() {
            drop(self.append());
        }
        self.ask_to_slow_down()
    }
}
