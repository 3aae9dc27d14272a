//! The work of finding the subscribers of a topic, which a turn has a budget for, as it has for deliveries.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use fogmux_bus::{
    Bus, BusConfig, DELIVERIES_PER_TURN, FifoLimits, FifoMailbox, Forgetful, Meaning, Payload, Publication, Published,
    Publisher, SubscribeOptions, Subscription, Timestamp, TopicRef, WorkerId,
};

const LEVELS: usize = 10;

fn bus() -> Arc<Bus> {
    Bus::new(&BusConfig { workers: 1, ..BusConfig::default() }, Box::new(Forgetful), Timestamp::ZERO, 0)
}

/// Filters, all of which match every topic that begins with so many `l`, and what follows in them.
fn filters(end: &str) -> Vec<Subscription> {
    let level = |bits: usize| move |place: usize| if bits >> place & 1 == 1 { "+/" } else { "l/" };
    let levels = |bits| (0..LEVELS).map(level(bits)).collect::<String>();
    (0..1 << LEVELS).map(|bits| Subscription::parse(&format!("{}{end}", levels(bits))).unwrap()).collect()
}

/// A client whose filters match, and are one delivery, or do not and are looked at none the less.
#[test]
fn a_turn_ends_when_finding_subscribers_has_taken_long() {
    let publisher = Publisher::internal();
    for (end, most) in [("+", 16), ("x", 64)] {
        let bus = bus();
        let slot = bus.slot(FifoMailbox::new(FifoLimits { messages: 10_000, bytes: 1 << 24 }), WorkerId(0));
        for subscription in &filters(end) {
            bus.subscribe(&slot, subscription, SubscribeOptions::default()).unwrap();
        }
        let topics: Vec<String> = (0..256).map(|number| format!("{}{number}", "l/".repeat(LEVELS))).collect();
        let mut worker = bus.worker(WorkerId(0));
        for meaning in [Meaning::Event, Meaning::Value] {
            worker.forget_routes();
            let one = |topic| {
                let topic = TopicRef::new(topic).unwrap();
                let mut one = Publication::new(topic, Payload::Slice(b"1"), &publisher, Timestamp::ZERO, 0);
                one.meaning = meaning;
                one
            };
            let mut batch: Vec<_> = topics.iter().map(|topic| one(topic)).collect();
            let Published { taken, deliveries, .. } = worker.publish_some(&mut batch);
            assert!((1..=most).contains(&taken), "{taken} messages to {end}");
            assert!(deliveries >= DELIVERIES_PER_TURN);
            let matched = u32::from(end == "+");
            assert!(batch[..taken].iter().all(|publication| publication.outcome().matched == matched));
            assert!(batch[taken..].iter().all(|publication| publication.outcome().matched == 0));
            // They are in the cache now.
            let known = &mut batch[..taken];
            assert_eq!(worker.publish_some(known).deliveries, (taken as u64) * u64::from(matched));
        }
    }
}
