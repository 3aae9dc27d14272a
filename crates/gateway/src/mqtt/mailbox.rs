//! A client's mailbox: the state of its session, into which publishers on any worker encode.
//!
//! As long as the client keeps up, a delivery is bytes appended to `out`. When it does not – too much unread, the window
//! of QoS 1 and 2 closed, no connection, a large payload – the message itself is queued, within bounds: the oldest
//! QoS 0 message goes first, and what may not be lost is refused to its publisher. A session without a connection
//! that is full loses its oldest: one that nobody fetches shall not stop those who publish.

mod shared;

use std::{
    cell::Cell,
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use fogmux_bus::{Delivered, Delivery, Mailbox, Memory, Publication, Qos, Readiness, Subscription, Timestamp};
use fogmux_mqtt::{Acknowledged, Outbound, OutboundConfig, PacketId, ProtocolError, ReasonCode, ReceivedIds, Sent};
use smallvec::SmallVec;

pub(super) use shared::{Leaves, Left};

use super::{access::Gate, config::MqttConfig, kept::Kept, translate};

/// Payloads above this are shared, not copied: they are written from where they are.
pub(super) const LARGE_BYTES: usize = 16 << 10;
/// What a first delivery reserves, so that a batch does not grow the buffer byte by byte.
const OUT_BYTES_MIN: usize = 512;
/// A client that took something so recently reads: long enough for one that waits for its turn on a busy processor.
const READS: Duration = Duration::from_secs(1);
/// The part of its queue above which a client that reads is too far behind.
const BEHIND: usize = 16;
/// The part of its queue, or of the memory that is not yet tight, above which it is much too far behind.
const FAR_BEHIND: usize = 2;
/// How long a publisher waits for those who read slower than it writes. A turn is 64 KiB at most, so this still leaves
/// it some ten megabytes a second.
const BREATH: Duration = Duration::from_millis(4);
/// How long it waits for those who are far behind; short of that its messages would be refused, for which MQTT 3.1.1
/// knows nothing but the end of the connection.
const DEEP_BREATH: Duration = Duration::from_millis(50);
/// The part of its bounds that a client gets when memory is tight.
const TIGHT: usize = 16;
/// Messages that make room for one, unless it needs more.
const DISPLACED_MAX: u32 = 4;
/// The part of its bounds that such a client gets when memory is nearly gone.
const VERY_TIGHT: usize = 1024;

thread_local! {
    /// A delivery on this thread went to a client that reads, but slower than it is written to. Deliveries happen inside
    /// of the publication that causes them, on its thread.
    static FALLING_BEHIND: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// How long whoever published on this thread since the last call should take a breath, because QoS 1 or 2 messages went
/// to a client that reads them slower than they come, and before its queue is full and they are refused.
pub(super) fn take_falling_behind() -> Option<Duration> {
    FALLING_BEHIND.take()
}

/// What bounds a mailbox; one for all.
#[derive(Debug)]
pub(super) struct Bounds {
    out_bytes: usize,
    inflight_bytes: usize,
    queue_messages: usize,
    queue_bytes: usize,
    tight_bytes: usize,
    memory: Arc<Memory>,
}

impl Bounds {
    pub(super) fn new(config: &MqttConfig, memory: &Arc<Memory>) -> Self {
        Self {
            out_bytes: config.out_bytes_max,
            inflight_bytes: config.inflight_bytes_max,
            queue_messages: config.queue_messages_max,
            queue_bytes: config.queue_bytes_max,
            tight_bytes: config.tight_bytes,
            memory: Arc::clone(memory),
        }
    }

    /// How long to wait for a client that reads and has so much in its queue.
    fn breath(&self, queue_bytes: usize) -> Option<Duration> {
        let far = queue_bytes > self.queue_bytes / FAR_BEHIND || self.memory.used() > self.tight_bytes / FAR_BEHIND;
        (queue_bytes > self.queue_bytes / BEHIND).then_some(if far { DEEP_BREATH } else { BREATH })
    }

    fn scale(&self, bytes: usize) -> usize {
        let used = self.memory.used();
        if used <= self.tight_bytes {
            bytes
        } else if used <= self.tight_bytes + self.tight_bytes / 2 {
            bytes / TIGHT
        } else {
            bytes / VERY_TIGHT
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct MqttMailbox {
    out: Vec<u8>,
    outbound: Outbound<Kept>,
    inflight_bytes: usize,
    queue: VecDeque<Kept>,
    queue_bytes: usize,
    /// Bytes the connection has taken and not written yet.
    unwritten: usize,
    /// When it last took some.
    taken_at: Timestamp,
    /// Something was refused or lost for want of room since the last drain.
    overflowed: bool,
    connected: bool,
    pub(super) received: ReceivedIds,
    #[expect(
        clippy::box_collection,
        reason = "many clients only publish, and each byte here is paid ten thousand times"
    )]
    pub(super) subscriptions: Option<Box<HashSet<Subscription>>>,
    pub(super) gate: Arc<Gate>,
    bounds: Arc<Bounds>,
}

/// What a drain left to do.
#[derive(Debug, Default)]
pub(super) struct Drained {
    /// A payload to write after the bytes.
    pub(super) tail: Option<Bytes>,
    /// Messages from the queue that were encoded.
    pub(super) sent: u64,
    /// Messages that expired in the queue (§3.3.2.3.3).
    pub(super) expired: u64,
    /// Messages from the queue that the client does not take ([MQTT-3.1.2-25]).
    pub(super) too_large: u64,
    /// Messages that could be sent at once if there were room in the output.
    pub(super) more: bool,
    /// Nothing is queued.
    pub(super) queue_empty: bool,
    /// Something was refused or lost for want of room.
    pub(super) overflowed: bool,
    /// The client owes acknowledgements.
    pub(super) awaiting: bool,
}

impl MqttMailbox {
    pub(super) fn new(config: OutboundConfig, gate: Arc<Gate>, bounds: Arc<Bounds>) -> Self {
        Self {
            out: Vec::new(),
            outbound: Outbound::new(config),
            inflight_bytes: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            unwritten: 0,
            taken_at: Timestamp::ZERO,
            overflowed: false,
            connected: true,
            received: ReceivedIds::new(),
            subscriptions: None,
            gate,
            bounds,
        }
    }

    /// A new connection of the session: what was encoded for the old one is dropped, what was in flight goes again.
    pub(super) fn resume(&mut self, config: OutboundConfig) {
        self.outbound.resume(config);
        self.out = Vec::new();
        self.unwritten = 0;
        self.overflowed = false;
        self.connected = true;
    }

    /// The connection is gone: only QoS 1 and 2 messages are queued from now on. Returns how many had to go.
    pub(super) fn disconnect(&mut self) -> usize {
        self.out = Vec::new();
        self.unwritten = 0;
        self.connected = false;
        let before = self.queue.len();
        self.queue.retain(|kept| kept.qos != Qos::AtMostOnce);
        if self.queue.len() != before {
            self.queue_bytes = self.queue.iter().map(Kept::cost).sum();
        }
        before - self.queue.len()
    }

    fn may_encode(&self, qos: Qos) -> bool {
        self.connected
            && self.queue.is_empty()
            && !self.outbound.is_resending()
            && self.out.len() < self.bounds.scale(self.bounds.out_bytes)
            && (qos == Qos::AtMostOnce || self.window_open())
    }

    fn window_open(&self) -> bool {
        self.outbound.has_room() && self.inflight_bytes < self.bounds.inflight_bytes
    }

    fn encode(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>, qos: Qos, retain: bool) -> Delivered {
        if self.out.capacity() == 0 {
            self.out.reserve(OUT_BYTES_MIN);
        }
        let outgoing = translate::outgoing(publication, qos, retain, delivery.ids);
        let inflight_bytes = &mut self.inflight_bytes;
        let keep = || {
            let kept = share(publication, delivery, qos, retain);
            *inflight_bytes += kept.cost();
            kept
        };
        match self.outbound.publish(&outgoing, keep, &mut self.out) {
            Sent::Sent(_) => Delivered::Sent,
            Sent::TooLarge => Delivered::TooLarge,
            Sent::NoRoom => self.enqueue(share(publication, delivery, qos, retain), publication.ingest),
        }
    }

    /// Queues a message, making room where that is allowed.
    fn enqueue(&mut self, kept: Kept, now: Timestamp) -> Delivered {
        let (cost, qos, before) = (kept.cost(), kept.qos, self.queue_bytes);
        let mut displaced = 0;
        while !self.fits(cost) {
            if displaced >= DISPLACED_MAX && self.queue_bytes + cost <= before {
                // The bounds have shrunk: the queue follows step by step, or one publication would pay for all.
                break;
            }
            let expendable = self.queue.front().is_some_and(|oldest| oldest.qos == Qos::AtMostOnce || !self.connected);
            if !expendable {
                self.overflowed = true;
                return if qos == Qos::AtMostOnce { Delivered::Full } else { Delivered::Refused };
            }
            self.pop();
            displaced += 1;
        }
        self.overflowed |= displaced > 0;
        self.queue_bytes += cost;
        self.queue.push_back(kept);
        if qos != Qos::AtMostOnce
            && let Some(breath) = self.bounds.breath(self.queue_bytes)
            && now.since(self.taken_at) < READS
        {
            FALLING_BEHIND.set(FALLING_BEHIND.get().max(Some(breath)));
        }
        if displaced == 0 { Delivered::Queued } else { Delivered::Displaced(displaced) }
    }

    /// Queues a retained message. It is shared with the store of retained messages, and they are pulled in small chunks
    /// when the queue is empty: no further bound is needed.
    pub(super) fn enqueue_retained(&mut self, kept: Kept) {
        self.queue_bytes += kept.cost();
        self.queue.push_back(kept);
    }

    /// A single message always fits: it is shared, and its size was bounded on the way in.
    fn fits(&self, cost: usize) -> bool {
        self.queue.is_empty()
            || (self.queue.len() < self.bounds.queue_messages
                && self.queue_bytes + cost <= self.bounds.scale(self.bounds.queue_bytes))
    }

    fn pop(&mut self) -> Option<Kept> {
        let kept = self.queue.pop_front()?;
        self.queue_bytes = self.queue_bytes.saturating_sub(kept.cost());
        if self.queue.is_empty() && self.queue.capacity() > 64 {
            self.queue = VecDeque::new();
        }
        Some(kept)
    }

    /// Moves what can be sent into `into`; the mailbox keeps its empty buffer, or none when there was nothing.
    pub(super) fn drain(&mut self, into: &mut Vec<u8>, now: Timestamp) -> Drained {
        let mut drained = Drained { overflowed: std::mem::take(&mut self.overflowed), ..Drained::default() };
        if self.outbound.is_resending() {
            self.outbound.resend(self.bounds.out_bytes, |kept| translate::describe(kept, now), &mut self.out);
        }
        if !self.queue.is_empty() && !self.outbound.is_resending() {
            self.refill(now, &mut drained);
        }
        self.hand_over(into);
        if !into.is_empty() {
            self.taken_at = now;
        }
        self.unwritten = into.len() + drained.tail.as_ref().map_or(0, Bytes::len);
        drained.queue_empty = self.queue.is_empty();
        drained.more = !self.outbound.is_resending()
            && self.queue.front().is_some_and(|kept| kept.qos == Qos::AtMostOnce || self.window_open());
        drained.awaiting = self.outbound.in_flight() > 0;
        drained
    }

    /// Moves the encoded bytes into `into`, in exchange for its buffer; with nothing to send the mailbox keeps none.
    fn hand_over(&mut self, into: &mut Vec<u8>) {
        if self.out.is_empty() {
            self.out = Vec::new();
        } else if into.is_empty() {
            std::mem::swap(into, &mut self.out);
        } else {
            into.append(&mut self.out);
        }
    }

    /// Encodes from the queue until the output is full, the window closed, or a large payload is to be written.
    fn refill(&mut self, now: Timestamp, drained: &mut Drained) {
        while self.out.len() < self.bounds.out_bytes && drained.tail.is_none() {
            let Some(front) = self.queue.front() else { break };
            if front.message.is_expired(now) {
                drained.expired += 1;
                self.pop();
                continue;
            }
            if front.qos != Qos::AtMostOnce && !self.window_open() {
                break;
            }
            let Some(kept) = self.pop() else { break };
            drained.tail = self.send(&kept, now, drained);
        }
    }

    /// Appends a kept message; gives its payload where that is to be written from where it is. One that the client
    /// cannot take counts as delivered ([MQTT-3.1.2-25]).
    fn send(&mut self, kept: &Kept, now: Timestamp, drained: &mut Drained) -> Option<Bytes> {
        let outgoing = translate::describe(kept, now);
        let large = outgoing.payload.len() > LARGE_BYTES;
        let inflight_bytes = &mut self.inflight_bytes;
        let keep = || {
            *inflight_bytes += kept.cost();
            kept.clone()
        };
        let sent = if large {
            self.outbound.publish_head(&outgoing, keep, &mut self.out)
        } else {
            self.outbound.publish(&outgoing, keep, &mut self.out)
        };
        let sent = matches!(sent, Sent::Sent(_));
        drained.sent += u64::from(sent);
        drained.too_large += u64::from(!sent);
        (large && sent).then(|| kept.message.payload.clone())
    }

    /// Whether something was refused or lost for want of room since the last drain.
    pub(super) const fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// PUBACK.
    pub(super) fn handle_puback(&mut self, id: PacketId) -> Result<(), ProtocolError> {
        let acknowledged = self.outbound.handle_puback(id)?;
        self.give_back(acknowledged);
        Ok(())
    }

    /// PUBREC; PUBREL is appended to `out`.
    pub(super) fn handle_pubrec(
        &mut self,
        id: PacketId,
        reason: ReasonCode,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        let acknowledged = self.outbound.handle_pubrec(id, reason, out)?;
        self.give_back(acknowledged);
        Ok(())
    }

    /// PUBCOMP.
    pub(super) fn handle_pubcomp(&mut self, id: PacketId) -> Result<(), ProtocolError> {
        let acknowledged = self.outbound.handle_pubcomp(id)?;
        self.give_back(acknowledged);
        Ok(())
    }

    fn give_back(&mut self, acknowledged: Acknowledged<Kept>) {
        match acknowledged {
            Acknowledged::Over(Some(kept)) | Acknowledged::Released(Some(kept)) => {
                self.inflight_bytes = self.inflight_bytes.saturating_sub(kept.cost());
            }
            Acknowledged::Over(None) | Acknowledged::Released(None) | Acknowledged::Unknown => {}
        }
    }
}

fn share(publication: &Publication<'_>, delivery: &Delivery<'_>, qos: Qos, retain: bool) -> Kept {
    Kept {
        message: Arc::clone(delivery.share(publication)),
        qos,
        retain,
        ids: SmallVec::from_slice(delivery.ids),
        share: u32::try_from(delivery.tag).unwrap_or(0),
    }
}

impl Mailbox for MqttMailbox {
    fn deliver(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>) -> Delivered {
        let qos = delivery.qos(publication);
        let retain = publication.retain && delivery.retain_as_published;
        if publication.payload.as_slice().len() <= LARGE_BYTES && self.may_encode(qos) {
            return self.encode(publication, delivery, qos, retain);
        }
        if !self.connected && qos == Qos::AtMostOnce {
            return Delivered::Gone;
        }
        self.enqueue(share(publication, delivery, qos, retain), publication.ingest)
    }

    fn buffered_bytes(&self) -> usize {
        self.out.len() + self.unwritten + self.queue_bytes + self.inflight_bytes
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn close(&mut self) {
        self.disconnect();
        (self.queue, self.queue_bytes) = (VecDeque::new(), 0);
        self.outbound = Outbound::new(*self.outbound.config());
        self.inflight_bytes = 0;
        self.received = ReceivedIds::new();
    }

    fn readiness(&self) -> Readiness {
        self.shared_readiness()
    }
}
