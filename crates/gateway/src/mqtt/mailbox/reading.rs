//! Messages that are in the store only: they leave memory while the client is away, and are read back, a few at a time,
//! when they are to be sent (ADR 0073).

use std::{
    collections::HashMap,
    task::{Context, Poll},
};

use fogmux_bus::{
    Mailbox as _, Timestamp,
    durable::{MessagesRead, RecordId, StoredMessage},
};

use super::{
    super::{kept::Kept, unreadable::Asked},
    Drained, MqttMailbox, queue,
};

/// Messages that are read back at once.
const READ_MESSAGES: usize = 256;
/// Their bytes, or one larger message.
const READ_BYTES: usize = 64 << 10;

impl MqttMailbox {
    /// Bytes of messages of an absent client that stay in memory.
    fn memory_max(&self) -> usize {
        self.bounds.scale(self.bounds.queue_memory_bytes, &self.account)
    }

    /// Has queued messages of an absent client leave memory, but for as many as its bounds allow.
    pub(super) fn send_away(&mut self) {
        if !self.connected && self.durable.is_some() {
            self.queue.send_away(self.memory_max());
        }
    }

    /// The same with a message that is to be queued.
    pub(super) fn keep_away(&mut self, kept: &mut Kept) {
        if self.connected || self.durable.is_none() {
            return;
        }
        if self.queue.away() > 0 || self.queue.messages() + kept.cost() > self.memory_max() {
            kept.go_away();
        }
        self.queue.settle();
    }

    /// Has all messages of an absent client leave memory, those in flight included as far as the store has them.
    pub(in crate::mqtt) fn send_all_away(&mut self) {
        if self.connected || self.durable.is_none() {
            return;
        }
        self.queue.send_away(0);
        for kept in self.outbound.messages_mut() {
            if kept.stored.as_mut().is_some_and(|stored| stored.settle()) {
                kept.go_away();
            }
        }
        self.inflight_bytes = self.outbound.messages().map(Kept::cost).sum();
    }

    /// Whether a message is in the store only.
    pub(in crate::mqtt) fn has_away(&self) -> bool {
        self.queue.away() > 0 || self.outbound.messages().any(Kept::is_away)
    }

    /// Whether so many bytes may be read back now. When memory is tight, that waits until the client has acknowledged
    /// what was read before; when it is nearly gone, until some is free.
    fn may_read_back(&self, bytes: usize) -> bool {
        let inflight_bytes = self.bounds.scale(self.bounds.inflight_bytes, &self.account);
        let takes =
            self.inflight_bytes < inflight_bytes || self.outbound.in_flight() == 0 || self.outbound.is_resending();
        takes && self.bounds.may_read_back(bytes, self.buffered_bytes(), &self.account)
    }

    /// Whether a drain would begin to read the next messages back, or take what was read.
    pub(super) fn would_read_back(&self) -> bool {
        let Some(durable) = &self.durable else { return false };
        durable.reading.as_ref().map_or_else(|| self.may_read_back(self.next_away()), |reading| reading.0.is_ready())
    }

    /// Bytes of the next message that is to be read back.
    fn next_away(&self) -> usize {
        let next = if self.outbound.is_resending() { self.outbound.next_to_resend() } else { self.queue.front() };
        next.map_or(0, Kept::away_bytes)
    }

    /// Whether messages are being read back.
    pub(super) fn is_reading_back(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.reading.is_some())
    }

    /// Reads the next messages back: of those that are to be sent again if there are any, else of the queue. Returns
    /// whether there is something new; else the task is woken when there is.
    pub(super) fn read_back(&mut self, now: Timestamp, cx: &Context<'_>, drained: &mut Drained) -> bool {
        if !self.is_reading_back() && !self.begin_reading_back() {
            return false;
        }
        let Some(durable) = &mut self.durable else { return false };
        let Some(reading) = &mut durable.reading else { return false };
        let Poll::Ready(read) = reading.0.poll(cx) else { return false };
        durable.reading = None;
        self.take_back(read, now, drained);
        true
    }

    fn begin_reading_back(&mut self) -> bool {
        if !self.may_read_back(self.next_away()) {
            self.bounds.note_waits_for_memory();
            return false;
        }
        let bytes_max = self.bounds.scale(READ_BYTES, &self.account).min(self.bounds.room(&self.account));
        let wanted = if self.outbound.is_resending() {
            let again = self.outbound.to_resend_mut().map(|kept| &*kept).filter(|kept| kept.is_away());
            queue::take_away(again, READ_MESSAGES, bytes_max)
        } else {
            self.queue.first_away(READ_MESSAGES, bytes_max)
        };
        let Some(durable) = self.durable.as_mut().filter(|_| !wanted.records.is_empty()) else { return false };
        let loan = self.bounds.lend(wanted.bytes);
        durable.reading = Some(Box::new((durable.read_back(wanted.records), loan)));
        true
    }

    /// Takes messages that were read back. Some of those that were asked for may be over.
    fn take_back(&mut self, read: MessagesRead, now: Timestamp, drained: &mut Drained) {
        let count = read.len();
        // They were let in by the rules of the time when they came.
        let mut asked = Asked::of(self.gate.access());
        let mut all: HashMap<RecordId, Back> = HashMap::with_capacity(count);
        for (id, message) in read {
            let back = match message {
                Some(message) if asked.may_read(&message.topic) => Back::Message(message),
                Some(_) => Back::Unreadable,
                None => Back::Lost,
            };
            all.insert(id, back);
        }
        let stays = |kept: &mut Kept| match kept.stored.as_ref().and_then(|stored| all.get(&stored.message())) {
            Some(Back::Message(message)) => {
                kept.come_back(message, now);
                true
            }
            Some(Back::Unreadable | Back::Lost) => !kept.is_away(),
            None => true,
        };
        let again = self.outbound.withdraw_changed(stays);
        let over = self.queue.change_first(count, stays);
        let is_lost = |kept: &&Kept| {
            kept.stored.as_ref().is_some_and(|stored| matches!(all.get(&stored.message()), Some(Back::Lost)))
        };
        let lost = u64::try_from(over.iter().filter(is_lost).count()).unwrap_or_default();
        drained.lost_in_store += lost;
        drained.unreadable += u64::try_from(over.len()).unwrap_or_default() - lost;
        self.inflight_bytes = self.outbound.messages().map(Kept::cost).sum();
        self.finish(over.into_iter().filter_map(|kept| kept.stored).map(|stored| *stored));
        drained.released.append(&mut self.give_up(again));
        drained.released.append(&mut self.give_up_too_large(now));
        drained.committed = drained.committed.and(&self.append());
    }
}

/// A message that was asked for.
enum Back {
    Message(StoredMessage),
    /// The client may not read it any more.
    Unreadable,
    /// The store does not have it.
    Lost,
}
