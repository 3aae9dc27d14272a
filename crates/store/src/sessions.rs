//! The records of sessions that outlive their connection (ADR 0042), beside retained messages in the same journal.

use std::sync::Arc;

use bytes::Bytes;
use fogmux_bus::{
    Completion,
    durable::{Batch as Changes, Record, RecordId, SessionStore},
};

use crate::{batch::Batch, kind::Kind, store::JournalStore};

/// A batch, and the store that it is for.
struct OfSessions {
    store: JournalStore,
    batch: Batch,
    principal: Option<Arc<str>>,
}

impl SessionStore for JournalStore {
    fn batch(&self) -> Box<dyn Changes> {
        Box::new(OfSessions { store: self.clone(), batch: Self::batch(self), principal: None })
    }

    fn load(&self, visit: &mut dyn FnMut(RecordId, Option<(u8, Bytes)>)) {
        let of_sessions: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.is_of_session()).collect();
        // Damaged ones are counted and logged there.
        self.visit(&of_sessions, |kind, id, bytes| visit(RecordId(id.get()), Some((kind as u8, bytes.clone()))));
    }
}

impl Changes for OfSessions {
    fn put(&mut self, record: &Record) -> RecordId {
        RecordId(self.batch.put_number(record.kind(), record.encode()).get())
    }

    fn forget(&mut self, id: RecordId) {
        // A larger one was given by no journal.
        if let Some(id) = fogmux_journal::RecordId::new(id.0) {
            self.batch.forget(id);
        }
    }

    fn charge(&mut self, principal: &Arc<str>) {
        self.principal.get_or_insert_with(|| Arc::clone(principal));
    }

    fn append(self: Box<Self>) -> Completion {
        let Self { store, batch, principal } = *self;
        match principal {
            Some(principal) => store.commit_for(&principal, batch),
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
