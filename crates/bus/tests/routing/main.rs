//! Routing through the public API: who gets what, in which order, and what a full mailbox does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod properties;
mod retained;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
};

use fogmux_bus::{
    Bus, BusConfig, Claim, Clearing, DELIVERIES_PER_TURN, Delivered, Delivery, FifoLimits, FifoMailbox, Filter,
    Forgetful, Mailbox, Meaning, Payload, Publication, Publisher, Qos, ReadGate, Slot, SubscribeOptions, Subscription,
    Timestamp, Topic, TopicRef, WorkerId,
};
use fogmux_fair::Owner;
use proptest::prelude::*;

const ROOMY: FifoLimits = FifoLimits { messages: 10_000, bytes: 1 << 24 };

fn bus(workers: usize) -> Arc<Bus> {
    Bus::new(&BusConfig { workers, ..BusConfig::default() }, Box::new(Forgetful), Timestamp::ZERO, 0)
}

fn publication<'a>(topic: &'a str, payload: &'a [u8], publisher: &'a Arc<Publisher>) -> Publication<'a> {
    Publication::new(TopicRef::new(topic).unwrap(), Payload::Slice(payload), publisher, Timestamp::ZERO, 0)
}

fn subscriber(bus: &Bus, filters: &[&str]) -> Arc<Slot<FifoMailbox>> {
    subscriber_with(bus, filters, ROOMY, &SubscribeOptions::default())
}

fn subscriber_with(
    bus: &Bus,
    filters: &[&str],
    limits: FifoLimits,
    options: &SubscribeOptions,
) -> Arc<Slot<FifoMailbox>> {
    let slot = bus.slot(FifoMailbox::new(limits), WorkerId(0));
    for filter in filters {
        bus.subscribe(&slot, &Subscription::parse(filter).unwrap(), options.clone()).unwrap();
    }
    slot
}

fn received(slot: &Slot<FifoMailbox>) -> Vec<String> {
    slot.with(|mailbox| {
        std::iter::from_fn(|| mailbox.pop())
            .map(|q| format!("{}={}", q.message.topic, String::from_utf8_lossy(&q.message.payload)))
            .collect()
    })
}

#[test]
fn a_batch_reaches_each_subscriber_once_and_in_order() {
    let bus = bus(1);
    let mut worker = bus.worker(WorkerId(0));
    let both = subscriber(&bus, &["a/#", "a/+", "a/x"]);
    let one = subscriber(&bus, &["a/y"]);
    let me = Publisher::internal();
    let mut batch = [publication("a/x", b"1", &me), publication("a/y", b"2", &me), publication("a/x", b"3", &me)];
    assert!(worker.publish(&mut batch).completions.is_ready());
    assert_eq!(batch.each_ref().map(|p| p.outcome().matched), [1, 2, 1]);
    assert_eq!(received(&both), ["a/x=1", "a/y=2", "a/x=3"]);
    assert_eq!(received(&one), ["a/y=2"]);
}

#[test]
fn a_part_of_a_batch_is_taken_and_the_rest_is_published_later_with_identifiers_of_its_own() {
    const SUBSCRIBERS: u64 = 300;
    let (bus, me) = (bus(1), Publisher::internal());
    let mut worker = bus.worker(WorkerId(0));
    let first = subscriber(&bus, &["wide"]);
    let _others: Vec<_> = (1..SUBSCRIBERS).map(|_| subscriber(&bus, &["wide"])).collect();
    let topic = TopicRef::new("wide").unwrap();
    assert!(worker.reach(topic) > SUBSCRIBERS, "finding them is work as well");
    assert_eq!(worker.reach(topic), SUBSCRIBERS);
    let _ = worker.publish(&mut []);
    for meaning in [Meaning::Event, Meaning::Value] {
        let payloads: Vec<[u8; 2]> = (0..256_u16).map(u16::to_be_bytes).collect();
        let mut batch: Vec<_> = payloads.iter().map(|payload| publication("wide", payload, &me)).collect();
        batch.iter_mut().for_each(|publication| publication.meaning = meaning);
        let published = worker.publish_some(&mut batch);
        let (taken, deliveries) = (published.taken, published.deliveries);
        assert_eq!(deliveries, taken as u64 * SUBSCRIBERS);
        assert!((DELIVERIES_PER_TURN..DELIVERIES_PER_TURN + SUBSCRIBERS).contains(&deliveries), "{deliveries}");
        assert!(batch[taken..].iter().all(|publication| publication.outcome().matched == 0));
        let newest = batch[taken - 1].id();
        let mut rest: Vec<_> = batch[taken..].iter().map(|publication| Arc::clone(publication.share())).collect();
        drop(batch);
        while !rest.is_empty() {
            let mut batch: Vec<_> = rest.iter().map(Publication::set_aside).collect();
            let taken = worker.publish_some(&mut batch).taken;
            assert!(taken > 0 && batch[0].id() > newest && batch[0].share().id == batch[0].id());
            rest.drain(..taken);
        }
        let got: Vec<_> = first.with(|mailbox| std::iter::from_fn(|| mailbox.pop()).collect());
        assert!(got.iter().map(|queued| &queued.message.payload[..]).eq(payloads.iter().map(|payload| &payload[..])));
    }
}

#[test]
fn a_subscription_counts_for_cached_topics_at_once() {
    let bus = bus(1);
    let mut worker = bus.worker(WorkerId(0));
    let me = Publisher::internal();
    for filter in ["a/b", "+/b", "#"] {
        let mut before = [publication("a/b", b"", &me)];
        let _ = worker.publish(&mut before);
        let slot = subscriber(&bus, &[filter]);
        let mut after = [publication("a/b", b"x", &me)];
        let _ = worker.publish(&mut after);
        assert_eq!(received(&slot), ["a/b=x"], "{filter}");
        assert!(bus.unsubscribe(&slot, &Subscription::parse(filter).unwrap(), 0));
        let mut gone = [publication("a/b", b"y", &me)];
        let _ = worker.publish(&mut gone);
        assert!(received(&slot).is_empty(), "{filter}");
    }
    assert_eq!(bus.subscriptions(), 0);
}

#[test]
fn no_local_hides_only_ones_own() {
    let bus = bus(1);
    let mut worker = bus.worker(WorkerId(0));
    let options = SubscribeOptions { no_local: true, ..SubscribeOptions::default() };
    let slot = subscriber_with(&bus, &["t"], ROOMY, &options);
    let other = Publisher::internal();
    let own = Arc::new(Publisher { slot: Some(slot.id()), ..(*other).clone() });
    let mut batch = [publication("t", b"own", &own), publication("t", b"other", &other)];
    let _ = worker.publish(&mut batch);
    assert_eq!(received(&slot), ["t=other"]);
}

#[test]
fn a_shared_group_takes_turns_and_prefers_the_connected() {
    let bus = bus(1);
    let mut worker = bus.worker(WorkerId(0));
    let members = [subscriber(&bus, &["$share/g/t"]), subscriber(&bus, &["$share/g/t"])];
    let me = Publisher::internal();
    let send = |worker: &mut fogmux_bus::Worker| {
        let mut batch: Vec<_> = (0..10).map(|_| publication("t", b"x", &me)).collect();
        let _ = worker.publish(&mut batch);
    };
    send(&mut worker);
    assert_eq!(members.each_ref().map(|m| received(m).len()), [5, 5]);
    let [gone, here] = &members;
    let claim = gone.claim(WorkerId(0));
    gone.release(claim);
    send(&mut worker);
    assert_eq!((received(gone).len(), received(here).len()), (0, 10));
}

struct Nothing(&'static str);

impl ReadGate for Nothing {
    fn may_read(&self, topic: &str) -> bool {
        topic != self.0
    }
}

#[test]
fn a_gate_hides_topics_from_wildcards() {
    let bus = bus(1);
    let mut worker = bus.worker(WorkerId(0));
    let options = SubscribeOptions { gate: Some(Arc::new(Nothing("a/secret"))), ..SubscribeOptions::default() };
    let slot = subscriber_with(&bus, &["a/#", "$share/g/a/#"], ROOMY, &options);
    let me = Publisher::internal();
    let mut batch = [publication("a/secret", b"1", &me), publication("a/open", b"2", &me)];
    let _ = worker.publish(&mut batch);
    assert_eq!(received(&slot), ["a/open=2", "a/open=2"], "one by the wildcard, one by the group");
}

#[test]
fn full_mailboxes_lose_their_oldest_and_refuse_nothing() {
    let bus = bus(1);
    let mut worker = bus.worker(WorkerId(0));
    let slot = subscriber_with(&bus, &["t"], FifoLimits { messages: 2, bytes: 1 << 20 }, &SubscribeOptions::default());
    let me = Publisher::internal();
    let mut lossy: Vec<_> = ["1", "2", "3"].iter().map(|p| publication("t", p.as_bytes(), &me)).collect();
    let _ = worker.publish(&mut lossy);
    assert_eq!(slot.with(FifoMailbox::take_lost), 1);
    assert_eq!(received(&slot), ["t=2", "t=3"]);
    let mut sure: Vec<_> = ["1", "2", "3"].iter().map(|p| publication("t", p.as_bytes(), &me)).collect();
    sure.iter_mut().for_each(|p| p.qos = Qos::AtLeastOnce);
    let _ = worker.publish(&mut sure);
    assert!(sure.iter().all(|p| !p.outcome().refused));
    let _ = worker.publish(&mut [publication("t", b"lossy", &me)]);
    assert_eq!(received(&slot), ["t=2", "t=3"], "nothing of QoS 1 goes for a message of QoS 0");
    assert_eq!(bus.counters().dropped_full.load(Ordering::Relaxed), 3);
    assert_eq!(bus.counters().refused.load(Ordering::Relaxed), 0);
    assert_eq!(bus.memory().held(), 0, "what was drained is given back");
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn drain(slot: &Slot<FifoMailbox>, claim: Claim, waker: &Waker) -> usize {
    slot.poll_with(claim, &Context::from_waker(waker), |m| std::iter::from_fn(|| m.pop()).count()).unwrap()
}

#[test]
fn one_wake_a_batch_here_and_one_a_worker_there() {
    let bus = bus(2);
    let (mut here, mut there) = (bus.worker(WorkerId(0)), bus.worker(WorkerId(1)));
    let slots: Vec<_> = (0..5).map(|_| subscriber(&bus, &["t"])).collect();
    let (owner, dispatcher) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
    let (owner_waker, dispatcher_waker) = (Waker::from(owner.clone()), Waker::from(dispatcher.clone()));
    let claims: Vec<_> = slots.iter().map(|slot| slot.claim(WorkerId(0))).collect();
    let drain_all = || slots.iter().zip(&claims).map(|(s, c)| drain(s, *c, &owner_waker)).sum::<usize>();
    drain_all();
    assert!(!here.wake_owners(&Context::from_waker(&dispatcher_waker)));
    let me = Publisher::internal();
    let mut batch: Vec<_> = (0..20).map(|_| publication("t", b"x", &me)).collect();
    let _ = there.publish(&mut batch);
    assert_eq!((dispatcher.0.load(Ordering::Relaxed), owner.0.load(Ordering::Relaxed)), (1, 0));
    assert!(!here.wake_owners(&Context::from_waker(&dispatcher_waker)));
    assert_eq!(owner.0.load(Ordering::Relaxed), 5);
    let mut again: Vec<_> = (0..20).map(|_| publication("t", b"x", &me)).collect();
    let _ = here.publish(&mut again);
    assert_eq!(owner.0.load(Ordering::Relaxed), 5, "still ready: nobody is woken twice");
    assert_eq!(drain_all(), 200);
    let mut once_more: Vec<_> = (0..20).map(|_| publication("t", b"x", &me)).collect();
    let _ = here.publish(&mut once_more);
    assert_eq!(owner.0.load(Ordering::Relaxed), 10);
}

#[test]
fn a_claim_displaces_the_one_before() {
    let bus = bus(1);
    let slot = subscriber(&bus, &["t"]);
    let first = slot.claim(WorkerId(0));
    let woken = Arc::new(Woken::default());
    drain(&slot, first, &Waker::from(woken.clone()));
    let second = slot.claim(WorkerId(0));
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(slot.with_claim(first, |_| ()).is_err());
    slot.release(first);
    assert!(slot.with_claim(second, |_| ()).is_ok());
}

#[test]
fn the_watermark_pauses_and_relieves() {
    let config = BusConfig { memory_high_bytes: 10_000, ..BusConfig::default() };
    let bus = Bus::new(&config, Box::new(Forgetful), Timestamp::ZERO, 0);
    let mut worker = bus.worker(WorkerId(0));
    let ada = Owner::principal("ada".into());
    let slot = bus.slot(FifoMailbox::new(ROOMY).of(bus.memory().account(ada.clone())), WorkerId(0));
    bus.subscribe(&slot, &Subscription::parse("t").unwrap(), SubscribeOptions::default()).unwrap();
    let me = Publisher::internal();
    let payload = vec![0; 11_000];
    let mut batch = [publication("t", &payload, &me)];
    let _ = worker.publish(&mut batch);
    assert!(bus.memory().pressure() && bus.memory().stops(&ada));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut relieved = std::pin::pin!(bus.memory().relieved(ada));
    assert!(relieved.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    received(&slot);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(relieved.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}

struct Blocked(AtomicBool);

impl Mailbox for Blocked {
    fn deliver(&mut self, _: &Publication<'_>, _: &Delivery<'_>) -> Delivered {
        self.0.store(true, Ordering::Relaxed);
        Delivered::Gone
    }

    fn buffered_bytes(&self) -> usize {
        0
    }

    fn waiting(&self) -> usize {
        0
    }

    fn close(&mut self) {}
}

#[test]
fn what_is_gone_is_counted() {
    let bus = bus(1);
    let mut worker = bus.worker(WorkerId(0));
    let slot = bus.slot(Blocked(AtomicBool::new(false)), WorkerId(0));
    bus.subscribe(&slot, &Subscription::parse("t").unwrap(), SubscribeOptions::default()).unwrap();
    let me = Publisher::internal();
    let mut batch = [publication("t", b"", &me)];
    assert!(worker.publish(&mut batch).completions.is_ready());
    assert!(slot.with(|m| m.0.load(Ordering::Relaxed)));
    assert_eq!(bus.counters().dropped_gone.load(Ordering::Relaxed), 1);
}

#[test]
fn a_closed_bus_takes_wills_only_and_delivers_nothing_that_it_refuses() {
    let bus = bus(1);
    let mut worker = bus.worker(WorkerId(0));
    let slot = subscriber(&bus, &["t"]);
    let me = Publisher::internal();
    bus.shut_down();
    let mut batch = [publication("t", b"late", &me)];
    let _ = worker.publish(&mut batch);
    assert!(batch[0].outcome().refused);
    let _ = worker.publish_will(&mut [publication("t", b"will", &me)], &|_, _| {});
    assert_eq!(received(&slot), ["t=will"]);
    assert_eq!(bus.counters().refused.load(Ordering::Relaxed), 1);
}
