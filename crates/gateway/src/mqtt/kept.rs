//! Messages that a mailbox keeps for a client.

use std::sync::Arc;

use fogmux_bus::{
    Message, Qos,
    durable::{Manner, StoredDelivery},
};
use smallvec::SmallVec;

/// A message with the options of its delivery to this client.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) message: Arc<Message>,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    /// Whether its delivery is timed, if its message is: not one that was retained before, or that waited for the
    /// client to come back.
    pub(super) timed: bool,
    pub(super) ids: SmallVec<[u32; 2]>,
    /// The tag of the shared subscription that it came by; 0 for any other.
    pub(super) share: u32,
    /// Its record, if the session has those. In a box, because most have none.
    pub(super) stored: Option<Box<StoredDelivery>>,
}

impl Kept {
    /// Bytes that it takes up.
    pub(super) fn cost(&self) -> usize {
        self.message.size() + size_of::<Self>() + self.stored.as_ref().map_or(0, |_| size_of::<StoredDelivery>())
    }

    /// The same, with a record or without.
    pub(super) fn with(&self, stored: Option<Box<StoredDelivery>>) -> Self {
        let Self { ref message, qos, retain, timed, ref ids, share, stored: _ } = *self;
        Self { message: Arc::clone(message), qos, retain, timed, ids: ids.clone(), share, stored }
    }

    /// The options of the delivery as they are stored.
    pub(super) fn manner(&self) -> Manner {
        Manner { qos: self.qos, retain: self.retain, share: self.share, ids: self.ids.clone() }
    }
}
