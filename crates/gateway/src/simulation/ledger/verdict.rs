//! The rules of the model: what readers must have, what may be retained, and what nobody may have got.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

use super::{Fate, Got, Latest, Ledger, Promise, Reader, Sent, TOPICS, matches, messages};

impl Ledger {
    /// Returns the messages that connected readers still miss: none, once everything accepted has arrived.
    pub(in crate::simulation) fn missing(&self, latest: impl Fn(&str) -> Latest) -> Vec<String> {
        let mut missing = Vec::new();
        for reader in self.reading() {
            if !reader.told_of_gap.get() {
                self.add_lost(&reader, &mut missing);
            }
            if reader.promise != Promise::Shared {
                self.add_stale(&reader, &latest, &mut missing);
            }
        }
        missing
    }

    /// Returns the messages that did not reach readers which read until the shutdown ended their connections. A member
    /// of a shared subscription may leave after all other members, with messages that nobody can take.
    pub(in crate::simulation) fn missing_after_shutdown(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let stayed =
            |reader: &Rc<Reader>| !reader.away.get() && !reader.told_of_gap.get() && reader.promise != Promise::Shared;
        self.reading().filter(stayed).for_each(|reader| self.add_lost(&reader, &mut missing));
        missing.into_iter().map(|fault| format!("after the shutdown, {fault}")).collect()
    }

    fn reading(&self) -> impl Iterator<Item = Rc<Reader>> {
        let readers = self.readers.borrow().clone();
        readers.into_iter().filter(|reader| reader.live.get())
    }

    /// Accepted messages that a reader has not got.
    fn add_lost(&self, reader: &Reader, missing: &mut Vec<String>) {
        let (sent, got) = (self.sent.borrow(), reader.got.borrow());
        let set: HashSet<usize> = messages(&got).collect();
        let lost = sent.iter().enumerate().filter(|(id, message)| {
            reader.promise.covers(message.qos.min(reader.max_qos))
                && message.at > reader.granted
                && message.fate == Fate::Accepted
                && matches(&reader.filter, &message.topic)
                && !message.payload.is_empty()
                && !set.contains(id)
        });
        missing.extend(lost.map(|(id, message)| {
            let (qos, bytes) = (message.qos, message.payload.len());
            format!("{}: message {id} (QoS {qos}, {} of {bytes} B) never came", reader.name, message.topic)
        }));
    }

    /// Topics of which a reader holds another value than the retained one.
    fn add_stale(&self, reader: &Reader, latest: impl Fn(&str) -> Latest, missing: &mut Vec<String>) {
        let (sent, got) = (self.sent.borrow(), reader.got.borrow());
        for topic in (0..TOPICS).map(|n| format!("value/{n}/t")).filter(|topic| matches(&reader.filter, topic)) {
            let last = got.iter().rev().find_map(|got| match got {
                Got::Message(id) => (sent[*id].topic == topic).then(|| Some(&sent[*id].payload)),
                Got::Cleared(cleared) => (*cleared == topic).then_some(None),
            });
            let last = last.flatten();
            let Latest::Kept(latest) = latest(&topic) else { continue };
            // A value that was cleared at QoS 0 while a session had no connection is cleared without a word.
            let unknowable = match reader.promise {
                Promise::AllConfirmed => latest.is_none(),
                Promise::LatestConfirmed => {
                    let qos = latest.as_ref().map_or(1, |bytes| sent[self.by_payload.borrow()[bytes]].qos);
                    qos.min(reader.max_qos) == 0
                }
                Promise::All | Promise::Shared | Promise::Latest => false,
            };
            // After a gap a reader is sent the retained messages again, but not told of topics that were cleared.
            let unknowable = unknowable || reader.told_of_gap.get() && latest.is_none();
            if latest.as_ref() != last && !unknowable {
                let name = |payload: Option<&Vec<u8>>| payload.map(|bytes| self.by_payload.borrow()[bytes]);
                missing.push(format!(
                    "{} ({}): holds {:?} of {topic}, the retained message is {:?} of {} B",
                    reader.name,
                    reader.filter,
                    name(last),
                    name(latest.as_ref()),
                    latest.as_ref().map_or(0, Vec::len)
                ));
            }
        }
    }

    /// Retained messages that a gateway may not have, be it the one that was written to or one that was started on the
    /// same store: one that was refused, or any when a later one was accepted.
    pub(in crate::simulation) fn wrongly_kept(&self, latest: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<String> {
        let sent = self.sent.borrow();
        let mut wrong = Vec::new();
        for topic in (0..TOPICS).map(|n| format!("value/{n}/t")) {
            let of_topic = || sent.iter().filter(|message| message.topic == topic);
            // At QoS 0 nobody is told whether it was kept.
            let newest = of_topic().filter(|message| message.fate == Fate::Accepted && message.qos > 0);
            let newest = newest.max_by_key(|message| message.at);
            // Acknowledged before the newest was published.
            let is_older = |message: &Sent| {
                newest.is_some_and(|newest| message.settled.is_some_and(|settled| settled < newest.at))
            };
            match latest(&topic) {
                Some(payload) => {
                    let id = self.by_payload.borrow()[&payload];
                    if sent[id].fate == Fate::Refused {
                        wrong.push(format!("message {id} of {topic} was refused and is kept"));
                    }
                    if is_older(&sent[id]) {
                        wrong.push(format!("message {id} of {topic} is kept, and a later one was accepted"));
                    }
                }
                None => {
                    let mut clears = of_topic().filter(|message| {
                        message.payload.is_empty() && message.fate != Fate::Refused && !is_older(message)
                    });
                    if newest.is_some() && clears.next().is_none() {
                        wrong.push(format!("nothing is kept of {topic}, and a message was accepted"));
                    }
                }
            }
        }
        wrong
    }

    /// Every rule that a message has broken. `undone`: those whose write failed when they had been delivered.
    pub(in crate::simulation) fn faults(&self, undone: impl Fn(&[u8]) -> bool) -> Vec<String> {
        let sent = self.sent.borrow();
        let mut faults = self.faults.borrow().clone();
        // Members of a shared subscription are as quick as each of them is.
        for reader in self.readers.borrow().iter().filter(|reader| reader.promise != Promise::Shared) {
            let mut newest: HashMap<(usize, &str, u8), usize> = HashMap::new();
            let mut seen = HashSet::new();
            for id in messages(&reader.got.borrow()) {
                let message = &sent[id];
                let was_live = message.life == reader.life && undone(&message.payload);
                if message.fate == Fate::Refused && !was_live {
                    let (topic, qos, size) = (&message.topic, message.qos, message.payload.len());
                    faults.push(format!(
                        "{} got message {id} of {topic}, QoS {qos}, {size} B, of publisher {}, which was refused to it",
                        reader.name, message.publisher
                    ));
                }
                let first = seen.insert(id);
                let qos = message.qos.min(reader.max_qos);
                let last = newest.entry((message.publisher, &message.topic, qos)).or_insert(0);
                // A session gets again what it has not acknowledged. A retained message may come twice, with the walk
                // over them and live, but no older one.
                let again = !first && (!message.retain || reader.promise == Promise::AllConfirmed);
                if *last > id && !again {
                    faults.push(format!("{} got message {id} of {} after {last}", reader.name, message.topic));
                }
                // The message before one that could not be kept is the retained one again.
                if !was_live {
                    *last = (*last).max(id);
                }
            }
        }
        faults
    }
}
