//! The oracle of clocks that are wrong: whatever the wall clock says, and however often the gateway is started, nobody
//! loses a message before its time, and a message whose clock was right is not read after it.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use fogmux_bus::{
    Bus, BusConfig, ClockSet, Completion, Meaning, Message, Payload, Publication, Publisher, RetainedStore, Stored,
    Timestamp, Topic, Worker, WorkerId,
};
use proptest::{collection::vec, prelude::*};

/// 2026-11-23, in milliseconds since 1970.
const TODAY_MS: u64 = 1_795_392_000_000;
const LIFE_MS: u64 = 86_400_000;

/// A store in memory, which several buses use one after another.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<BTreeMap<String, Stored>>>);

impl RetainedStore for Shelf {
    fn put(&self, message: &Arc<Message>, expires_unix_ms: Option<u64>, _: Option<&Arc<Message>>) -> Completion {
        let stored = Stored {
            topic: message.topic.clone(),
            payload: message.payload.clone(),
            qos: message.qos,
            content_type: None,
            expires_unix_ms,
            properties: None,
            ingest_unix_ms: message.ingest_unix_ms,
            principal: Arc::clone(&message.publisher.principal),
            door: message.publisher.door,
        };
        self.0.lock().unwrap().insert(message.topic.to_string(), stored);
        Completion::Ready
    }

    fn remove(&self, topic: &Topic, _: Option<&Arc<Message>>) -> Completion {
        self.0.lock().unwrap().remove(topic.as_str());
        Completion::Ready
    }

    fn pending(&self, _: &str) -> Completion {
        Completion::Ready
    }

    fn load(&self, visit: &mut dyn FnMut(Stored)) {
        let all: Vec<_> = self.0.lock().unwrap().values().cloned().collect();
        all.into_iter().for_each(visit);
    }
}

/// A gateway that runs, and its clocks in milliseconds.
struct Life {
    bus: Arc<Bus>,
    worker: Worker,
    now_ms: u64,
    origin_unix_ms: u64,
}

impl Life {
    fn start(shelf: &Shelf, unix_ms: u64) -> Self {
        let bus = Bus::new(&BusConfig::default(), Box::new(shelf.clone()), Timestamp::ZERO, unix_ms);
        let worker = bus.worker(WorkerId(0));
        Self { bus, worker, now_ms: 0, origin_unix_ms: unix_ms }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms)
    }

    fn put(&mut self, topic: &str) {
        let (publisher, name) = (Publisher::internal(), Topic::new(topic).unwrap());
        let unix_ms = self.origin_unix_ms + self.now_ms;
        let mut publication = Publication::new(name.as_ref(), Payload::Slice(b"1"), &publisher, self.now(), unix_ms);
        publication.meaning = Meaning::Value;
        publication.expires_at = Some(self.now() + std::time::Duration::from_millis(LIFE_MS));
        drop(self.worker.publish(&mut [publication]));
    }

    fn set_clock(&mut self, unix_ms: u64) {
        let clock =
            ClockSet { before_unix_ms: self.origin_unix_ms, origin_unix_ms: unix_ms.saturating_sub(self.now_ms) };
        self.origin_unix_ms = clock.origin_unix_ms;
        let mut after = None;
        loop {
            after = self.bus.restamp(clock, after.as_ref(), 2, self.now());
            if after.is_none() {
                return;
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        let mut after = None;
        loop {
            after = self.bus.sweep(after.as_ref(), 2, self.now());
            if after.is_none() {
                return;
            }
        }
    }

    fn has(&self, topic: &str) -> bool {
        self.bus.latest(topic, self.now()).is_some()
    }
}

/// A clock that is wrong: not set, where it stopped, or ahead.
fn wrong() -> impl Strategy<Value = u64> {
    prop_oneof![Just(600_000), Just(TODAY_MS - 30 * LIFE_MS), Just(TODAY_MS + 300 * LIFE_MS)]
}

proptest! {
    /// Each life begins with a clock that is wrong and is set after a while. It may be wrong again for less than an
    /// hour before it is set once more. Times are in hours.
    #[test]
    fn every_message_has_the_time_that_its_publisher_gave_it(
        lives in vec((wrong(), 0_u64..3, proptest::option::of((wrong(), 0_u64..3)), 0_u64..12, 0_u64..30), 1..6),
    ) {
        const HOUR_MS: u64 = 3_600_000;
        let shelf = Shelf::default();
        // The true time, and when each message ends by it.
        let (mut true_ms, mut ends) = (TODAY_MS, BTreeMap::new());
        for (number, (wrong_ms, before_set, again, after_set, off)) in lives.into_iter().enumerate() {
            let mut life = Life::start(&shelf, wrong_ms);
            let names = [format!("{number}/before"), format!("{number}/after")];
            life.put(&names[0]);
            ends.insert(names[0].clone(), true_ms + LIFE_MS);
            // Less than an hour: a clock that is ahead is not believed for longer.
            let minutes = before_set * 20;
            true_ms += minutes * 60_000;
            life.pass(minutes * 60_000);
            life.set_clock(true_ms);
            life.put(&names[1]);
            ends.insert(names[1].clone(), true_ms + LIFE_MS);
            if let Some((wrong_ms, thirds)) = again {
                let minutes = thirds * 20;
                life.set_clock(wrong_ms + number as u64);
                true_ms += minutes * 60_000;
                life.pass(minutes * 60_000);
                life.set_clock(true_ms);
            }
            true_ms += after_set * HOUR_MS;
            life.pass(after_set * HOUR_MS);
            for (topic, end) in &ends {
                prop_assert_eq!(life.has(topic), true_ms < *end, "{} at {}", topic, true_ms);
            }
            true_ms += off * HOUR_MS;
        }
    }
}

#[test]
fn a_message_of_a_clock_that_was_never_set_has_its_whole_time() {
    let shelf = Shelf::default();
    Life::start(&shelf, 600_000).put("a");
    let mut life = Life::start(&shelf, TODAY_MS);
    assert!(life.has("a"));
    life.pass(LIFE_MS / 2);
    assert!(life.has("a"));
    // It is dated now: the other half is all that is left.
    let mut life = Life::start(&shelf, TODAY_MS + LIFE_MS / 2);
    life.pass(LIFE_MS / 2 - 1);
    assert!(life.has("a"));
    life.pass(1);
    assert!(!life.has("a"));
}

#[test]
fn what_expired_while_off_leaves_the_store_after_an_hour() {
    let shelf = Shelf::default();
    Life::start(&shelf, TODAY_MS).put("a");
    let mut life = Life::start(&shelf, TODAY_MS + LIFE_MS);
    life.pass(3_599_999);
    assert!(!life.has("a") && shelf.0.lock().unwrap().len() == 1);
    life.pass(1);
    assert!(shelf.0.lock().unwrap().is_empty());
}
