//! The store as the bus sees it: what was kept comes back, whatever happened in between.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use fogmux_bus::{
    Bus, BusConfig, Filter, Meaning, Message, MessageId, Properties, Publisher, Qos, RetainedStore, Stored, Timestamp,
    Topic,
};
use fogmux_journal::{Batch, Config, Files, Journal, Occasion, RecordId};
use fogmux_store::{Durability, JournalStore, Kind, OpenError, StoreConfig};

struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("retained")
    }

    fn open(&self, durability: Durability) -> JournalStore {
        open(&self.path(), durability)
    }

    /// The files as a killed process leaves them, copied while it still runs.
    fn as_if_killed(&self) -> Self {
        let copy = Self::new();
        copy_directory(&self.path(), &copy.path());
        copy
    }

    /// The segments, in order of their numbers.
    fn segments(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path().join("journal")).unwrap().map(|entry| entry.unwrap().path());
        let mut segments: Vec<_> = files.filter(|path| path.extension().is_some_and(|is| is == "segment")).collect();
        segments.sort();
        segments
    }

    /// The segment in which all is that a new store has committed.
    fn segment(&self) -> PathBuf {
        self.segments().remove(0)
    }
}

fn open(path: &Path, durability: Durability) -> JournalStore {
    JournalStore::open(&StoreConfig { durability, ..StoreConfig::new(path) }).unwrap()
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn message(topic: &str, payload: impl Into<Bytes>) -> Arc<Message> {
    Arc::new(Message {
        id: MessageId(0),
        topic: Topic::new(topic).unwrap(),
        payload: payload.into(),
        qos: Qos::AtLeastOnce,
        meaning: Meaning::Value,
        sample: None,
        content_type: Some("text/plain".into()),
        expires_at: None,
        properties: Some(Arc::new(Properties { user: vec![("unit".into(), "K".into())], ..Properties::default() })),
        publisher: Publisher::internal(),
        ingest: Timestamp::ZERO,
        ingest_unix_ms: 12,
        tag: std::sync::OnceLock::new(),
    })
}

fn load(store: &JournalStore) -> BTreeMap<String, Stored> {
    let mut all = BTreeMap::new();
    store.load(&mut |stored| {
        all.insert(stored.topic.to_string(), stored);
    });
    all
}

fn wait(completion: fogmux_bus::Completion) -> bool {
    use std::task::{Context, Poll, Waker};
    let mut completion = std::pin::pin!(completion);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while std::time::Instant::now() < deadline {
        if let Poll::Ready(result) = completion.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return result.is_ok();
        }
        std::thread::yield_now();
    }
    false
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[test]
fn a_restart_brings_everything_back_under_every_durability() {
    for durability in [Durability::None, Durability::Interval, Durability::Group, Durability::Always] {
        let home = Home::new();
        let store = home.open(durability);
        assert!(load(&store).is_empty());
        let long = "t".repeat(65_535);
        let in_an_hour = now_ms() + 3_600_000;
        drop(store.put(&message("a/b", "21.5"), Some(in_an_hour), None));
        drop(store.put(&message("gone", "x"), None, None));
        drop(store.put(&message(&long, vec![0xff; 1 << 20]), None, None));
        drop(store.remove(&Topic::new("gone").unwrap(), None));
        drop(store);

        let all = load(&home.open(durability));
        assert_eq!(all.len(), 2, "{durability}");
        let kept = &all["a/b"];
        assert_eq!((&kept.payload[..], kept.content_type.as_deref()), (&b"21.5"[..], Some("text/plain")));
        assert_eq!((kept.expires_unix_ms, kept.ingest_unix_ms), (Some(in_an_hour), 12));
        assert_eq!(kept.properties.as_ref().unwrap().user, [("unit".into(), "K".into())]);
        assert_eq!(all[&long].payload.len(), 1 << 20);
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    for durability in [Durability::Group, Durability::Always] {
        let home = Home::new();
        let store = home.open(durability);
        for n in 0..50 {
            assert!(wait(store.put(&message(&format!("t/{n}"), "x"), None, None)));
        }
        drop(store.put(&message("not/acknowledged", "x"), None, None));
        let after = home.as_if_killed();
        let all = load(&after.open(durability));
        assert!((0..50).all(|n| all.contains_key(&format!("t/{n}"))), "{durability}");
    }
}

// Where in the journal file a value is.
fn find(haystack: &[u8], needle: &[u8]) -> usize {
    haystack.windows(needle.len()).position(|window| window == needle).unwrap()
}

#[test]
fn a_tail_torn_anywhere_costs_the_last_commit_and_nothing_else() {
    let home = Home::new();
    let store = home.open(Durability::Always);
    assert!(wait(store.put(&message("kept", "the first value"), None, None)));
    assert!(wait(store.put(&message("torn", "the second value"), None, None)));
    let home = home.as_if_killed();
    let journal = fs::read(home.segment()).unwrap();
    let value = find(&journal, b"the second value");
    let (block, end) = (value / 4096 * 4096, value + 16);
    for cut in (block..end).step_by(3) {
        let mut journal = journal.clone();
        journal[cut..end].fill(0);
        let after = home.as_if_killed();
        fs::write(after.segment(), journal).unwrap();
        let store = after.open(Durability::Always);
        let all = load(&store);
        assert_eq!((all.len(), &all["kept"].payload[..]), (1, &b"the first value"[..]), "cut at {cut}");
        assert!(wait(store.put(&message("next", "x"), None, None)), "cut at {cut}");
        drop(store);
        assert!(load(&after.open(Durability::Always)).contains_key("next"), "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_costs_the_commit_in_which_it_is_and_is_said() {
    let home = Home::new();
    let store = home.open(Durability::Always);
    for n in 0..10 {
        assert!(wait(store.put(&message(&format!("t/{n}"), format!("value {n}")), None, None)));
    }
    store.close().unwrap();
    let journal = fs::read(home.segment()).unwrap();
    let value = find(&journal, b"value 4");
    for at in (value / 4096 * 4096..value + 7).step_by(5) {
        let mut journal = journal.clone();
        journal[at] ^= 0x10;
        let after = home.as_if_killed();
        fs::write(after.segment(), journal).unwrap();
        let store = after.open(Durability::Always);
        let all = load(&store);
        assert!((0..10).all(|n| n == 4 || all.contains_key(&format!("t/{n}"))), "byte {at}: {:?}", all.keys());
        if !all.contains_key("t/4") {
            assert_eq!((store.counters().lost_commits, store.counters().has_lost()), (1, true), "byte {at}");
            let losses = fs::read_to_string(after.path().join("losses")).unwrap();
            assert!(losses.contains("Z 1 commit frames lost: "), "byte {at}: {losses}");
        }
        assert!(wait(store.put(&message("t/4", "again"), None, None)), "byte {at}");
    }
}

#[test]
fn a_file_that_is_gone_or_cut_costs_what_was_in_it_and_is_said() {
    let home = Home::new();
    let store = home.open(Durability::Always);
    for n in 0..400 {
        let done = store.put(&message(&format!("t/{n:04}"), vec![u8::try_from(n % 251).unwrap(); 20_000]), None, None);
        // A commit is there whole or not at all.
        assert!(n % 20 > 0 || wait(done));
    }
    assert!(wait(store.put(&message("last", "x"), None, None)));
    store.close().unwrap();
    let mut lossy = 0;
    for number in 0..home.segments().len() {
        for cut in [None, Some(1000), Some(300_000)] {
            let after = home.as_if_killed();
            let path = after.segments().remove(number);
            match cut {
                Some(bytes) => fs::File::options().write(true).open(&path).unwrap().set_len(bytes).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let store = after.open(Durability::Always);
            let (all, counters) = (load(&store), store.counters());
            assert!(counters.has_lost() || all.len() == 401, "{number} {cut:?}: {} of 401", all.len());
            assert!(all.len() > 300, "{number} {cut:?}: {} of 401", all.len());
            assert!(wait(store.put(&message("after", "x"), None, None)), "{number} {cut:?}");
            lossy += u32::from(all.len() < 401);
            store.close().unwrap();
        }
    }
    assert!(lossy > 10, "{lossy}");
}

#[test]
fn records_of_a_kind_that_is_not_known_are_left_alone() {
    let home = Home::new();
    let store = home.open(Durability::Always);
    assert!(wait(store.put(&message("kept", "value"), None, None)));
    store.close().unwrap();
    drop(store);
    let journal = |kind: Option<u8>, forget: Option<RecordId>| {
        let files = Files::open(&home.path().join("journal")).unwrap();
        let (mut journal, _) = Journal::open(&files, Config::default()).unwrap();
        let mut batch = Batch::new(&journal.ids());
        let id = kind.map(|kind| batch.put(kind, &b"of the future"[..]));
        forget.into_iter().for_each(|id| batch.forget(id));
        journal.append(batch).unwrap();
        while let Some(work) = journal.next_work(Occasion::Close) {
            let done = work.run(&files);
            journal.settle(&done);
        }
        id
    };
    let id = journal(Some(200), None);
    let files: Vec<_> = home.segments().iter().map(|path| fs::read(path).unwrap()).collect();
    for _ in 0..3 {
        let error = JournalStore::open(&StoreConfig::new(home.path())).unwrap_err();
        assert!(matches!(error, OpenError::Newer { .. }), "{error}");
        assert!(error.to_string().contains("kind 200"), "{error}");
    }
    assert!(home.segments().iter().map(|path| fs::read(path).unwrap()).eq(files), "changed");
    journal(None, id);
    assert_eq!(load(&home.open(Durability::Always)).len(), 1);
}

#[test]
fn a_damaged_record_is_skipped_and_the_others_come_back() {
    let home = Home::new();
    let store = home.open(Durability::Always);
    assert!(wait(store.put(&message("b", "x"), None, None)));
    store.close().unwrap();
    drop(store);
    {
        let files = Files::open(&home.path().join("journal")).unwrap();
        let (mut journal, _) = Journal::open(&files, Config::default()).unwrap();
        let mut batch = Batch::new(&journal.ids());
        for bytes in [&b""[..], b"\x01", b"\x07\0a/#/b/c\x01", b"\x02\0\xff\xfe\x01", b"\x01\0a\x01"] {
            batch.put(Kind::Retained as u8, bytes.to_vec());
        }
        journal.append(batch).unwrap();
        while let Some(work) = journal.next_work(Occasion::Close) {
            let done = work.run(&files);
            journal.settle(&done);
        }
    }
    let store = home.open(Durability::Always);
    assert_eq!(load(&store).keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(store.counters().damaged_records, 5);
}

#[test]
fn a_store_of_an_early_version_is_left_alone() {
    let home = Home::new();
    fs::create_dir_all(home.path().join("keyspaces")).unwrap();
    for (name, bytes) in [("version", &b"FJL\x03"[..]), ("0.jnl", b"data"), ("commits", b"7")] {
        fs::write(home.path().join(name), bytes).unwrap();
    }
    let store = home.open(Durability::Always);
    assert!(wait(store.put(&message("new", "x"), None, None)));
    store.close().unwrap();
    drop(store);
    assert_eq!(load(&home.open(Durability::Always)).len(), 1);
    assert_eq!(fs::read(home.path().join("0.jnl")).unwrap(), b"data");
    assert!(home.path().join("keyspaces").is_dir());
}

#[test]
fn batches_without_names_happen_whole_and_are_visited_by_kind() {
    let home = Home::new();
    let store = home.open(Durability::Group);
    let mut batch = store.batch();
    let ids: Vec<_> = (0..5).map(|n| batch.put(Kind::Trial, vec![n])).collect();
    let done = store.commit(batch);
    assert!(wait(done));
    let mut batch = store.batch();
    batch.forget(ids[1]);
    let last = batch.put(Kind::Trial, &b"last"[..]);
    assert!(wait(store.commit(batch)));
    assert!(wait(store.put(&message("beside", "x"), None, None)));
    assert_eq!(store.read(ids[1]).unwrap(), None);
    assert_eq!(store.read(last).unwrap().unwrap(), &b"last"[..]);
    let mut found = Vec::new();
    store.visit(&[Kind::Trial], |kind, id, bytes| found.push((kind, id, bytes.to_vec())));
    // With the trial of the start.
    let expected = [ids[0], ids[2], ids[3], ids[4], last];
    assert!(found[1..].iter().map(|(_, id, _)| *id).eq(expected), "{found:?}");
    assert!(store.commit(store.batch()).is_ready());
}

#[test]
fn the_bus_gets_its_retained_messages_back() {
    let home = Home::new();
    let store = home.open(Durability::Always);
    drop(store.put(&message("plant/1/temp", "21"), Some(now_ms() + 60_000), None));
    drop(store.put(&message("plant/2/temp", "22"), None, None));
    drop(store);
    let store = home.open(Durability::Always);
    let bus = Bus::new(&BusConfig::default(), Box::new(store.clone()), Timestamp::ZERO, now_ms());
    let chunk = bus.retained(&Filter::new("plant/+/temp").unwrap(), None, 10, Timestamp::ZERO);
    assert_eq!(chunk.messages.len(), 2);
    assert!(chunk.messages[0].seconds_left(Timestamp::ZERO).is_some_and(|left| (50..=60).contains(&left)));
    store.close().unwrap();
}

#[test]
fn records_come_back_beside_the_messages() {
    let home = Home::new();
    let store = home.open(Durability::Always);
    let put = |key: &str, value: Option<&[u8]>| drop(store.put_record(key, value.map(Into::into)));
    put("door/a/1", Some(b"one"));
    put("door/a/2", Some(b"two"));
    put("door/a/2", None);
    put("door/b/1", Some(b"other"));
    drop(store.put(&message("door/a/1", "a message"), None, None));
    assert!(matches!(store.put_record(&"k".repeat(65_536), None), fogmux_bus::Completion::Failed));
    store.close().unwrap();
    drop(store);
    let mut found = Vec::new();
    let killed = home.as_if_killed();
    let again = killed.open(Durability::Always);
    again.records("door/a/", &mut |key, value| found.push((key.to_owned(), value.to_vec())));
    assert_eq!(found, [("door/a/1".to_owned(), b"one".to_vec())]);
}
