//! Mailboxes of many owners and the mark: only the owner that holds most is concerned, and of publishers only those of
//! a principal, for a few seconds (ADR 0038).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::{
    future::Future,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use fogmux_bus::{
    Bus, BusConfig, FifoLimits, FifoMailbox, Forgetful, Payload, Publication, Publisher, Slot, SubscribeOptions,
    Subscription, Timestamp, TopicRef, WorkerId,
};
use fogmux_fair::Owner;
use proptest::prelude::*;

const ROOMY: FifoLimits = FifoLimits { messages: 100_000, bytes: 1 << 30 };
const HIGH: usize = 1 << 20;
/// Accounts are looked at in steps of a thousandth of the mark, and a message of each mailbox may be beyond it.
const SLACK: usize = HIGH / 1024 + 1;

struct World {
    bus: Arc<Bus>,
    owners: Vec<Owner>,
    mailboxes: Vec<Arc<Slot<FifoMailbox>>>,
}

impl World {
    /// A mailbox of each owner, which reads the topic of that number.
    fn new(owners: Vec<Owner>) -> Self {
        let config = BusConfig { memory_high_bytes: HIGH, ..BusConfig::default() };
        let bus = Bus::new(&config, Box::new(Forgetful), Timestamp::ZERO, 0);
        let mailbox = |(number, owner): (usize, &Owner)| {
            let account = bus.memory().account(owner.clone());
            let slot = bus.slot(FifoMailbox::new(ROOMY).of(account), WorkerId(0));
            bus.subscribe(&slot, &Subscription::parse(&number.to_string()).unwrap(), SubscribeOptions::default())
                .unwrap();
            slot
        };
        let mailboxes = owners.iter().enumerate().map(mailbox).collect();
        Self { bus, owners, mailboxes }
    }

    fn publish(&self, reader: usize, bytes: usize) {
        let (topic, payload, me) = (reader.to_string(), vec![0; bytes], Publisher::internal());
        let payload = Payload::Slice(&payload);
        let topic = TopicRef::new(&topic).unwrap();
        let mut batch = [Publication::new(topic, payload, &me, Timestamp::ZERO, 0)];
        let _ = self.bus.worker(WorkerId(0)).publish(&mut batch);
    }

    fn held(&self, owner: &Owner) -> usize {
        self.bus.memory().account(owner.clone()).used()
    }

    fn check(&self) {
        let memory = self.bus.memory();
        let used: usize = self.distinct().iter().map(|owner| self.held(owner)).sum();
        assert_eq!(memory.used(), used);
        let heaviest: Vec<_> = self.distinct().into_iter().filter(|owner| memory.is_held_by(owner)).collect();
        let stopped: Vec<_> = self.distinct().into_iter().filter(|owner| memory.stops(owner)).collect();
        if used <= HIGH {
            assert!(heaviest.is_empty() && stopped.is_empty(), "{heaviest:?}, {stopped:?} at {used} bytes");
            return;
        }
        assert_eq!(heaviest.len(), 1, "{heaviest:?}");
        // Those without a name would wait for what strangers from the same host hold.
        let principal: Vec<_> = heaviest.iter().filter(|owner| owner.is_principal()).cloned().collect();
        assert_eq!(stopped, principal);
        let share = HIGH / self.distinct().len();
        assert!(self.held(&heaviest[0]) + SLACK >= share, "{} holds {}", heaviest[0], self.held(&heaviest[0]));
    }

    fn distinct(&self) -> Vec<Owner> {
        let mut owners = self.owners.clone();
        owners.sort();
        owners.dedup();
        owners
    }
}

fn principals(count: usize) -> Vec<Owner> {
    (0..count).map(|number| Owner::principal(format!("user{number}").into())).collect()
}

/// Principals, and clients without a name on hosts of one network.
fn owners(count: usize, nameless: usize) -> Vec<Owner> {
    let hosts = (0..nameless).map(|host| Owner::nameless(IpAddr::from([192, 0, 2, u8::try_from(host).unwrap()])));
    principals(count).into_iter().chain(hosts).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any number of owners and mailboxes, and any sequence of messages that come and are taken: above the mark
    /// exactly one is concerned, and if it is a principal it is stopped; it holds no less than its share; the others
    /// take what comes.
    #[test]
    fn only_the_owner_that_holds_most_is_concerned(
        count in 1_usize..40,
        nameless in prop_oneof![Just(0), Just(1)],
        steps in prop::collection::vec((0_usize..80, 0_usize..90_000, 0_u8..4), 1..300),
    ) {
        // Two mailboxes each.
        let world = World::new(owners(count, nameless).into_iter().flat_map(|owner| [owner.clone(), owner]).collect());
        for (reader, bytes, kind) in steps {
            let reader = reader % world.mailboxes.len();
            if kind == 0 {
                world.mailboxes[reader].with(|mailbox| while mailbox.pop().is_some() {});
            } else {
                let owner = &world.owners[reader];
                let before = world.mailboxes[reader].with(|mailbox| mailbox.len());
                let gives_way = world.bus.memory().is_held_by(owner);
                world.publish(reader, bytes);
                let took = world.mailboxes[reader].with(|mailbox| mailbox.len()) > before;
                prop_assert!(took || gives_way, "{owner} lost a message");
            }
            world.check();
        }
        world.mailboxes.iter().for_each(|slot| slot.with(FifoMailbox::clear));
        prop_assert_eq!(world.bus.memory().held(), 0);
    }

    /// One that holds far more than all others never has one of them stopped or lose anything, however often it comes
    /// again.
    #[test]
    fn those_within_their_share_never_wait(others in 1_usize..30, rounds in 1_usize..6) {
        let world = World::new(principals(others + 1));
        for _ in 0..rounds {
            for _ in 0..20 {
                world.publish(0, 100_000);
                for reader in 1..=others {
                    prop_assert!(!world.bus.memory().stops(&world.owners[reader]));
                    world.publish(reader, 100);
                }
            }
            prop_assert!(world.bus.memory().stops(&world.owners[0]));
            // Only publications that were in progress at the mark exceed it.
            prop_assert!(world.bus.memory().used() <= HIGH + HIGH / 8 + 110_000 + others * 20 * 1000);
            for (reader, slot) in world.mailboxes.iter().enumerate() {
                prop_assert!(reader == 0 || slot.with(|mailbox| mailbox.len()) == 20);
                slot.with(FifoMailbox::clear);
            }
        }
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_publisher_goes_on_when_another_principal_holds_more() {
    let world = World::new(principals(2));
    world.publish(0, HIGH + 1);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut relieved = std::pin::pin!(world.bus.memory().relieved(world.owners[0].clone()));
    assert!(relieved.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    world.publish(1, HIGH * 2);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(relieved.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    assert!(world.bus.memory().stops(&world.owners[1]));
}

/// Nobody takes what is above the mark: publishers wait for it for two seconds of looks, and once it was left they wait
/// anew.
#[test]
fn publishers_wait_for_the_mark_for_two_seconds_only() {
    let at = |seconds: u64| Timestamp::from_millis(seconds * 1000);
    let world = World::new(principals(1));
    let (memory, owner) = (world.bus.memory(), &world.owners[0]);
    for round in [10, 20, 30] {
        world.publish(0, HIGH + 1);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut relieved = std::pin::pin!(memory.relieved(owner.clone()));
        assert!(relieved.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        for second in 0..2 {
            memory.look(at(round + second), at(round));
            assert!(memory.stops(owner), "after {second} s");
        }
        memory.look(at(round + 2), at(round));
        assert!(!memory.stops(owner) && memory.is_held_by(owner));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(relieved.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        memory.look(at(round + 9), at(round));
        assert!(!memory.stops(owner));
        world.mailboxes[0].with(FifoMailbox::clear);
    }
}

#[test]
fn a_time_in_which_the_gateway_did_not_run_is_no_time_that_publishers_waited() {
    let world = World::new(principals(1));
    world.publish(0, HIGH + 1);
    let at = |seconds: u64| Timestamp::ZERO + Duration::from_secs(seconds);
    world.bus.memory().look(at(1), at(0));
    world.bus.memory().look(at(100), at(100));
    assert!(world.bus.memory().stops(&world.owners[0]));
    world.bus.memory().look(at(102), at(100));
    assert!(!world.bus.memory().stops(&world.owners[0]));
}

/// Others keep holding nearly as much as the mark allows: a publisher goes on as soon as the mark is left.
#[test]
fn publishers_go_on_when_the_mark_is_left_however_little() {
    let world = World::new(vec![Owner::principal("ada".into()); 2]);
    world.publish(0, HIGH - HIGH / 100);
    world.publish(1, HIGH / 50);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut relieved = std::pin::pin!(world.bus.memory().relieved(world.owners[0].clone()));
    assert!(relieved.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    world.mailboxes[1].with(FifoMailbox::clear);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(relieved.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
}

#[test]
fn mailboxes_without_an_owner_stop_nobody_and_accounts_end_with_their_mailboxes() {
    let world = World::new(principals(1));
    let slot = world.bus.slot(FifoMailbox::new(ROOMY), WorkerId(0));
    world.bus.subscribe(&slot, &Subscription::parse("#").unwrap(), SubscribeOptions::default()).unwrap();
    world.publish(7, HIGH * 2);
    world.publish(0, HIGH / 2);
    assert!(!world.bus.memory().pressure() && world.bus.memory().held() > HIGH * 2);
    assert_eq!(world.bus.memory().held_by_owner().len(), 1);
    let World { bus, mailboxes, .. } = world;
    bus.unsubscribe(&mailboxes[0], &Subscription::parse("0").unwrap(), 0);
    drop(mailboxes);
    // The route of a topic holds its subscribers until it is used again.
    let _ = slot;
    assert!(bus.memory().used() <= HIGH / 2 + 1000);
}
