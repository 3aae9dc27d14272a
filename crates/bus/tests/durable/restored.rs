//! A property: whatever happened, sessions are restored as they were after the batches that were committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU16,
    sync::Arc,
};

use bytes::Bytes;
use fogmux_bus::{
    Completion, Meaning, Qos, SessionKey, Subscription, Topic,
    durable::{
        Gathering, Manner, MemoryStore, Parcel, Recovered, RestoredSession, Sequence, SessionLog, SessionStore,
        StoredDelivery, StoredMessage, Wanted,
    },
};
use proptest::{collection::vec, prelude::*};

/// A message that is told apart by its number.
pub(crate) fn message(number: u64) -> StoredMessage {
    StoredMessage {
        topic: Topic::new("t").unwrap(),
        payload: Bytes::from(number.to_string()),
        qos: Qos::ExactlyOnce,
        meaning: Meaning::Event,
        content_type: None,
        expires_unix_ms: None,
        properties: None,
        ingest_unix_ms: 7,
        principal: Arc::from("ann"),
        client: Arc::from("c"),
        door: None,
    }
}

pub(crate) fn number(message: &StoredMessage) -> u64 {
    std::str::from_utf8(&message.payload).unwrap().parse().unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// The client connects, with Clean Start or without.
    Connect(u8, bool),
    Disconnect(u8, bool),
    Subscribe(u8, u8),
    Unsubscribe(u8, u8),
    /// To sessions by their bits; some of them acknowledge before the publisher's batch is appended.
    Publish {
        to: u8,
        early: u8,
        from: Option<u8>,
    },
    Finish(u8),
    Release(u8),
    Complete(u8),
    ForgetReceived(u8),
    SetWill(u8),
    End(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0_u8..3;
    prop_oneof![
        2 => (who.clone(), any::<bool>()).prop_map(|(who, clean)| Op::Connect(who, clean)),
        1 => (who.clone(), any::<bool>()).prop_map(|(who, all)| Op::Disconnect(who, all)),
        1 => (who.clone(), 0_u8..3).prop_map(|(who, filter)| Op::Subscribe(who, filter)),
        1 => (who.clone(), 0_u8..3).prop_map(|(who, filter)| Op::Unsubscribe(who, filter)),
        4 => (0_u8..8, 0_u8..8, proptest::option::of(who.clone()))
            .prop_map(|(to, early, from)| Op::Publish { to, early, from }),
        3 => who.clone().prop_map(Op::Finish),
        2 => who.clone().prop_map(Op::Release),
        2 => who.clone().prop_map(Op::Complete),
        1 => who.clone().prop_map(Op::ForgetReceived),
        1 => who.clone().prop_map(Op::SetWill),
        1 => who.prop_map(Op::End),
    ]
}

/// A session as it should be restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Session {
    expiry_s: Option<u32>,
    away_since: Option<u64>,
    subscriptions: BTreeMap<String, Option<u32>>,
    /// The number of each delivery, its message, and whether it may have been sent.
    queue: BTreeMap<u64, (u64, bool)>,
    released: BTreeSet<u64>,
    received: BTreeSet<u16>,
    will: Option<u64>,
}

type Model = BTreeMap<String, Session>;

fn modelled(store: &MemoryStore, restored: &RestoredSession) -> (String, Session) {
    let numbered = |one: &fogmux_bus::durable::RestoredDelivery| {
        (one.stored.sequence().0, (number(&store.read(one.stored.message()).unwrap()), one.may_be_sent))
    };
    let names = restored.subscriptions.iter().map(|(one, wanted)| (one.filter.as_str().to_owned(), wanted.id));
    let session = Session {
        expiry_s: restored.expiry_s,
        away_since: restored.away_since_unix_ms,
        subscriptions: names.collect(),
        queue: restored.deliveries.iter().map(numbered).collect(),
        released: restored.released.iter().map(|number| number.0).collect(),
        received: restored.received.iter().map(|id| id.get()).collect(),
        will: restored.will.as_ref().map(|(_, will)| number(will)),
    };
    assert!(restored.deliveries.is_sorted_by_key(|one| one.stored.sequence()));
    (restored.key.0.to_string(), session)
}

struct Live {
    log: SessionLog,
    queue: BTreeMap<Sequence, StoredDelivery>,
}

struct World {
    store: MemoryStore,
    live: BTreeMap<String, Live>,
    model: Model,
    /// The model after each batch.
    history: Vec<Model>,
    last: u64,
}

impl World {
    fn start(store: MemoryStore, last: u64) -> Self {
        let recovered = Recovered::load(&store);
        assert!(recovered.losses.is_none(), "{:?}", recovered.losses);
        let model: Model = recovered.sessions.iter().map(|one| modelled(&store, one)).collect();
        let take = |one: RestoredSession| {
            let queue = one.deliveries.into_iter().map(|one| (one.stored.sequence(), one.stored)).collect();
            (one.key.0.to_string(), Live { log: one.log, queue })
        };
        let live = recovered.sessions.into_iter().map(take).collect();
        store.commit(usize::MAX);
        Self { store, live, history: vec![model.clone()], model, last }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Notes the state after a batch. One without changes is none.
    fn note(&mut self) {
        if self.store.waiting() == self.history.len() {
            self.history.push(self.model.clone());
        } else {
            assert_eq!(self.history.last(), Some(&self.model));
        }
    }

    fn run(&mut self, op: Op) {
        let mut batch = self.store.batch();
        let next = self.next();
        match op {
            Op::Connect(who, clean) => {
                let key = who.to_string();
                let expiry_s = (who > 0).then_some(60);
                if clean && let Some(Live { log, queue }) = self.live.remove(&key) {
                    let mut log = log;
                    log.clear_will(batch.as_mut());
                    log.end(queue.into_values(), batch.as_mut());
                    self.model.remove(&key);
                }
                if let Some(live) = self.live.get_mut(&key) {
                    live.log.clear_will(batch.as_mut());
                    live.log.connect(expiry_s, batch.as_mut());
                } else {
                    let name = SessionKey(Arc::from(&*key));
                    let log = SessionLog::begin(name, Arc::from("ann"), expiry_s, batch.as_mut());
                    self.live.insert(key.clone(), Live { log, queue: BTreeMap::new() });
                }
                let session = self.model.entry(key).or_default();
                (session.expiry_s, session.away_since, session.will) = (expiry_s, None, None);
                session.queue.values_mut().for_each(|(_, may_be_sent)| *may_be_sent = true);
            }
            Op::Publish { to, early, from } => return self.publish(to, early, from, next),
            Op::Disconnect(who, _)
            | Op::Subscribe(who, _)
            | Op::Unsubscribe(who, _)
            | Op::Finish(who)
            | Op::Release(who)
            | Op::Complete(who)
            | Op::ForgetReceived(who)
            | Op::SetWill(who)
            | Op::End(who) => {
                let key = who.to_string();
                if let Some(live) = self.live.remove(&key) {
                    let mut session = self.model.remove(&key).unwrap();
                    if let Some(live) = change(op, live, &mut session, next, batch.as_mut()) {
                        self.live.insert(key.clone(), live);
                        self.model.insert(key, session);
                    }
                }
            }
        }
        drop(batch.append());
        self.note();
    }

    fn publish(&mut self, to: u8, early: u8, from: Option<u8>, number: u64) {
        let gathering = Gathering::new(&self.store);
        let parcel = Parcel::new(&gathering, message(number)).unwrap();
        let mut unused = self.store.batch();
        for who in 0..3 {
            let key = who.to_string();
            let Some(live) = self.live.get_mut(&key).filter(|_| to >> who & 1 == 1) else { continue };
            let manner = Manner { qos: Qos::ExactlyOnce, retain: false, share: 0, ids: [].into_iter().collect() };
            let stored = live.log.deliver(&parcel, manner, &gathering).unwrap();
            if early >> who & 1 == 1 {
                stored.finish(unused.as_mut());
            } else {
                let session = self.model.get_mut(&key).unwrap();
                session.queue.insert(stored.sequence().0, (number, session.away_since.is_none()));
                live.queue.insert(stored.sequence(), stored);
            }
        }
        if let Some(who) = from
            && let Some(live) = self.live.get_mut(&who.to_string())
        {
            let id = NonZeroU16::new(u16::try_from(number % 3).unwrap() + 1).unwrap();
            gathering.with(|batch| live.log.receive(id, batch)).unwrap();
            self.model.get_mut(&who.to_string()).unwrap().received.insert(id.get());
        }
        drop(gathering.append([parcel]));
        self.note();
    }
}

/// Runs an operation of one session. `None`: it has ended.
fn change(
    op: Op,
    mut live: Live,
    session: &mut Session,
    next: u64,
    batch: &mut dyn fogmux_bus::durable::Batch,
) -> Option<Live> {
    match op {
        Op::Disconnect(_, all) => {
            // Everything was sent, or all but the last.
            let unsent = live.queue.keys().next_back().copied().filter(|_| !all);
            live.log.disconnect(next, unsent, batch);
            session.away_since = Some(next);
            for (sequence, (_, may_be_sent)) in &mut session.queue {
                *may_be_sent = unsent.is_none_or(|unsent| *sequence < unsent.0);
            }
        }
        Op::Subscribe(_, filter) => {
            let name = format!("f/{filter}");
            let id = Some(u32::try_from(next).unwrap());
            let wanted = Wanted { max_qos: Qos::ExactlyOnce, no_local: false, retain_as_published: true, id };
            live.log.subscribe(&Subscription::parse(&name).unwrap(), wanted, batch);
            session.subscriptions.insert(name, id);
        }
        Op::Unsubscribe(_, filter) => {
            let name = format!("f/{filter}");
            live.log.unsubscribe(&Subscription::parse(&name).unwrap(), batch);
            session.subscriptions.remove(&name);
        }
        Op::Finish(_) | Op::Release(_) => {
            if let Some((sequence, stored)) = live.queue.pop_first() {
                session.queue.remove(&sequence.0);
                if matches!(op, Op::Release(_)) {
                    live.log.release(stored, batch);
                    // As if it was taken before this batch is appended, so that the model needs no outcomes.
                    live.log.appended(&Completion::Ready);
                    live.log.settle(batch);
                    session.released.insert(sequence.0);
                } else {
                    stored.finish(batch);
                }
            }
        }
        Op::Complete(_) => {
            if let Some(sequence) = session.released.pop_first() {
                live.log.complete(Sequence(sequence), batch);
            }
        }
        Op::ForgetReceived(_) => {
            if let Some(id) = session.received.pop_first() {
                live.log.forget_received(NonZeroU16::new(id).unwrap(), batch);
            }
        }
        Op::SetWill(_) => {
            live.log.set_will(5, message(next), batch);
            session.will = Some(next);
        }
        Op::End(_) => {
            live.log.clear_will(batch);
            live.log.end(live.queue.into_values(), batch);
            return None;
        }
        Op::Connect(..) | Op::Publish { .. } => unreachable!("of several sessions"),
    }
    Some(live)
}

/// The records that the sessions of a model take: a message is there once.
fn records(model: &Model) -> usize {
    let messages: BTreeSet<u64> =
        model.values().flat_map(|one| one.queue.values().map(|(number, _)| *number)).collect();
    let own = |one: &Session| {
        1 + one.subscriptions.len()
            + one.queue.len()
            + one.released.len()
            + one.received.len()
            + usize::from(one.will.is_some())
    };
    messages.len() + model.values().map(own).sum::<usize>()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn sessions_are_restored_as_they_were_at_any_commit(
        runs in vec((vec(op(), 0..40), any::<prop::sample::Index>()), 1..4)
    ) {
        let mut world = World::start(MemoryStore::default(), 0);
        for (ops, cut) in runs {
            ops.into_iter().for_each(|op| world.run(op));
            prop_assert_eq!(world.history.len(), world.store.waiting() + 1);
            let cut = cut.index(world.history.len());
            let store = world.store.crashed(cut);
            let expected = world.history[cut].clone();
            prop_assert_eq!(store.len(), records(&expected));
            world = World::start(store, world.last);
            prop_assert_eq!(&world.model, &expected);
        }
        // Sessions that end leave nothing.
        for who in 0..3 {
            world.run(Op::End(who));
        }
        world.store.commit(usize::MAX);
        prop_assert!(world.store.is_empty());
    }
}
