//! The oracle of a disk that fails, fills up and loses power: what was acknowledged is there when the store is opened
//! again, what was refused is not, and readers saw nothing else in between.

mod forgets;
mod pressure;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Mutex, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
    time::Instant,
};

use fogmux_bus::{Door, Meaning, MessageId, Publisher, Qos, Timestamp};
use fogmux_journal::{Disk, Slot};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::State;

const SECTOR: usize = 512;

#[derive(Default)]
struct SegmentFile {
    cached: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Default)]
struct Platters {
    files: BTreeMap<Slot, SegmentFile>,
    /// Writes and synchronisations until one fails.
    fuse: Option<usize>,
    space: Option<usize>,
    /// Reads fail with this error, so many times, of this segment or of all.
    outage: Option<(i32, usize, Option<Slot>)>,
    /// Every operation but reads fails.
    broken: bool,
    /// The power is gone.
    dark: bool,
    random: u64,
}

/// A disk in memory. What was not synchronised survives a power cut in sectors, or not.
#[derive(Default)]
struct Medium(Mutex<Platters>);

impl Platters {
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    fn begin(&mut self) -> io::Result<bool> {
        if self.dark {
            return Err(io::Error::other("no power"));
        }
        let fails = self.broken || self.fuse == Some(0);
        self.fuse = self.fuse.and_then(|left| left.checked_sub(1));
        Ok(fails)
    }

    fn file(&mut self, slot: Slot) -> io::Result<&mut SegmentFile> {
        self.files.get_mut(&slot).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write_back(&mut self, slot: Slot, survives: impl Fn(u64) -> bool) {
        let sectors = self.files.get_mut(&slot).map(|file| std::mem::take(&mut file.dirty)).unwrap_or_default();
        for sector in sectors {
            let chance = self.below(100);
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            if let Some(file) = self.files.get_mut(&slot).filter(|_| survives(chance)) {
                file.durable[range.clone()].copy_from_slice(&file.cached[range]);
            }
        }
    }
}

impl Medium {
    fn platters(&self) -> std::sync::MutexGuard<'_, Platters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut_power(&self) {
        self.platters().dark = true;
    }

    fn power_up(&self) {
        let mut platters = self.platters();
        let share = platters.below(3) * 50;
        for slot in platters.files.keys().copied().collect::<Vec<_>>() {
            platters.write_back(slot, |chance| chance < share);
        }
        platters.files.values_mut().for_each(|file| file.cached = file.durable.clone());
        (platters.dark, platters.fuse, platters.space, platters.outage) = (false, None, None, None);
    }
}

impl Disk for Medium {
    fn list(&self) -> io::Result<Vec<(Slot, u64)>> {
        Ok(self.platters().files.iter().map(|(slot, file)| (*slot, file.cached.len() as u64)).collect())
    }

    fn create(&self, slot: Slot, bytes: u32) -> io::Result<()> {
        let mut platters = self.platters();
        platters.begin()?;
        let used: usize = platters.files.values().map(|file| file.cached.len()).sum();
        if platters.space.is_some_and(|space| used + bytes as usize > space) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let zeros = vec![0; bytes as usize];
        platters.files.insert(slot, SegmentFile { cached: zeros.clone(), durable: zeros, dirty: BTreeSet::new() });
        Ok(())
    }

    fn write(&self, slot: Slot, offset: u32, bytes: &[u8]) -> io::Result<()> {
        let mut platters = self.platters();
        let fails = platters.begin()?;
        let sectors = bytes.len() / SECTOR;
        let taken = if fails { usize::try_from(platters.below(sectors as u64 + 1)).unwrap() } else { sectors };
        let (file, start) = (platters.file(slot)?, offset as usize);
        file.cached[start..start + taken * SECTOR].copy_from_slice(&bytes[..taken * SECTOR]);
        file.dirty.extend(start / SECTOR..start / SECTOR + taken);
        if fails { Err(io::Error::other("as told")) } else { Ok(()) }
    }

    fn sync(&self, slot: Slot) -> io::Result<()> {
        let mut platters = self.platters();
        let fails = platters.begin()?;
        // Blocks that a failed synchronisation has not written never will be, though reads see them.
        platters.write_back(slot, |chance| !fails || chance < 50);
        if fails { Err(io::Error::other("as told")) } else { Ok(()) }
    }

    fn read(&self, slot: Slot, offset: u32, bytes: &mut [u8]) -> io::Result<()> {
        let mut platters = self.platters();
        if let Some((errno, left, of)) = &mut platters.outage
            && *left > 0
            && of.is_none_or(|of| of == slot)
        {
            *left -= 1;
            return Err(io::Error::from_raw_os_error(*errno));
        }
        let found = platters.file(slot)?.cached.get(offset as usize..offset as usize + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn remove(&self, slot: Slot) -> io::Result<()> {
        let mut platters = self.platters();
        platters.begin()?;
        platters.files.remove(&slot);
        Ok(())
    }
}

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
        tag: OnceLock::new(),
    })
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

/// A start that may not read a segment, or has no descriptor for it, knows nothing about its contents.
#[test]
fn a_start_that_cannot_read_a_segment_ends_or_leaves_it_alone() {
    for errno in ERRORS {
        let medium = Arc::new(Medium::default());
        let rig = Rig::open(&medium, Durability::Group);
        for n in 0..60 {
            assert!(wait(&rig.write(&format!("t/{n}"), Some(20_000 + n))));
        }
        rig.store.close().unwrap();
        let mut expected = rig.readable();
        drop(rig);
        let slots: Vec<Slot> = medium.platters().files.keys().copied().collect();
        assert!(slots.len() > 4);
        for slot in slots {
            medium.platters().outage = Some((errno, usize::MAX, Some(slot)));
            let config = StoreConfig::new("/nonexistent");
            let disk: AnyDisk = Arc::clone(&medium) as AnyDisk;
            let opened =
                JournalStore::open_by(&config, |journal, shared| open::open_on(&config.path, disk, journal, shared));
            if errno == EIO {
                let store = opened.unwrap();
                let topic = format!("new/{}", slot.0);
                assert!(store.counters().has_lost());
                assert!(wait(&store.put(&message(&topic, 7), None, None)));
                store.close().unwrap();
                expected.insert(topic, 7);
            } else {
                let OpenError::Io { path, source } = opened.unwrap_err() else { panic!("another error") };
                assert!(path.ends_with(format!("journal/{:08}.segment", slot.0)), "{}", path.display());
                assert_eq!(source.raw_os_error(), Some(errno));
            }
            medium.platters().outage = None;
            let rig = Rig::open(&medium, Durability::Group);
            assert_eq!(rig.readable(), expected, "{errno} {slot:?}");
            rig.store.close().unwrap();
        }
    }
}

#[test]
fn a_disk_that_does_not_answer_is_waited_for_once() {
    let medium = Arc::new(Medium::default());
    let rig = Rig::open(&medium, Durability::Group);
    let hangs = medium.platters();
    drop(rig.write("a", Some(1)));
    assert!(rig.store.0.close(Duration::from_millis(20)).is_err());
    let began = Instant::now();
    drop(rig);
    assert!(began.elapsed() < CLOSE_PATIENCE / 2, "waited again");
    drop(hangs);
}

/// A board without a clock stamps again what it finds. Where the disk takes no stamp the message stays as it is.
#[test]
fn messages_with_an_expiry_survive_a_start_without_a_clock_on_a_full_disk() {
    let medium = Arc::new(Medium::default());
    let start = || {
        let config = StoreConfig::new("/nonexistent");
        let disk: AnyDisk = Arc::clone(&medium) as AnyDisk;
        let store =
            JournalStore::open_by(&config, |journal, shared| open::open_on(&config.path, disk, journal, shared));
        store.unwrap()
    };
    let store = start();
    assert!(wait(&store.put(&message("day", 1000), Some(86_400_000), None)));
    medium.platters().space = Some(0);
    for bytes in [20_000, 500] {
        let mut n = 0;
        while wait(&store.put(&message(&format!("fill/{bytes}/{n}"), bytes), None, None)) {
            n += 1;
        }
    }
    let _ = store.close();
    drop(store);
    let store = start();
    let bus = fogmux_bus::Bus::new(&fogmux_bus::BusConfig::default(), Box::new(store.clone()), Timestamp::ZERO, 10_000);
    let _ = wait(&store.pending("day"));
    assert!(bus.latest("day", Timestamp::ZERO).is_some());
    assert!(store.counters().refused > 0, "the disk took it");
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
    assert!(rig.store.pending("a").is_same(&removal));
    drop(held);
    assert!(wait(&first) && wait(&removal));
    assert!(rig.store.pending("a").is_ready());
}
