//! The retained messages, their bytes, and the share of each principal.

use std::{collections::BTreeMap, sync::Arc};

use crate::{footprint, message::Message, share::Shares, topic::Topic};

#[derive(Debug, Default)]
pub(super) struct Map {
    pub(super) messages: BTreeMap<Topic, Arc<Message>>,
    pub(super) bytes: usize,
    /// The messages of each principal.
    pub(super) shares: Shares,
}

impl Map {
    /// Restores the message that a topic had before a write that failed.
    pub(super) fn undo(&mut self, topic: &Topic, before: Option<&Arc<Message>>) {
        match before {
            Some(message) => self.insert(message),
            None => self.remove(topic),
        }
    }

    /// Makes a message its topic's latest.
    pub(super) fn insert(&mut self, message: &Arc<Message>) {
        let bytes = footprint::of(message);
        let replaced = match self.messages.get_mut(message.topic.as_str()) {
            Some(kept) => Some(std::mem::replace(kept, Arc::clone(message))),
            None => self.messages.insert(message.topic.clone(), Arc::clone(message)),
        };
        self.bytes += bytes;
        let principal = &message.publisher.principal;
        let Some(old) = replaced else {
            self.shares.add(principal, bytes);
            return;
        };
        let old_bytes = footprint::of(&old);
        self.bytes -= old_bytes;
        // A value that follows one of the same publisher and size changes nothing.
        if bytes != old_bytes || *principal != old.publisher.principal {
            self.shares.add(principal, bytes);
            self.shares.remove(&old.publisher.principal, old_bytes);
        }
    }

    pub(super) fn remove(&mut self, topic: &str) {
        let Some(old) = self.messages.remove(topic) else { return };
        let bytes = footprint::of(&old);
        self.bytes -= bytes;
        self.shares.remove(&old.publisher.principal, bytes);
    }
}
