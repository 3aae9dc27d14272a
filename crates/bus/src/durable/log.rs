//! A session's records: the changes that its events make, as the store is told of them.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU16,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::{
    doubts::Doubts,
    message::StoredMessage,
    record::{Manner, Record, RecordId, Sequence, SessionRecord, Vouched, Wanted},
    released::Releasing,
    replaced::Replaced,
    store::{Batch, Gathering, IfRefused, Parcel},
};
use crate::{
    retained::{Completion, StoreFailed},
    session::SessionKey,
    subscription::Subscription,
};

/// A delivery in the store. Its record stays until it is finished, or released by its [`SessionLog`].
#[derive(Debug)]
#[must_use]
pub struct StoredDelivery {
    pub(super) id: RecordId,
    pub(super) sequence: Sequence,
    pub(super) parcel: Arc<Parcel>,
    /// The batch that puts it; `None` if it was in the store at the start.
    pub(super) gathering: Option<Arc<Gathering>>,
}

impl StoredDelivery {
    /// Its number in the session.
    #[must_use]
    pub const fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Ready with the outcome of the batch that puts it. One of QoS 2 is not sent before that. One that was handed on
    /// goes on without a record if the store does not take it.
    pub fn poll_stored(&self, cx: &mut Context<'_>) -> Poll<Result<(), StoreFailed>> {
        let Some(gathering) = &self.gathering else { return Poll::Ready(Ok(())) };
        gathering.poll(cx).map(|outcome| match gathering.if_refused() {
            IfRefused::Dropped => outcome,
            IfRefused::Kept => Ok(()),
        })
    }

    /// The outcome of the batch that puts it, if that is known.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), StoreFailed>> {
        match self.poll_stored(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    /// Whether it is known that the store has not taken it, so that its publisher was told of a refusal.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.outcome(), Some(Err(_)))
    }

    /// The record of its message.
    #[must_use]
    pub fn message(&self) -> RecordId {
        self.parcel.id()
    }

    /// Whether the store is known to have it. Lets go of the batch that has put it then.
    pub fn settle(&mut self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        let is_stored = self.gathering.as_ref().is_none_or(|gathering| gathering.poll(cx) == Poll::Ready(Ok(())));
        if is_stored {
            self.gathering = None;
        }
        is_stored
    }

    /// Was sent to its client at once, who may acknowledge it before anything of it is written. To be told while it is
    /// published, once, and not of QoS 2.
    pub fn sent(&self) {
        if let Some(gathering) = &self.gathering {
            gathering.sent();
        }
    }

    /// Whether its publication is under way, on another worker. To finish it is to have the batch of that without it.
    #[must_use]
    pub fn is_unpublished(&self) -> bool {
        self.gathering.as_ref().is_some_and(|gathering| gathering.is_unpublished())
    }

    /// Is over because its client has it, by PUBACK, or does not want it, by PUBREC. Its publisher does not wait for
    /// the disk if all who were to get the message have it.
    pub fn acknowledge(self, batch: &mut dyn Batch) {
        let gathering = self.gathering.clone();
        self.forget(batch);
        if let Some(gathering) = gathering {
            gathering.acknowledged();
        }
    }

    /// Is over: dropped from the queue, expired or handed on. Its record is forgotten in `batch`, or in the batch that
    /// puts it if that is not published yet.
    pub fn finish(self, batch: &mut dyn Batch) {
        if let Some(gathering) = &self.gathering {
            gathering.append_at_once();
            if gathering.is_held() {
                // `batch` may put the message for somebody else. The publisher is to wait for that, too.
                batch.release_held();
                gathering.append_held();
            }
        }
        self.forget(batch);
    }

    fn forget(self, batch: &mut dyn Batch) {
        let Self { id, sequence: _, parcel, gathering } = self;
        let forget = |batch: &mut dyn Batch| {
            batch.forget(id);
            parcel.leave(batch)
        };
        if gathering.and_then(|gathering| gathering.with(forget)).is_none() {
            forget(batch);
        }
    }
}

/// The records of a session. Its owner tells it of each event, before the change is acknowledged, and appends the
/// batch.
#[derive(Debug)]
pub struct SessionLog {
    /// The first record, which names the session.
    pub(super) first: RecordId,
    /// The newest record.
    pub(super) newest: RecordId,
    /// Those before it that may still be there.
    pub(super) replaced: Replaced,
    pub(super) key: SessionKey,
    pub(super) principal: Arc<str>,
    pub(super) vouched: Option<Vouched>,
    pub(super) expiry_s: Option<u32>,
    /// The number of the next delivery.
    pub(super) next: Sequence,
    pub(super) subscriptions: HashMap<Subscription, RecordId>,
    /// Records of subscriptions that were made again, as long as they may still be there.
    pub(super) resubscribed: HashMap<Subscription, Replaced>,
    pub(super) received: BTreeMap<NonZeroU16, RecordId>,
    /// By packet identifier, because the numbers of those that are unfinished may be any distance apart.
    pub(super) released: BTreeMap<NonZeroU16, (Sequence, RecordId)>,
    /// Releases of which it is not known whether the store has them.
    pub(super) releasing: Doubts<Releasing>,
    /// Identifiers received of which it is not known whether the store has forgotten them.
    pub(super) forgetting: Doubts<RecordId>,
    /// Deliveries that are over but for their messages, which others may wait for.
    pub(super) left: Vec<StoredDelivery>,
    /// Records of a later release that belong to it. They are left alone until it ends.
    pub(super) foreign: Vec<RecordId>,
    /// The will of its connection, and its delay in seconds. Those of connections before belong to who publishes them.
    pub(super) will: Option<(RecordId, u32)>,
}

impl SessionLog {
    /// Begins a session, whose client is connected.
    pub fn begin(key: SessionKey, principal: Arc<str>, expiry_s: Option<u32>, batch: &mut dyn Batch) -> Self {
        Self::begin_vouched(key, principal, None, expiry_s, batch)
    }

    /// The same with the credential that the client has shown.
    pub fn begin_vouched(
        key: SessionKey,
        principal: Arc<str>,
        vouched: Option<Vouched>,
        expiry_s: Option<u32>,
        batch: &mut dyn Batch,
    ) -> Self {
        let record = SessionRecord {
            first: None,
            key,
            principal,
            vouched,
            expiry_s,
            unsent: Sequence::default(),
            marked: false,
            away_since_unix_ms: None,
        };
        batch.charge(&record.principal);
        let first = batch.put(&Record::Session(record.clone()));
        let SessionRecord { key, principal, vouched, .. } = record;
        Self {
            first,
            newest: first,
            replaced: Replaced::begun(),
            key,
            principal,
            vouched,
            expiry_s,
            next: Sequence::default(),
            subscriptions: HashMap::new(),
            resubscribed: HashMap::new(),
            received: BTreeMap::new(),
            released: BTreeMap::new(),
            releasing: Doubts::default(),
            forgetting: Doubts::default(),
            left: Vec::new(),
            foreign: Vec::new(),
            will: None,
        }
    }

    fn replace(&mut self, unsent: Sequence, marked: bool, away_since_unix_ms: Option<u64>, batch: &mut dyn Batch) {
        let record = SessionRecord {
            first: Some(self.first),
            key: self.key.clone(),
            principal: Arc::clone(&self.principal),
            vouched: self.vouched.clone(),
            expiry_s: self.expiry_s,
            unsent,
            marked,
            away_since_unix_ms,
        };
        batch.charge(&self.principal);
        let newest = batch.put(&Record::Session(record));
        self.replaced.forget(self.newest, batch);
        self.newest = newest;
        self.resubscribed.retain(|_, replaced| !replaced.is_over());
    }

    /// The batch with the changes up to now was appended. Unless this is told, it counts as taken.
    pub fn appended(&mut self, completion: &Completion) {
        self.replaced.appended(completion);
        self.resubscribed.values_mut().for_each(|replaced| replaced.appended(completion));
        let taken = self.releasing.appended(completion);
        self.taken(taken);
    }

    /// Whether it is known that the store has not taken the newest record of the session: an older one is there.
    #[must_use]
    pub fn is_refused(&mut self) -> bool {
        self.replaced.is_refused()
    }

    /// The principal that it belongs to.
    #[must_use]
    pub const fn principal(&self) -> &Arc<str> {
        &self.principal
    }

    /// Seconds from the end of a connection to the end of the session; `None`: it never ends.
    #[must_use]
    pub const fn expiry_s(&self) -> Option<u32> {
        self.expiry_s
    }

    /// Notes the credential that the client has shown, for the session's next record.
    pub fn set_vouched(&mut self, vouched: Option<Vouched>) {
        self.vouched = vouched;
    }

    /// Notes another time from the end of a connection to the end of the session, for its next record.
    pub const fn set_expiry(&mut self, expiry_s: Option<u32>) {
        self.expiry_s = expiry_s;
    }

    /// Its client is connected again. The will of the connection before is over, or left to who publishes it. Releases
    /// are made again that the store has not taken.
    pub fn connect(&mut self, expiry_s: Option<u32>, batch: &mut dyn Batch) {
        self.connect_below(expiry_s, None, batch);
    }

    /// The same for a client that is sent deliveries below this number only, until [`mark`](Self::mark) says more.
    pub fn connect_below(&mut self, expiry_s: Option<u32>, below: Option<Sequence>, batch: &mut dyn Batch) {
        self.expiry_s = expiry_s;
        self.mark(below, batch);
        self.release_again(batch);
        self.will = None;
    }

    /// Its client, which is connected, is sent deliveries below this number from now on, or all. More than before may
    /// be sent when the batch is on the disk.
    pub fn mark(&mut self, below: Option<Sequence>, batch: &mut dyn Batch) {
        self.replace(below.unwrap_or(self.next), below.is_some(), None, batch);
    }

    /// Its connection has ended. `unsent` is the number of the first delivery that was not sent, if there is one.
    pub fn disconnect(&mut self, since_unix_ms: u64, unsent: Option<Sequence>, batch: &mut dyn Batch) {
        self.replace(unsent.unwrap_or(self.next), false, Some(since_unix_ms), batch);
    }

    /// Ends the session with what waits for it. Its will stays until it is published, which is due now.
    pub fn end(mut self, deliveries: impl IntoIterator<Item = StoredDelivery>, batch: &mut dyn Batch) {
        let releasing = self.releasing.into_all().map(Releasing::into_delivery).chain(self.left);
        deliveries.into_iter().chain(releasing).for_each(|delivery| delivery.finish(batch));
        self.forgetting.into_all().chain(self.foreign).for_each(|id| batch.forget(id));
        let numbers = self.subscriptions.into_values().chain(self.received.into_values());
        let released = self.released.into_values().map(|(_, id)| id);
        numbers.chain(released).for_each(|id| batch.forget(id));
        self.resubscribed.into_values().for_each(|replaced| replaced.forget_all(batch));
        self.replaced.forget(self.newest, batch);
    }

    /// Adds a subscription, or replaces it ([MQTT-3.8.4-3]).
    pub fn subscribe(&mut self, subscription: &Subscription, wanted: Wanted, batch: &mut dyn Batch) {
        batch.charge(&self.principal);
        let id = batch.put(&Record::Subscription(self.first, subscription.clone(), wanted));
        if let Some(before) = self.subscriptions.insert(subscription.clone(), id) {
            self.resubscribed.entry(subscription.clone()).or_default().forget(before, batch);
        }
    }

    /// Removes a subscription, if it is there.
    pub fn unsubscribe(&mut self, subscription: &Subscription, batch: &mut dyn Batch) {
        if let Some(id) = self.subscriptions.remove(subscription) {
            let mut replaced = self.resubscribed.remove(subscription).unwrap_or_default();
            replaced.forget(id, batch);
            // A second UNSUBACK, over another connection, waits for them as well.
            replaced.into_ids().filter(|one| *one != id).chain([id]).for_each(|id| self.forgetting.begin(id));
        }
    }

    /// Queues a message of QoS 1 or 2, whose record counts for the session's principal. One of QoS 2 may be sent when
    /// the publisher's batch is on the disk. `None` if that was appended, or if the principal has its share of what may
    /// wait for the disk: then this session does not get the message.
    pub fn deliver(
        &mut self,
        parcel: &Arc<Parcel>,
        manner: Manner,
        gathering: &Arc<Gathering>,
    ) -> Option<StoredDelivery> {
        let (session, message, sequence) = (self.first, parcel.id(), self.next);
        let record = Record::Delivery { session, message, sequence, manner };
        let id = gathering.with(|batch| {
            // Messages that are handed on were promised before.
            let admits =
                gathering.if_refused() == IfRefused::Kept || batch.admits(&self.principal, Record::DELIVERY_BYTES);
            admits.then(|| {
                batch.charge(&self.principal);
                batch.put(&record)
            })
        })??;
        parcel.join();
        gathering.need();
        self.next = sequence.next();
        Some(StoredDelivery { id, sequence, parcel: Arc::clone(parcel), gathering: Some(Arc::clone(gathering)) })
    }

    /// Keeps the will of the connection, with its delay in seconds.
    pub fn set_will(&mut self, delay_s: u32, will: StoredMessage, batch: &mut dyn Batch) -> RecordId {
        batch.charge(&self.principal);
        let id = batch.put(&Record::Will(self.first, delay_s, will));
        if let Some((before, _)) = self.will.replace((id, delay_s)) {
            batch.forget(before);
        }
        id
    }

    /// The record of the will and its delay in seconds, if there is one.
    #[must_use]
    pub const fn will(&self) -> Option<(RecordId, u32)> {
        self.will
    }

    /// The will with this record is none of the session's any more: it is being published, or is cancelled.
    pub fn leave_will(&mut self, record: RecordId) {
        self.will = self.will.filter(|(will, _)| *will != record);
    }

    /// The will is over: published, in this batch, or cancelled.
    pub fn clear_will(&mut self, batch: &mut dyn Batch) {
        if let Some((id, _)) = self.will.take() {
            batch.forget(id);
        }
    }
}
