//! Copies of messages for the subscribers of other workers.
//!
//! A message to many subscribers is counted by each of them. If two workers count references to the same message, each
//! waits for the other's cache most of the time.

use std::{cell::OnceCell, sync::Arc};

use bytes::Bytes;

use crate::{
    id::WorkerId,
    limits::COPIED_BYTES_MAX,
    message::Message,
    route::{Pick, Routes},
};

/// The copies of a batch's messages, one for each other worker, as far as they were needed.
#[derive(Debug)]
pub(crate) struct Copies {
    me: WorkerId,
    /// Whether a topic of the batch has many subscribers.
    wanted: bool,
    publications: usize,
    /// By worker, then by publication; empty unless wanted.
    places: Vec<OnceCell<Arc<Message>>>,
}

impl Copies {
    pub(crate) const fn new(me: WorkerId) -> Self {
        Self { me, wanted: false, publications: 0, places: Vec::new() }
    }

    /// Notes the routes of a publication of the next batch.
    pub(crate) fn want(&mut self, routes: &Routes) {
        self.wanted |= routes.is_wide();
    }

    /// Makes places for a batch, if they are wanted.
    pub(crate) fn prepare(&mut self, publications: usize, workers: usize) {
        if self.wanted {
            self.publications = publications;
            // Empty unless a batch has panicked.
            self.places.clear();
            self.places.resize_with(publications * workers, OnceCell::new);
        }
    }

    pub(crate) fn clear(&mut self) {
        if self.wanted {
            self.wanted = false;
            self.places.clear();
        }
    }

    /// The place of the copy for this worker; `None` if it gets none.
    pub(crate) fn place(&self, home: WorkerId, pick: Pick) -> Option<&OnceCell<Arc<Message>>> {
        if !self.wanted || home == self.me {
            return None;
        }
        self.places.get(home.0 * self.publications + pick.publication as usize)
    }
}

impl Message {
    /// A copy for the subscribers of another worker: the reference counts of what both share are changed for each copy,
    /// not for each subscriber.
    pub(crate) fn copy(&self) -> Self {
        let payload = if self.payload.len() > COPIED_BYTES_MAX {
            self.payload.clone()
        } else {
            Bytes::copy_from_slice(&self.payload)
        };
        Self {
            id: self.id,
            topic: self.topic.clone(),
            payload,
            qos: self.qos,
            meaning: self.meaning,
            sample: self.sample,
            content_type: self.content_type.clone(),
            expires_at: self.expires_at,
            properties: self.properties.clone(),
            publisher: Arc::clone(&self.publisher),
            ingest: self.ingest,
            ingest_unix_ms: self.ingest_unix_ms,
            tag: self.tag.clone(),
        }
    }
}
