//! One order per topic, with real threads: whatever publishers on several workers do at once, every reader sees the
//! values of a topic in the order in which they became the retained one, and ends with the retained one.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use fogmux_bus::{
    Bus, BusConfig, Completion, FifoLimits, FifoMailbox, Filter, Meaning, Message, Payload, Publication, Publisher,
    Qos, RetainedStore, SubscribeOptions, Subscription, Timestamp, Topic, TopicRef, WorkerId,
};

const PUBLISHERS: usize = 4;
const READERS: usize = 4;
const ROOMY: FifoLimits = FifoLimits { messages: usize::MAX, bytes: usize::MAX };

/// Remembers the values of each topic in the order in which they became the retained one.
#[derive(Clone, Default)]
struct History(Arc<Mutex<HashMap<Topic, Vec<u64>>>>);

impl RetainedStore for History {
    fn put(&self, message: &Arc<Message>, _: Option<u64>, _: Option<&Arc<Message>>) -> Completion {
        self.0.lock().unwrap().entry(message.topic.clone()).or_default().push(value(message));
        Completion::Ready
    }

    fn remove(&self, _: &Topic, _: Option<&Arc<Message>>) -> Completion {
        Completion::Ready
    }

    fn pending(&self, _: &str) -> Completion {
        Completion::Ready
    }

    fn load(&self, _: &mut dyn FnMut(fogmux_bus::Stored)) {}
}

fn value(message: &Message) -> u64 {
    u64::from_be_bytes(message.payload.as_ref().try_into().unwrap())
}

/// A small generator, so that a round can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

/// Publishes retained values in batches of different sizes.
fn publish(bus: &Arc<Bus>, index: usize, topics: &[String], batches: u64, seed: u64) {
    let (mut worker, mut random) = (bus.worker(WorkerId(index)), Random(seed * 7919 + index as u64 + 1));
    let me = Publisher::internal();
    let mut next = (index as u64) << 32;
    for _ in 0..batches {
        let values: Vec<([u8; 8], &str)> = (0..=random.below(8))
            .map(|_| {
                next += 1;
                (next.to_be_bytes(), topics[random.below(topics.len())].as_str())
            })
            .collect();
        let mut batch: Vec<_> = values
            .iter()
            .map(|(payload, topic)| {
                let topic = TopicRef::new(topic).unwrap();
                let mut publication = Publication::new(topic, Payload::Slice(payload), &me, Timestamp::ZERO, 0);
                publication.meaning = Meaning::Value;
                publication.qos = Qos::AtLeastOnce;
                publication
            })
            .collect();
        let _ = worker.publish(&mut batch);
    }
}

/// Subscribes while values come, pulls the retained ones in chunks, and gives what it saw of each topic.
fn read(bus: &Bus, over: &AtomicBool, chunk: usize) -> HashMap<Topic, Vec<u64>> {
    let slot = bus.slot(FifoMailbox::new(ROOMY), WorkerId(0));
    let filter = Filter::new("t/#").unwrap();
    bus.subscribe(&slot, &Subscription::to(filter.clone()), SubscribeOptions::default()).unwrap();
    let mut seen: HashMap<Topic, Vec<u64>> = HashMap::new();
    let (mut after, mut pulled) = (None, false);
    loop {
        let last = over.load(Ordering::SeqCst) && pulled;
        let messages = slot.with(|mailbox| {
            let mut messages: Vec<_> = std::iter::from_fn(|| mailbox.pop()).map(|queued| queued.message).collect();
            if !pulled {
                let found = bus.retained(&filter, after.as_ref(), chunk, Timestamp::ZERO);
                messages.extend(found.messages);
                pulled = found.next.is_none();
                after = found.next;
            }
            messages
        });
        if messages.is_empty() {
            thread::yield_now();
        }
        for message in messages {
            seen.entry(message.topic.clone()).or_default().push(value(&message));
        }
        if last {
            break;
        }
    }
    bus.unsubscribe(&slot, &Subscription::to(filter), 0);
    bus.close(&slot);
    seen
}

fn round(seed: u64, topics: usize, batches: u64) {
    let history = History::default();
    let config = BusConfig { workers: PUBLISHERS, ..BusConfig::default() };
    let bus = Bus::new(&config, Box::new(history.clone()), Timestamp::ZERO, 0);
    let topics: Vec<String> = (0..topics).map(|i| format!("t/{i}")).collect();
    let over = AtomicBool::new(false);
    let seen: Vec<_> = thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|i| {
                scope.spawn({
                    let (bus, over) = (&bus, &over);
                    move || read(bus, over, i + 1)
                })
            })
            .collect();
        let publishers: Vec<_> = (0..PUBLISHERS)
            .map(|i| {
                scope.spawn({
                    let (bus, topics) = (&bus, &topics);
                    move || publish(bus, i, topics, batches, seed)
                })
            })
            .collect();
        publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
        over.store(true, Ordering::SeqCst);
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let history = history.0.lock().unwrap();
    for (topic, values) in history.iter() {
        let place: HashMap<u64, usize> = values.iter().enumerate().map(|(place, value)| (*value, place)).collect();
        let retained = value(&bus.latest(topic, Timestamp::ZERO).unwrap());
        assert_eq!(values.last(), Some(&retained), "the store and the map agree about {topic}, seed {seed}");
        for seen in &seen {
            let seen = seen.get(topic).map(Vec::as_slice).unwrap_or_default();
            let places: Vec<usize> = seen.iter().map(|value| place[value]).collect();
            assert!(places.is_sorted(), "an older value of {topic} after a newer one, seed {seed}");
            assert_eq!(seen.last(), Some(&retained), "the last value of {topic} is the retained one, seed {seed}");
        }
    }
    assert_eq!(bus.memory().held(), 0);
}

#[test]
fn every_reader_sees_the_order_of_the_retained_values() {
    for seed in 1..=6 {
        for topics in [1, 2, 16, 97] {
            round(seed, topics, 300);
        }
    }
}
