//! The level of a client's queue, and the publishers that wait for it to fall.

use fogmux_bus::{Qos, SlowDown, Timestamp};

use super::MqttMailbox;

impl MqttMailbox {
    /// How much of its bounds the queue takes up.
    pub(super) fn level(&self) -> usize {
        self.bounds.level(self.queue.len(), self.queue.bytes())
    }

    /// Notes a message that was queued, if the client is behind.
    pub(super) fn note_came(&mut self, bytes: usize, now: Timestamp) {
        if self.bounds.distance(self.level(), &self.account).is_some() {
            let bytes = self.bounds.level(1, bytes);
            let bounds = &self.bounds;
            self.pace.get_or_insert_with(|| Box::new(bounds.pace(now))).came(bytes, now);
        }
    }

    /// Whether publishers may wait for its client: it has acknowledged something on this connection, or its owner is
    /// not limited. Otherwise each new connection would have the time in which it may seem to take nothing.
    fn may_be_waited_for(&self) -> bool {
        self.acknowledges || !self.bounds.is_limited(&self.account)
    }

    /// A single message always fits: it is shared, and its size was bounded on the way in. So does each of QoS 1 and 2
    /// for a client that publishers wait for. The bounds of a client that reads do not shrink.
    /// `cost` is what it takes of memory, `bytes` with what it takes in the store.
    pub(super) fn fits(&self, cost: usize, bytes: usize, qos: Qos, now: Timestamp) -> bool {
        let queue_bytes = self.bounds.queue_bytes;
        let (reads, waits) = match &self.pace {
            Some(pace) => (pace.reads(now), pace.is_fair(now)),
            // It is not behind; that says nothing about QoS 0, of which no pace is measured.
            None => (qos != Qos::AtMostOnce, true),
        };
        self.queue.is_empty()
            || (self.connected
                && waits
                && qos != Qos::AtMostOnce
                && self.bounds.may_exceed(self.queue.bytes(), &self.account))
            || (self.queue.len() < self.bounds.queue_messages
                && self.queue.bytes() + bytes <= queue_bytes
                && ((self.connected && reads)
                    || self.queue.memory() + cost <= self.bounds.scale(queue_bytes, &self.account)))
    }

    /// Notes that the client took so much. Once it is no longer behind, its pace says nothing: it may take no more than
    /// comes.
    pub(super) fn keep_pace(&mut self, taken: usize, now: Timestamp) {
        let level = self.level();
        if self.bounds.distance(level, &self.account).is_none() {
            self.pace = None;
        } else if let Some(pace) = &mut self.pace {
            pace.took(taken, self.bounds.is_far(level), now);
        }
    }

    /// Notes that the client read so much of a large message.
    pub(in crate::mqtt) fn note_read(&mut self, bytes: usize, now: Timestamp) {
        if let Some(pace) = &mut self.pace {
            pace.read(bytes, now);
        }
    }

    /// How much of its bounds the messages would take up that the client has not acknowledged.
    pub(in crate::mqtt) fn in_flight(&self) -> usize {
        self.bounds.level(self.outbound.in_flight(), self.inflight_bytes)
    }

    /// Notes that the client has acknowledged what is no longer in flight of so much: it has read that.
    pub(in crate::mqtt) fn note_acknowledged(&mut self, before: usize, now: Timestamp) {
        let after = self.in_flight();
        if after >= before {
            return;
        }
        self.acknowledges = true;
        if let Some(pace) = &mut self.pace {
            pace.acknowledged(before - after, now);
        }
    }

    /// The pause that the publisher should make after what was just delivered.
    pub(super) fn ask_to_slow_down(&mut self) -> Option<SlowDown> {
        let level = self.level();
        let may_wait = self.may_be_waited_for();
        let pace = self.pace.as_mut()?;
        pace.slow_down(self.bounds.distance(level, &self.account)?).filter(|_| may_wait)
    }
}
