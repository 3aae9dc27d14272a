//! Messages that a store gives back.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::Stored;
use crate::{
    Timestamp,
    door::Door,
    meaning::Meaning,
    message::{Message, MessageId, Publisher},
};

/// Allocations that restored messages share: a gateway has few publishers and content types, and many messages.
#[derive(Default)]
pub(super) struct Shared {
    publishers: HashMap<(Arc<str>, Option<Door>), Arc<Publisher>>,
    content_types: HashSet<Arc<str>>,
}

impl Shared {
    fn publisher(&mut self, principal: Arc<str>, door: Option<Door>) -> Arc<Publisher> {
        let made =
            || Arc::new(Publisher { principal: Arc::clone(&principal), client: Arc::default(), door, slot: None });
        Arc::clone(self.publishers.entry((Arc::clone(&principal), door)).or_insert_with(made))
    }

    fn content_type(&mut self, name: Arc<str>) -> Arc<str> {
        if let Some(known) = self.content_types.get(&name) {
            return Arc::clone(known);
        }
        self.content_types.insert(Arc::clone(&name));
        name
    }

    /// A message of the store as one of the bus.
    pub(super) fn restore(&mut self, stored: Stored, now: Timestamp, left_ms: Option<u64>) -> Message {
        Message {
            id: MessageId(0),
            tag: OnceLock::new(),
            topic: stored.topic,
            payload: stored.payload,
            qos: stored.qos,
            meaning: Meaning::Value,
            sample: None,
            content_type: stored.content_type.map(|name| self.content_type(name)),
            expires_at: left_ms.map(|ms| now + Duration::from_millis(ms)),
            properties: stored.properties.map(Arc::new),
            publisher: self.publisher(stored.principal, stored.door),
            ingest: now,
            ingest_unix_ms: stored.ingest_unix_ms,
        }
    }
}

/// The same message with other times.
pub(super) fn again(message: &Message, ingest_unix_ms: u64, expires_at: Option<Timestamp>) -> Message {
    Message {
        id: message.id,
        tag: message.tag.clone(),
        topic: message.topic.clone(),
        payload: message.payload.clone(),
        qos: message.qos,
        meaning: message.meaning,
        sample: message.sample,
        content_type: message.content_type.clone(),
        expires_at,
        properties: message.properties.clone(),
        publisher: Arc::clone(&message.publisher),
        ingest: message.ingest,
        ingest_unix_ms,
    }
}
