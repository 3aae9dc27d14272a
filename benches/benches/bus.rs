//! The bus: routing among 100 000 filters, handing over to one mailbox, fanning out to 1 000.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fogmux_bus::{
    Bus, BusConfig, Delivered, Delivery, FifoLimits, FifoMailbox, Forgetful, Mailbox, Payload, Publication, Publisher,
    Slot, SubscribeOptions, Subscription, Timestamp, TopicRef, Worker, WorkerId,
};

const FILTERS: usize = 100_000;
/// One socket turn's worth of publications.
const BATCH: usize = 64;
const SUBSCRIBERS: usize = 1000;

/// Counts and forgets: what is left is the bus.
struct Counting(u64);

impl Mailbox for Counting {
    fn deliver(&mut self, _publication: &Publication<'_>, _delivery: &Delivery<'_>) -> Delivered {
        self.0 += 1;
        Delivered::Queued
    }

    fn buffered_bytes(&self) -> usize {
        0
    }

    fn waiting(&self) -> usize {
        0
    }

    fn close(&mut self) {}
}

/// Appends the bytes of an MQTT 3.1.1 PUBLISH with QoS 0, as the MQTT door does, and empties itself at 64 KiB, as a
/// socket would.
struct Wire(Vec<u8>);

impl Mailbox for Wire {
    fn deliver(&mut self, publication: &Publication<'_>, _delivery: &Delivery<'_>) -> Delivered {
        let outgoing = fogmux_mqtt::Outgoing {
            topic: publication.topic.as_str(),
            payload: publication.payload.as_slice(),
            ..fogmux_mqtt::Outgoing::default()
        };
        if self.0.len() > 64 << 10 {
            self.0.clear();
        }
        match outgoing.encode(fogmux_mqtt::Version::V311, None, &mut self.0) {
            Ok(()) => Delivered::Queued,
            Err(_) => Delivered::TooLarge,
        }
    }

    fn buffered_bytes(&self) -> usize {
        0
    }

    fn waiting(&self) -> usize {
        0
    }

    fn close(&mut self) {}
}

fn bus() -> Arc<Bus> {
    Bus::new(&BusConfig::default(), Box::new(Forgetful), Timestamp::ZERO, 0)
}

fn subscribe<M: Mailbox>(bus: &Bus, slot: &Arc<Slot<M>>, filter: &str) {
    bus.subscribe(slot, &Subscription::parse(filter).unwrap(), SubscribeOptions::default()).unwrap();
}

fn batch<'a>(topics: &'a [String], payload: &'a [u8], publisher: &'a Arc<Publisher>) -> Vec<Publication<'a>> {
    topics
        .iter()
        .map(|topic| {
            let topic = TopicRef::new(topic).unwrap();
            Publication::new(topic, Payload::Slice(payload), publisher, Timestamp::ZERO, 0)
        })
        .collect()
}

fn publish(worker: &mut Worker, topics: &[String], payload: &[u8], publisher: &Arc<Publisher>) {
    let mut batch = batch(topics, payload, publisher);
    let _ = black_box(worker.publish(&mut batch));
}

/// Per publication. The filters are a plant's: 90 % exact, the others with `+` or `#`; each topic matches two or three.
fn route(c: &mut Criterion) {
    let bus = bus();
    let slots: Vec<_> = (0..100).map(|_| bus.slot(Counting(0), WorkerId(0))).collect();
    for (n, slot) in (0..FILTERS).zip(slots.iter().cycle()) {
        let (site, device) = (n / 100, n % 100);
        let filter = match n % 20 {
            0 => format!("site/{site}/+/{device}/temperature"),
            10 => format!("site/{site}/device/{device}/#"),
            _ => format!("site/{site}/device/{device}/temperature"),
        };
        subscribe(&bus, slot, &filter);
    }
    let topics: Vec<_> = (0..BATCH).map(|n| format!("site/{}/device/{}/temperature", n * 13, (n * 7) % 100)).collect();
    let publisher = Publisher::internal();
    let mut worker = bus.worker(WorkerId(0));
    let mut group = c.benchmark_group("route_100k_filters");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("cached", |b| b.iter(|| publish(&mut worker, &topics, b"21.5", &publisher)));
    group.bench_function("uncached", |b| {
        b.iter(|| {
            worker.forget_routes();
            publish(&mut worker, &topics, b"21.5", &publisher);
        });
    });
    group.finish();
}

/// Per message: from the publisher into one subscriber's queue and out again, so many at a time.
fn mailbox(c: &mut Criterion) {
    let mut group = c.benchmark_group("mailbox_handover");
    for messages in [1, 32] {
        let topics = vec!["plant/1/temperature".to_owned(); messages];
        let publisher = Publisher::internal();
        group.throughput(Throughput::Elements(messages as u64));
        group.bench_with_input(BenchmarkId::new("queue", messages), &topics, |b, topics| {
            let bus = bus();
            let slot = bus.slot(FifoMailbox::new(FifoLimits { messages: 1000, bytes: 1 << 20 }), WorkerId(0));
            subscribe(&bus, &slot, "plant/#");
            let mut worker = bus.worker(WorkerId(0));
            b.iter(|| {
                publish(&mut worker, topics, &[0; 64], &publisher);
                slot.with(|mailbox| while black_box(mailbox.pop()).is_some() {});
            });
        });
        group.bench_with_input(BenchmarkId::new("wire", messages), &topics, |b, topics| {
            let bus = bus();
            let slot = bus.slot(Wire(Vec::new()), WorkerId(0));
            subscribe(&bus, &slot, "plant/#");
            let mut worker = bus.worker(WorkerId(0));
            b.iter(|| publish(&mut worker, topics, &[0; 64], &publisher));
        });
    }
    group.finish();
}

/// Per delivery: one publisher, a thousand subscribers, so many messages at a time.
fn fan_out(c: &mut Criterion) {
    let bus = bus();
    let slots: Vec<_> = (0..SUBSCRIBERS).map(|_| bus.slot(Wire(Vec::new()), WorkerId(0))).collect();
    slots.iter().for_each(|slot| subscribe(&bus, slot, "plant/1/temperature"));
    let publisher = Publisher::internal();
    let mut worker = bus.worker(WorkerId(0));
    let mut group = c.benchmark_group("fan_out_to_1000");
    for messages in [1, 32] {
        let topics = vec!["plant/1/temperature".to_owned(); messages];
        group.throughput(Throughput::Elements((messages * SUBSCRIBERS) as u64));
        group.bench_with_input(BenchmarkId::new("wire", messages), &topics, |b, topics| {
            b.iter(|| publish(&mut worker, topics, &[0; 64], &publisher));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = route, mailbox, fan_out
}
criterion_main!(benches);
