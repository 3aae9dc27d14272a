//! Recovery: sessions put together again from their records, of which any may be missing.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    num::NonZeroU16,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;

use super::{
    bytes::RecordError,
    doubts::Doubts,
    foreign::Head,
    log::{SessionLog, StoredDelivery},
    message::{StoredMessage, expires_at},
    record::{Manner, Record, RecordId, Sequence, SessionRecord, Vouched, Wanted},
    replaced::Replaced,
    store::{Batch, Parcel, SessionStore},
};
use crate::{Timestamp, retained::left_ms, session::SessionKey, subscription::Subscription};

/// How long a session is kept that seems to have ended while the gateway was not there.
const GRACE: Duration = Duration::from_mins(1);

/// A delivery that a session had not finished.
#[derive(Debug)]
pub struct RestoredDelivery {
    /// Its record.
    pub stored: StoredDelivery,
    /// The message, to be read back from the store.
    pub message: AwayMessage,
    /// How it is delivered.
    pub manner: Manner,
    /// It may have been sent: it has DUP when it is sent ([MQTT-3.3.1-1]), and of QoS 2 it does not expire (§4.3.3).
    pub may_be_sent: bool,
}

/// The facts about a message that is in the store only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwayMessage {
    /// Its memory in bytes once it is read; see [`Message::size`](crate::Message::size).
    pub bytes: usize,
    /// When it came in, in milliseconds since 1970.
    pub ingest_unix_ms: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires_unix_ms: Option<u64>,
}

impl AwayMessage {
    fn of(message: &StoredMessage) -> Self {
        let StoredMessage { ingest_unix_ms, expires_unix_ms, .. } = *message;
        Self { bytes: message.size(), ingest_unix_ms, expires_unix_ms }
    }

    /// When it expires, by the clock of this process. `now` and `now_unix_ms` are the same moment on both clocks.
    #[must_use]
    pub fn expires_at(&self, now: Timestamp, now_unix_ms: u64) -> Option<Timestamp> {
        self.expires_unix_ms.map(|expires| expires_at(self.ingest_unix_ms, expires, now, now_unix_ms))
    }
}

/// A session as it was when the last commit was written.
#[derive(Debug)]
pub struct RestoredSession {
    /// Its records, for further changes.
    pub log: SessionLog,
    /// The principal that owns the session.
    pub principal: Arc<str>,
    /// The credential that its client has shown last.
    pub vouched: Option<Vouched>,
    /// Its key.
    pub key: SessionKey,
    /// Seconds from the end of a connection to the end of the session; `None`: it never ends.
    pub expiry_s: Option<u32>,
    /// When its connection ended, in milliseconds since 1970; `None` if it had one.
    pub away_since_unix_ms: Option<u64>,
    /// Its subscriptions.
    pub subscriptions: Vec<(Subscription, Wanted)>,
    /// Unfinished deliveries of QoS 1 and 2, in the order in which they are sent ([MQTT-4.6.0-1]).
    pub deliveries: Vec<RestoredDelivery>,
    /// Deliveries whose PUBREL is to be sent again, in the same order.
    pub released: Vec<Sequence>,
    /// Identifiers of messages from its client that wait for PUBREL.
    pub received: Vec<NonZeroU16>,
    /// The will of its last connection, and its delay in seconds.
    pub will: Option<(u32, StoredMessage)>,
}

/// A will that is due: its session has ended, or another connection has taken that over.
#[derive(Debug)]
pub struct RestoredWill {
    /// Its record, to be forgotten with its deliveries.
    pub record: RecordId,
    /// The message.
    pub message: StoredMessage,
}

/// The time until a session ends that was left at this time; `None`: never. The whole interval if the clock is behind;
/// a minute if it seems to have ended, because the clock may be ahead.
#[must_use]
pub fn session_left(since_unix_ms: u64, expiry_s: Option<u32>, now_unix_ms: u64) -> Option<Duration> {
    let whole_ms = u64::from(expiry_s?) * 1000;
    let left = Duration::from_millis(left_ms(since_unix_ms, since_unix_ms.saturating_add(whole_ms), now_unix_ms));
    Some(if left.is_zero() { GRACE } else { left })
}

/// Faults of the records, counted by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Records that could not be read from the store.
    pub unreadable: u64,
    /// Records that are none.
    pub damaged: u64,
    /// Records of a later release. They stay in the store, and nothing of them is restored.
    pub foreign: u64,
    /// Records of sessions whose own record is of a later release. They stay as well.
    pub of_foreign_session: u64,
    /// Records of sessions that are not there.
    pub of_no_session: u64,
    /// Deliveries whose message is not there.
    pub without_message: u64,
    /// Messages without deliveries.
    pub unwanted: u64,
    /// Records beside newer ones that were to replace them.
    pub replaced: u64,
}

impl Losses {
    /// Whether nothing is lost: a later release finds what is its own, and a message whose deliveries are all over is
    /// forgotten behind the last of them.
    #[must_use]
    pub fn is_none(&self) -> bool {
        Self { unwanted: 0, foreign: 0, of_foreign_session: 0, ..*self } == Self::default()
    }
}

/// The outcome of a recovery.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The sessions, in the order in which they began.
    pub sessions: Vec<RestoredSession>,
    /// Wills that were to be published when the process ended.
    pub wills: Vec<RestoredWill>,
    /// The faults of the records.
    pub losses: Losses,
}

impl Recovered {
    /// Reads all sessions of a store, and has it forget the records that belong to nothing.
    #[must_use]
    pub fn load(store: &dyn SessionStore) -> Self {
        let mut recovery = Recovery::default();
        store.load(&mut |id, record| match record {
            Some((kind, bytes)) => recovery.take(id, kind, bytes),
            None => recovery.losses.unreadable += 1,
        });
        let mut batch = store.batch();
        let recovered = recovery.finish(batch.as_mut());
        // Nobody waits for it: what is not forgotten now is found again at the next start.
        drop(batch.append());
        recovered
    }
}

/// A session of which some records were read. Its parts may have lower identifiers than its own record, which is
/// replaced whenever its client comes or goes.
#[derive(Debug, Default)]
struct Partial {
    newest: Option<(RecordId, SessionRecord)>,
    subscriptions: HashMap<Subscription, (RecordId, Wanted)>,
    /// Deliveries and releases: of those with one number the newest counts.
    exchanges: BTreeMap<Sequence, (RecordId, Exchange)>,
    received: BTreeMap<NonZeroU16, RecordId>,
    /// The newest is that of its last connection.
    wills: BTreeMap<RecordId, (u32, StoredMessage)>,
    /// Its own record is of a later release.
    is_foreign: bool,
    /// Records of a later release.
    foreign: Vec<RecordId>,
    /// The messages of deliveries of a later release.
    foreign_messages: Vec<RecordId>,
}

#[derive(Debug)]
enum Exchange {
    Delivery(RecordId, Manner),
    Released,
}

impl Partial {
    /// All its records but wills.
    fn ids(&self) -> impl Iterator<Item = RecordId> {
        let subscriptions = self.subscriptions.values().map(|(id, _)| *id);
        let exchanges = self.exchanges.values().map(|(id, _)| *id);
        let newest = self.newest.as_ref().map(|(id, _)| *id);
        newest.into_iter().chain(subscriptions).chain(exchanges).chain(self.received.values().copied())
    }
}

/// Records that were read so far.
#[derive(Debug, Default)]
struct Recovery {
    /// By their first records.
    sessions: BTreeMap<RecordId, Partial>,
    messages: HashMap<RecordId, (Arc<Parcel>, AwayMessage)>,
    /// Messages of a later release.
    foreign_messages: HashSet<RecordId>,
    /// Messages that such records refer to.
    referred: HashSet<RecordId>,
    /// Records to forget.
    stale: Vec<RecordId>,
    losses: Losses,
}

impl Recovery {
    fn take(&mut self, id: RecordId, kind: u8, bytes: Bytes) {
        match Record::decode(kind, bytes.clone()) {
            Ok(Record::Message(message)) => {
                self.messages.insert(id, (Parcel::held(id), AwayMessage::of(&message)));
            }
            Ok(Record::Session(record)) => {
                let first = record.first.unwrap_or(id);
                self.place(first, |partial| partial.newest.replace((id, record)).map(|(before, _)| before));
            }
            Ok(Record::Subscription(session, subscription, wanted)) => self.place(session, |partial| {
                partial.subscriptions.insert(subscription, (id, wanted)).map(|(before, _)| before)
            }),
            Ok(Record::Delivery { session, message, sequence, manner }) => {
                self.place_exchange(id, session, sequence, Exchange::Delivery(message, manner));
            }
            Ok(Record::Released(session, sequence)) => {
                self.place_exchange(id, session, sequence, Exchange::Released);
            }
            Ok(Record::Received(session, packet_id)) => {
                self.place(session, |partial| partial.received.insert(packet_id, id));
            }
            Ok(Record::Will(session, delay_s, will)) => {
                self.sessions.entry(session).or_default().wills.insert(id, (delay_s, will));
            }
            Err(RecordError::Version(_) | RecordError::Kind(_)) => self.take_foreign(id, Head::of(id, kind, bytes)),
            Err(
                RecordError::Truncated
                | RecordError::Trailing(_)
                | RecordError::Impossible(_)
                | RecordError::Repeated(_)
                | RecordError::Missing(_),
            ) => {
                self.losses.damaged += 1;
                self.stale.push(id);
            }
        }
    }

    /// A record of a later release: it stays, with what it refers to.
    fn take_foreign(&mut self, id: RecordId, head: Head) {
        self.losses.foreign += 1;
        match head {
            Head::Message => drop(self.foreign_messages.insert(id)),
            Head::Session(first) => self.sessions.entry(first).or_default().is_foreign = true,
            Head::Part(session, message) => {
                let partial = self.sessions.entry(session).or_default();
                partial.foreign.push(id);
                partial.foreign_messages.extend(message);
            }
            Head::Unknown => {}
        }
    }

    /// A session of a later release: all of it stays as it is.
    fn leave_alone(&mut self, partial: &Partial) {
        self.losses.of_foreign_session += (partial.ids().count() + partial.wills.len()) as u64;
        let deliveries = partial.exchanges.values().filter_map(|(_, exchange)| match exchange {
            Exchange::Delivery(message, _) => Some(*message),
            Exchange::Released => None,
        });
        self.referred.extend(deliveries);
    }

    fn place_exchange(&mut self, id: RecordId, session: RecordId, sequence: Sequence, exchange: Exchange) {
        self.place(session, |partial| partial.exchanges.insert(sequence, (id, exchange)).map(|(before, _)| before));
    }

    /// Adds a part to its session. `place` returns the record that it replaces.
    fn place(&mut self, session: RecordId, place: impl FnOnce(&mut Partial) -> Option<RecordId>) {
        if let Some(before) = place(self.sessions.entry(session).or_default()) {
            self.losses.replaced += 1;
            self.stale.push(before);
        }
    }

    fn finish(mut self, batch: &mut dyn Batch) -> Recovered {
        // An older session under the same key was to be forgotten.
        let mut latest: HashMap<SessionKey, RecordId> = HashMap::new();
        for (first, partial) in self.sessions.iter().filter(|(_, partial)| !partial.is_foreign) {
            latest.extend(partial.newest.as_ref().map(|(_, record)| (record.key.clone(), *first)));
        }
        let (mut sessions, mut wills) = (Vec::with_capacity(latest.len()), Vec::new());
        for (first, mut partial) in std::mem::take(&mut self.sessions) {
            let is_latest = |record: &SessionRecord| latest.get(&record.key) == Some(&first);
            self.referred.extend(partial.foreign_messages.drain(..));
            if partial.is_foreign {
                self.leave_alone(&partial);
                continue;
            }
            let is_there = partial.newest.as_ref().is_some_and(|(_, record)| is_latest(record));
            let own = if is_there { partial.wills.pop_last() } else { None };
            let due = std::mem::take(&mut partial.wills).into_iter();
            wills.extend(due.map(|(record, (_, message))| RestoredWill { record, message }));
            partial.wills.extend(own);
            match partial.newest {
                Some((newest, record)) if is_latest(&record) => {
                    let partial = Partial { newest: None, ..partial };
                    sessions.push(self.restore(first, newest, record, partial));
                }
                Some(_) => {
                    self.losses.replaced += 1;
                    self.stale.extend(partial.ids());
                }
                None => {
                    self.losses.of_no_session += partial.ids().count() as u64;
                    self.stale.extend(partial.ids());
                }
            }
        }
        self.stale.into_iter().for_each(|id| batch.forget(id));
        let referred = &self.referred;
        for (_, (parcel, _)) in self.messages.into_iter().filter(|(id, _)| !referred.contains(id)) {
            self.losses.unwanted += u64::from(parcel.leave(batch));
        }
        Recovered { sessions, wills, losses: self.losses }
    }

    fn restore(
        &mut self,
        first: RecordId,
        newest: RecordId,
        record: SessionRecord,
        partial: Partial,
    ) -> RestoredSession {
        let SessionRecord { first: _, key, principal, vouched, expiry_s, unsent, marked, away_since_unix_ms } = record;
        let mut foreign = partial.foreign;
        let (mut next, mut deliveries, mut released) = (unsent, Vec::new(), BTreeMap::new());
        for (sequence, (id, exchange)) in partial.exchanges {
            next = next.max(sequence.next());
            match exchange {
                Exchange::Released => {
                    // An identifier is not sent again before PUBCOMP has come for it.
                    if let Some((_, over)) = released.insert(sequence.packet_id(), (sequence, id)) {
                        self.losses.replaced += 1;
                        self.stale.push(over);
                    }
                }
                Exchange::Delivery(message, manner) => {
                    if self.foreign_messages.contains(&message) {
                        // The next start of the later release has both.
                        foreign.push(id);
                        continue;
                    }
                    let Some((parcel, message)) = self.messages.get(&message) else {
                        self.losses.without_message += 1;
                        self.stale.push(id);
                        continue;
                    };
                    parcel.join();
                    let parcel = Arc::clone(parcel);
                    let may_be_sent = (away_since_unix_ms.is_none() && !marked) || sequence < unsent;
                    let stored = StoredDelivery { id, sequence, parcel, gathering: None };
                    deliveries.push(RestoredDelivery { stored, message: *message, manner, may_be_sent });
                }
            }
        }
        let subscriptions = partial.subscriptions.iter().map(|(one, (_, wanted))| (one.clone(), *wanted)).collect();
        let mut wills = partial.wills;
        let will = wills.pop_last();
        let mut in_order: Vec<_> = released.values().map(|(sequence, _)| *sequence).collect();
        in_order.sort_unstable();
        let log = SessionLog {
            first,
            newest,
            replaced: Replaced::default(),
            resubscribed: HashMap::new(),
            key: key.clone(),
            principal: Arc::clone(&principal),
            vouched: vouched.clone(),
            expiry_s,
            next,
            subscriptions: partial.subscriptions.into_iter().map(|(one, (id, _))| (one, id)).collect(),
            received: partial.received,
            released,
            releasing: Doubts::default(),
            forgetting: Doubts::default(),
            left: Vec::new(),
            foreign,
            will: will.as_ref().map(|(id, (delay_s, _))| (*id, *delay_s)),
        };
        RestoredSession {
            principal,
            vouched,
            key,
            expiry_s,
            away_since_unix_ms,
            subscriptions,
            deliveries,
            released: in_order,
            received: log.received.keys().copied().collect(),
            will: will.map(|(_, will)| will),
            log,
        }
    }
}
