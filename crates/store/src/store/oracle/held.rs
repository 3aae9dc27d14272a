//! Batches that are held: what is acknowledged in time is never written, and nothing that is needed is lost.

use fogmux_bus::{
    SessionKey,
    durable::{Gathering, Manner, Parcel, Recovered, SessionLog, SessionStore, StoredDelivery},
};

use super::*;

/// No commit but the first comes by itself, and nothing is released by itself.
const NEVER: Duration = Duration::from_secs(86_400);

fn open(medium: &Arc<Medium>, group_delay: Duration) -> JournalStore {
    let config = StoreConfig { group_delay, queue_bytes_max: 1 << 20, ..StoreConfig::new("/nonexistent") };
    let disk: AnyDisk = Arc::clone(medium) as AnyDisk;
    let store = JournalStore::open_by(&config, |journal, shared| open::open_on(&config.path, disk, journal, shared));
    store.unwrap()
}

fn begin(store: &JournalStore) -> SessionLog {
    let mut batch = SessionStore::batch(store);
    let log = SessionLog::begin(SessionKey("one".into()), "ada".into(), None, batch.as_mut());
    assert!(wait(&batch.append()));
    log
}

/// Publishes to a session whose client is sent the message at once.
fn publish(store: &JournalStore, log: &mut SessionLog, bytes: usize) -> (Completion, StoredDelivery) {
    let gathering = Gathering::new(store);
    gathering.with(|batch| batch.charge(&"ada".into())).unwrap();
    let parcel = Parcel::new(&gathering, stored_message(bytes)).unwrap();
    let manner = Manner { qos: Qos::AtLeastOnce, retain: false, share: 0, ids: [].into_iter().collect() };
    let delivery = log.deliver(&parcel, manner, &gathering).unwrap();
    delivery.sent();
    (gathering.append_published([parcel]), delivery)
}

fn is_ready(completion: &Completion) -> bool {
    std::pin::pin!(completion.clone()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// The messages that a start finds.
fn restored(medium: &Arc<Medium>) -> usize {
    let store = open(medium, NEVER);
    let Recovered { sessions, losses, .. } = Recovered::load(&store);
    assert!(losses.is_none());
    sessions.iter().map(|session| session.deliveries.len()).sum()
}

#[test]
fn what_is_acknowledged_in_time_is_never_written() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium, NEVER);
    let mut log = begin(&store);
    let before = store.counters().bytes;
    for size in (0..4_000).map(|n| n % 500) {
        let (completion, delivery) = publish(&store, &mut log, size);
        assert!(!is_ready(&completion));
        let mut batch = SessionStore::batch(&store);
        delivery.acknowledge(batch.as_mut());
        assert!(is_ready(&batch.append()) && wait(&completion));
    }
    assert_eq!(store.counters().bytes, before);
    drop(log);
    store.close().unwrap();
    assert_eq!(restored(&medium), 0);
}

#[test]
fn what_is_not_acknowledged_is_on_the_disk_without_anybody_doing_anything() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium, Duration::from_millis(2));
    let mut log = begin(&store);
    let published: Vec<_> = (0..100).map(|n| publish(&store, &mut log, n)).collect();
    assert!(published.iter().all(|(completion, _)| wait(completion)));
    medium.cut_power();
    drop((published, log, store));
    medium.power_up();
    assert_eq!(restored(&medium), 100);
}

#[test]
fn a_copy_and_an_end_have_all_that_is_held() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium, NEVER);
    let mut log = begin(&store);
    let (first, _first) = publish(&store, &mut log, 1);
    assert!(!is_ready(&first));
    store.copy(&mut |_| Ok(())).unwrap();
    assert!(wait(&first), "a copy has it");
    let (second, _second) = publish(&store, &mut log, 1);
    store.close().unwrap();
    assert!(is_ready(&second), "so does an end");
    let (third, _third) = publish(&store, &mut log, 1);
    assert!(!wait(&third), "nothing is taken after that");
    assert_eq!(restored(&medium), 2);
}

/// Publishers that are not acknowledged fill no more than a part of the queue before they count for their shares.
#[test]
fn what_is_held_is_bounded() {
    let medium = Arc::new(Medium::default());
    let store = open(&medium, NEVER);
    let mut log = begin(&store);
    let published: Vec<_> = (0..200).map(|_| publish(&store, &mut log, 1_000)).collect();
    let waiting = store.0.shared.ledger().queue.used();
    assert!((20_000..120_000).contains(&waiting), "{waiting}");
    // Room comes back as soon as clients acknowledge.
    let mut batch = SessionStore::batch(&store);
    published.into_iter().for_each(|(_, delivery)| delivery.acknowledge(batch.as_mut()));
    drop(batch.append());
    let before = store.0.shared.ledger().queue.used();
    let more: Vec<_> = (0..80).map(|_| publish(&store, &mut log, 1_000)).collect();
    assert_eq!(store.0.shared.ledger().queue.used(), before);
    drop(more);
    store.close().unwrap();
}

/// The last handle of a store may be that of a batch which is held.
#[test]
fn a_store_that_nobody_has_any_more_ends() {
    for _ in 0..50 {
        let medium = Arc::new(Medium::default());
        let store = open(&medium, Duration::from_micros(200));
        let mut log = begin(&store);
        let (completion, delivery) = publish(&store, &mut log, 1);
        let held = Arc::downgrade(store.held().unwrap());
        drop(store);
        drop((completion, log));
        drop(delivery);
        let deadline = Instant::now() + Duration::from_secs(60);
        while held.strong_count() > 0 {
            assert!(Instant::now() < deadline, "its thread goes on");
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
