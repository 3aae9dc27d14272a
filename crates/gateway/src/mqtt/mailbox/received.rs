//! QoS 2 messages that were received and that PUBREL has not released yet (§4.3.3).

use std::collections::BTreeMap;

use fogmux_bus::Completion;
use fogmux_mqtt::{PacketId, Received, ReceivedIds};

use crate::mqtt::owed::Owed;

/// Bytes of identifiers that are in no account of memory: so many stay allocated when none is in use.
const UNCOUNTED: usize = 64 * size_of::<PacketId>();
/// Bytes of a message that is stored beside its identifier: its record in the session's log, and in the index of the
/// journal.
const STORED_BYTES: usize = 56;
/// Bytes of a message whose acknowledgement was not sent.
const UNSETTLED_BYTES: usize = size_of::<(PacketId, Completion, Owed)>();

/// The messages of a session. In a box, because most clients send none.
#[derive(Debug, Default)]
pub(in crate::mqtt) struct Unreleased(Option<Box<Messages>>);

#[derive(Debug, Default)]
struct Messages {
    ids: ReceivedIds,
    /// Acknowledgements of earlier connections, which ended before it was known whether the store has the messages.
    unsettled: BTreeMap<PacketId, (Completion, Owed)>,
}

impl Unreleased {
    /// As [`ReceivedIds::insert`].
    #[inline]
    pub(in crate::mqtt) fn insert(&mut self, id: PacketId, max: usize) -> Received {
        self.0.get_or_insert_default().ids.insert(id, max)
    }

    /// As [`ReceivedIds::remove`].
    #[inline]
    pub(in crate::mqtt) fn remove(&mut self, id: PacketId) -> bool {
        let Some(messages) = &mut self.0 else { return false };
        if !messages.unsettled.is_empty() {
            messages.unsettled.remove(&id);
        }
        messages.ids.remove(id)
    }

    /// Whether it was received and not released.
    pub(in crate::mqtt) fn contains(&self, id: PacketId) -> bool {
        self.0.as_ref().is_some_and(|messages| messages.ids.contains(id))
    }

    /// Notes the acknowledgement of a received message, which was not sent and holds only if the completion succeeds.
    pub(in crate::mqtt) fn leave(&mut self, completion: &Completion, owed: Owed) {
        if let Some(messages) = &mut self.0
            && !completion.is_ready()
            && messages.ids.contains(owed.id)
        {
            messages.unsettled.insert(owed.id, (completion.clone(), owed));
        }
    }

    /// The acknowledgement of a message of an earlier connection.
    pub(in crate::mqtt) fn unsettled(&self, id: PacketId) -> Option<(Completion, Owed)> {
        self.0.as_ref()?.unsettled.get(&id).cloned()
    }

    /// Bytes that count as memory; those of a durable session have records.
    pub(in crate::mqtt) fn bytes(&self, is_durable: bool) -> usize {
        let Some(messages) = &self.0 else { return 0 };
        let stored = if is_durable { messages.ids.len() * STORED_BYTES } else { 0 };
        let ids = messages.ids.bytes() + stored;
        messages.unsettled.len() * UNSETTLED_BYTES + if ids > UNCOUNTED { ids } else { 0 }
    }
}
