//! Writes: what each replaces, whose share of the queue it takes, and trials of a disk that takes nothing.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use fogmux_bus::{Completion, Message, NoRoom, Topic};
use fogmux_journal::{Appended, Committer, RecordId, Refused};

use super::Inner;
use crate::{
    batch::Batch,
    disk::AnyDisk,
    kind::{self, Kind},
    ledger::{Ledger, Set, completion},
    names::{LastWrite, Write},
    queue::{Charge, LANE_OF_OTHERS, LANE_OF_TRIALS, Queue},
};

/// While the disk takes nothing, it is tried no more often.
const TRIAL_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of such a trial: as little room as most messages need says nothing about the larger ones.
const TRIAL_BYTES: usize = 32 << 10;

impl Inner {
    /// The committer for a write. `None` if it is refused. Where acknowledgements do not wait, a disk that takes
    /// nothing is no place for what is acknowledged.
    fn committer_for(&self, puts: bool) -> Option<&Committer<AnyDisk>> {
        if puts && !self.shared.waits && self.shared.counters.why_stopped().is_some() {
            self.try_disk();
            return None;
        }
        self.committer()
    }

    pub(super) fn refused(&self, why: Option<Refused>) -> Completion {
        if let Some(why @ Refused::TooLarge(_)) = why {
            tracing::warn!(%why, "the store does not take a message");
        }
        self.shared.counters.refuse(1);
        Completion::Failed
    }

    /// Whether the queue has room for a write in the place of one of `less` bytes. Counts and says that it has not.
    pub(super) fn admits(&self, queue: &Queue, charge: &Charge, less: usize) -> bool {
        let admitted = queue.admit(charge, less);
        if admitted == Err(NoRoom::Share) {
            self.shared.counters.beyond_share.fetch_add(1, Relaxed);
        }
        admitted.is_ok()
    }

    /// The last write of a topic or key waits in a set. Returns its completion.
    pub(super) fn put_topic(
        &self,
        topic: &Topic,
        value: Option<Vec<u8>>,
        message: Option<&Arc<Message>>,
        before: Option<&Arc<Message>>,
    ) -> Completion {
        let puts = value.is_some();
        let Some(committer) = self.committer_for(puts) else { return self.refused(None) };
        let mut ledger = self.shared.ledger();
        if ledger.undoing {
            return self.refused(None);
        }
        let publisher = message.or(before).map(|message| &message.publisher);
        let principal = publisher.map_or(&self.nobody, |publisher| &publisher.principal);
        let charge = if puts || ledger.topics.kept(topic).is_none() {
            Charge::of(principal, topic.len() + value.as_ref().map_or(0, Vec::len))
        } else {
            Charge::none()
        };
        // The gateway's own status messages have no share (ADR 0031).
        let has_share = publisher.is_none_or(|publisher| publisher.door.is_some());
        let waits = self.shared.waits;
        let seen = |message: Option<&Arc<Message>>| message.filter(|_| waits).cloned();
        let Ledger { topics, queue, .. } = &mut *ledger;
        let last = topics.last_write(topic);
        let less = last.as_ref().map_or(0, |last| last.charge.bytes());
        if puts && has_share && !self.admits(queue, &charge, less) {
            return self.refused(None);
        }
        let value = match (value.map(Bytes::from), last) {
            (Some(value), Some(LastWrite { set, id: Some(id), message: last, charge: counted })) => {
                match committer.replace(id, value) {
                    Ok(()) => {
                        queue.replace(counted, charge);
                        *last = seen(message);
                        return ledger.waiting(set).map_or(Completion::Ready, |set| self.completion(set, puts));
                    }
                    Err(value) => Some(value),
                }
            }
            (value, _) => value,
        };
        let mut batch = committer.batch();
        ledger.topics.each(topic, |id| batch.forget(id));
        if !puts && batch.is_empty() {
            return Completion::Ready;
        }
        batch.own_by(ledger.queue.lane(principal));
        if let Some((set, _)) = ledger.topics.pending(topic) {
            batch.join(set);
        }
        let id = value.map(|value| batch.put(Kind::Retained as u8, value));
        let Some((set, swept)) = self.append(committer, batch, &mut ledger) else { return Completion::Failed };
        ledger.queue.add(&charge);
        let write = Write { set: set.set, id, message: seen(message), before: seen(before), charge };
        let replaced = ledger.topics.write(topic.clone(), write);
        replaced.iter().for_each(|charge| ledger.queue.remove(charge));
        let set = ledger.set(set, puts, swept);
        set.topics.extend(replaced.is_none().then(|| topic.clone()));
        self.completion(set, puts)
    }

    pub(super) fn put_record(&self, principal: &Arc<str>, key: &str, value: Option<Box<[u8]>>) -> Completion {
        let puts = value.is_some();
        let Some(committer) = self.committer_for(puts) else { return self.refused(None) };
        let mut batch = committer.batch();
        let mut ledger = self.shared.ledger();
        ledger.records.each(key, |id| batch.forget(id));
        if !puts && batch.is_empty() {
            return Completion::Ready;
        }
        let bytes = value.and_then(|value| {
            kind::named(key, value.len(), |out| {
                out.extend_from_slice(&value);
                Some(())
            })
        });
        let charge = if puts || ledger.records.kept(key).is_none() {
            Charge::of(principal, key.len() + bytes.as_ref().map_or(0, Vec::len))
        } else {
            Charge::none()
        };
        if puts && !self.admits(&ledger.queue, &charge, ledger.records.pending_bytes(key)) {
            return self.refused(None);
        }
        batch.own_by(ledger.queue.lane(principal));
        if let Some((set, _)) = ledger.records.pending(key) {
            batch.join(set);
        }
        let id = bytes.map(|bytes| batch.put(Kind::Door as u8, bytes));
        let Some((set, swept)) = self.append(committer, batch, &mut ledger) else { return Completion::Failed };
        ledger.queue.add(&charge);
        let write = Write { set: set.set, id, message: None, before: None, charge };
        let replaced = ledger.records.write(key.into(), write);
        replaced.iter().for_each(|charge| ledger.queue.remove(charge));
        let set = ledger.set(set, puts, swept);
        set.records.extend(replaced.is_none().then(|| key.into()));
        self.completion(set, puts)
    }

    /// `others` bear some of the bytes; the rest, and whether there is room, is a matter of `principal`.
    pub(super) fn commit(
        &self,
        principal: &Arc<str>,
        others: Vec<(Arc<str>, usize)>,
        Batch(mut batch): Batch,
    ) -> Completion {
        if batch.is_empty() {
            return Completion::Ready;
        }
        let puts = batch.puts();
        let Some(committer) = self.committer_for(puts) else { return self.refused(None) };
        let mut ledger = self.shared.ledger();
        let of_others = others.iter().map(|(_, bytes)| bytes).sum();
        let own = batch.bytes().saturating_sub(of_others);
        let charge = if puts { Charge::of(principal, own) } else { Charge::none() };
        if puts && !self.admits(&ledger.queue, &charge, 0) {
            return self.refused(None);
        }
        batch.own_by(LANE_OF_OTHERS);
        // If it fails, later writes forget the same. Not if it puts something: that may be in the place of what it
        // forgets, and nothing would be there.
        let mut forgotten = std::mem::take(&mut ledger.forgotten);
        forgotten.clear();
        forgotten.extend(batch.forgets().iter().filter(|_| !puts));
        let Some((set, swept)) = self.append(committer, batch, &mut ledger) else { return Completion::Failed };
        let others = others.iter().map(|(other, bytes)| Charge::part(other, *bytes));
        let charges: Vec<_> = others.chain([charge]).filter(|_| puts).collect();
        charges.iter().for_each(|charge| ledger.queue.add(charge));
        let set = ledger.set(set, puts, swept);
        set.forgotten.extend(&forgotten);
        set.charges.extend(charges);
        let [putting, forgetting] = &mut set.others;
        *(if puts { putting } else { forgetting }) += 1;
        let completion = self.completion(set, puts);
        ledger.forgotten = forgotten;
        completion
    }

    /// Appends a batch, which forgets some records that nobody needs as well. Returns its set and those records.
    fn append(
        &self,
        committer: &Committer<AnyDisk>,
        mut batch: fogmux_journal::Batch,
        ledger: &mut Ledger,
    ) -> Option<(Appended, Vec<RecordId>)> {
        let swept = ledger.sweep(&mut batch);
        match committer.append(batch) {
            Ok(appended) => Some((appended, swept)),
            Err(why) => {
                ledger.spare.extend(swept);
                self.refused(Some(why));
                None
            }
        }
    }

    fn completion(&self, set: &mut Set, puts: bool) -> Completion {
        match self.shared.waits {
            true => completion(if puts { &mut set.puts } else { &mut set.forgets }),
            false => Completion::Ready,
        }
    }

    /// Has all that nobody needs forgotten, before the store is closed.
    pub(super) fn sweep_all(&self) {
        let Some(committer) = self.committer() else { return };
        let mut batch = committer.batch();
        batch.own_by(LANE_OF_OTHERS);
        let mut ledger = self.shared.ledger();
        let spare = std::mem::take(&mut ledger.spare);
        spare.iter().for_each(|id| batch.forget(*id));
        if !batch.is_empty()
            && let Ok(appended) = committer.append(batch)
        {
            ledger.set(appended, false, spare);
        }
    }

    /// Tries whether the disk takes something again, if that was not tried just now. A disk that has not answered yet
    /// is not tried once more.
    pub(super) fn try_disk(&self) {
        if self.shared.counters.is_trial_due(TRIAL_PAUSE) {
            self.trial();
        }
    }

    pub(super) fn trial(&self) {
        let Some(committer) = self.committer() else { return };
        let mut batch = committer.batch();
        let mut ledger = self.shared.ledger();
        if ledger.trying {
            return;
        }
        batch.own_by(LANE_OF_TRIALS);
        let id = batch.put(Kind::Trial as u8, vec![0; TRIAL_BYTES]);
        if let Some((appended, swept)) = self.append(committer, batch, &mut ledger) {
            ledger.set(appended, true, swept).trial = Some(id);
            ledger.trying = true;
        }
    }
}
