//! Keeps `$SYS` out of the store: the status of an earlier run is wrong in the next, and writing it every ten seconds
//! would wear the disk.

use std::sync::Arc;

use fogmux_bus::{Completion, Message, RetainedStore, Stored, Topic, Undo};

/// The store, without `$SYS`.
pub(crate) struct Unstored(pub(crate) Box<dyn RetainedStore>);

fn is_status(topic: &Topic) -> bool {
    topic.starts_with("$SYS/")
}

impl RetainedStore for Unstored {
    fn put(&self, message: &Arc<Message>, expires_unix_ms: Option<u64>, before: Option<&Arc<Message>>) -> Completion {
        if is_status(&message.topic) { Completion::Ready } else { self.0.put(message, expires_unix_ms, before) }
    }

    fn remove(&self, topic: &Topic, before: Option<&Arc<Message>>) -> Completion {
        if is_status(topic) { Completion::Ready } else { self.0.remove(topic, before) }
    }

    fn pending(&self, topic: &str) -> Completion {
        self.0.pending(topic)
    }

    fn undo_by(&self, undo: Undo) {
        self.0.undo_by(undo);
    }

    fn load(&self, visit: &mut dyn FnMut(Stored)) {
        self.0.load(&mut |stored| {
            if !is_status(&stored.topic) {
                visit(stored);
            }
        });
    }
}
