//! What a client may read and write, asked cheaply.

use fogmux_auth::{Access, Action};
use fogmux_bus::ReadGate;

/// A client's permissions, hung on its subscriptions.
#[derive(Debug)]
pub(super) struct Gate(pub(super) Access);

impl ReadGate for Gate {
    fn may_read(&self, topic: &str) -> bool {
        self.0.may_read(topic)
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
            *self = Self { generation, open: gate.0.is_everything_allowed(Action::Write), ..Self::default() };
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
        let allowed = gate.0.may_write(topic);
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
