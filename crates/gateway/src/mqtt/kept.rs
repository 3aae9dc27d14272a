//! Messages that a mailbox keeps for a client.

use std::sync::Arc;

use fogmux_bus::{Message, Qos};
use smallvec::SmallVec;

/// A message with the options of its delivery to this client.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) message: Arc<Message>,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) ids: SmallVec<[u32; 2]>,
    /// The tag of the shared subscription that it came by; 0 for any other.
    pub(super) share: u32,
}

impl Kept {
    /// Bytes that it takes up.
    pub(super) fn cost(&self) -> usize {
        self.message.size() + size_of::<Self>()
    }
}
