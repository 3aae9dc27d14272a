//! The oracle of a disk that fails, fills up and loses power: what was acknowledged is there when the store is opened
//! again, what was refused is not, and readers saw nothing else in between.

mod forgets;
mod held;
mod medium;
mod pressure;
mod starts;

use std::{
    collections::BTreeMap,
    sync::{Mutex, OnceLock},
    task::{Context, Poll, Waker},
    time::Instant,
};

use fogmux_bus::{Door, Meaning, MessageId, Publisher, Qos, Timestamp, durable::StoredMessage};
use proptest::{collection::vec, prelude::*};

use self::medium::Medium;
use super::*;
use crate::State;

/// The messages that readers see.
type Seen = Arc<Mutex<BTreeMap<String, Arc<Message>>>>;

struct Rig {
    store: JournalStore,
    seen: Seen,
}

impl Rig {
    fn open(medium: &Arc<Medium>, durability: Durability) -> Self {
        // Nothing is written to the path: it is for losses, which there are none of.
        let config = StoreConfig { durability, ..StoreConfig::new("/nonexistent") };
        let disk: AnyDisk = Arc::clone(medium) as AnyDisk;
        let store =
            JournalStore::open_by(&config, |journal, shared| open::open_on(&config.path, disk, journal, shared));
        let (store, seen) = (store.unwrap(), Seen::default());
        store.load(&mut |stored| {
            let message = message(&stored.topic, stored.payload.len());
            seen.lock().unwrap().insert(stored.topic.to_string(), message);
        });
        assert!(!store.counters().has_lost(), "{:?}", store.counters());
        let undone = Arc::clone(&seen);
        store.undo_by(Box::new(move |topic, before| {
            let mut seen = undone.lock().unwrap();
            match before {
                Some(message) => drop(seen.insert(topic.to_string(), Arc::clone(message))),
                None => drop(seen.remove(topic.as_str())),
            }
        }));
        Self { store, seen }
    }

    /// As the bus does it: the store first, under the lock of what readers see.
    fn write(&self, topic: &str, bytes: Option<usize>) -> Completion {
        let mut seen = self.seen.lock().unwrap();
        let name = Topic::new(topic).unwrap();
        let message = bytes.map(|bytes| message(topic, bytes));
        let before = seen.get(topic);
        let completion = match &message {
            Some(message) => self.store.put(message, None, before),
            None => self.store.remove(&name, before),
        };
        if !matches!(completion, Completion::Failed) {
            match message {
                Some(message) => drop(seen.insert(topic.to_owned(), message)),
                None => drop(seen.remove(topic)),
            }
        }
        completion
    }

    fn readable(&self) -> BTreeMap<String, usize> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|(topic, message)| (topic.clone(), message.payload.len())).collect()
    }
}

/// A message of one of three principals.
fn message(topic: &str, bytes: usize) -> Arc<Message> {
    message_of(["ada", "bob", "eve"][bytes % 3], topic, bytes)
}

fn message_of(principal: &str, topic: &str, bytes: usize) -> Arc<Message> {
    let publisher =
        Publisher { principal: principal.into(), door: Some(Door::Mqtt), ..(*Publisher::internal()).clone() };
    Arc::new(Message {
        id: MessageId(0),
        topic: Topic::new(topic).unwrap(),
        payload: vec![7; bytes].into(),
        qos: Qos::AtLeastOnce,
        meaning: Meaning::Value,
        content_type: None,
        expires_at: None,
        properties: None,
        publisher: Arc::new(publisher),
        ingest: Timestamp::ZERO,
        ingest_unix_ms: 0,
        sample: None,
        tag: OnceLock::new(),
    })
}

/// A message for sessions.
fn stored_message(bytes: usize) -> StoredMessage {
    StoredMessage {
        topic: Topic::new("t").unwrap(),
        payload: vec![7; bytes].into(),
        qos: Qos::AtLeastOnce,
        meaning: Meaning::Event,
        content_type: None,
        expires_unix_ms: None,
        properties: None,
        ingest_unix_ms: 0,
        principal: "ada".into(),
        client: "c".into(),
        door: None,
    }
}

fn wait(completion: &Completion) -> bool {
    let mut completion = std::pin::pin!(completion.clone());
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Poll::Ready(result) = completion.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return result.is_ok();
        }
        assert!(Instant::now() < deadline, "nobody was told");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// The end of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    PowerCut,
}

/// A write: its topic, its bytes or a removal, and whether its writer waits for the outcome before the next.
type Written = (u8, Option<usize>, bool);

fn write() -> impl Strategy<Value = Written> {
    let bytes = prop_oneof![6 => 0_usize..2_000, 2 => 20_000_usize..60_000, 1 => 200_000_usize..300_000];
    (0_u8..5, proptest::option::weighted(0.7, bytes), any::<bool>())
}

/// EPERM, EIO, ENOMEM, EACCES, ENFILE, EMFILE.
const ERRORS: [i32; 6] = [1, EIO, 12, 13, 23, 24];

const EIO: i32 = 5;

/// A fault of the disk at a write: none, an operation that fails soon, reads that fail for a while, or a limit of space
/// from now on.
#[derive(Clone, Copy, Debug)]
enum Event {
    Fails(usize),
    Space(Option<usize>),
    /// Reads fail so many times with this error.
    Outage(i32, usize),
}

fn event() -> impl Strategy<Value = Option<Event>> {
    prop_oneof![
        12 => Just(None),
        2 => (0_usize..8).prop_map(|fuse| Some(Event::Fails(fuse))),
        1 => (0_usize..6).prop_map(|segments| Some(Event::Space(Some(segments << 19)))),
        1 => Just(Some(Event::Space(None))),
        1 => (0..ERRORS.len(), 1_usize..50).prop_map(|(error, reads)| Some(Event::Outage(ERRORS[error], reads))),
    ]
}

/// Writes with events, the end, and whether the durability is `always`.
type Life = (Vec<(Written, Option<Event>)>, End, bool);

fn life() -> impl Strategy<Value = Life> {
    (vec((write(), event()), 1..40), prop_oneof![Just(End::Closed), Just(End::PowerCut)], any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_refused_is_not_found_and_what_was_acknowledged_is(
        seed in any::<u64>(),
        lives in vec(life(), 1..4),
    ) {
        let medium = Arc::new(Medium::default());
        medium.platters().random = seed;
        let mut kept: BTreeMap<String, usize> = BTreeMap::new();
        for (writes, end, always) in lives {
            let rig = Rig::open(&medium, if always { Durability::Always } else { Durability::Group });
            prop_assert_eq!(&rig.readable(), &kept);
            let mut outcomes = Vec::new();
            for ((topic, bytes, waits), event) in writes {
                match event {
                    Some(Event::Fails(fuse)) => medium.platters().fuse = Some(fuse),
                    Some(Event::Space(space)) => medium.platters().space = space,
                    Some(Event::Outage(errno, reads)) => medium.platters().outage = Some((errno, reads, None)),
                    None => {}
                }
                let topic = format!("t/{topic}");
                let completion = rig.write(&topic, bytes);
                if waits {
                    wait(&completion);
                }
                outcomes.push((topic, bytes, completion));
            }
            if end == End::PowerCut {
                medium.cut_power();
            }
            let _ = rig.store.close();
            // Of each topic what may be there: after a power cut, also that of which nobody heard the outcome before.
            let mut allowed: BTreeMap<String, Vec<Option<usize>>> =
                kept.iter().map(|(topic, bytes)| (topic.clone(), vec![Some(*bytes)])).collect();
            for (topic, bytes, completion) in outcomes {
                let allowed = allowed.entry(topic).or_insert_with(|| vec![None]);
                match (wait(&completion), end) {
                    (true, _) => *allowed = vec![bytes],
                    (false, End::PowerCut) => allowed.push(bytes),
                    (false, End::Closed) => {}
                }
            }
            let seen = rig.readable();
            drop(rig);
            medium.power_up();
            let again = Rig::open(&medium, Durability::Always);
            kept = again.readable();
            if end == End::Closed {
                prop_assert_eq!(&seen, &kept, "readers saw something else");
            }
            for (topic, allowed) in &allowed {
                prop_assert!(allowed.contains(&kept.get(topic).copied()), "{}: {:?} of {:?}", topic, kept.get(topic), allowed);
            }
            again.store.close().unwrap();
        }
    }
}

#[test]
fn a_full_disk_refuses_values_takes_removals_and_recovers() {
    for durability in [Durability::Group, Durability::Always] {
        let medium = Arc::new(Medium::default());
        let rig = Rig::open(&medium, durability);
        assert!(wait(&rig.write("kept", Some(100))));
        medium.platters().space = Some(0);
        let mut taken = 0;
        while wait(&rig.write(&format!("fill/{taken}"), Some(20_000))) {
            taken += 1;
        }
        assert!(taken > 3 && taken < 200, "{taken}");
        let snapshot = rig.store.counters();
        assert_eq!((snapshot.state, snapshot.refused, snapshot.failed), (State::Full, 1, 0));
        assert!(rig.store.why_stopped().is_some());
        assert!(!rig.readable().contains_key(&format!("fill/{taken}")));
        assert!(wait(&rig.write("kept", None)), "a removal");
        assert!(!wait(&rig.write("kept", Some(20_000))));
        assert_eq!(rig.store.counters().state, State::Full);
        // After a commit the journal looks for room in vain.
        assert!(wait(&rig.write("fill/0", None)));
        std::thread::sleep(Duration::from_millis(50));
        medium.platters().space = None;
        assert!(wait(&rig.write("kept", Some(20_000))));
        assert_eq!((rig.store.counters().state, rig.store.why_stopped()), (State::Writable, None));
        rig.store.close().unwrap();
        assert_eq!(Rig::open(&medium, durability).readable(), rig.readable());
    }
}

/// A gateway that is not ready gets no messages, by which it could find out that it is.
#[test]
fn a_disk_with_room_again_is_found_by_asking() {
    let medium = Arc::new(Medium::default());
    medium.platters().space = Some(0);
    let rig = Rig::open(&medium, Durability::Group);
    assert_eq!(rig.store.counters().state, State::Full);
    assert!(!wait(&rig.write("a", Some(1))));
    medium.platters().space = None;
    let deadline = Instant::now() + Duration::from_secs(30);
    while rig.store.why_stopped().is_some() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(wait(&rig.write("a", Some(1))));
}

/// Where acknowledgements do not wait, what is acknowledged and lost is counted, and what comes after is refused until
/// the disk takes something.
#[test]
fn without_waiting_a_loss_is_counted_and_what_follows_is_refused() {
    for durability in [Durability::Interval, Durability::None] {
        let medium = Arc::new(Medium::default());
        let rig = Rig::open(&medium, durability);
        medium.platters().space = Some(0);
        for n in 0..200 {
            assert!(rig.write(&format!("t/{n}"), Some(20_000)).is_ready());
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while rig.store.counters().state == State::Writable {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        // The first ones fit.
        let failed = rig.store.counters().failed;
        assert!(failed > 100 && failed < 200, "{failed}");
        assert!(!wait(&rig.write("late", Some(1))));
        assert!(wait(&rig.write("t/0", None)));
        assert_eq!(rig.store.close().unwrap_err().failed, failed);
        assert_eq!(Rig::open(&medium, durability).readable().len() as u64, 199 - failed);
    }
}

#[test]
fn a_value_that_is_followed_before_its_commit_is_never_written() {
    let medium = Arc::new(Medium::default());
    let rig = Rig::open(&medium, Durability::Interval);
    for bytes in 0..1000 {
        assert!(rig.write("t", Some(1000 + bytes)).is_ready());
    }
    rig.store.close().unwrap();
    let snapshot = rig.store.counters();
    assert!(snapshot.records <= 4 && snapshot.bytes <= 6 * 4096, "{snapshot:?}");
    assert_eq!(Rig::open(&medium, Durability::Interval).readable()["t"], 1999);
}

#[test]
fn a_write_is_pending_until_its_outcome_is_known() {
    let medium = Arc::new(Medium::default());
    let rig = Rig::open(&medium, Durability::Group);
    assert!(rig.store.pending("a").is_ready());
    let held = medium.platters();
    let first = rig.write("a", Some(1));
    assert!(rig.store.pending("a").is_same(&first) && rig.store.pending("b").is_ready());
    let removal = rig.write("a", None);
    let pending = rig.store.pending("a");
    // In one set with the write that it removes there is nothing to be written, so its outcome may be known already.
    let is_known = || std::pin::pin!(removal.clone()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
    assert!(pending.is_same(&removal) || pending.is_ready() && is_known());
    drop(held);
    assert!(wait(&first) && wait(&removal));
    assert!(rig.store.pending("a").is_ready());
}
