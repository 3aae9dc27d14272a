//! What the bus has for the observers of one socket: one queue for all, in the order of publication.
//!
//! Bounded in entries and bytes. When it is full, only the newest of each observer and topic stays; if that is not
//! enough, the oldest go, but none of QoS 1 or 2 for one of QoS 0.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use fogmux_bus::{Delivered, Delivery, Mailbox, Message, Publication, Qos, Topic};
use foldhash::quality::RandomState;

/// One message for one observer.
pub(super) struct Entry {
    /// The observation.
    pub(super) tag: u64,
    pub(super) message: Arc<Message>,
    /// Whether it may not be lost: QoS 1 or 2.
    pub(super) assured: bool,
    /// It says that the topic has no value any more.
    pub(super) cleared: bool,
}

/// The queue.
pub(super) struct Notifications {
    entries: VecDeque<Entry>,
    bytes: usize,
    bytes_max: usize,
    /// Entries that came since the queue was last thinned out; that looks at everything, so it is not done for each.
    since_thinned: usize,
}

/// Most entries; beyond, the newest of each observer and topic stay.
const ENTRIES_MAX: usize = 65_536;

impl Notifications {
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, bytes_max, since_thinned: 0 }
    }

    /// Takes everything out; `into` is empty and its room is used for what comes next.
    pub(super) fn take(&mut self, into: &mut VecDeque<Entry>) {
        std::mem::swap(&mut self.entries, into);
        (self.bytes, self.since_thinned) = (0, 0);
    }

    fn is_full(&self, more: usize) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.bytes + more > self.bytes_max
    }

    /// Keeps the newest of each observer and topic.
    fn thin(&mut self) {
        self.since_thinned = 0;
        thin(&mut self.entries);
        self.bytes = self.entries.iter().map(|entry| cost(&entry.message)).sum();
    }

    /// Drops the oldest until there is room for an entry; says how many.
    fn displace(&mut self, more: usize, assured: bool) -> u32 {
        let mut dropped = 0;
        while self.is_full(more) {
            match self.entries.front() {
                Some(entry) if assured || !entry.assured => {
                    self.bytes = self.bytes.saturating_sub(cost(&entry.message));
                    self.entries.pop_front();
                    dropped += 1;
                }
                Some(_) | None => break,
            }
        }
        dropped
    }
}

/// Keeps the newest of each observer and topic, in their order.
pub(super) fn thin(entries: &mut VecDeque<Entry>) {
    let mut seen: HashSet<(u64, Topic), RandomState> = HashSet::with_hasher(RandomState::default());
    let mut kept = VecDeque::with_capacity(entries.len());
    while let Some(entry) = entries.pop_back() {
        if seen.insert((entry.tag, entry.message.topic.clone())) {
            kept.push_front(entry);
        }
    }
    *entries = kept;
}

/// A message that many observers share is counted for each: too much rather than too little.
fn cost(message: &Message) -> usize {
    size_of::<Entry>() + message.payload.len()
}

impl Mailbox for Notifications {
    fn deliver(&mut self, publication: &Publication<'_>, delivery: &Delivery<'_>) -> Delivered {
        let message = delivery.share(publication);
        let (more, assured) = (cost(message), delivery.qos(publication) > Qos::AtMostOnce);
        let mut displaced = 0;
        if self.is_full(more) {
            if self.since_thinned > self.entries.len() / 4 {
                self.thin();
            }
            displaced = self.displace(more, assured);
            if self.is_full(more) && !self.entries.is_empty() {
                return Delivered::Full;
            }
        }
        self.bytes += more;
        self.since_thinned += 1;
        self.entries.push_back(Entry {
            tag: delivery.tag,
            message: Arc::clone(message),
            assured,
            cleared: publication.retain && message.payload.is_empty() && !publication.keep_empty,
        });
        if displaced > 0 { Delivered::Displaced(displaced) } else { Delivered::Queued }
    }

    fn buffered_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use fogmux_bus::{Payload, Publisher, Timestamp, TopicRef};

    use super::*;

    fn deliver(queue: &mut Notifications, tag: u64, payload: &[u8], qos: Qos) -> Delivered {
        let publisher = Publisher::internal();
        let mut publication =
            Publication::new(TopicRef::new("a/b").unwrap(), Payload::Slice(payload), &publisher, Timestamp::ZERO, 0);
        publication.qos = qos;
        let delivery = Delivery {
            tag,
            max_qos: Qos::ExactlyOnce,
            retain_as_published: true,
            ids: &[],
            shared: false,
            topic: None,
        };
        queue.deliver(&publication, &delivery)
    }

    #[test]
    fn full_it_keeps_the_newest_of_each_observer() {
        let mut queue = Notifications::new(usize::MAX);
        for value in 0..u32::try_from(ENTRIES_MAX).unwrap() * 2 {
            let delivered = deliver(&mut queue, u64::from(value % 7), &value.to_be_bytes(), Qos::AtMostOnce);
            assert!(matches!(delivered, Delivered::Queued | Delivered::Displaced(_)));
            assert!(queue.entries.len() <= ENTRIES_MAX);
        }
        let mut newest = [0; 7];
        for entry in &queue.entries {
            newest[usize::try_from(entry.tag).unwrap()] =
                u32::from_be_bytes(entry.message.payload.as_ref().try_into().unwrap());
        }
        assert!(newest.iter().all(|value| *value >= u32::try_from(ENTRIES_MAX).unwrap() * 2 - 7));
    }

    #[test]
    fn it_is_bounded_in_bytes_and_drops_the_oldest() {
        let mut queue = Notifications::new(10_000);
        for observer in 0..1000 {
            deliver(&mut queue, observer, &[0; 100], Qos::AtLeastOnce);
            assert!(queue.buffered_bytes() <= 10_000);
        }
        assert_eq!(deliver(&mut queue, 1000, &[0; 100], Qos::AtLeastOnce), Delivered::Displaced(1));
        assert_eq!(deliver(&mut queue, 1000, &[0; 100], Qos::AtMostOnce), Delivered::Full);
    }
}
