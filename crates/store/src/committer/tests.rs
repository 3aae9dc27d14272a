//! The committer against a disk that counts and can break.

use std::{
    pin::pin,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
};

use fogmux_bus::{Completion, Meaning, Message, MessageId, Publisher, Qos, Timestamp};

use super::*;

#[derive(Default)]
struct Platter {
    writes: Mutex<Vec<Change>>,
    syncs: AtomicUsize,
    broken: AtomicBool,
    panics: AtomicBool,
    taken_back: AtomicUsize,
    /// Synchronisations that succeed before the disk is broken; 0 for all.
    good_syncs: AtomicUsize,
}

impl Disk for Arc<Platter> {
    type Error = &'static str;

    fn write(&self, changes: &mut Vec<Change>, until: Until) -> Result<(), Self::Error> {
        self.writes.lock().unwrap().append(changes);
        if until == Until::Synced { self.sync() } else { Ok(()) }
    }

    fn sync(&self) -> Result<(), Self::Error> {
        let before = self.syncs.fetch_add(1, SeqCst);
        let good = self.good_syncs.load(SeqCst);
        if good > 0 && before >= good {
            return Err("as told");
        }
        assert!(!self.panics.load(SeqCst), "as told");
        if self.broken.load(SeqCst) { Err("no such luck") } else { Ok(()) }
    }

    fn take_back(&self) {
        self.taken_back.fetch_add(1, SeqCst);
    }
}

struct Rig {
    queue: Arc<Queue>,
    platter: Arc<Platter>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
    durability: Durability,
}

impl Rig {
    fn new(durability: Durability, bytes_max: usize) -> Self {
        Self {
            queue: Arc::new(Queue::new(durability, bytes_max)),
            platter: Arc::default(),
            counters: Arc::default(),
            thread: None,
            durability,
        }
    }

    fn start(&mut self) {
        let (queue, platter, counters) =
            (Arc::clone(&self.queue), Arc::clone(&self.platter), Arc::clone(&self.counters));
        let durability = self.durability;
        self.thread = Some(thread::spawn(move || run(&queue, platter, durability, &counters, &OnceLock::new())));
    }

    fn put(&self, topic: &str, payload: &'static [u8]) -> Completion {
        let message = message(topic, payload);
        self.queue.push(&message.topic, Write::Put(Arc::clone(&message), None), None)
    }

    fn finish(&mut self) -> Vec<Change> {
        self.queue.close();
        self.thread.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.platter.writes.lock().unwrap())
    }

    fn syncs(&self) -> usize {
        self.platter.syncs.load(SeqCst)
    }
}

pub(super) fn message(topic: &str, payload: impl Into<bytes::Bytes>) -> Arc<Message> {
    Arc::new(Message {
        id: MessageId(0),
        topic: Topic::new(topic).unwrap(),
        payload: payload.into(),
        qos: Qos::AtLeastOnce,
        meaning: Meaning::Value,
        content_type: None,
        expires_at: None,
        properties: None,
        publisher: Publisher::internal(),
        ingest: Timestamp::ZERO,
        ingest_unix_ms: 0,
        tag: std::sync::OnceLock::new(),
    })
}

fn peek(completion: &Completion) -> Poll<Result<(), StoreFailed>> {
    pin!(completion.clone()).poll(&mut Context::from_waker(Waker::noop()))
}

// Blocks this thread, as a door's task would wait.
pub(super) fn wait(completion: &Completion) -> Result<(), StoreFailed> {
    struct Unpark(thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut completion = pin!(completion.clone());
    loop {
        match completion.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn what_gathers_is_written_once_per_topic_with_one_sync() {
    let mut rig = Rig::new(Durability::Group, 1 << 20);
    let completions: Vec<_> = (0..100).map(|n| rig.put(["a", "b"][n % 2], b"x")).collect();
    assert!(completions.iter().all(|completion| peek(completion).is_pending()));
    rig.start();
    assert!(completions.iter().all(|completion| wait(completion) == Ok(())));
    assert_eq!((rig.finish().len(), rig.syncs()), (2, 1));
    assert_eq!((rig.counters.snapshot().commits, rig.counters.snapshot().records), (1, 2));
}

#[test]
fn the_newest_value_wins_and_a_removal_is_one() {
    let mut rig = Rig::new(Durability::Always, 1 << 20);
    let _ = (rig.put("a", b"old"), rig.put("a", b"new"), rig.put("b", b"gone"));
    drop(rig.queue.push(&Topic::new("b").unwrap(), Write::Remove, None));
    rig.start();
    let mut writes = rig.finish();
    writes.sort();
    let [Change::Topic(a, record), Change::Topic(b, None)] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!((a.as_str(), b.as_str()), ("a", "b"));
    let stored = crate::record::decode(a.clone(), record.as_ref().unwrap()).unwrap();
    assert_eq!(&*stored.payload, b"new");
}

#[test]
fn records_gather_beside_topics() {
    let mut rig = Rig::new(Durability::Always, 1000);
    let value = |bytes: usize| Some(vec![0; bytes].into_boxed_slice());
    let first = rig.queue.push_record("k", value(100));
    assert!(matches!(rig.queue.push_record("k", value(900)), Completion::Failed), "no room to grow");
    assert!(peek(&rig.queue.push_record("k", value(10))).is_pending());
    assert!(peek(&rig.queue.push_record("gone", None)).is_pending());
    assert!(peek(&rig.put("k", b"x")).is_pending());
    rig.start();
    assert_eq!(wait(&first), Ok(()));
    let mut writes = rig.finish();
    writes.sort();
    let [Change::Topic(topic, Some(_)), Change::Record(gone, None), Change::Record(kept, value)] = &writes[..] else {
        panic!("{writes:?}")
    };
    assert_eq!((topic.as_str(), &**gone, &**kept, value.as_deref()), ("k", "gone", "k", Some(&[0; 10][..])));
}

#[test]
fn an_acknowledgement_does_not_wait_for_the_interval_and_close_does_not_either() {
    for (durability, syncs) in [(Durability::Interval, 1), (Durability::None, 1)] {
        let mut rig = Rig::new(durability, 1 << 20);
        rig.start();
        assert!(rig.put("a", b"x").is_ready());
        assert_eq!((rig.finish().len(), rig.syncs()), (1, syncs));
        assert!(matches!(rig.put("a", b"late"), Completion::Failed));
    }
}

#[test]
fn a_failed_sync_fails_who_waits_and_is_never_tried_again() {
    let mut rig = Rig::new(Durability::Always, 1 << 20);
    rig.platter.broken.store(true, SeqCst);
    let first = rig.put("a", b"x");
    rig.start();
    assert_eq!(wait(&first), Err(StoreFailed));
    rig.platter.broken.store(false, SeqCst);
    assert!(matches!(rig.put("a", b"y"), Completion::Failed));
    rig.finish();
    assert_eq!((rig.syncs(), rig.platter.taken_back.load(SeqCst)), (1, 1));
    assert_eq!(rig.counters.snapshot().state, State::ReadOnly);
}

#[test]
fn a_panic_in_the_database_leaves_nobody_waiting() {
    let mut rig = Rig::new(Durability::Always, 1 << 20);
    rig.platter.panics.store(true, SeqCst);
    let first = rig.put("a", b"x");
    rig.start();
    assert_eq!(wait(&first), Err(StoreFailed));
    rig.finish();
    assert_eq!(rig.counters.snapshot().state, State::ReadOnly);
}

#[test]
fn more_topics_than_the_limit_are_refused_and_known_ones_are_not() {
    let mut rig = Rig::new(Durability::Interval, 1000);
    let taken = (0..100).take_while(|n| rig.put(&format!("topic/{n}"), b"x").is_ready()).count();
    assert_eq!(taken, 4);
    assert!(rig.put("topic/0", b"y").is_ready());
    rig.start();
    assert_eq!(rig.finish().len(), 4);
}

#[test]
fn a_write_is_pending_until_its_completion_resolves() {
    let mut rig = Rig::new(Durability::Always, usize::MAX);
    assert!(rig.queue.pending("a").is_ready());
    rig.put("a", b"1");
    assert!(rig.queue.pending("b").is_ready(), "nothing of it is written");
    let mut gathered = pin!(rig.queue.pending("a"));
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(gathered.as_mut().poll(&mut cx), Poll::Pending);
    let taken = rig.queue.take().unwrap();
    let mut written = pin!(rig.queue.pending("a"));
    assert_eq!(written.as_mut().poll(&mut cx), Poll::Pending);
    drop(rig.queue.fail());
    assert!(!rig.queue.pending("a").is_ready(), "its failure is still to be undone");
    taken.into_portions().into_iter().for_each(|portion| portion.complete(Err(StoreFailed)));
    rig.queue.settled();
    assert_eq!(written.as_mut().poll(&mut cx), Poll::Ready(Err(StoreFailed)));
    assert_eq!(gathered.as_mut().poll(&mut cx), Poll::Ready(Err(StoreFailed)));
    assert!(rig.queue.pending("a").is_ready());
    rig.start();
    rig.finish();
}

#[test]
fn a_failure_refuses_what_is_not_on_the_disk_and_nothing_else() {
    const LARGE: &[u8] = &[0; 400_000];
    let mut rig = Rig::new(Durability::Group, 1 << 20);
    rig.platter.good_syncs.store(2, SeqCst);
    // Two of them to a portion.
    let completions: Vec<_> = (0..8).map(|n| rig.put(&format!("{n}"), LARGE)).collect();
    rig.start();
    let results: Vec<_> = completions.iter().map(|completion| wait(completion).is_ok()).collect();
    assert_eq!(results, [true, true, true, true, false, false, false, false]);
    rig.finish();
    assert_eq!((rig.syncs(), rig.platter.taken_back.load(SeqCst)), (3, 1));
    assert_eq!(rig.counters.snapshot().failed, 4);
}

/// Whether the kernel has it says nothing: what was not synchronised may not be on the disk.
#[test]
fn what_is_not_surely_on_the_disk_is_counted() {
    for durability in [Durability::None, Durability::Interval, Durability::Group, Durability::Always] {
        let mut rig = Rig::new(durability, 1 << 20);
        // Without synchronised commits the only synchronisation is the last.
        rig.platter.good_syncs.store(usize::from(durability.syncs()), SeqCst);
        rig.platter.broken.store(!durability.syncs(), SeqCst);
        let first = rig.put("first", b"x");
        rig.start();
        while rig.counters.snapshot().commits == 0 {
            thread::yield_now();
        }
        let next = [rig.put("a", b"x"), rig.put("b", b"x"), rig.queue.push_record("k", None)];
        rig.finish();
        // The first of them may have failed before the next came.
        let taken = next.iter().filter(|completion| !matches!(completion, Completion::Failed)).count();
        let failed = taken + usize::from(!durability.syncs());
        assert_eq!(rig.counters.snapshot().failed, failed as u64, "{durability}");
        assert_eq!(wait(&first), Ok(()), "{durability}");
    }
}

#[test]
fn a_disk_that_does_not_answer_has_not_what_was_taken_nor_what_waits() {
    let rig = Rig::new(Durability::Group, 1 << 20);
    let _ = (rig.put("a", b"1"), rig.put("b", b"1"));
    let taken = rig.queue.take();
    let _ = (rig.put("a", b"2"), rig.queue.push_record("k", None));
    rig.queue.close();
    assert_eq!(rig.queue.wait_for_end(std::time::Duration::ZERO), Some(4));
    rig.queue.settled();
    assert_eq!(rig.queue.wait_for_end(std::time::Duration::ZERO), Some(2));
    rig.queue.end();
    assert_eq!(rig.queue.wait_for_end(std::time::Duration::ZERO), None);
    drop(taken);
}

#[test]
fn a_larger_value_waits_beside_the_one_that_another_portion_has() {
    let mut rig = Rig::new(Durability::Group, 1 << 24);
    let small = rig.put("a", b"x");
    let first = rig.put("b", &[0; 900_000]);
    // No room in the portion of `a`, whose publisher is told when that is written.
    let large = rig.put("a", &[1; 500_000]);
    let again = rig.put("a", &[2; 500_000]);
    rig.platter.good_syncs.store(1, SeqCst);
    rig.start();
    assert_eq!([small, first, large, again].map(|completion| wait(&completion).is_ok()), [true, true, false, false]);
    let writes = rig.finish();
    let of = |index: usize| {
        let Change::Topic(topic, record) = &writes[index] else { panic!("{writes:?}") };
        (topic.as_str(), crate::record::decode(topic.clone(), record.as_ref().unwrap()).unwrap().payload.len())
    };
    assert_eq!([of(0), of(1), of(2)], [("a", 1), ("b", 900_000), ("a", 500_000)]);
    assert_eq!(writes.len(), 3);
}
