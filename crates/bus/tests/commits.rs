//! Publications whose store fails at some commit, wherever the commits fall within their batches: each publisher is
//! told what became of its own message, a message that is refused is not readable, and one that is accepted is.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};

use fogmux_bus::{
    Bus, BusConfig, Completer, Completion, Completions, Door, FifoLimits, FifoMailbox, Filter, Meaning, Message,
    Outcome, Payload, Publication, Publisher, Qos, RetainedStore, StoreFailed, Stored, SubscribeOptions, Subscription,
    Timestamp, Topic, TopicRef, Undo, WorkerId,
};
use proptest::prelude::*;

const ROOMY: FifoLimits = FifoLimits { messages: usize::MAX, bytes: usize::MAX };
const TOPICS: usize = 4;

/// A store whose committer takes what has gathered at chosen moments. Nothing is resolved before [`Store::settle`].
#[derive(Clone, Default)]
struct Store(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    commits: Vec<Commit>,
    /// For each write from the last on, whether the committer takes the commit when it is in.
    taken: Vec<bool>,
    /// Writes that are taken before the store is read-only.
    writes_left: usize,
    undo: Option<Arc<Undo>>,
}

#[derive(Default)]
struct Commit {
    writes: Vec<(Topic, Option<Arc<Message>>)>,
    completer: Arc<Completer>,
    is_taken: bool,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn push(&self, topic: &Topic, before: Option<&Arc<Message>>) -> Completion {
        let mut state = self.lock();
        if state.writes_left == 0 {
            return Completion::Failed;
        }
        state.writes_left -= 1;
        if state.commits.last().is_none_or(|commit| commit.is_taken) {
            state.commits.push(Commit::default());
        }
        let is_taken = state.taken.pop().unwrap_or(false);
        let commit = state.commits.last_mut().unwrap();
        commit.writes.push((topic.clone(), before.cloned()));
        commit.is_taken = is_taken;
        Completion::Waiting(Arc::clone(&commit.completer))
    }

    /// Resolves the commits: the first `good` with success, those behind them are undone and fail.
    fn settle(&self, good: usize) {
        let mut commits = std::mem::take(&mut self.lock().commits);
        let undo = self.lock().undo.clone().unwrap();
        let failed = commits.split_off(good.min(commits.len()));
        commits.iter().for_each(|commit| commit.completer.complete(Ok(())));
        for commit in failed.iter().rev() {
            commit.writes.iter().rev().for_each(|(topic, before)| undo(topic, before.as_ref()));
            commit.completer.complete(Err(StoreFailed));
        }
    }
}

impl RetainedStore for Store {
    fn put(&self, message: &Arc<Message>, _: Option<u64>, before: Option<&Arc<Message>>) -> Completion {
        self.push(&message.topic, before)
    }

    fn remove(&self, topic: &Topic, before: Option<&Arc<Message>>) -> Completion {
        self.push(topic, before)
    }

    /// As the real store: a commit that is taken counts whatever its topics are. It may be an older one than that of
    /// the publication before.
    fn pending(&self, topic: &str) -> Completion {
        let state = self.lock();
        let gathered = state.commits.last().filter(|commit| !commit.is_taken);
        let has_topic = |commit: &&Commit| commit.writes.iter().any(|(written, _)| written.as_str() == topic);
        let found = gathered.filter(has_topic).or_else(|| state.commits.iter().rfind(|commit| commit.is_taken));
        found.map_or(Completion::Ready, |commit| Completion::Waiting(Arc::clone(&commit.completer)))
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}

    fn undo_by(&self, undo: Undo) {
        self.lock().undo = Some(Arc::new(undo));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Retain,
    Clear,
    Live,
}

/// A publisher that is told of every refusal.
fn client() -> Arc<Publisher> {
    Arc::new(Publisher { principal: Arc::from("ada"), client: Arc::from(""), door: Some(Door::Http), slot: None })
}

fn resolved(completion: &Completion) -> bool {
    match pin!(completion.clone()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.is_ok(),
        Poll::Pending => panic!("an acknowledgement waits for ever"),
    }
}

/// One topic as its publishers were told: the values that may be retained.
fn readable(told: &[(Kind, Vec<u8>, bool)]) -> Option<Vec<u8>> {
    let accepted = told.iter().rfind(|(kind, _, accepted)| *accepted && *kind != Kind::Live);
    accepted.and_then(|(kind, payload, _)| (*kind == Kind::Retain).then(|| payload.clone()))
}

/// Publishes batches of these kinds and topics, then settles the commits.
fn run(batches: &[Vec<(Kind, usize)>], taken: Vec<bool>, writes_left: usize, good: usize) {
    let store = Store::default();
    *store.lock() = State { taken, writes_left, ..State::default() };
    let bus = Bus::new(&BusConfig::default(), Box::new(store.clone()), Timestamp::ZERO, 0);
    let slot = bus.slot(FifoMailbox::new(ROOMY), WorkerId(0));
    let all = Subscription::to(Filter::new("#").unwrap());
    bus.subscribe(&slot, &all, SubscribeOptions::default()).unwrap();
    let (mut worker, me, mut number) = (bus.worker(WorkerId(0)), client(), 0_u32);
    let mut published: Vec<(Kind, usize, Vec<u8>, Outcome, Completion)> = Vec::new();
    for kinds in batches {
        let items: Vec<(Kind, usize, String, Vec<u8>)> = kinds
            .iter()
            .map(|&(kind, topic)| {
                number += 1;
                let payload = if kind == Kind::Clear { Vec::new() } else { number.to_be_bytes().to_vec() };
                (kind, topic, format!("t/{topic}"), payload)
            })
            .collect();
        let mut batch: Vec<_> = items
            .iter()
            .map(|(kind, _, topic, payload)| {
                let topic = TopicRef::new(topic).unwrap();
                let mut publication = Publication::new(topic, Payload::Slice(payload), &me, Timestamp::ZERO, 0);
                publication.meaning = Meaning::of_flag(*kind != Kind::Live, payload);
                publication.qos = Qos::AtLeastOnce;
                publication
            })
            .collect();
        let completions: Completions = worker.publish(&mut batch).completions;
        let outcomes: Vec<_> = batch.iter().map(Publication::outcome).collect();
        drop(batch);
        for (index, ((kind, topic, _, payload), outcome)) in items.into_iter().zip(outcomes).enumerate() {
            published.push((kind, topic, payload, outcome, completions.of(index).clone()));
        }
    }
    store.settle(good);
    let mut told: HashMap<usize, Vec<(Kind, Vec<u8>, bool)>> = HashMap::new();
    let mut delivered = Vec::new();
    for (kind, topic, payload, outcome, completion) in published {
        assert!(kind != Kind::Live || !outcome.refused, "a message that is not retained is refused");
        let accepted = !outcome.refused && (kind == Kind::Live || resolved(&completion));
        if !outcome.refused {
            delivered.push(payload.clone());
        }
        told.entry(topic).or_default().push((kind, payload, accepted));
    }
    let got: Vec<_> = slot
        .with(|mailbox| std::iter::from_fn(|| mailbox.pop()).map(|queued| queued.message.payload.to_vec()).collect());
    assert_eq!(got, delivered, "a message that was refused at once reaches nobody, every other one its reader");
    for topic in 0..TOPICS {
        let latest = bus.latest(&format!("t/{topic}"), Timestamp::ZERO).map(|message| message.payload.to_vec());
        let told = told.get(&topic).map(Vec::as_slice).unwrap_or_default();
        assert_eq!(latest, readable(told), "t/{topic}, of which publishers were told {told:?}");
    }
}

#[test]
fn the_second_commit_of_a_batch_fails() {
    for length in [2, 3, 97, 1000] {
        for first in [1, length / 2, length - 1] {
            // The last message of the first commit is the one at which the committer takes it.
            let mut taken = vec![false; length];
            taken[length - first] = true;
            let batch: Vec<_> = (0..length).map(|number| (Kind::Retain, number % TOPICS)).collect();
            run(&[batch], taken, usize::MAX, 1);
        }
    }
}

#[test]
fn clearing_what_an_earlier_commit_clears_does_not_acknowledge_a_later_one() {
    // The first batch is taken by the committer; in the second, the removal waits for the first commit only.
    let first = vec![(Kind::Retain, 0), (Kind::Clear, 0)];
    let second = vec![(Kind::Retain, 1), (Kind::Clear, 0)];
    run(&[first, second], vec![false, true, false], usize::MAX, 1);
}

#[test]
fn a_message_behind_a_refused_one_on_its_topic_is_delivered() {
    let batch = vec![(Kind::Retain, 0), (Kind::Retain, 1), (Kind::Live, 1), (Kind::Live, 1), (Kind::Live, 0)];
    run(&[batch], Vec::new(), 1, 1);
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![4 => Just(Kind::Retain), 2 => Just(Kind::Clear), 1 => Just(Kind::Live)]
}

proptest! {
    #[test]
    fn each_publisher_is_told_the_fate_of_its_own_message(
        batches in proptest::collection::vec(proptest::collection::vec((kind(), 0..TOPICS), 0..20), 0..5),
        taken in proptest::collection::vec(proptest::bool::weighted(0.2), 100),
        writes_left in prop_oneof![Just(usize::MAX), 0..40_usize],
        good in 0..12_usize,
    ) {
        run(&batches, taken, writes_left, good);
    }
}
