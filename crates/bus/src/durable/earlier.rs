//! Batches that the store holds, by publisher: what one publishes later does not overtake them on its way to the disk.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use super::store::Gathering;
use crate::message::Publisher;

/// As many entries as this are not searched for those that are over.
const UNSWEPT_MAX: usize = 64;

/// Those of a worker. A publisher stays with its worker.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// By the address of the publisher, which nobody else has as long as there is a reference to it.
    held: HashMap<*const Publisher, (Weak<Publisher>, Vec<Weak<Gathering>>)>,
    count: usize,
    /// How many there were after the last sweep.
    swept: usize,
}

impl Earlier {
    /// One more is held.
    pub(crate) fn push(&mut self, publisher: &Arc<Publisher>, gathering: &Arc<Gathering>) {
        if self.count >= 2 * self.swept + UNSWEPT_MAX {
            self.sweep();
        }
        let of_publisher = self.held.entry(Arc::as_ptr(publisher));
        of_publisher.or_insert_with(|| (Arc::downgrade(publisher), Vec::new())).1.push(Arc::downgrade(gathering));
        self.count += 1;
    }

    /// Has those of a publisher appended, in the order of its publications.
    pub(crate) fn append(&mut self, publisher: &Arc<Publisher>) {
        let Some((_, gatherings)) = self.held.remove(&Arc::as_ptr(publisher)) else { return };
        self.count -= gatherings.len();
        gatherings.iter().filter_map(Weak::upgrade).for_each(|gathering| gathering.append_held());
    }

    fn sweep(&mut self) {
        self.held.retain(|_, (_, gatherings)| {
            gatherings.retain(|gathering| gathering.upgrade().is_some_and(|gathering| gathering.is_held()));
            !gatherings.is_empty()
        });
        self.count = self.held.values().map(|(_, gatherings)| gatherings.len()).sum();
        self.swept = self.count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        durable::{Manner, MemoryStore, Parcel, SessionLog, SessionStore, StoredDelivery, StoredMessage},
        meaning::Meaning,
        message::Qos,
        session::SessionKey,
        topic::Topic,
    };

    fn publish(store: &MemoryStore, log: &mut SessionLog) -> (Arc<Gathering>, StoredDelivery) {
        let gathering = Gathering::new(store);
        let message = StoredMessage {
            topic: Topic::new("t").unwrap(),
            payload: "x".into(),
            qos: Qos::AtLeastOnce,
            meaning: Meaning::Event,
            content_type: None,
            expires_unix_ms: None,
            properties: None,
            ingest_unix_ms: 0,
            principal: "ada".into(),
            client: "c".into(),
            door: None,
        };
        let parcel = Parcel::new(&gathering, message).unwrap();
        let manner = Manner { qos: Qos::AtLeastOnce, retain: false, share: 0, ids: [].into_iter().collect() };
        let delivery = log.deliver(&parcel, manner, &gathering).unwrap();
        delivery.sent();
        drop(gathering.append_published([parcel]));
        (gathering, delivery)
    }

    #[test]
    fn it_has_no_more_than_is_held_and_appends_that_of_one_publisher() {
        let store = MemoryStore::default();
        store.set_holding(true);
        let mut batch = store.batch();
        let mut log = SessionLog::begin(SessionKey("s".into()), "ada".into(), None, batch.as_mut());
        drop(batch.append());
        store.commit(usize::MAX);
        let mut earlier = Earlier::default();
        let lasting = Publisher::internal();
        let mut unacknowledged = Vec::new();
        for number in 0..3_000 {
            let passing = Publisher::internal();
            let publisher = if number % 100 == 0 { &lasting } else { &passing };
            let (gathering, delivery) = publish(&store, &mut log);
            earlier.push(publisher, &gathering);
            if number % 100 < 2 {
                unacknowledged.push(delivery);
            } else {
                delivery.acknowledge(store.batch().as_mut());
            }
            let most = 2 * unacknowledged.len() + UNSWEPT_MAX + 1;
            assert!(earlier.count <= most && earlier.held.len() <= most, "{number}: {}", earlier.count);
        }
        assert_eq!(store.waiting(), 0);
        earlier.append(&lasting);
        assert_eq!(store.waiting(), 30);
        earlier.append(&lasting);
        assert_eq!(store.waiting(), 30, "those of others are held");
        let (count, kept) = (earlier.count, earlier.held.values().map(|(_, of_one)| of_one.len()).sum::<usize>());
        assert!(count == kept && kept >= 30, "{count} of {kept}");
    }
}
