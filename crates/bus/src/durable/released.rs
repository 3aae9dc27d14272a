//! Exchanges of QoS 2 in a session's records, both ways: deliveries that were released, and identifiers that were
//! received.
//!
//! What the store has not taken stays here, not in the connection that it was made for: it is made again, with the next
//! CONNECT at the latest. PUBREL and PUBCOMP are not sent before it is on the disk.

use std::num::NonZeroU16;

use super::{
    log::{SessionLog, StoredDelivery},
    record::{Record, RecordId, Sequence},
    store::Batch,
};
use crate::retained::Completion;

/// A delivery for which PUBREC has come, until the store has that. If the store does not take it, the delivery is there
/// as before; so it holds its message until then.
#[derive(Debug)]
pub(super) struct Releasing {
    delivery: StoredDelivery,
    /// Its message is forgotten in the same batch, because nobody else waits for it.
    with_message: bool,
}

impl Releasing {
    fn of(delivery: StoredDelivery, batch: &mut dyn Batch) -> Self {
        batch.forget(delivery.id);
        let with_message = delivery.parcel.is_held_once();
        if with_message {
            batch.forget(delivery.parcel.id());
        }
        Self { delivery, with_message }
    }

    pub(super) fn into_delivery(self) -> StoredDelivery {
        self.delivery
    }
}

impl SessionLog {
    /// PUBREC has come for a delivery. PUBREL may be sent when the batch is on the disk. Its owner says what became of
    /// the batch ([`appended`](Self::appended)).
    pub fn release(&mut self, delivery: StoredDelivery, batch: &mut dyn Batch) {
        let id = self.put_released(delivery.sequence, batch);
        if let Some((_, before)) = self.released.insert(delivery.sequence.packet_id(), (delivery.sequence, id)) {
            batch.forget(before);
        }
        self.releasing.begin(Releasing::of(delivery, batch));
    }

    fn put_released(&self, sequence: Sequence, batch: &mut dyn Batch) -> RecordId {
        batch.charge(&self.principal);
        batch.put(&Record::Released(self.first, sequence))
    }

    /// Puts again that deliveries were released, because batches with that were refused or have failed.
    pub fn release_again(&mut self, batch: &mut dyn Batch) {
        let taken = self.releasing.settle();
        self.taken(taken);
        for Releasing { delivery, .. } in self.releasing.take_failed() {
            if self.released_as(delivery.sequence.packet_id()) != Some(delivery.sequence) {
                // PUBCOMP has come before PUBREL was sent.
                self.left.push(delivery);
                continue;
            }
            let id = self.put_released(delivery.sequence, batch);
            self.released.insert(delivery.sequence.packet_id(), (delivery.sequence, id));
            self.releasing.begin(Releasing::of(delivery, batch));
        }
    }

    /// Releases that the store has.
    pub(super) fn taken(&mut self, taken: Vec<Releasing>) {
        let held = taken.into_iter().filter(|releasing| !releasing.with_message);
        self.left.extend(held.map(Releasing::into_delivery));
    }

    /// Forgets what is over by now, and again what the store has not forgotten. To be called with a batch that puts
    /// nothing, which a full disk takes.
    pub fn settle(&mut self, batch: &mut dyn Batch) {
        let taken = self.releasing.settle();
        self.taken(taken);
        self.left.drain(..).for_each(|delivery| delivery.finish(batch));
        drop(self.forgetting.settle());
        for id in self.forgetting.take_failed() {
            batch.forget(id);
            self.forgetting.begin(id);
        }
    }

    /// Whether [`settle`](Self::settle) may have something to do.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        !self.left.is_empty() || self.releasing.iter().next().is_some() || self.forgetting.iter().next().is_some()
    }

    /// The batch with what was forgotten up to now was appended. Unless this is told, it counts as taken.
    pub fn forgot(&mut self, completion: &Completion) {
        drop(self.forgetting.appended(completion));
    }

    /// Ready when all releases, and all that is forgotten of what was received, are on the disk; failed if the store
    /// has not taken some.
    pub fn settled(&mut self) -> Completion {
        let taken = self.releasing.settle();
        self.taken(taken);
        self.releasing.outcome().and(&self.forgotten())
    }

    /// Ready when all is forgotten on the disk of what was received and is over, and of subscriptions that have ended.
    pub fn forgotten(&mut self) -> Completion {
        drop(self.forgetting.settle());
        self.forgetting.outcome()
    }

    /// The numbers of released deliveries whose PUBREL may not be sent yet, oldest first.
    pub fn unreleased(&mut self) -> Vec<Sequence> {
        let taken = self.releasing.settle();
        self.taken(taken);
        let numbers = self.releasing.iter().map(|releasing| releasing.delivery.sequence);
        let mut numbers: Vec<_> =
            numbers.filter(|sequence| self.released_as(sequence.packet_id()) == Some(*sequence)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The number of the released delivery that has a packet identifier. All that are unfinished have different ones.
    #[must_use]
    pub fn released_as(&self, packet_id: NonZeroU16) -> Option<Sequence> {
        self.released.get(&packet_id).map(|(sequence, _)| *sequence)
    }

    /// PUBCOMP has come for a delivery that was released.
    pub fn complete(&mut self, sequence: Sequence, batch: &mut dyn Batch) {
        if self.released_as(sequence.packet_id()) == Some(sequence)
            && let Some((_, id)) = self.released.remove(&sequence.packet_id())
        {
            batch.forget(id);
        }
    }

    /// A message of QoS 2 came in with this identifier. To be in one batch with its deliveries.
    pub fn receive(&mut self, packet_id: NonZeroU16, batch: &mut dyn Batch) {
        batch.charge(&self.principal);
        let id = batch.put(&Record::Received(self.first, packet_id));
        if let Some(before) = self.received.insert(packet_id, id) {
            batch.forget(before);
        }
    }

    /// PUBREL has come for an identifier, or its message was refused. PUBCOMP may be sent when the batch is on the
    /// disk. Its owner says what became of the batch ([`forgot`](Self::forgot)).
    pub fn forget_received(&mut self, packet_id: NonZeroU16, batch: &mut dyn Batch) {
        if let Some(id) = self.received.remove(&packet_id) {
            batch.forget(id);
            self.forgetting.begin(id);
        }
    }
}
