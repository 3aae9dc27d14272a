//! Subscribers that come, fall behind and leave: memory, wakes in portions, shared subscriptions, limits.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Wake, Waker},
};

use fogmux_bus::{
    Bus, BusConfig, Claim, Delivered, Delivery, Door, FifoLimits, FifoMailbox, Forgetful, Mailbox, Message, Payload,
    Place, Publication, Publisher, Qos, ReadGate, Readiness, Slot, SubscribeOptions, Subscription, Timestamp, TopicRef,
    Worker, WorkerId,
};

const ROOMY: FifoLimits = FifoLimits { messages: 10_000, bytes: 1 << 24 };

fn bus() -> Arc<Bus> {
    Bus::new(&BusConfig::default(), Box::new(Forgetful), Timestamp::ZERO, 0)
}

fn subscribe<M: Mailbox>(bus: &Bus, slot: &Arc<Slot<M>>, filter: &str) {
    bus.subscribe(slot, &Subscription::parse(filter).unwrap(), SubscribeOptions::default()).unwrap();
}

fn subscriber(bus: &Bus, filter: &str) -> Arc<Slot<FifoMailbox>> {
    let slot = bus.slot(FifoMailbox::new(ROOMY), WorkerId(0));
    subscribe(bus, &slot, filter);
    slot
}

fn publish(worker: &mut Worker, topic: &str, count: usize) -> Option<Place> {
    let me = Arc::new(Publisher { door: Some(Door::Mqtt), ..Publisher::clone(&Publisher::internal()) });
    let publication = || {
        let mut publication =
            Publication::new(TopicRef::new(topic).unwrap(), Payload::Slice(b"x"), &me, Timestamp::ZERO, 0);
        publication.qos = Qos::AtLeastOnce;
        publication
    };
    let mut batch: Vec<_> = (0..count).map(|_| publication()).collect();
    worker.publish(&mut batch).unwoken
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A subscriber's task as far as the bus sees it.
struct Owner {
    slot: Arc<Slot<FifoMailbox>>,
    claim: Claim,
    woken: Arc<Woken>,
}

impl Owner {
    fn new(bus: &Bus, filter: &str) -> Self {
        let slot = subscriber(bus, filter);
        let claim = slot.claim(WorkerId(0));
        let owner = Self { slot, claim, woken: Arc::default() };
        owner.drain();
        owner
    }

    fn drain(&self) -> usize {
        let waker = Waker::from(Arc::clone(&self.woken));
        let drain = |mailbox: &mut FifoMailbox| std::iter::from_fn(|| mailbox.pop()).count();
        self.slot.poll_with(self.claim, &Context::from_waker(&waker), drain).unwrap()
    }
}

fn awake(owners: &[Owner]) -> usize {
    owners.iter().filter(|owner| owner.woken.0.load(Relaxed) > 0).count()
}

#[test]
fn a_closed_slot_holds_nothing_and_takes_nothing() {
    let bus = bus();
    let mut worker = bus.worker(WorkerId(0));
    let slot = subscriber(&bus, "t");
    publish(&mut worker, "t", 7);
    assert!(bus.memory().held() > 0);
    assert_eq!(bus.memory().waiting(), 7);
    // Without unsubscribing: routes that another worker knows may be used for a moment longer.
    bus.close(&slot);
    publish(&mut worker, "t", 3);
    assert_eq!((bus.memory().held(), bus.memory().waiting()), (0, 0));
    assert_eq!(bus.counters().dropped_gone.load(Relaxed), 10);
}

#[test]
fn cached_routes_of_idle_topics_keep_no_subscriber_alive() {
    let bus = bus();
    let mut worker = bus.worker(WorkerId(0));
    for count in [1, 97, 5000] {
        let slots: Vec<_> = (0..count).map(|_| subscriber(&bus, "t/+")).collect();
        publish(&mut worker, "t/1", 1);
        publish(&mut worker, "t/2", 1);
        let weak: Vec<_> = slots.iter().map(Arc::downgrade).collect();
        for slot in slots {
            bus.unsubscribe(&slot, &Subscription::parse("t/+").unwrap(), 0);
            bus.close(&slot);
        }
        for _ in 0..10 {
            worker.sweep_routes();
        }
        assert_eq!(weak.iter().filter(|slot| slot.upgrade().is_some()).count(), 0, "of {count}");
    }
    let hits = bus.counters().route_hits.load(Relaxed);
    publish(&mut worker, "t/1", 1);
    publish(&mut worker, "t/1", 1);
    worker.sweep_routes();
    publish(&mut worker, "t/1", 1);
    assert_eq!(bus.counters().route_hits.load(Relaxed), hits + 2, "what is up to date stays");
}

#[test]
fn a_small_fan_out_is_woken_at_once_and_a_large_one_in_portions() {
    for count in [0_usize, 1, 63, 64, 65, 1000, 9000] {
        let bus = bus();
        let mut worker = bus.worker(WorkerId(0));
        let pump = Arc::new(Woken::default());
        let pump_waker = Waker::from(Arc::clone(&pump));
        let turn = |worker: &mut Worker| worker.wake_owners(&Context::from_waker(&pump_waker));
        assert!(!turn(&mut worker));
        let owners: Vec<_> = (0..count).map(|_| Owner::new(&bus, "t")).collect();
        let place = publish(&mut worker, "t", 2);
        assert_eq!(awake(&owners), count.min(64), "of {count} at once");
        assert_eq!(pump.0.load(Relaxed), usize::from(count > 64), "the pump is told once, for {count}");
        assert_eq!(place.is_some(), count > 64);
        let publisher = Arc::new(Woken::default());
        if place.is_some() {
            worker.wake_behind(&Waker::from(Arc::clone(&publisher)));
        }
        let near = Owner::new(&bus, "near");
        assert_eq!(publish(&mut worker, "near", 1), None);
        assert_eq!(near.woken.0.load(Relaxed), 1, "a publication to few is not held up by one to many");
        let mut expected = count.min(64);
        while turn(&mut worker) {
            expected += 64;
            assert_eq!(awake(&owners), expected, "64 a turn");
            assert_eq!(publisher.0.load(Relaxed), usize::from(expected > count));
        }
        assert_eq!(awake(&owners), count);
        assert_eq!(publisher.0.load(Relaxed), usize::from(count > 64), "the publisher after all subscribers");
        assert!(place.is_none_or(|place| worker.has_woken(place)));
        assert_eq!(owners.iter().map(Owner::drain).sum::<usize>(), 2 * count);
        assert!(owners.iter().all(|owner| owner.woken.0.load(Relaxed) == 1), "once a batch");
        // A turn later the next publication wakes at once again.
        let _ = turn(&mut worker);
        publish(&mut worker, "t", 1);
        let twice = owners.iter().filter(|owner| owner.woken.0.load(Relaxed) == 2).count();
        assert_eq!(twice, count.min(64));
    }
}

/// A member of a shared group that says how it is.
struct Member {
    readiness: Readiness,
    taken: usize,
}

impl Mailbox for Member {
    fn deliver(&mut self, _: &Publication<'_>, _: &Delivery<'_>) -> Delivered {
        self.taken += 1;
        Delivered::Sent
    }

    fn buffered_bytes(&self) -> usize {
        0
    }

    fn waiting(&self) -> usize {
        0
    }

    fn close(&mut self) {}

    fn readiness(&self) -> Readiness {
        self.readiness
    }
}

#[test]
fn s4_8_2_a_shared_subscription_prefers_members_that_take() {
    let bus = bus();
    let mut worker = bus.worker(WorkerId(0));
    let members: Vec<_> =
        (0..11).map(|_| bus.slot(Member { readiness: Readiness::Ready, taken: 0 }, WorkerId(0))).collect();
    members.iter().for_each(|member| subscribe(&bus, member, "$share/g/t"));
    let become_ = |index: usize, readiness| members[index].with(|member| member.readiness = readiness);
    let taken = || members.iter().map(|member| member.with(|m| std::mem::take(&mut m.taken))).collect::<Vec<_>>();
    publish(&mut worker, "t", 110);
    assert_eq!(taken(), [10; 11]);
    become_(3, Readiness::Congested);
    become_(4, Readiness::Busy);
    publish(&mut worker, "t", 90);
    assert_eq!(taken(), [10, 10, 10, 0, 0, 10, 10, 10, 10, 10, 10]);
    (0..11).for_each(|index| become_(index, Readiness::Congested));
    become_(4, Readiness::Busy);
    publish(&mut worker, "t", 10);
    assert_eq!(taken(), [0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0], "the least behind");
    become_(4, Readiness::Congested);
    publish(&mut worker, "t", 11);
    assert_eq!(taken(), [1; 11], "nobody takes: each in turn");
}

#[test]
fn s4_8_2_a_member_without_a_connection_gets_nothing_while_another_has_one() {
    for absent in [0, 1, 62, 63, 64, 65, 127, 128, 129, 1000] {
        let bus = bus();
        let mut worker = bus.worker(WorkerId(0));
        let absent: Vec<_> = (0..absent).map(|_| subscriber(&bus, "$share/g/t")).collect();
        absent.iter().for_each(|member| member.release(member.claim(WorkerId(0))));
        let waiting = || absent.iter().map(|member| member.with(|mailbox| mailbox.len())).sum::<usize>();
        let connected = [subscriber(&bus, "$share/g/t"), subscriber(&bus, "$share/g/t")];
        let claims = connected.each_ref().map(|member| member.claim(WorkerId(0)));
        publish(&mut worker, "t", 20);
        let got = || connected.each_ref().map(|member| member.with(|mailbox| mailbox.len()));
        assert_eq!((waiting(), got()), (0, [10, 10]), "{} are absent", absent.len());
        connected[0].release(claims[0]);
        publish(&mut worker, "t", 20);
        assert_eq!((waiting(), got()), (0, [10, 30]), "{} are absent", absent.len());
        connected[1].release(claims[1]);
        publish(&mut worker, "t", 20);
        assert_eq!(waiting() + got().iter().sum::<usize>(), 60, "none is connected: any may have them");
        let before = waiting();
        let _ = connected[0].claim(WorkerId(0));
        publish(&mut worker, "t", 20);
        assert_eq!(waiting(), before, "{} are absent", absent.len());
    }
}

#[test]
fn s4_8_2_what_a_member_leaves_goes_to_another_of_its_group() {
    let bus = bus();
    let mut worker = bus.worker(WorkerId(0));
    let group = |name: &str| Arc::new(Subscription::parse(name).unwrap());
    let (leaving, other) = (subscriber(&bus, "$share/g/t"), subscriber(&bus, "$share/h/t"));
    publish(&mut worker, "t", 5);
    let published_bytes = bus.counters().published_bytes.load(Relaxed);
    bus.unsubscribe(&leaving, &group("$share/g/t"), 0);
    let left: Vec<(Arc<Message>, _)> = leaving.with(|mailbox| {
        std::iter::from_fn(|| mailbox.pop()).map(|queued| (queued.message, group("$share/g/t"))).collect()
    });
    drop(worker.hand_on(&left, None));
    assert_eq!(bus.counters().dropped_gone.load(Relaxed), 5, "nobody is left in the group");
    let heir = subscriber(&bus, "$share/g/t");
    drop(worker.hand_on(&left, None));
    assert_eq!(heir.with(|mailbox| mailbox.len()), 5);
    assert_eq!(other.with(|mailbox| mailbox.len()), 5, "another group has its own");
    assert_eq!(bus.counters().published.load(Relaxed), 5);
    assert_eq!(bus.counters().published_bytes.load(Relaxed), published_bytes, "nothing is published again");
}

/// Lets messages on one topic through.
struct Corner(&'static str);

impl ReadGate for Corner {
    fn may_read(&self, topic: &str) -> bool {
        topic == self.0
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

    /// Messages that a member leaves behind go to those that may read them, in turn, however many others may not and
    /// wherever they stand in the group.
    #[test]
    fn what_may_be_read_is_handed_on(
        before in proptest::sample::select(vec![0_usize, 1, 63, 64, 65, 200]),
        after in proptest::sample::select(vec![0_usize, 1, 64, 130]),
        readers in 1_usize..4,
        messages in 1_usize..40,
    ) {
        let bus = bus();
        let mut worker = bus.worker(WorkerId(0));
        let group = Arc::new(Subscription::parse("$share/g/plant/#").unwrap());
        let join = |corner: &'static str| {
            let slot = bus.slot(FifoMailbox::new(ROOMY), WorkerId(0));
            let gate: Arc<dyn ReadGate> = Arc::new(Corner(corner));
            let options = SubscribeOptions { gate: Some(gate), ..SubscribeOptions::default() };
            bus.subscribe(&slot, &group, options).unwrap();
            slot
        };
        let leaving = subscriber(&bus, "plant/#");
        publish(&mut worker, "plant/job", messages);
        let left: Vec<(Arc<Message>, _)> = leaving.with(|mailbox| {
            std::iter::from_fn(|| mailbox.pop()).map(|queued| (queued.message, Arc::clone(&group))).collect()
        });
        let mut strangers: Vec<_> = (0..before).map(|_| join("plant/lobby")).collect();
        let readers: Vec<_> = (0..readers).map(|_| join("plant/job")).collect();
        strangers.extend((0..after).map(|_| join("plant/lobby")));
        drop(worker.hand_on(&left, None));
        let got: Vec<usize> = readers.iter().map(|slot| slot.with(|mailbox| mailbox.len())).collect();
        proptest::prop_assert_eq!(got.iter().sum::<usize>(), messages);
        proptest::prop_assert!(got.iter().max().unwrap() - got.iter().min().unwrap() <= 1, "{:?}", got);
        proptest::prop_assert!(strangers.iter().all(|slot| slot.with(|mailbox| mailbox.len()) == 0));
    }
}

#[test]
fn a_subscription_can_be_replaced_when_there_are_as_many_as_there_may_be() {
    let config = BusConfig { subscriptions_max: 3, ..BusConfig::default() };
    let bus = Bus::new(&config, Box::new(Forgetful), Timestamp::ZERO, 0);
    let slot = bus.slot(FifoMailbox::new(ROOMY), WorkerId(0));
    let subscribe = |filter: &str| {
        let options = SubscribeOptions { max_qos: Qos::AtMostOnce, ..SubscribeOptions::default() };
        bus.subscribe(&slot, &Subscription::parse(filter).unwrap(), options)
    };
    for filter in ["a/+", "b/#", "$share/g/c"] {
        assert_eq!(subscribe(filter), Ok(false));
    }
    for filter in ["a/+", "b/#", "$share/g/c"] {
        assert_eq!(subscribe(filter), Ok(true), "{filter} is there already");
    }
    for filter in ["a/b", "b", "b/+", "$share/h/c", "c", "#"] {
        assert!(subscribe(filter).is_err(), "{filter} is new");
    }
    assert_eq!(bus.subscriptions(), 3);
}

/// A message of QoS 0 displaces older ones of QoS 0 until one of QoS 1 is in its way: all that went are counted.
#[test]
fn messages_displaced_for_one_that_finds_no_room_are_counted() {
    let bus = bus();
    let slot = bus.slot(FifoMailbox::new(FifoLimits { messages: 100, bytes: 2_800 }), WorkerId(0));
    let options = SubscribeOptions { max_qos: Qos::ExactlyOnce, ..SubscribeOptions::default() };
    bus.subscribe(&slot, &Subscription::parse("t").unwrap(), options).unwrap();
    let mut worker = bus.worker(WorkerId(0));
    let me = Publisher::internal();
    let payload = [b'x'; 2_500];
    for (qos, bytes) in [(Qos::AtMostOnce, 1), (Qos::AtMostOnce, 1), (Qos::AtLeastOnce, 1), (Qos::AtMostOnce, 2_500)] {
        let body = Payload::Slice(payload.get(..bytes).unwrap());
        let mut publication = Publication::new(TopicRef::new("t").unwrap(), body, &me, Timestamp::ZERO, 0);
        publication.qos = qos;
        let _ = worker.publish(&mut [publication]);
    }
    let counters = bus.counters();
    let (matched, dropped) = (counters.matched.load(Relaxed), counters.dropped_full.load(Relaxed));
    assert_eq!((matched, dropped, bus.memory().waiting()), (4, 3, 1));
}
