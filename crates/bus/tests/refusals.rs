//! No publication is lost in silence: it is refused to a publisher who is told, or every subscriber that matches gets
//! it or is counted – with a table of retained messages that is full, shares that are used up, and a store that fails.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use fogmux_bus::{
    Bus, BusConfig, Completion, Door, FifoLimits, FifoMailbox, Meaning, Message, Payload, Publication, Publisher, Qos,
    RetainedStore, Slot, Stored, SubscribeOptions, Subscription, Timestamp, Topic, TopicRef, WorkerId,
};
use proptest::prelude::*;

/// A store that fails while it is told to.
#[derive(Clone, Default)]
struct Failing(Arc<AtomicBool>);

impl Failing {
    fn answer(&self) -> Completion {
        if self.0.load(Relaxed) { Completion::Failed } else { Completion::Ready }
    }
}

impl RetainedStore for Failing {
    fn put(&self, _: &Arc<Message>, _: Option<u64>, _: Option<&Arc<Message>>) -> Completion {
        self.answer()
    }

    fn remove(&self, _: &Topic, _: Option<&Arc<Message>>) -> Completion {
        self.answer()
    }

    fn pending(&self, _: &str) -> Completion {
        self.answer()
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}
}

const DOORS: [Option<Door>; 5] = [Some(Door::Mqtt), Some(Door::Coap), Some(Door::Http), Some(Door::Xmpp), None];
/// Room for all but a few messages of a mailbox.
const MAILBOX: FifoLimits = FifoLimits { messages: 20, bytes: 1 << 20 };

#[derive(Clone, Debug)]
struct Planned {
    topic: u8,
    bytes: usize,
    qos: u8,
    retain: bool,
    will: bool,
    door: usize,
    principal: u8,
}

impl Planned {
    /// Whether somebody waits for the outcome, as the protocols have it.
    fn is_told(&self) -> bool {
        match DOORS[self.door] {
            None => false,
            Some(Door::Mqtt) => self.qos > 0 && !self.will,
            Some(Door::Coap | Door::Http | Door::Xmpp) => !self.will,
        }
    }
}

fn planned() -> impl Strategy<Value = Planned> {
    (0..12u8, 0..400usize, 0..3u8, any::<bool>(), any::<bool>(), 0..DOORS.len(), 0..3u8).prop_map(
        |(topic, bytes, qos, retain, will, door, principal)| Planned {
            topic,
            bytes,
            qos,
            retain,
            will,
            door,
            principal,
        },
    )
}

fn subscriber(bus: &Bus, filter: &str) -> Arc<Slot<FifoMailbox>> {
    let slot = bus.slot(FifoMailbox::new(MAILBOX), WorkerId(0));
    let options = SubscribeOptions { max_qos: Qos::ExactlyOnce, ..SubscribeOptions::default() };
    bus.subscribe(&slot, &Subscription::parse(filter).unwrap(), options).unwrap();
    slot
}

/// Publishes a batch and returns each identifier, and whether the publication was refused.
fn publish(bus: &Arc<Bus>, worker: &mut fogmux_bus::Worker, batch: &[Planned]) -> Vec<(u64, bool)> {
    let publishers: Vec<Arc<Publisher>> = batch
        .iter()
        .map(|one| {
            let principal = Arc::from(format!("user{}", one.principal));
            Arc::new(Publisher { principal, client: "".into(), door: DOORS[one.door], slot: None })
        })
        .collect();
    let topics: Vec<String> = batch.iter().map(|one| format!("t/{}", one.topic)).collect();
    let payload = [b'x'; 400];
    let mut publications: Vec<_> = batch
        .iter()
        .zip(topics.iter().zip(&publishers))
        .map(|(one, (topic, publisher))| {
            let (topic, payload) = (TopicRef::new(topic).unwrap(), Payload::Slice(payload.get(..one.bytes).unwrap()));
            let mut publication = Publication::new(topic, payload, publisher, Timestamp::ZERO, 0);
            publication.qos = Qos::from_u8(one.qos).unwrap();
            publication.meaning = Meaning::of_flag(one.retain, publication.payload.as_slice());
            publication.unanswered = one.will;
            publication
        })
        .collect();
    let unkept = bus.counters().unkept.load(Relaxed);
    drop(worker.publish(&mut publications));
    let counted = bus.counters().unkept.load(Relaxed) - unkept;
    let silent = publications.iter().filter(|one| one.outcome().unkept && !one.outcome().refused).count();
    assert_eq!(counted, silent as u64, "messages that were not retained are counted");
    publications.iter().map(|one| (one.id().0, one.outcome().refused)).collect()
}

proptest! {
    #[test]
    fn a_publication_is_refused_to_somebody_or_delivered(
        batches in proptest::collection::vec((proptest::collection::vec(planned(), 1..12), any::<bool>()), 1..12),
        messages in 0..8usize,
        bytes in 0..4000usize,
    ) {
        let store = Failing::default();
        let config = BusConfig {
            workers: 1,
            retained_messages_max: messages,
            retained_bytes_max: bytes,
            ..BusConfig::default()
        };
        let bus = Bus::new(&config, Box::new(store.clone()), Timestamp::ZERO, 0);
        let mut worker = bus.worker(WorkerId(0));
        let all = subscriber(&bus, "t/#");
        let some = subscriber(&bus, "t/1");
        for (batch, fails) in &batches {
            store.0.store(*fails, Relaxed);
            let full = bus.counters().dropped_full.load(Relaxed);
            let outcomes = publish(&bus, &mut worker, batch);
            let take = |slot: &Slot<FifoMailbox>| -> BTreeSet<u64> {
                slot.with(|mailbox| std::iter::from_fn(|| mailbox.pop()).map(|one| one.message.id.0).collect())
            };
            let (every, those) = (take(&all), take(&some));
            // At most eleven messages come at once, so that no mailbox runs over.
            prop_assert_eq!(bus.counters().dropped_full.load(Relaxed), full);
            for (one, (id, refused)) in batch.iter().zip(outcomes) {
                prop_assert!(!refused || one.is_told(), "{:?} was refused to nobody", one);
                prop_assert!(!refused || one.retain, "{:?} was refused without need", one);
                prop_assert_eq!(every.contains(&id), !refused, "{:?}", one);
                prop_assert_eq!(those.contains(&id), !refused && one.topic == 1, "{:?}", one);
            }
        }
    }
}
