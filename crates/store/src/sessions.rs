//! The records of sessions that outlive their connection (ADR 0042), beside retained messages in the same journal.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use fogmux_bus::{
    Completion,
    durable::{Batch as Changes, Gathering, ReadBack, Record, RecordId, SessionStore, StoredMessage},
};
use fogmux_journal::{ReadError, is_of_medium};

use crate::{
    batch::Batch,
    held::Room,
    kind::Kind,
    reader::{Reads, Unread},
    store::{Inner, JournalStore},
};

/// Bytes that a record takes in a commit beside its own.
const PUT_BYTES: usize = 24;

/// A batch, and the store that it is for.
struct OfSessions {
    store: JournalStore,
    batch: Batch,
    payers: Payers,
    /// As long as it is held.
    room: Option<Room>,
}

/// The principals that the records of a batch count for. The first has appended it, and bears what it forgets.
#[derive(Debug, Default)]
struct Payers {
    all: Vec<(Arc<str>, usize)>,
    places: HashMap<Arc<str>, usize>,
    /// The place of the one that what is put counts for.
    current: usize,
    /// Bytes of all but the first.
    others: usize,
    /// Bytes that others than the first may have without a look at their shares, once the queue was looked at.
    free: Option<usize>,
}

impl Payers {
    fn charge(&mut self, principal: &Arc<str>) {
        if self.all.get(self.current).is_some_and(|(payer, _)| payer == principal) {
            return;
        }
        let next = self.all.len();
        self.current = *self.places.entry(Arc::clone(principal)).or_insert(next);
        if self.current == next {
            self.all.push((Arc::clone(principal), 0));
        }
    }

    fn add(&mut self, bytes: usize) {
        if let Some((_, sum)) = self.all.get_mut(self.current) {
            *sum += bytes;
        }
        if self.current > 0 {
            self.others += bytes;
        }
    }

    fn bytes(&self) -> usize {
        self.all.iter().map(|(_, bytes)| bytes).sum()
    }

    fn of(&self, principal: &Arc<str>) -> usize {
        self.places.get(principal).and_then(|place| self.all.get(*place)).map_or(0, |(_, bytes)| *bytes)
    }
}

impl SessionStore for JournalStore {
    fn batch(&self) -> Box<dyn Changes> {
        Box::new(OfSessions { store: self.clone(), batch: Self::batch(self), payers: Payers::default(), room: None })
    }

    fn load(&self, visit: &mut dyn FnMut(RecordId, Option<(u8, Bytes)>)) {
        let of_sessions: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.is_of_session()).collect();
        // Damaged ones are counted and logged there.
        self.visit(&of_sessions, |kind, id, bytes| visit(RecordId(id.get()), Some((kind as u8, bytes.clone()))));
    }

    fn read(&self, message: RecordId) -> Option<StoredMessage> {
        let read = self.inner().read_message(message);
        read.inspect_err(|error| tracing::error!(%error, "a message is lost to a session")).unwrap_or_default()
    }

    fn read_back(&self, principal: &Arc<str>, messages: Vec<RecordId>) -> ReadBack {
        let from: Weak<dyn Reads> = Weak::<Inner>::clone(&Arc::downgrade(self.inner()));
        self.inner().reader.ask(from, principal, messages)
    }
}

impl Reads for Inner {
    fn read_message(&self, id: RecordId) -> Result<Option<StoredMessage>, Unread> {
        // A larger one was given by no journal.
        let Some(id) = fogmux_journal::RecordId::new(id.0) else { return Ok(None) };
        match self.read(id) {
            Ok(record) => Ok(record.and_then(|record| StoredMessage::of_record(record.kind, record.bytes))),
            Err(ReadError::Io(error)) if !is_of_medium(&error) => Err(Unread::Refused(error)),
            Err(error) => {
                self.count_damaged();
                Err(Unread::Lost(error))
            }
        }
    }
}

impl Changes for OfSessions {
    fn put(&mut self, record: &Record) -> RecordId {
        let bytes = record.encode();
        self.payers.add(bytes.len() + PUT_BYTES);
        RecordId(self.batch.put_number(record.kind(), bytes).get())
    }

    fn forget(&mut self, id: RecordId) {
        // A larger one was given by no journal.
        if let Some(id) = fogmux_journal::RecordId::new(id.0) {
            self.batch.forget(id);
        }
    }

    fn charge(&mut self, principal: &Arc<str>) {
        self.payers.charge(principal);
    }

    fn admits(&mut self, principal: &Arc<str>, bytes: usize) -> bool {
        // The first one is asked for when the batch is appended.
        if self.payers.all.first().is_none_or(|(first, _)| first == principal) {
            return true;
        }
        let store = &self.store;
        let free = *self.payers.free.get_or_insert_with(|| store.free_for_others());
        self.payers.others + bytes <= free || store.admits_for(principal, self.payers.of(principal) + bytes)
    }

    fn has_room(&self) -> bool {
        self.store.has_room()
    }

    fn hold(&mut self, gathering: &Arc<Gathering>) -> bool {
        self.room = self.store.held().and_then(|held| held.hold(gathering, self.payers.bytes()));
        self.room.is_some()
    }

    fn release_held(&self) {
        self.store.held().iter().for_each(|held| held.release_all());
    }

    fn append(self: Box<Self>) -> Completion {
        let Self { store, batch, payers, room: _ } = *self;
        let mut payers = payers.all.into_iter();
        match payers.next() {
            Some((first, _)) => store.commit_shared(&first, payers.filter(|(_, bytes)| *bytes > 0).collect(), batch),
            None => store.commit(batch),
        }
    }
}

impl JournalStore {
    /// Forgets all records of sessions. Returns how many sessions there were.
    pub fn forget_sessions(&self) -> usize {
        let (mut batch, mut sessions) = (Self::batch(self), 0);
        let of_sessions: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.is_of_session()).collect();
        self.visit(&of_sessions, |kind, id, _| {
            sessions += usize::from(kind == Kind::Session);
            batch.forget(id);
        });
        drop(self.commit(batch));
        sessions
    }
}
