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
use fogmux_store::{Durability, FjallStore, StoreConfig};

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

    fn open(&self, durability: Durability) -> FjallStore {
        open(&self.path(), durability)
    }

    /// The files as a killed process leaves them, copied while it still runs.
    fn as_if_killed(&self) -> Self {
        let copy = Self::new();
        copy_directory(&self.path(), &copy.path());
        copy
    }

    fn journal(&self) -> PathBuf {
        let newest = fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "jnl"));
        newest.max().unwrap()
    }
}

fn open(path: &Path, durability: Durability) -> FjallStore {
    FjallStore::open(&StoreConfig { durability, ..StoreConfig::new(path) }).unwrap()
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &to);
        } else {
            fs::write(to, without_padding(fs::read(entry.path()).unwrap(), &entry.path())).unwrap();
        }
    }
}

// Journals are made 64 MiB long; most of that is zeros, which take time to copy.
fn without_padding(mut bytes: Vec<u8>, path: &Path) -> Vec<u8> {
    if path.extension().is_some_and(|extension| extension == "jnl") {
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(end + 4096);
    }
    bytes
}

fn message(topic: &str, payload: impl Into<Bytes>) -> Arc<Message> {
    Arc::new(Message {
        id: MessageId(0),
        topic: Topic::new(topic).unwrap(),
        payload: payload.into(),
        qos: Qos::AtLeastOnce,
        meaning: Meaning::Value,
        content_type: Some("text/plain".into()),
        expires_at: None,
        properties: Some(Arc::new(Properties { user: vec![("unit".into(), "K".into())], ..Properties::default() })),
        publisher: Publisher::internal(),
        ingest: Timestamp::ZERO,
        ingest_unix_ms: 12,
        tag: std::sync::OnceLock::new(),
    })
}

fn load(store: &FjallStore) -> BTreeMap<String, Stored> {
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
    let journal = fs::read(home.journal()).unwrap();
    let value = find(&journal, b"the second value");
    // The last batch: from shortly before its value to the end of its end marker.
    for cut in value - 60..value + 28 {
        let after = home.as_if_killed();
        fs::write(after.journal(), &journal[..cut]).unwrap();
        let store = after.open(Durability::Always);
        let all = load(&store);
        assert_eq!(all["kept"].payload, "the first value", "cut at {cut}");
        assert_eq!(store.counters().moved_aside, 0, "cut at {cut}");
        assert!(wait(store.put(&message("next", "x"), None, None)), "cut at {cut}");
        drop(store);
        assert!(load(&after.open(Durability::Always)).contains_key("next"), "cut at {cut}");
    }
}

#[test]
fn a_last_commit_with_any_byte_wrong_costs_itself_and_nothing_else() {
    let home = Home::new();
    let store = home.open(Durability::Always);
    assert!(wait(store.put(&message("kept", "the first value"), None, None)));
    assert!(wait(store.put(&message("torn", "the second value"), None, None)));
    let home = home.as_if_killed();
    let journal = fs::read(home.journal()).unwrap();
    let value = find(&journal, b"the second value");
    for at in value - 60..value + 28 {
        for wrong in [0, 0xff] {
            let mut journal = journal.clone();
            if journal[at] == wrong {
                continue;
            }
            journal[at] = wrong;
            let after = home.as_if_killed();
            fs::write(after.journal(), journal).unwrap();
            let store = after.open(Durability::Always);
            assert!(load(&store).contains_key("kept"), "byte {at} as {wrong}");
            assert_eq!(store.counters().moved_aside, 0, "byte {at} as {wrong}");
        }
    }
}

#[test]
fn rubbish_behind_the_journal_is_cut_and_counted() {
    let home = Home::new();
    let store = home.open(Durability::Always);
    assert!(wait(store.put(&message("kept", "value"), None, None)));
    let after = home.as_if_killed();
    let mut journal = fs::read(after.journal()).unwrap();
    let end = journal.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    journal[end..end + 1000].fill(0xa5);
    fs::write(after.journal(), journal).unwrap();
    let store = after.open(Durability::Always);
    assert_eq!(load(&store).len(), 1);
    assert_eq!(store.counters().cut_bytes, 1000);
}

#[test]
fn a_healthy_journal_is_not_touched() {
    let home = Home::new();
    let store = home.open(Durability::Always);
    for n in 0..500_usize {
        assert!(wait(store.put(&message(&format!("t/{}", n % 7), vec![0; n]), None, None)));
        drop(store.remove(&Topic::new(&format!("t/{}", n % 5)).unwrap(), None));
    }
    let after = home.as_if_killed();
    assert_eq!(after.open(Durability::Always).counters().cut_bytes, 0);
}

#[test]
fn a_damaged_record_is_skipped_and_the_others_come_back() {
    let home = Home::new();
    drop(home.open(Durability::Always));
    {
        let database = fjall::Database::builder(home.path()).open().unwrap();
        let keyspace = database.keyspace("retained", fjall::KeyspaceCreateOptions::default).unwrap();
        keyspace.insert("a", [9, 9, 9]).unwrap();
        keyspace.insert("with/#/wildcard", [1]).unwrap();
        keyspace.insert([0xff, 0xfe], [1]).unwrap();
    }
    let store = home.open(Durability::Always);
    assert!(wait(store.put(&message("b", "x"), None, None)));
    let all = load(&store);
    assert_eq!(all.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(store.counters().damaged_records, 3);
}

#[test]
fn a_damaged_table_never_keeps_the_gateway_from_starting() {
    let home = Home::new();
    let store = home.open(Durability::Always);
    // Enough for tables, not only a journal.
    for n in 0..400 {
        drop(store.put(&message(&format!("t/{n:04}"), vec![u8::try_from(n % 251).unwrap(); 20_000]), None, None));
    }
    assert!(wait(store.put(&message("last", "x"), None, None)));
    drop(store);
    let mut tables = Vec::new();
    files_below(&home.path().join("keyspaces"), &mut tables);
    for table in tables {
        let after = home.as_if_killed();
        let path = after.path().join(table.strip_prefix(home.path()).unwrap());
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        for byte in bytes.iter_mut().skip(middle).take(64) {
            *byte ^= 0x5a;
        }
        fs::write(&path, bytes).unwrap();
        let store = after.open(Durability::Always);
        let all = load(&store);
        let counters = store.counters();
        let lost = counters.moved_aside > 0 || counters.damaged_blocks > 0;
        assert!(lost || all.len() == 401, "{} of 401, {counters:?}", all.len());
        assert!(wait(store.put(&message("after", "x"), None, None)), "{path:?}");
    }
}

fn files_below(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files_below(&entry.path(), files);
        } else if entry.metadata().unwrap().len() > 0 {
            files.push(entry.path());
        }
    }
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
