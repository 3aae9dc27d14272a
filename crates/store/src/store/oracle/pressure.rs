//! A disk that does not answer, or is nearly full, under writes of several principals: each of them bears what it does
//! itself, and the memory of pending writes is bounded.

use fogmux_bus::{
    SessionKey,
    durable::{Gathering, Manner, Parcel, SessionLog, SessionStore},
};

use super::*;

/// Bytes that may wait in these tests.
const QUEUE: usize = 1 << 20;

fn open(medium: &Arc<Medium>) -> JournalStore {
    let config = StoreConfig { queue_bytes_max: QUEUE, ..StoreConfig::new("/nonexistent") };
    let disk: AnyDisk = Arc::clone(medium) as AnyDisk;
    let store = JournalStore::open_by(&config, |journal, shared| open::open_on(&config.path, disk, journal, shared));
    store.unwrap()
}

fn put(store: &JournalStore, who: &str, topic: &str, bytes: usize) -> Completion {
    store.put(&message_of(who, topic, bytes), None, None)
}

fn is_taken(completion: &Completion) -> bool {
    !matches!(completion, Completion::Failed)
}

/// A write that the committer is about to write, so that all others wait behind it.
fn begin(store: &JournalStore, medium: &Medium) {
    assert!(wait(&put(store, "first", "first", 1)));
    let held = medium.platters();
    assert!(is_taken(&put(store, "first", "first", 1)));
    drop(held);
}

#[test]
fn a_principal_that_fills_the_queue_leaves_others_theirs() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium);
    let held = medium.platters();
    let mut taken = 0;
    while is_taken(&put(&store, "flood", &format!("flood/{taken}"), 50)) {
        taken += 1;
        assert!(taken < QUEUE / 50, "no bound");
    }
    assert!(taken > QUEUE / 1000, "{taken}");
    let waiting: Vec<_> = (0..50).map(|n| put(&store, "ada", &format!("ada/{n}"), 50)).collect();
    assert!(waiting.iter().all(is_taken), "others are refused");
    let record = store.put_record_for(&"bob".into(), "door/bob", Some(vec![1; 50].into()));
    assert!(is_taken(&record), "so are records of doors");
    assert!(!is_taken(&put(&store, "flood", "flood/more", 50)));
    assert!(is_taken(&put(&store, "flood", "flood/0", 50)), "what takes the place of as much is not refused");
    assert!(is_taken(&store.remove(&Topic::new("flood/1").unwrap(), None)), "neither is a removal");
    assert!(store.counters().beyond_share >= 1);
    drop(held);
    assert!(waiting.iter().chain([&record]).all(wait));
    store.close().unwrap();
    assert_eq!(store.0.shared.ledger().queue.used(), 0);
}

/// Sessions of a principal that come and go, as one whose clients do nothing else.
#[test]
fn sessions_that_fill_the_queue_leave_those_of_others_their_share() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium);
    let held = medium.platters();
    let begin = |who: &str, n: usize| {
        let mut batch = SessionStore::batch(&store);
        let key = SessionKey(format!("{who}-{n}").into());
        let log = SessionLog::begin(key, who.into(), None, batch.as_mut());
        (log, batch.append())
    };
    let mut taken = 0;
    while is_taken(&begin("flood", taken).1) {
        taken += 1;
        assert!(taken < QUEUE / 50, "no bound");
    }
    let waiting: Vec<_> = (0..50).map(|n| begin("ada", n).1).collect();
    assert!(waiting.iter().all(is_taken), "others are refused");
    assert!(!is_taken(&begin("flood", taken).1));
    drop(held);
    assert!(waiting.iter().all(wait));
}

/// A message for very many sessions of one principal counts for that principal: its sessions do without when it has its
/// share, and the publisher is not refused for their sake.
#[test]
fn what_waits_for_sessions_counts_for_their_principal() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium);
    let mut sessions: Vec<_> = (0..500)
        .map(|n| {
            let mut batch = SessionStore::batch(&store);
            let log = SessionLog::begin(SessionKey(format!("many-{n}").into()), "many".into(), None, batch.as_mut());
            (log, batch.append())
        })
        .collect();
    assert!(sessions.iter().all(|(_, completion)| wait(completion)));
    let mut other = SessionStore::batch(&store);
    let mut one = SessionLog::begin(SessionKey("one".into()), "one".into(), None, other.as_mut());
    assert!(wait(&other.append()));
    let held = medium.platters();
    let (mut stored, mut left_out) = (0, 0);
    for number in 0..80 {
        let gathering = Gathering::new(&store);
        gathering.with(|batch| batch.charge(&"ada".into())).unwrap();
        let parcel = Parcel::new(&gathering, stored_message(1)).unwrap();
        let manner = || Manner { qos: Qos::AtLeastOnce, retain: false, share: 0, ids: [].into_iter().collect() };
        for (log, _) in &mut sessions {
            match log.deliver(&parcel, manner(), &gathering) {
                Some(_) => stored += 1,
                None => left_out += 1,
            }
        }
        assert!(one.deliver(&parcel, manner(), &gathering).is_some(), "message {number}: another one's session");
        assert!(is_taken(&gathering.append([parcel])), "message {number} is refused to its publisher");
    }
    assert!(stored * 54 < 2 * QUEUE && left_out > 0, "{stored} deliveries wait, {left_out} do not");
    let store_of = |who: &str| put(&store, who, "a", 10);
    assert!(is_taken(&store_of("ada")) && !is_taken(&put(&store, "many", "b", 10)));
    drop(held);
    store.close().unwrap();
    assert_eq!(store.0.shared.ledger().queue.used(), 0);
}

/// The disk fails after some of what one principal has waiting: what another one has is on it by then.
#[test]
fn a_write_is_in_the_next_commit_however_much_others_have_waiting() {
    let medium = Arc::new(Medium::default());
    let rig = Rig::open(&medium, Durability::Group);
    assert!(wait(&put(&rig.store, "first", "first", 1)));
    let mut held = medium.platters();
    let flood: Vec<_> = (0..8 << 10).map(|n| put(&rig.store, "flood", &format!("flood/{n}"), 1000)).collect();
    let waiting = put(&rig.store, "ada", "ada", 10);
    assert!(is_taken(&waiting) && flood.iter().all(is_taken));
    // 8 MiB are 64 frames at least.
    held.fuse = Some(40);
    drop(held);
    assert!(wait(&waiting), "it waits for all that others have waiting");
    let failed = flood.iter().filter(|completion| !wait(completion)).count();
    assert!(failed > 1000, "{failed}");
}

#[test]
fn topics_that_come_and_go_are_bounded_while_the_disk_does_not_answer() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium);
    let held = medium.platters();
    let mut taken = 0;
    for n in 0..20_000 {
        let topic = format!("flood/{n}");
        let message = message_of("flood", &topic, 10);
        if is_taken(&store.put(&message, None, None)) {
            taken += 1;
            assert!(is_taken(&store.remove(&message.topic, Some(&message))), "a removal");
        }
    }
    assert!(taken > 1000 && taken < QUEUE / 200, "{taken} topics wait for nothing");
    let waiting = put(&store, "ada", "ada", 10);
    assert!(is_taken(&waiting));
    drop(held);
    assert!(wait(&waiting));
    store.close().unwrap();
    let ledger = store.0.shared.ledger();
    assert_eq!((ledger.queue.used(), ledger.unsettled()), (0, 0));
}

/// A principal that clears all that it has on the disk takes no room of the queue from others.
#[test]
fn removals_of_what_is_on_the_disk_leave_others_their_room() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium);
    let messages: Vec<_> = (0..6000).map(|n| message_of("flood", &format!("flood/{n}"), 10)).collect();
    for some in messages.chunks(1000) {
        let all: Vec<_> = some.iter().map(|message| store.put(message, None, None)).collect();
        assert!(all.iter().all(wait));
    }
    let held = medium.platters();
    let removals: Vec<_> = messages.iter().map(|message| store.remove(&message.topic, Some(message))).collect();
    let waiting = put(&store, "ada", "ada", 10);
    assert!(is_taken(&waiting), "6000 removals take the room of others");
    drop(held);
    assert!(wait(&waiting) && removals.iter().all(wait));
    store.close().unwrap();
    assert_eq!(store.0.shared.ledger().queue.used(), 0);
}

#[test]
fn a_topic_of_two_publishers_waits_once() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium);
    let held = medium.platters();
    for n in 0..1000 {
        for who in ["ada", "bob"] {
            assert!(is_taken(&put(&store, who, "shared", 10 + n % 7)), "{n}");
            assert!(is_taken(&put(&store, who, who, 10)), "{n}");
        }
        if n % 10 == 0 {
            assert!(is_taken(&store.remove(&Topic::new("shared").unwrap(), None)), "{n}");
        }
    }
    let mut records = 0;
    store.0.shared.ledger().topics.each("shared", |_| records += 1);
    assert!(records <= 3, "{records} records of one name");
    drop(held);
    store.close().unwrap();
    assert!(store.counters().records < 20, "{:?}", store.counters());
}

#[test]
fn a_message_that_does_not_fit_is_refused_and_the_others_are_kept() {
    for durability in [Durability::Group, Durability::Always] {
        for large in [0, 41, 82] {
            let medium = Arc::new(Medium::default());
            let config = StoreConfig { durability, ..StoreConfig::new("/nonexistent") };
            let disk: AnyDisk = Arc::clone(&medium) as AnyDisk;
            let store =
                JournalStore::open_by(&config, |journal, shared| open::open_on(&config.path, disk, journal, shared));
            let store = store.unwrap();
            begin(&store, &medium);
            let mut held = medium.platters();
            held.space = Some(0);
            let mut small = Vec::new();
            let mut refused = None;
            for n in 0..83 {
                if n == large {
                    refused = Some(put(&store, "ada", "large", 3 << 20));
                }
                small.push(put(&store, "ada", &format!("small/{n}"), 100));
            }
            drop(held);
            assert!(!wait(&refused.unwrap()), "it does not fit");
            let kept = small.iter().filter(|completion| wait(completion)).count();
            assert_eq!(kept, 83, "{durability}, the large one after {large}");
            assert_eq!(store.counters().refused, 1);
            let _ = store.close();
        }
    }
}

/// Of what is too much together as much is kept as fits.
#[test]
fn a_full_disk_takes_what_fits_of_a_commit() {
    let medium = Arc::new(Medium::default());
    let config = StoreConfig::new("/nonexistent");
    let disk: AnyDisk = Arc::clone(&medium) as AnyDisk;
    let store = JournalStore::open_by(&config, |journal, shared| open::open_on(&config.path, disk, journal, shared));
    let store = store.unwrap();
    begin(&store, &medium);
    let mut held = medium.platters();
    held.space = Some(0);
    let all: Vec<_> = (0..400).map(|n| put(&store, "ada", &format!("t/{n}"), 10_000)).collect();
    drop(held);
    let kept = all.iter().filter(|completion| wait(completion)).count();
    // A segment beside the two in reserve, and what is left of the first.
    assert!((40..400).contains(&kept), "{kept}");
    let found: Vec<String> = {
        let _ = store.close();
        let again = Rig::open(&medium, Durability::Group);
        again.readable().into_keys().filter(|topic| topic.starts_with("t/")).collect()
    };
    assert_eq!(found.len(), kept);
}

#[test]
fn a_disk_that_fails_for_a_day_makes_no_write_slower() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium);
    medium.platters().broken = true;
    for _ in 0..300 {
        store.0.trial();
        let deadline = Instant::now() + Duration::from_secs(60);
        while store.0.shared.ledger().trying {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    assert_eq!(store.0.shared.ledger().spare, [], "records that a write forgets");
    medium.platters().broken = false;
    assert!(wait(&put(&store, "ada", "a", 1)));
    store.0.trial();
    store.close().unwrap();
    let again = Rig::open(&medium, Durability::Group);
    assert_eq!(again.readable().len(), 1);
}

/// A readiness check has the disk tried. One that hangs is not tried again.
#[test]
fn a_disk_that_hangs_is_tried_once() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium);
    let held = medium.platters();
    (0..100).for_each(|_| store.0.trial());
    let pending = store.0.figures();
    drop(held);
    store.close().unwrap();
    assert!(store.0.figures().written_bytes - pending.written_bytes < 100_000);
}
