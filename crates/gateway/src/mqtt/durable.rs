//! The part of a session that the store has, if the session outlives its connection (ADR 0042).
//!
//! Changes are gathered while the mailbox is locked and appended before it is unlocked, so that the store has them in
//! the order in which they happened.

use std::{num::NonZeroU16, sync::Arc, time::Duration};

use fogmux_auth::{Principal, SourceKind};
use fogmux_bus::{
    ClockSet, Completion, Delivery, Message, Publication, SessionKey, Subscription,
    durable::{
        Batch, Gather, Manner, ReadBack, Record, RecordId, Sequence, SessionLog, SessionStore, StoredDelivery,
        StoredMessage, Vouched, Wanted, session_left,
    },
};
use fogmux_mqtt::{PacketId, SESSION_NEVER_EXPIRES};

use super::{bounds::Loan, mark::Mark};

/// See the module.
#[derive(Debug)]
pub(super) struct Durable {
    store: Arc<dyn SessionStore>,
    log: SessionLog,
    changes: Changes,
    /// Packet identifiers of releases that the store had not taken when the client came: their PUBRELs wait for it.
    held_back: Vec<PacketId>,
    away: Away,
    pub(super) looked: Looked,
    /// Messages that are being read back.
    pub(super) reading: Option<Box<(ReadBack, Loan)>>,
    /// How far its client may be sent what waits.
    pub(super) mark: Mark,
    /// The message whose arrival in the store was asked for by the last drain that had to wait for it.
    pub(super) asked: Option<Sequence>,
}

/// The last look for messages that the store has refused. Commits of sessions have their outcomes in the order of the
/// messages, so each message is looked at until its outcome is known, and not at each message that comes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    /// The outcome of all below is known.
    pub(super) known: Sequence,
    /// Messages whose outcome was not known.
    pub(super) unknown: usize,
    /// Messages that came since.
    pub(super) since: usize,
    /// Messages that were looked at, ever.
    pub(super) looks: u64,
}

impl Looked {
    /// Whether enough have come for a look at those, too.
    pub(super) const fn is_worth_it(&self) -> bool {
        self.since >= self.unknown / 4
    }
}

/// Since when its client is away, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    Connected,
    /// By the clock of this process.
    Left(u64),
    /// As the store has it.
    Restored(u64),
}

/// The end of a session by a clock that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restamped {
    Same,
    /// It has this time left; `None`: it never ends.
    Left(Option<Duration>),
}

/// Changes that are not appended yet. Those that only forget have a batch of their own, behind the other: a full disk
/// takes it.
#[derive(Default)]
struct Changes {
    puts: Option<Box<dyn Batch>>,
    forgets: Option<Box<dyn Batch>>,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}

/// A batch that is begun with its first change.
fn begun<'c>(batch: &'c mut Option<Box<dyn Batch>>, store: &dyn SessionStore) -> &'c mut dyn Batch {
    batch.get_or_insert_with(|| store.batch()).as_mut()
}

/// A batch that remembers what it forgets.
struct Remembering {
    batch: Box<dyn Batch>,
    forgets: Again,
}

/// The records that a batch was to forget.
#[derive(Clone, Debug, Default)]
pub(super) struct Again(Vec<RecordId>);

impl Batch for Remembering {
    fn put(&mut self, record: &Record) -> RecordId {
        self.batch.put(record)
    }

    fn forget(&mut self, id: RecordId) {
        self.forgets.0.push(id);
        self.batch.forget(id);
    }

    fn charge(&mut self, principal: &Arc<str>) {
        self.batch.charge(principal);
    }

    fn release_held(&self) {
        self.batch.release_held();
    }

    fn append(self: Box<Self>) -> Completion {
        self.batch.append()
    }
}

/// A batch that forgets deliveries which other sessions get, and what is to be forgotten again if it fails.
pub(super) fn forgets(store: &dyn SessionStore, stored: Vec<StoredDelivery>) -> (Box<dyn Batch>, Again) {
    let mut batch = Remembering { batch: store.batch(), forgets: Again::default() };
    stored.into_iter().for_each(|stored| stored.finish(&mut batch));
    let again = batch.forgets.clone();
    (Box::new(batch), again)
}

impl Again {
    /// Forgets again, in a batch that puts nothing, so that the store takes it.
    pub(super) fn forget(&self, store: &dyn SessionStore) {
        let mut batch = store.batch();
        self.0.iter().for_each(|id| batch.forget(*id));
        drop(batch.append());
    }
}

/// A session expiry interval as the store has it (§3.1.2.11.2).
pub(super) fn expiry(seconds: u32) -> Option<u32> {
    (seconds != SESSION_NEVER_EXPIRES).then_some(seconds)
}

/// The credential of a principal as the store has it. Of users of the users file the name says everything.
fn vouched(who: &Principal) -> Option<Vouched> {
    let is_known_by_name = who.anonymous || who.source == SourceKind::Password;
    (!is_known_by_name).then(|| Vouched { source: who.source.name().into(), groups: Arc::clone(who.granted()) })
}

/// The packet identifier of a delivery.
pub(super) fn packet_id(stored: &StoredDelivery) -> PacketId {
    of_sequence(stored.sequence())
}

/// The packet identifier of the delivery with this number.
pub(super) fn of_sequence(sequence: Sequence) -> PacketId {
    PacketId::new(sequence.packet_id().get()).unwrap_or(PacketId::FIRST)
}

impl Durable {
    /// Begins a session.
    pub(super) fn begin(store: Arc<dyn SessionStore>, key: SessionKey, who: &Principal, seconds: u32) -> Box<Self> {
        let (mut changes, name) = (Changes::default(), Arc::clone(&who.name));
        let batch = begun(&mut changes.puts, &*store);
        let log = SessionLog::begin_vouched(key, name, vouched(who), expiry(seconds), batch);
        Box::new(Self { changes, ..Self::of(store, log, Away::Connected) })
    }

    /// Goes on with what the store has given back. Its client was away since then, or was connected.
    pub(super) fn restored(store: Arc<dyn SessionStore>, log: SessionLog, since_unix_ms: Option<u64>) -> Box<Self> {
        Box::new(Self::of(store, log, since_unix_ms.map_or(Away::Connected, Away::Restored)))
    }

    fn of(store: Arc<dyn SessionStore>, log: SessionLog, away: Away) -> Self {
        let (changes, looked) = (Changes::default(), Looked::default());
        Self {
            store,
            log,
            changes,
            held_back: Vec::new(),
            away,
            looked,
            reading: None,
            mark: Mark::default(),
            asked: None,
        }
    }

    /// Changes records.
    fn put(&mut self, change: impl FnOnce(&mut SessionLog, &mut dyn Batch)) {
        change(&mut self.log, begun(&mut self.changes.puts, &*self.store));
    }

    /// Only forgets records.
    fn forget(&mut self, change: impl FnOnce(&mut SessionLog, &mut dyn Batch)) {
        change(&mut self.log, begun(&mut self.changes.forgets, &*self.store));
    }

    /// Its client has shown another credential. That is in the next record of the session.
    pub(super) fn renew(&mut self, who: &Principal) {
        self.log.set_vouched(vouched(who));
    }

    /// Appends the changes, if there are any. Returns what answers wait for.
    pub(super) fn append(&mut self) -> Completion {
        let puts = self.changes.puts.take().map_or(Completion::Ready, |batch| {
            let completion = batch.append();
            self.log.appended(&completion);
            completion
        });
        if self.log.is_unsettled() {
            self.forget(SessionLog::settle);
        }
        let forgets = self.changes.forgets.take().map_or(Completion::Ready, |batch| {
            let completion = batch.append();
            self.log.forgot(&completion);
            completion
        });
        puts.and(&forgets)
    }

    /// Makes changes again that the store has not taken. Returns what their answers wait for.
    pub(super) fn again(&mut self) -> Completion {
        self.put(SessionLog::release_again);
        drop(self.append());
        self.log.settled()
    }

    /// Ready when the store has forgotten the identifiers that PUBREL has come for, and subscriptions that have ended.
    pub(super) fn forgotten(&mut self) -> Completion {
        self.log.forgotten()
    }

    /// Has PUBRELs wait for the store that are not to be sent before it has the releases. Returns them, and what they
    /// wait for.
    pub(super) fn hold_back(&mut self) -> (Vec<PacketId>, Completion) {
        self.held_back = self.log.unreleased().into_iter().map(of_sequence).collect();
        (self.held_back.clone(), self.log.settled())
    }

    /// The packet identifiers whose PUBRELs wait.
    pub(super) fn held_back(&self) -> &[PacketId] {
        &self.held_back
    }

    /// Its client is there again, and may be sent what the mark says. The will of the connection before is left to
    /// that, unless the delay was not over.
    pub(super) fn connect(&mut self, who: &Principal, seconds: u32, mark: Mark) {
        self.log.set_vouched(vouched(who));
        self.away = Away::Connected;
        self.held_back = Vec::new();
        self.mark = mark;
        let below = self.mark.below();
        self.put(|log, batch| log.connect_below(expiry(seconds), below, batch));
    }

    /// Has its mark moved, where so many deliveries wait from `first` on, if there is one.
    pub(super) fn move_mark(&mut self, first: Option<Sequence>, queued: usize) {
        let below = first.and_then(|first| self.mark.further(first, queued));
        self.put(|log, batch| log.mark(below, batch));
        let stored = self.append();
        self.mark.move_to(below, stored);
    }

    /// Sets a mark for a client that has fallen behind: so many deliveries wait from `first` on.
    pub(super) fn set_mark(&mut self, first: Sequence, queued: usize, step: u64) {
        self.mark = Mark::begin(Some(first), queued, step);
        let below = self.mark.below();
        self.put(|log, batch| log.mark(below, batch));
    }

    pub(super) fn disconnect(&mut self, since_unix_ms: u64, expiry_s: Option<u32>, unsent: Option<Sequence>) {
        self.away = Away::Left(since_unix_ms);
        (self.reading, self.mark) = (None, Mark::default());
        self.log.set_expiry(expiry_s);
        self.put(|log, batch| log.disconnect(since_unix_ms, unsent, batch));
    }

    /// Whether the store is known not to have taken that its client has left.
    pub(super) fn is_leave_refused(&mut self) -> bool {
        matches!(self.away, Away::Left(_)) && self.log.is_refused()
    }

    /// Puts again that its client has left.
    pub(super) fn leave_again(&mut self, unsent: Option<Sequence>) {
        if let Away::Left(since) = self.away {
            self.disconnect(since, self.log.expiry_s(), unsent);
            drop(self.append());
        }
    }

    /// Follows a clock that was set. Returns the time that is left by it to a session that was restored.
    pub(super) fn restamp(&mut self, clock: ClockSet, now_unix_ms: u64, unsent: Option<Sequence>) -> Restamped {
        match self.away {
            Away::Connected => Restamped::Same,
            Away::Left(since) => {
                let since = (since + clock.origin_unix_ms).saturating_sub(clock.before_unix_ms);
                self.disconnect(since, self.log.expiry_s(), unsent);
                Restamped::Same
            }
            Away::Restored(since) => Restamped::Left(session_left(since, self.log.expiry_s(), now_unix_ms)),
        }
    }

    /// Ends the session's records with those of its deliveries.
    pub(super) fn end(self, deliveries: Vec<StoredDelivery>) -> Completion {
        let Self { store, log, changes, held_back: _, away: _, looked: _, reading: _, mark: _, asked: _ } = self;
        // Puts that wait are over as well. Without them the batch only forgets, and a full disk takes it.
        let mut batch = changes.forgets.unwrap_or_else(|| store.batch());
        log.end(deliveries, batch.as_mut());
        batch.append()
    }

    /// Puts a delivery into the batch of its publisher. `None` if it has none.
    pub(super) fn deliver(
        &mut self,
        publication: &Publication<'_>,
        delivery: &Delivery<'_>,
        manner: Manner,
    ) -> Option<Box<StoredDelivery>> {
        self.looked.since += 1;
        publication.store(delivery, &*self.store, &mut self.log, manner).map(Box::new)
    }

    /// Puts a delivery of a retained message to this session only.
    pub(super) fn pull(&mut self, message: &Message, manner: Manner, gather: &Gather) -> Option<Box<StoredDelivery>> {
        gather.put(message, &*self.store, &mut self.log, manner).map(Box::new)
    }

    /// Asks the store for messages.
    pub(super) fn read_back(&self, messages: Vec<RecordId>) -> ReadBack {
        self.store.read_back(self.log.principal(), messages)
    }

    /// The client has a delivery, or does not want it.
    pub(super) fn acknowledge(&mut self, stored: StoredDelivery) {
        self.forget(|_, batch| stored.acknowledge(batch));
    }

    /// A delivery is over, or is dropped.
    pub(super) fn finish(&mut self, stored: StoredDelivery) {
        self.forget(|_, batch| stored.finish(batch));
    }

    /// PUBREC has come.
    pub(super) fn release(&mut self, stored: StoredDelivery) {
        self.put(|log, batch| log.release(stored, batch));
    }

    /// The same without a PUBREC: PUBREL, which is sent again with the messages before, waits for the store.
    pub(super) fn release_unasked(&mut self, stored: StoredDelivery) {
        self.held_back.push(packet_id(&stored));
        self.release(stored);
    }

    /// PUBCOMP has come.
    pub(super) fn complete(&mut self, id: PacketId) {
        let sequence = NonZeroU16::new(id.get()).and_then(|id| self.log.released_as(id));
        if let Some(sequence) = sequence {
            self.forget(|log, batch| log.complete(sequence, batch));
        }
    }

    /// A message of QoS 2 has come, in one batch with its deliveries.
    pub(super) fn receive(&mut self, id: PacketId, gather: &Gather) {
        let Some(id) = NonZeroU16::new(id.get()) else { return };
        let gathering = gather.begin(&*self.store);
        // PUBREC promises that the identifier is known, whoever has acknowledged the message.
        gathering.need();
        gathering.with(|batch| self.log.receive(id, batch));
    }

    /// PUBREL has come, or the message was refused.
    pub(super) fn forget_received(&mut self, id: PacketId) {
        if let Some(id) = NonZeroU16::new(id.get()) {
            self.forget(|log, batch| log.forget_received(id, batch));
        }
    }

    pub(super) fn subscribe(&mut self, subscription: &Subscription, wanted: Wanted) {
        self.put(|log, batch| log.subscribe(subscription, wanted, batch));
    }

    pub(super) fn unsubscribe(&mut self, subscription: &Subscription) {
        self.forget(|log, batch| log.unsubscribe(subscription, batch));
    }

    /// Keeps the will of the connection. Returns its record.
    pub(super) fn set_will(&mut self, delay_s: u32, will: StoredMessage) -> RecordId {
        self.log.set_will(delay_s, will, begun(&mut self.changes.puts, &*self.store))
    }

    /// The will of a connection that another one has taken over is not to be published, because its delay was not over
    /// ([MQTT-3.1.3-9]).
    pub(super) fn cancel_delayed_will(&mut self) {
        if self.log.will().is_some_and(|(_, delay_s)| delay_s > 0) {
            self.forget_will();
        }
    }

    /// The will is over, because its connection has ended normally. It is forgotten in a batch of its own: a full disk
    /// refuses those that put something.
    pub(super) fn forget_will(&mut self) {
        if self.log.will().is_some() {
            self.forget(SessionLog::clear_will);
            drop(self.append());
        }
    }

    /// The will with this record is being published, or is cancelled.
    pub(super) fn leave_will(&mut self, record: RecordId) {
        self.log.leave_will(record);
    }
}
