//! A simulated store of retained messages: durable a while after it was asked, read-only or failing if the seed says
//! so, and the same for the gateway that is started after a shutdown or a crash.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use fogmux_bus::{
    Completer, Completion, Door, Forgetful, Message, Qos, RetainedStore, StoreFailed, Stored, Topic, Undo,
};
use tokio::{task::spawn_local, time::sleep};

use super::random::Random;

/// A disk that outlives the gateways which use it.
#[derive(Clone)]
pub(super) struct Disk(Option<Arc<Mutex<State>>>);

struct State {
    /// The records that a gateway finds when it starts now.
    records: BTreeMap<String, Stored>,
    /// Batches that the committer has taken, then the one that gathers writes.
    batches: VecDeque<Batch>,
    /// Commits that succeed before one fails, if one does.
    commits_left: Option<usize>,
    is_read_only: bool,
    /// Gateways that have used it: the writes of earlier ones count no more.
    life: usize,
    undo: Option<Arc<Undo>>,
    /// Topics whose subscribers were sent something that is not kept.
    unkept: HashSet<String>,
    /// Payloads that were delivered and are not kept.
    undone: HashSet<Vec<u8>>,
    chances: Chances,
}

/// The writes of one commit.
#[derive(Default)]
struct Batch {
    writes: Vec<Write>,
    completer: Arc<Completer>,
    /// It takes no more writes.
    is_closed: bool,
}

struct Write {
    topic: Topic,
    after: Option<Arc<Message>>,
    before: Option<Arc<Message>>,
}

/// Draws for code that must be `Send`.
struct Chances {
    state: u64,
    /// How often a write finds the queue full.
    refused_percent: u64,
    /// How often the committer, a thread of its own, takes the batch right behind a write: what is published together
    /// is then in several commits.
    taken_percent: u64,
}

impl Chances {
    fn random(random: &Random) -> Self {
        let state = random.below(usize::MAX) as u64;
        let refused_percent = *random.pick(&[0, 0, 0, 10]);
        // By a bit that nothing else depends on: other disks are as they were before commits could fall within a batch.
        let taken_percent = if state & 0x30 == 0 { 30 } else { 0 };
        Self { state, refused_percent, taken_percent }
    }

    fn percent(&mut self, percent: u64) -> bool {
        // Knuth's MMIX generator; its upper bits are good enough for a percentage.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % 100 < percent
    }
}

/// One gateway's handle.
struct Handle {
    state: Arc<Mutex<State>>,
    life: usize,
}

impl Disk {
    /// A disk, or none: then everything is in memory.
    pub(super) fn random(random: &Random) -> Self {
        if random.percent(35) {
            return Self(None);
        }
        let chances = Chances::random(random);
        let state = State {
            records: BTreeMap::new(),
            batches: VecDeque::new(),
            commits_left: None,
            is_read_only: false,
            life: 0,
            undo: None,
            unkept: HashSet::new(),
            undone: HashSet::new(),
            chances,
        };
        Self(Some(Arc::new(Mutex::new(state))))
    }

    /// The store of a gateway that starts now, and its committer.
    pub(super) fn open(&self, random: &Random) -> Box<dyn RetainedStore> {
        let Some(disk) = &self.0 else { return Box::new(Forgetful) };
        let mut state = disk.lock().unwrap();
        state.life += 1;
        state.batches.clear();
        state.unkept.clear();
        state.is_read_only = random.percent(5);
        state.commits_left = random.percent(25).then(|| random.below(30));
        let life = state.life;
        spawn_local(commit(Arc::clone(disk), life, random.fork()));
        Box::new(Handle { state: Arc::clone(disk), life })
    }

    /// Writes what waits, as at the end of a process.
    pub(super) fn close(&self) {
        if let Some(disk) = &self.0 {
            flush(disk);
        }
    }

    /// The process is killed: some of what waits may be on the disk although nobody has heard of it.
    pub(super) fn crash(&self) {
        let Some(disk) = &self.0 else { return };
        let mut state = disk.lock().unwrap();
        state.life += 1;
        while state.chances.percent(50)
            && !state.is_read_only
            && let Some(batch) = state.batches.pop_front()
        {
            state.write(&batch);
        }
        state.batches.clear();
    }

    /// Whether what a gateway keeps is found by the next one.
    pub(super) const fn is_lasting(&self) -> bool {
        self.0.is_some()
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        self.0.as_ref().map(|disk| disk.lock().unwrap())
    }

    /// Whether subscribers of a topic were sent something newer than its retained message, because it could not be
    /// kept.
    pub(super) fn has_unkept(&self, topic: &str) -> bool {
        self.state().is_some_and(|state| state.unkept.contains(topic))
    }

    /// Whether a message was delivered and could not be kept.
    pub(super) fn has_undone(&self, payload: &[u8]) -> bool {
        self.state().is_some_and(|state| state.undone.contains(payload))
    }
}

impl State {
    /// One more write for the committer.
    fn push(&mut self, write: Write) -> Completion {
        let topic = write.topic.as_str().to_owned();
        let refused_percent = self.chances.refused_percent;
        if self.is_read_only || self.chances.percent(refused_percent) {
            let told = write.after.as_ref().is_some_and(|message| can_be_refused(message));
            if !told {
                self.unkept.insert(topic);
                self.undone.extend(write.after.iter().map(|message| message.payload.to_vec()));
            }
            return Completion::Failed;
        }
        self.unkept.remove(&topic);
        if self.batches.back().is_none_or(|batch| batch.is_closed) {
            self.batches.push_back(Batch::default());
        }
        let taken_percent = self.chances.taken_percent;
        let is_closed = taken_percent > 0 && self.chances.percent(taken_percent);
        let batch = self.batches.back_mut().unwrap();
        batch.writes.push(write);
        batch.is_closed = is_closed;
        let completion = Completion::Waiting(Arc::clone(&batch.completer));
        if is_closed && !self.is_read_only && self.chances.percent(10) {
            // This commit succeeds and the next one fails, or this one fails while others are still being published.
            let good = self.batches.len() - usize::from(self.chances.percent(30));
            self.commits_left = Some(self.commits_left.map_or(good, |left| left.min(good)));
            self.is_read_only = good < self.batches.len();
        }
        completion
    }

    fn write(&mut self, batch: &Batch) {
        for write in &batch.writes {
            let topic = write.topic.as_str().to_owned();
            match &write.after {
                Some(message) => drop(self.records.insert(topic, stored(message))),
                None => drop(self.records.remove(&topic)),
            }
        }
    }
}

/// Everybody but the gateway itself and an MQTT client at QoS 0 can be told that a message is not kept.
fn can_be_refused(message: &Message) -> bool {
    match message.publisher.door {
        Some(Door::Mqtt) => message.qos != Qos::AtMostOnce,
        Some(Door::Coap | Door::Http | Door::Xmpp) => true,
        None => false,
    }
}

fn stored(message: &Message) -> Stored {
    Stored {
        topic: message.topic.clone(),
        payload: message.payload.clone(),
        qos: message.qos,
        content_type: message.content_type.clone(),
        expires_unix_ms: None,
        properties: message.properties.as_deref().cloned(),
        ingest_unix_ms: message.ingest_unix_ms,
        principal: Arc::clone(&message.publisher.principal),
        door: message.publisher.door,
    }
}

/// Commits what waits, now and then, until the gateway is over.
async fn commit(disk: Arc<Mutex<State>>, life: usize, random: Random) {
    loop {
        sleep(Duration::from_millis(1 + random.below(40) as u64)).await;
        let mut state = disk.lock().unwrap();
        if state.life != life {
            return;
        }
        state.batches.iter_mut().for_each(|batch| batch.is_closed = true);
        // A slow disk: more gathers meanwhile.
        let is_slow = state.chances.percent(50);
        drop(state);
        if !is_slow {
            flush(&disk);
        }
    }
}

/// Commits batch by batch; after one that fails, nothing is written any more.
fn flush(disk: &Mutex<State>) {
    loop {
        let mut state = disk.lock().unwrap();
        if state.commits_left == Some(0) && !state.batches.is_empty() {
            state.is_read_only = true;
            let failed = std::mem::take(&mut state.batches);
            drop(state);
            return fail(disk, &failed);
        }
        let Some(batch) = state.batches.pop_front() else { return };
        state.commits_left = state.commits_left.map(|left| left - 1);
        state.write(&batch);
        drop(state);
        batch.completer.complete(Ok(()));
    }
}

/// Undoes failed writes, the later ones first, before their publishers are told.
fn fail(disk: &Mutex<State>, batches: &VecDeque<Batch>) {
    for batch in batches.iter().rev() {
        for write in batch.writes.iter().rev() {
            let mut state = disk.lock().unwrap();
            state.unkept.insert(write.topic.as_str().to_owned());
            state.undone.extend(write.after.iter().map(|message| message.payload.to_vec()));
            let undo = state.undo.clone();
            drop(state);
            undo.expect("a bus that can undo")(&write.topic, write.before.as_ref());
        }
        batch.completer.complete(Err(StoreFailed));
    }
}

impl Handle {
    fn push(&self, topic: &Topic, after: Option<&Arc<Message>>, before: Option<&Arc<Message>>) -> Completion {
        let mut state = self.state.lock().unwrap();
        if state.life != self.life {
            return Completion::Failed;
        }
        state.push(Write { topic: topic.clone(), after: after.cloned(), before: before.cloned() })
    }
}

impl RetainedStore for Handle {
    fn put(&self, message: &Arc<Message>, _: Option<u64>, before: Option<&Arc<Message>>) -> Completion {
        self.push(&message.topic, Some(message), before)
    }

    fn remove(&self, topic: &Topic, before: Option<&Arc<Message>>) -> Completion {
        self.push(topic, None, before)
    }

    fn pending(&self, topic: &str) -> Completion {
        let state = self.state.lock().unwrap();
        let of_topic = |batch: &&Batch| batch.writes.iter().any(|write| write.topic.as_str() == topic);
        let latest = state.batches.iter().rev().find(of_topic).filter(|_| state.life == self.life);
        latest.map_or(Completion::Ready, |batch| Completion::Waiting(Arc::clone(&batch.completer)))
    }

    fn load(&self, visit: &mut dyn FnMut(Stored)) {
        let records = self.state.lock().unwrap().records.clone();
        records.into_values().for_each(visit);
    }

    fn undo_by(&self, undo: Undo) {
        self.state.lock().unwrap().undo = Some(Arc::new(undo));
    }
}
