//! Access checks of a client, with a cache.

use std::sync::{Arc, PoisonError, RwLock};

use fogmux_auth::{Access, Action};
use fogmux_bus::ReadGate;

/// A client's permissions, hung on its subscriptions. They outlive the connection with its session: who comes back may
/// show a credential that grants something else.
#[derive(Debug)]
pub(super) struct Gate(RwLock<Arc<Access>>);

impl Gate {
    pub(super) fn new(access: Access) -> Self {
        Self(RwLock::new(Arc::new(access)))
    }

    /// The permissions as they are now.
    pub(super) fn access(&self) -> Arc<Access> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts others in their place. Says whether they are another's or come from another credential, so that routes have
    /// to be computed anew.
    pub(super) fn renew(&self, access: Arc<Access>) -> bool {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let changed = held.principal() != access.principal();
        *held = access;
        changed
    }
}

impl ReadGate for Gate {
    fn may_read(&self, topic: &str) -> bool {
        self.access().may_read(topic)
    }

    fn principal(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.access().principal().name))
    }
}

/// Answers remembered; a client publishes to few topics.
const REMEMBERED_MAX: usize = 8;
/// Longest topic remembered, in bytes.
const REMEMBERED_BYTES_MAX: usize = 256;

/// Remembers what a client may write, until the rules change.
#[derive(Debug, Default)]
pub(super) struct WriteCache {
    generation: u64,
    open: bool,
    topics: Vec<(Box<str>, bool)>,
    next: usize,
}

impl WriteCache {
    /// Whether the client behind `gate` may write `topic`. `generation` is that of the authority.
    #[inline]
    pub(super) fn may_write(&mut self, gate: &Gate, generation: u64, topic: &str) -> bool {
        if self.generation != generation {
            *self = Self { generation, open: gate.access().is_everything_allowed(Action::Write), ..Self::default() };
        }
        if self.open && !topic.starts_with('$') {
            return true;
        }
        match self.topics.iter().find(|(known, _)| **known == *topic) {
            Some((_, allowed)) => *allowed,
            None => self.ask(gate, topic),
        }
    }

    fn ask(&mut self, gate: &Gate, topic: &str) -> bool {
        let allowed = gate.access().may_write(topic);
        if topic.len() <= REMEMBERED_BYTES_MAX {
            let entry = (Box::from(topic), allowed);
            match self.topics.get_mut(self.next) {
                Some(oldest) => *oldest = entry,
                None => self.topics.push(entry),
            }
            self.next = (self.next + 1) % REMEMBERED_MAX;
        }
        allowed
    }
}
