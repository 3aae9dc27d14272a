//! Messages to many subscribers on several workers: each worker has its own copies, equal to the original.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{collections::BTreeSet, sync::Arc};

use fogmux_bus::{
    Bus, BusConfig, FifoLimits, FifoMailbox, Forgetful, Payload, Properties, Publication, Publisher, Qos, Slot,
    SubscribeOptions, Subscription, Timestamp, TopicRef, WorkerId,
};

const LIMITS: FifoLimits = FifoLimits { messages: 1000, bytes: 1 << 24 };
/// Around the size from which payloads are shared by all workers.
const SIZES: [usize; 6] = [0, 1, 511, 512, 513, 100_000];

fn subscribers(bus: &Bus, count: usize, workers: usize) -> Vec<(usize, Arc<Slot<FifoMailbox>>)> {
    let subscribe = |n: usize| {
        let slot = bus.slot(FifoMailbox::new(LIMITS), WorkerId(n % workers));
        let filter = if n.is_multiple_of(3) { "a/#" } else { "a/x" };
        bus.subscribe(&slot, &Subscription::parse(filter).unwrap(), SubscribeOptions::default()).unwrap();
        (n % workers, slot)
    };
    (0..count).map(subscribe).collect()
}

#[test]
fn each_subscriber_gets_every_message_as_it_was_published() {
    for workers in [1, 2, 4] {
        for count in [1, 2, 31, 32, 33, 97] {
            let bus = Bus::new(&BusConfig { workers, ..BusConfig::default() }, Box::new(Forgetful), Timestamp::ZERO, 0);
            let all = subscribers(&bus, count, workers);
            let mut worker = bus.worker(WorkerId(workers - 1));
            let publisher = Publisher::internal();
            let properties = Arc::new(Properties { utf8: true, ..Properties::default() });
            let payloads = SIZES.map(|size| vec![7; size]);
            let mut batch = Vec::new();
            for payload in &payloads {
                let topic = TopicRef::new("a/x").unwrap();
                let mut one = Publication::new(topic, Payload::Slice(payload), &publisher, Timestamp::ZERO, 1);
                (one.qos, one.content_type) = (Qos::AtLeastOnce, Some("text/plain"));
                one.properties = Some(Arc::clone(&properties));
                one.expires_at = Some(Timestamp::from_millis(payload.len() as u64));
                batch.push(one);
            }
            let _ = worker.publish(&mut batch);
            let mut seen = vec![BTreeSet::new(); SIZES.len()];
            // All are held until the end, so that equal addresses are the same message.
            let mut held = Vec::new();
            for (home, slot) in &all {
                let got: Vec<_> = slot.with(|mailbox| std::iter::from_fn(|| mailbox.pop()).collect());
                assert_eq!(got.len(), SIZES.len(), "{count} subscribers of {workers} workers");
                for ((queued, published), seen) in got.iter().zip(&batch).zip(&mut seen) {
                    let (message, original) = (&queued.message, published.share());
                    assert_eq!(message.payload, original.payload);
                    assert_eq!((message.id, message.qos, &message.topic), (original.id, original.qos, &original.topic));
                    assert_eq!(message.content_type, original.content_type);
                    assert_eq!((message.expires_at, &message.properties), (original.expires_at, &original.properties));
                    assert_eq!((message.size(), message.etag()), (original.size(), original.etag()));
                    seen.insert((*home, Arc::as_ptr(message)));
                }
                assert_eq!(bus.memory().held(), held_by(&all), "what mailboxes hold is counted");
                held.push(got);
            }
            // One message for all, or one for each worker.
            let expected = if count < 32 { 1 } else { workers };
            for seen in seen {
                let addresses: BTreeSet<_> = seen.iter().map(|(_, address)| address).collect();
                assert_eq!(addresses.len(), expected, "{count} subscribers of {workers} workers");
                assert_eq!(seen.len(), workers.min(count));
            }
            assert_eq!(bus.memory().held(), 0);
        }
    }
}

fn held_by(all: &[(usize, Arc<Slot<FifoMailbox>>)]) -> usize {
    use fogmux_bus::Mailbox as _;
    all.iter().map(|(_, slot)| slot.with(|mailbox| mailbox.buffered_bytes())).sum()
}
