//! The writes that gather for the committer, in portions.
//!
//! A portion is written, and acknowledged or refused, as one: it is one batch of the database's journal, which is there
//! as a whole or not at all. So a disk that fails in the middle of many writes refuses those that it has not, and no
//! other.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use fogmux_bus::{Completer, Message, StoreFailed, Topic, Undo};

/// Bytes of a portion; a larger message is one of its own. Bounds the memory of a commit besides the messages.
pub(crate) const PORTION_BYTES: usize = 1 << 20;

/// Bytes of an entry besides its topic, roughly.
const ENTRY_BYTES: usize = 200;

/// A change of a topic.
#[derive(Debug)]
pub(crate) enum Write {
    /// Its new message, with the expiry in milliseconds since 1970.
    Put(Arc<Message>, Option<u64>),
    /// Its message is removed.
    Remove,
}

impl Write {
    /// Its bytes on the disk, roughly.
    fn bytes(&self, topic: &str) -> usize {
        match self {
            Self::Put(message, _) => message.size(),
            Self::Remove => topic.len(),
        }
    }
}

/// The value of a record, or `None` if it is removed.
pub(crate) type Value = Option<Box<[u8]>>;

/// The message that a topic had before a write of it.
pub(crate) type Before = Option<Arc<Message>>;

/// A write, and its portion.
#[derive(Debug)]
struct Place<W> {
    write: W,
    portion: usize,
    bytes: usize,
}

/// A topic's write, and what to go back to.
type TopicWrite = Place<(Write, Option<Before>)>;

/// The writes that have gathered.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// Sorted, as the disk prefers. A tree, unlike a hash table, never moves all its entries while publishers wait.
    writes: BTreeMap<Topic, TopicWrite>,
    records: HashMap<Box<str>, Place<Value>>,
    /// Writes that were followed by larger ones of the same topic or record, for which their portion had no room.
    earlier: Vec<(Topic, TopicWrite)>,
    earlier_records: Vec<(Box<str>, Place<Value>)>,
    /// Bytes of each portion, and the completion of those who wait for it.
    portions: Vec<(usize, Option<Arc<Completer>>)>,
}

/// Writes that are committed as one.
#[derive(Debug, Default)]
pub(crate) struct Portion {
    /// The writes of topics, in order.
    pub(crate) writes: Vec<(Topic, Write)>,
    /// The writes of records.
    pub(crate) records: Vec<(Box<str>, Value)>,
    /// The message that each topic had before, if failed writes have to be undone.
    before: Vec<(Topic, Before)>,
    /// Resolves the completion, if there is one.
    completer: Option<Arc<Completer>>,
}

/// The place of a write.
enum Room {
    /// In the place of an earlier one, with so many bytes more.
    Same { more: usize },
    /// Beside an earlier one of another portion.
    Beside,
    /// It is the first.
    First,
}

impl Gathered {
    pub(crate) fn is_empty(&self) -> bool {
        self.portions.is_empty()
    }

    /// The number of changes.
    pub(crate) fn changes(&self) -> usize {
        self.writes.len() + self.records.len() + self.earlier.len() + self.earlier_records.len()
    }

    /// Replaces the write of a topic, or adds one. `before` is the message to go back to if it fails. `reserve` is
    /// asked for room in bytes, with the payload where a message is kept here besides the topic's latest. Returns the
    /// portion, or `None` without room.
    pub(crate) fn put(
        &mut self,
        topic: &Topic,
        write: Write,
        before: Option<Before>,
        reserve: &mut dyn FnMut(usize) -> bool,
    ) -> Option<usize> {
        let bytes = write.bytes(topic);
        let there = self.writes.get(topic.as_str()).map(|place| (place.portion, place.bytes));
        match self.room(there, bytes) {
            Room::Same { .. } => {
                let place = self.writes.get_mut(topic.as_str())?;
                place.write.0 = write;
                self.resize(there, bytes);
                return there.map(|(portion, _)| portion);
            }
            Room::Beside | Room::First => {
                let kept = there.map_or(0, |(_, bytes)| bytes);
                if !reserve(topic.len().saturating_add(kept).saturating_add(ENTRY_BYTES)) {
                    return None;
                }
            }
        }
        let portion = self.portion(bytes);
        let place = Place { write: (write, before), portion, bytes };
        if let Some(earlier) = self.writes.insert(topic.clone(), place) {
            self.earlier.push((topic.clone(), earlier));
        }
        Some(portion)
    }

    /// Replaces the write of a record, or adds one; as [`Self::put`].
    pub(crate) fn put_record(
        &mut self,
        key: &str,
        value: Value,
        reserve: &mut dyn FnMut(usize) -> bool,
    ) -> Option<usize> {
        let bytes = value.as_ref().map_or(0, |value| value.len());
        let there = self.records.get(key).map(|place| (place.portion, place.bytes));
        match self.room(there, bytes) {
            Room::Same { more } if more == 0 || reserve(more) => {
                let place = self.records.get_mut(key)?;
                place.write = value;
                self.resize(there, bytes);
                return there.map(|(portion, _)| portion);
            }
            Room::Same { .. } => return None,
            Room::Beside | Room::First if !reserve(key.len().saturating_add(bytes).saturating_add(ENTRY_BYTES)) => {
                return None;
            }
            Room::Beside | Room::First => {}
        }
        let portion = self.portion(bytes);
        if let Some(earlier) = self.records.insert(key.into(), Place { write: value, portion, bytes }) {
            self.earlier_records.push((key.into(), earlier));
        }
        Some(portion)
    }

    fn room(&self, there: Option<(usize, usize)>, bytes: usize) -> Room {
        let Some((portion, before)) = there else { return Room::First };
        let all = self.portions.get(portion).map_or(0, |(all, _)| *all);
        let more = bytes.saturating_sub(before);
        // A portion of this write alone grows with it.
        if more == 0 || all.saturating_add(more) <= PORTION_BYTES || all == before {
            Room::Same { more }
        } else {
            Room::Beside
        }
    }

    fn resize(&mut self, there: Option<(usize, usize)>, bytes: usize) {
        let Some((portion, before)) = there else { return };
        if let Some((all, _)) = self.portions.get_mut(portion) {
            *all = all.saturating_sub(before).saturating_add(bytes);
        }
    }

    /// The portion for so many more bytes.
    fn portion(&mut self, bytes: usize) -> usize {
        match self.portions.last_mut() {
            Some((all, _)) if all.saturating_add(bytes) <= PORTION_BYTES => *all += bytes,
            _ => self.portions.push((bytes, None)),
        }
        self.portions.len() - 1
    }

    /// The completion of a portion.
    pub(crate) fn completer(&mut self, portion: usize) -> Option<Arc<Completer>> {
        let (_, completer) = self.portions.get_mut(portion)?;
        Some(Arc::clone(completer.get_or_insert_default()))
    }

    /// The completion of a topic's write, if one has gathered and its publisher waits.
    pub(crate) fn pending(&self, topic: &str) -> Option<&Arc<Completer>> {
        let (_, completer) = self.portions.get(self.writes.get(topic)?.portion)?;
        completer.as_ref()
    }

    /// The completions of all portions, in the order of their commits.
    pub(crate) fn completers(&self) -> impl Iterator<Item = Arc<Completer>> {
        self.portions.iter().filter_map(|(_, completer)| completer.clone())
    }

    /// The portions in the order of their commits.
    pub(crate) fn into_portions(self) -> Vec<Portion> {
        let mut portions: Vec<Portion> =
            self.portions.into_iter().map(|(_, completer)| Portion { completer, ..Portion::default() }).collect();
        for (topic, Place { write: (write, before), portion, .. }) in self.earlier.into_iter().chain(self.writes) {
            if let Some(portion) = portions.get_mut(portion) {
                portion.before.extend(before.map(|before| (topic.clone(), before)));
                portion.writes.push((topic, write));
            }
        }
        for (key, Place { write, portion, .. }) in self.earlier_records.into_iter().chain(self.records) {
            if let Some(portion) = portions.get_mut(portion) {
                portion.records.push((key, write));
            }
        }
        portions
    }
}

impl Portion {
    /// Undoes each write in the bus, so that nobody reads a message whose publisher is told that it was not kept.
    pub(crate) fn undo(&self, undo: &Undo) {
        for (topic, before) in &self.before {
            undo(topic, before.as_ref());
        }
    }

    pub(crate) fn complete(self, result: Result<(), StoreFailed>) {
        if let Some(completer) = self.completer {
            completer.complete(result);
        }
    }
}
