//! The least gateway: every client has a durable session and gets every message.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    num::NonZeroU16,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Waker},
};

use fogmux_bus::{
    Completion, Qos, SessionKey, Subscription,
    durable::{
        Gathering, Manner, MemoryStore, Parcel, Recovered, RestoredSession, Sequence, SessionLog, SessionStore,
        StoredDelivery, Wanted,
    },
};

use super::{Packet, Rules};
use crate::restored::{message, number};

/// Deliveries that may be in flight.
const WINDOW: usize = 4;

/// The last client subscribes with QoS 1.
pub(super) const fn takes_exactly_once(who: usize) -> bool {
    who + 1 < super::CLIENTS
}

/// Some messages are for all clients, and others for all but one.
pub(super) const fn receives(who: usize, message: u64) -> bool {
    message % (super::CLIENTS as u64 + 1) != who as u64
}

fn name(who: usize) -> SessionKey {
    SessionKey(Arc::from(who.to_string()))
}

fn is_done(completion: &mut Completion) -> bool {
    Pin::new(completion).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// A delivery that is not finished.
struct Held {
    stored: StoredDelivery,
    message: u64,
    qos: Qos,
    completion: Completion,
    /// It was sent on this connection.
    sent: bool,
    may_be_sent: bool,
}

struct Session {
    log: SessionLog,
    queue: BTreeMap<Sequence, Held>,
    /// Released deliveries, and whether PUBREL was sent on this connection.
    released: BTreeMap<Sequence, bool>,
    received: Vec<NonZeroU16>,
    /// Packets that wait for the store, in order.
    owed: VecDeque<(Completion, Packet)>,
    /// Of the last publication of the client.
    latest: Completion,
    connected: bool,
    /// Of CONNACK: nothing is sent before that.
    greeting: Completion,
}

pub(super) struct Gateway {
    pub(super) store: MemoryStore,
    rules: Rules,
    sessions: BTreeMap<SessionKey, Session>,
    /// Batches of each publisher that may be held.
    held: [Vec<Weak<Gathering>>; super::CLIENTS],
}

impl Gateway {
    /// Starts with what the store has.
    pub(super) fn start(store: MemoryStore, rules: Rules) -> Self {
        store.set_holding(rules.holds);
        let Recovered { sessions, losses, .. } = Recovered::load(&store);
        assert!(losses.is_none(), "{losses:?}");
        let sessions = sessions.into_iter().map(|one| (one.key.clone(), Session::of(&store, one))).collect();
        Self { store, rules, sessions, held: Default::default() }
    }

    pub(super) fn subscribe(&mut self, who: usize) {
        let mut batch = self.store.batch();
        let mut log = SessionLog::begin(name(who), Arc::from("ann"), None, batch.as_mut());
        let max_qos = if takes_exactly_once(who) { Qos::ExactlyOnce } else { Qos::AtLeastOnce };
        let wanted = Wanted { max_qos, no_local: false, retain_as_published: true, id: None };
        log.subscribe(&Subscription::parse("#").unwrap(), wanted, batch.as_mut());
        drop(batch.append());
        self.sessions.insert(name(who), Session::new(log));
    }

    pub(super) fn connect(&mut self, who: usize) {
        let mut batch = self.store.batch();
        let session = self.sessions.get_mut(&name(who)).unwrap();
        session.log.connect(None, batch.as_mut());
        session.connected = true;
        session.owed.clear();
        session.queue.values_mut().for_each(|held| held.sent = false);
        session.released.values_mut().for_each(|sent| *sent = false);
        let greeting = batch.append();
        session.greeting = if self.rules.connack_waits { greeting } else { Completion::Ready };
    }

    pub(super) fn disconnect(&mut self, who: usize) {
        let mut batch = self.store.batch();
        let session = self.sessions.get_mut(&name(who)).unwrap();
        let unsent = session.queue.values().find(|held| !held.may_be_sent).map(|held| held.stored.sequence());
        session.log.disconnect(1, unsent, batch.as_mut());
        session.connected = false;
        drop(batch.append());
    }

    pub(super) fn handle(&mut self, who: usize, packet: Packet) -> Result<(), String> {
        match packet {
            Packet::Publish { id, exactly_once, message, .. } => self.publish(who, id, exactly_once, message),
            Packet::Pubrel(id) => {
                let rules = self.rules;
                let mut batch = self.store.batch();
                let session = self.sessions.get_mut(&name(who)).unwrap();
                let received = NonZeroU16::new(id).unwrap();
                session.received.retain(|one| *one != received);
                session.log.forget_received(received, batch.as_mut());
                session.owe(batch.append(), rules.pubcomp_waits, Packet::Pubcomp(id));
            }
            Packet::Puback(id) | Packet::Pubrec(id) | Packet::Pubcomp(id) => self.acknowledge(who, packet, id)?,
        }
        Ok(())
    }

    fn publish(&mut self, from: usize, id: u16, exactly_once: bool, number: u64) {
        let Rules { puback_waits, pubrec_waits, one_batch, .. } = self.rules;
        let packet_id = NonZeroU16::new(id).unwrap();
        let publisher = self.sessions.get_mut(&name(from)).unwrap();
        if exactly_once && publisher.received.contains(&packet_id) {
            // The first copy may not be on the disk yet, and its PUBREC went with the connection.
            publisher.owe(publisher.latest.clone(), pubrec_waits, Packet::Pubrec(id));
            return;
        }
        let gathering = Gathering::new(&self.store);
        let mut apart = self.store.batch();
        if exactly_once {
            gathering.need();
            publisher.received.push(packet_id);
            if one_batch {
                gathering.with(|batch| publisher.log.receive(packet_id, batch)).unwrap();
            } else {
                publisher.log.receive(packet_id, apart.as_mut());
            }
        }
        let parcel = Parcel::new(&gathering, message(number)).unwrap();
        let mut placed = Vec::new();
        for who in (0..super::CLIENTS).filter(|who| receives(*who, number)) {
            let qos = if exactly_once && takes_exactly_once(who) { Qos::ExactlyOnce } else { Qos::AtLeastOnce };
            let session = self.sessions.get_mut(&name(who)).unwrap();
            let manner = Manner { qos, retain: false, share: 0, ids: [].into_iter().collect() };
            let stored = session.log.deliver(&parcel, manner, &gathering).unwrap();
            let completion = Completion::Ready;
            let sequence = stored.sequence();
            placed.push((who, sequence));
            let may_be_sent = session.connected;
            if qos == Qos::AtLeastOnce && may_be_sent {
                stored.sent();
            }
            let held = Held { stored, message: number, qos, completion, sent: false, may_be_sent };
            session.queue.insert(sequence, held);
        }
        let (held, behind) = (&mut self.held[from], self.rules.behind);
        let published = gathering.append_published_behind([parcel], || {
            if behind {
                held.drain(..).filter_map(|one| one.upgrade()).for_each(|one| one.append_held());
            }
        });
        if gathering.is_held() {
            held.push(Arc::downgrade(&gathering));
        }
        // Where nothing of QoS 2 waits for it the store may hold it.
        let completion = if exactly_once { gathering.append([]) } else { Completion::Ready };
        if exactly_once && !one_batch {
            drop(apart.append());
        }
        for (who, sequence) in placed {
            let session = self.sessions.get_mut(&name(who)).unwrap();
            session.queue.get_mut(&sequence).unwrap().completion = completion.clone();
        }
        let publisher = self.sessions.get_mut(&name(from)).unwrap();
        publisher.latest = published.clone();
        if exactly_once {
            publisher.owe(published, pubrec_waits, Packet::Pubrec(id));
        } else {
            publisher.owe(published, puback_waits, Packet::Puback(id));
        }
    }

    fn acknowledge(&mut self, who: usize, packet: Packet, id: u16) -> Result<(), String> {
        let pubrel_waits = self.rules.pubrel_waits;
        let mut batch = self.store.batch();
        let session = self.sessions.get_mut(&name(who)).unwrap();
        let held = session.queue.iter().find(|(sequence, held)| held.sent && sequence.packet_id().get() == id);
        let held = held.map(|(sequence, held)| (*sequence, held.qos));
        let released = session.released.keys().find(|sequence| sequence.packet_id().get() == id).copied();
        match (packet, held, released) {
            (Packet::Puback(_), Some((sequence, Qos::AtLeastOnce)), _) => {
                session.queue.remove(&sequence).unwrap().stored.acknowledge(batch.as_mut());
                drop(batch.append());
            }
            (Packet::Pubrec(_), Some((sequence, Qos::ExactlyOnce)), _) => {
                let held = session.queue.remove(&sequence).unwrap();
                session.log.release(held.stored, batch.as_mut());
                session.released.insert(sequence, true);
                let completion = batch.append();
                session.log.appended(&completion);
                session.owe(completion, pubrel_waits, Packet::Pubrel(id));
            }
            (Packet::Pubcomp(_), _, Some(sequence)) => {
                session.released.remove(&sequence);
                session.log.complete(sequence, batch.as_mut());
                session.log.settle(batch.as_mut());
                drop(batch.append());
            }
            (packet, ..) => return Err(format!("client {who} sent {packet:?}, which answers nothing")),
        }
        Ok(())
    }

    /// Sends what may be sent. Returns whether there was anything.
    pub(super) fn send(&mut self, who: usize, out: &mut VecDeque<Packet>) -> bool {
        let before = out.len();
        let publish_waits = self.rules.publish_waits;
        let session = self.sessions.get_mut(&name(who)).unwrap();
        if !is_done(&mut session.greeting) {
            return false;
        }
        while let Some((completion, _)) = session.owed.front_mut() {
            if !is_done(completion) {
                break;
            }
            out.extend(session.owed.pop_front().map(|(_, packet)| packet));
        }
        // Released ones are older than all that are queued, but for those that were released out of order.
        for (sequence, sent) in &mut session.released {
            if !std::mem::replace(sent, true) {
                out.push_back(Packet::Pubrel(sequence.packet_id().get()));
            }
        }
        let mut window = WINDOW;
        for (sequence, held) in &mut session.queue {
            let exactly_once = held.qos == Qos::ExactlyOnce;
            if window == 0 || (exactly_once && publish_waits && !is_done(&mut held.completion)) {
                break;
            }
            window -= 1;
            if !held.sent {
                let (id, dup) = (sequence.packet_id().get(), held.may_be_sent);
                out.push_back(Packet::Publish { id, exactly_once, dup, message: held.message });
                (held.sent, held.may_be_sent) = (true, true);
            }
        }
        out.len() > before
    }
}

impl Session {
    fn new(log: SessionLog) -> Self {
        let (queue, released, received, owed, latest, greeting) = Default::default();
        Self { log, queue, released, received, owed, latest, connected: false, greeting }
    }

    fn of(store: &MemoryStore, restored: RestoredSession) -> Self {
        let RestoredSession { log, deliveries, released, received, .. } = restored;
        let mut session = Self::new(log);
        session.queue.extend(deliveries.into_iter().map(|one| {
            let (message, qos) = (number(&store.read(one.stored.message()).unwrap()), one.manner.qos);
            let (completion, may_be_sent, stored) = (Completion::Ready, one.may_be_sent, one.stored);
            (stored.sequence(), Held { stored, message, qos, completion, sent: false, may_be_sent })
        }));
        session.released = released.into_iter().map(|sequence| (sequence, false)).collect();
        session.received = received;
        session
    }

    fn owe(&mut self, completion: Completion, waits: bool, packet: Packet) {
        self.owed.push_back((if waits { completion } else { Completion::Ready }, packet));
    }
}
