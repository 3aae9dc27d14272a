//! Messages that are in the store only: they leave memory while the client is away, and are read back, a few at a time,
//! when they are to be sent (ADR 0073).

use std::{
    collections::HashMap,
    task::{Context, Poll},
};

use fogmux_bus::{
    Timestamp,
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
    /// Has queued messages of an absent client leave memory, but for as many as its bounds allow. Those that the store
    /// does not have yet leave with a later message, or when it is looked again.
    pub(in crate::mqtt) fn send_away(&mut self) {
        if !self.connected && self.durable.is_some() {
            let bytes_max = self.bounds.scale(self.bounds.queue_memory_bytes, &self.account);
            if self.queue.send_away(bytes_max) {
                self.bounds.note_unstored();
            }
        }
    }

    /// The same for all messages, those in flight included, as far as the store has them.
    pub(in crate::mqtt) fn send_all_away(&mut self) {
        if self.connected || self.durable.is_none() {
            return;
        }
        self.queue.send_away(0);
        for kept in self.outbound.messages_mut() {
            kept.go_away();
        }
        self.inflight_bytes = self.outbound.messages().map(Kept::cost).sum();
    }

    /// Whether a message is in the store only.
    pub(in crate::mqtt) fn has_away(&self) -> bool {
        self.queue.away() > 0 || self.outbound.messages().any(Kept::is_away)
    }

    /// Whether more may be read back now. When memory is tight that waits until the client has acknowledged what was
    /// read before.
    fn may_read_back(&self) -> bool {
        let inflight_bytes = self.bounds.scale(self.bounds.inflight_bytes, &self.account);
        self.inflight_bytes < inflight_bytes || self.outbound.in_flight() == 0 || self.outbound.is_resending()
    }

    /// Whether a drain would begin to read the next messages back, or take what was read.
    pub(super) fn would_read_back(&self) -> bool {
        let Some(durable) = &self.durable else { return false };
        durable.reading.as_ref().map_or_else(|| self.may_read_back(), |reading| reading.is_ready())
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
        let Poll::Ready(read) = reading.poll(cx) else { return false };
        durable.reading = None;
        self.take_back(read, now, drained);
        true
    }

    fn begin_reading_back(&mut self) -> bool {
        if !self.may_read_back() {
            return false;
        }
        let bytes_max = self.bounds.scale(READ_BYTES, &self.account);
        let messages = if self.outbound.is_resending() {
            let again = self.outbound.to_resend_mut().map(|kept| &*kept).filter(|kept| kept.is_away());
            queue::take_away(again, READ_MESSAGES, bytes_max)
        } else {
            self.queue.first_away(READ_MESSAGES, bytes_max)
        };
        let Some(durable) = self.durable.as_mut().filter(|_| !messages.is_empty()) else { return false };
        durable.read_back(messages);
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
