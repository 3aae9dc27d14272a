//! Messages of a session that outlives its connection: each of QoS 1 and 2 has a record (ADR 0042).

use std::task::{Context, Poll, Waker};

use fogmux_bus::{
    ClockSet, Completion, Delivered, Delivery, Publication, Qos, Timestamp,
    durable::{Gather, Sequence, StoredDelivery},
};
use fogmux_mqtt::{PacketId, Unfinished};

use super::{
    super::{
        durable::{self, Looked, Restamped},
        kept::Kept,
        mark::Mark,
        translate,
    },
    Drained, LARGE_BYTES, MqttMailbox, share,
};

/// A client is far behind if so many times the first step of a mark waits for it.
const BACKLOG: u64 = 16;

/// Whether a message may be sent, as far as the store is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Sendable,
    /// The identifiers between are not over; an acknowledgement ends this.
    Behind,
    /// The store does not have it yet, and wakes the task.
    Unstored,
    /// The store has not taken it.
    Refused,
    /// The mark of the session has to be moved first.
    Unmarked,
}

impl MqttMailbox {
    /// Takes a message of QoS 1 or 2.
    #[inline(never)]
    pub(super) fn deliver_stored(
        &mut self,
        publication: &Publication<'_>,
        delivery: &Delivery<'_>,
        qos: Qos,
        retain: bool,
    ) -> Delivered {
        let mut kept = share(publication, delivery, qos, retain);
        if self.durable.as_mut().is_some_and(|durable| durable.is_leave_refused()) {
            self.leave_again();
        }
        let Some(durable) = &mut self.durable else { return Delivered::Gone };
        // Each message has a number, or those behind it would have its identifier.
        let Some(stored) = durable.deliver(publication, delivery, kept.manner()) else { return Delivered::Full(1) };
        let (id, sequence, mark) = (durable::packet_id(&stored), stored.sequence(), &durable.mark);
        let is_marked = mark.allows(sequence) || mark.lets_pass(sequence);
        kept.stored = Some(stored);
        // One of QoS 2 waits for the store.
        let is_small = publication.payload.as_slice().len() <= LARGE_BYTES;
        if qos == Qos::AtLeastOnce && is_small && is_marked && self.may_encode(qos) && self.outbound.may_skip_to(id) {
            if let Some(stored) = &kept.stored {
                stored.sent();
            }
            return self.encode_stored(kept, publication.ingest);
        }
        self.enqueue(kept, publication.ingest, delivery.held)
    }

    fn encode_stored(&mut self, kept: Kept, now: Timestamp) -> Delivered {
        if self.out.capacity() == 0 {
            self.note_begun(now);
            self.reserve();
        }
        let mut drained = Drained::default();
        self.send(kept, now, &mut drained);
        if drained.too_large > 0 { Delivered::TooLarge } else { Delivered::Sent }
    }

    /// Takes a retained message that was pulled for this session.
    pub(in crate::mqtt) fn pull(&mut self, mut kept: Kept, gather: &Gather) {
        if let Some(durable) = self.durable.as_mut().filter(|_| kept.qos > Qos::AtMostOnce) {
            let Some(message) = kept.message() else { return };
            let Some(stored) = durable.pull(message, kept.manner(), gather) else { return };
            kept.stored = Some(stored);
        }
        self.note_announced(kept.stored.as_ref().map(|stored| stored.sequence()));
        self.enqueue_retained(kept);
    }

    /// Has the next message sent with the identifier that follows from its number.
    pub(super) fn skip_to(&mut self, stored: Option<&StoredDelivery>) {
        if let Some(stored) = stored {
            let skipped = self.outbound.skip_to(durable::packet_id(stored));
            debug_assert!(skipped, "it was asked before");
        }
    }

    /// The number of the first message that is not acknowledged.
    pub(in crate::mqtt) fn first_stored(&self) -> Option<Sequence> {
        let number = |kept: &Kept| kept.stored.as_ref().map(|stored| stored.sequence());
        let in_flight = self.outbound.messages().filter_map(number).min();
        in_flight.or_else(|| self.queue.iter().find_map(number))
    }

    /// Whether a queued message may be sent. The task is woken when that changes by the store.
    pub(super) fn fate(&self, kept: &Kept, cx: &mut Context<'_>) -> Fate {
        let Some(stored) = &kept.stored else { return Fate::Sendable };
        if kept.qos == Qos::ExactlyOnce || kept.is_away() {
            match stored.poll_stored(cx) {
                Poll::Pending => return Fate::Unstored,
                Poll::Ready(Err(_)) => return Fate::Refused,
                Poll::Ready(Ok(())) => {}
            }
        }
        if !self.outbound.may_skip_to(durable::packet_id(stored)) {
            Fate::Behind
        } else if self.durable.as_ref().is_none_or(|durable| {
            let (mark, sequence) = (&durable.mark, stored.sequence());
            mark.allows(sequence) || (kept.qos == Qos::AtLeastOnce && mark.lets_pass(sequence))
        }) {
            Fate::Sendable
        } else {
            Fate::Unmarked
        }
    }

    /// The same of the first message of the queue.
    pub(super) fn fate_of_first(&self, cx: &mut Context<'_>) -> Option<Fate> {
        self.queue.front().map(|kept| self.fate(kept, cx))
    }

    /// Notes that the store wakes the task for the first message of the queue.
    pub(super) fn note_asked(&mut self) {
        let first = self.queue.front().and_then(|kept| Some(kept.stored.as_ref()?.sequence()));
        if let Some(durable) = &mut self.durable {
            durable.asked = first;
        }
    }

    /// Whether a drain would yield something that nobody wakes the task for, now or when the store has it; asked by the
    /// liveness oracle. A store takes a message at any moment, also between a drain and this: it wakes the task then,
    /// because the drain asked it to.
    pub(in crate::mqtt) fn is_forgotten(&self) -> bool {
        let first = self.queue.front().and_then(|kept| Some(kept.stored.as_ref()?.sequence()));
        let asked = self.durable.as_ref().and_then(|durable| durable.asked);
        // A message that is read back wakes it as well.
        let is_marking = self.durable.as_ref().is_some_and(|durable| durable.mark.is_waiting());
        let waits_for = self.is_reading_back() || is_marking || (asked.is_some() && asked == first);
        let wakes = self.out.is_empty() && waits_for;
        let waits = || self.fate_of_first(&mut Context::from_waker(Waker::noop())) == Some(Fate::Unstored);
        !wakes && (self.is_sendable() || waits())
    }

    /// A message is dropped: its record is forgotten.
    pub(super) fn discard(&mut self, kept: Kept) {
        self.finish(kept.stored.map(|stored| *stored));
    }

    /// Deliveries are over.
    pub(in crate::mqtt) fn finish(&mut self, stored: impl IntoIterator<Item = StoredDelivery>) {
        for stored in stored {
            // Of a session that has no records any more they were forgotten with it.
            if let Some(durable) = &mut self.durable {
                durable.finish(stored);
            }
        }
    }

    /// Drops what the store has refused from the queue: it must not displace what is there.
    /// Returns how many there were.
    pub(super) fn drop_refused(&mut self) -> u32 {
        let Some(durable) = &mut self.durable else { return 0 };
        let Looked { known, looks, .. } = durable.looked;
        // One that is not queued yet has its number already.
        let newest = self.queue.iter().rev().find_map(|kept| Some(kept.stored.as_ref()?.sequence().next()));
        let mut looked = Looked { known: newest.unwrap_or(known), unknown: 0, since: 0, looks };
        let (mut behind, mut is_refused) = (0, false);
        for kept in self.queue.iter().rev() {
            looked.looks += 1;
            if let Some(stored) = &kept.stored {
                if stored.sequence() < durable.looked.known {
                    break;
                }
                match stored.outcome() {
                    None => (looked.known, looked.unknown) = (stored.sequence(), looked.unknown + 1),
                    Some(outcome) => is_refused |= outcome.is_err(),
                }
            }
            behind += 1;
        }
        durable.looked = looked;
        if !is_refused {
            return 0;
        }
        let is_refused = |kept: &Kept| kept.stored.as_ref().is_some_and(|stored| stored.is_refused());
        let refused = self.queue.take_of_last(behind, is_refused);
        let count = u32::try_from(refused.len()).unwrap_or(u32::MAX);
        self.finish(refused.into_iter().filter_map(|kept| kept.stored).map(|stored| *stored));
        count
    }

    /// Appends the changes of the session's records. Returns what an answer to the client waits for.
    pub(in crate::mqtt) fn append(&mut self) -> Completion {
        self.durable.as_mut().map_or(Completion::Ready, |durable| durable.append())
    }

    /// The session ends, or ends with its connection from now on: its records are forgotten.
    pub(in crate::mqtt) fn end_durable(&mut self) -> Completion {
        let Some(durable) = self.durable.take() else { return Completion::Ready };
        let mut deliveries = self.queue.take_records();
        deliveries.extend(self.outbound.messages_mut().filter_map(|kept| kept.stored.take()).map(|stored| *stored));
        self.inflight_bytes = self.outbound.messages().map(Kept::cost).sum();
        durable.end(deliveries)
    }

    /// Gives up messages in flight that are too large for the client that has come, as far as they are in memory; see
    /// [`give_up`](Self::give_up).
    pub(super) fn give_up_too_large(&mut self, now: Timestamp) -> Vec<PacketId> {
        // A subscription identifier has five bytes at most.
        let bytes_max = |kept: &Kept| kept.cost() + 5 * kept.ids.len();
        let unsent = self.outbound.withdraw_too_large(bytes_max, |kept| translate::describe(kept, now));
        self.inflight_bytes -= unsent.iter().map(Kept::cost).sum::<usize>().min(self.inflight_bytes);
        self.give_up(unsent)
    }

    /// Gives up messages that were in flight. Those of QoS 2 are released, which the store has to know before PUBREL
    /// says it (ADR 0042). Returns the identifiers of those: their PUBRELs are held back.
    pub(super) fn give_up(&mut self, in_flight: Vec<Kept>) -> Vec<PacketId> {
        let (mut over, mut released) = (Vec::new(), Vec::new());
        for kept in in_flight {
            match (kept.stored, &mut self.durable) {
                (Some(stored), Some(durable)) if kept.qos == Qos::ExactlyOnce => {
                    released.push(durable::packet_id(&stored));
                    durable.release_unasked(*stored);
                }
                (stored, _) => over.extend(stored.map(|stored| *stored)),
            }
        }
        self.finish(over);
        released
    }

    /// Notes that the connection has ended, and that there is no will if that was a normal end.
    pub(in crate::mqtt) fn leave_store(&mut self, since_unix_ms: u64, expiry_s: Option<u32>, has_will: bool) {
        let unsent = self.unsent();
        let Some(durable) = &mut self.durable else { return };
        if !has_will {
            durable.forget_will();
        }
        durable.disconnect(since_unix_ms, expiry_s, unsent);
        drop(self.append());
    }

    /// The mark of a client that comes.
    pub(in crate::mqtt) fn mark(&self) -> Mark {
        Mark::begin(self.unsent(), self.queue.len(), self.bounds.mark_messages)
    }

    /// Puts again that the client has left, which the store has not taken.
    #[cold]
    fn leave_again(&mut self) {
        let unsent = self.unsent();
        if let Some(durable) = &mut self.durable {
            durable.leave_again(unsent);
        }
    }

    /// The store has not taken that the client is connected.
    pub(in crate::mqtt) fn note_connect_refused(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.mark.refuse();
        }
    }

    /// Sets a mark if the client, which is connected, has fallen far behind.
    pub(super) fn mark_backlog(&mut self) {
        let Some(durable) = &self.durable else { return };
        let (queued, step) = (self.queue.len(), self.bounds.mark_messages);
        // Within a small bound it is far behind sooner.
        let far = step.saturating_mul(BACKLOG).min(self.bounds.queue_messages as u64 / 4).max(step);
        let is_far = u64::try_from(queued).is_ok_and(|queued| queued > far);
        if !is_far || durable.mark.below().is_some() || durable.mark.is_moving() {
            return;
        }
        if let (Some(first), Some(durable)) = (self.unsent(), &mut self.durable) {
            durable.set_mark(first, queued, step);
        }
    }

    /// Moves the mark to let the first message of the queue be sent. Returns whether that was done; else the task is
    /// woken when it is, or when it is tried again.
    pub(super) fn move_mark(&mut self, cx: &mut Context<'_>) -> bool {
        let (first, queued) = (self.unsent(), self.queue.len());
        let Some(durable) = &mut self.durable else { return false };
        if !durable.mark.is_moving() {
            if !durable.mark.is_due(cx) {
                return false;
            }
            durable.move_mark(first, queued);
        }
        durable.mark.poll(cx).is_ready() && durable.mark.is_due(cx)
    }

    /// Puts the record again that the store has not taken, once a second: what is on the disk says less than was sent,
    /// and may have an expiry that the client was not granted.
    pub(super) fn mark_again(&mut self, cx: &mut Context<'_>) {
        if self.durable.as_ref().is_some_and(|durable| durable.mark.is_refused()) {
            self.move_mark(cx);
        }
    }

    /// Has the mark moved in time behind a message that is sent.
    pub(super) fn follow_mark(&mut self, sent: Sequence) {
        if !self.durable.as_ref().is_some_and(|durable| durable.mark.is_near(sent)) {
            return;
        }
        let (first, queued) = (self.unsent(), self.queue.len());
        if let Some(durable) = &mut self.durable {
            durable.move_mark(Some(first.unwrap_or_else(|| sent.next())), queued);
        }
    }

    /// The number of the first message that was not sent.
    fn unsent(&self) -> Option<Sequence> {
        self.queue.iter().find_map(|kept| Some(kept.stored.as_ref()?.sequence()))
    }

    /// Follows a clock that was set.
    pub(in crate::mqtt) fn restamp(&mut self, clock: ClockSet, now_unix_ms: u64) -> Restamped {
        let unsent = self.unsent();
        let Some(durable) = &mut self.durable else { return Restamped::Same };
        let restamped = durable.restamp(clock, now_unix_ms, unsent);
        drop(self.append());
        restamped
    }

    /// Drops messages from the queue that have expired.
    pub(in crate::mqtt) fn drop_expired(&mut self, now: Timestamp) {
        let over = self.queue.take_unless(|kept| !kept.is_expired(now));
        self.finish(over.into_iter().filter_map(|kept| kept.stored).map(|stored| *stored));
        drop(self.append());
    }

    /// Takes over what the store has given back, in the order of the numbers. What may have been sent is sent again
    /// with its identifier; the rest waits in the queue ([MQTT-4.4.0-1], [MQTT-4.6.0-1]).
    /// One of QoS 1 that has expired is not ([MQTT-3.3.2-5]); one of QoS 2 has to be (§4.3.3).
    pub(in crate::mqtt) fn restore(
        &mut self,
        exchanges: impl Iterator<Item = (Sequence, Option<(Kept, bool)>)>,
        now: Timestamp,
    ) {
        let mut over = Vec::new();
        for (sequence, exchange) in exchanges {
            let id = durable::of_sequence(sequence);
            match exchange {
                // One whose identifier does not fit was never sent, so it cannot have been released.
                None => drop(self.outbound.restore(id, Unfinished::Release)),
                Some((kept, true)) if kept.qos == Qos::AtLeastOnce && kept.is_expired(now) => {
                    over.extend(kept.stored.map(|stored| *stored));
                }
                Some((kept, true)) if self.queue.is_empty() => {
                    let (qos, cost) = (translate::to_mqtt(kept.qos), kept.cost());
                    match self.outbound.restore(id, Unfinished::Publish(qos, kept)) {
                        Ok(()) => self.inflight_bytes += cost,
                        Err(Unfinished::Publish(_, kept)) => self.enqueue_retained(kept),
                        Err(Unfinished::Release) => {}
                    }
                }
                Some((kept, _)) => self.enqueue_retained(kept),
            }
        }
        self.doubtful = self.outbound.in_flight() > 0;
        self.finish(over);
    }

    /// Notes received messages of QoS 2 in one batch with their deliveries, unless PUBREL has come.
    pub(in crate::mqtt) fn note_received(&mut self, ids: impl Iterator<Item = PacketId>, gather: &Gather) {
        let Some(durable) = &mut self.durable else { return };
        ids.filter(|id| self.received.contains(*id)).for_each(|id| durable.receive(id, gather));
    }

    /// A received message of QoS 2 is released, or was refused. Returns whether it was there.
    pub(in crate::mqtt) fn forget_received(&mut self, id: PacketId) -> bool {
        if let Some(durable) = &mut self.durable {
            durable.forget_received(id);
        }
        self.received.remove(id)
    }
}
