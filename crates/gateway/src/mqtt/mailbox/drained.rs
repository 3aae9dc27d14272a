//! The result of a drain.

use bytes::Bytes;
use fogmux_bus::Completion;
use fogmux_mqtt::PacketId;

use crate::delivery_times::Marks;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::mqtt) struct Drained {
    /// A payload to write after the bytes.
    pub(in crate::mqtt) tail: Option<Bytes>,
    /// The deliveries in the bytes and the payload that are timed.
    pub(in crate::mqtt) marks: Marks,
    /// Messages from the queue that were encoded.
    pub(in crate::mqtt) sent: u64,
    /// Messages that expired in the queue (§3.3.2.3.3).
    pub(in crate::mqtt) expired: u64,
    /// Messages from the queue that are too large for the client ([MQTT-3.1.2-25]).
    pub(in crate::mqtt) too_large: u64,
    /// Messages that the store has not taken.
    pub(in crate::mqtt) refused: u64,
    /// Messages that the store has lost, by damage.
    pub(in crate::mqtt) lost_in_store: u64,
    /// Messages that the client may not read any more, as was seen when they were read back.
    pub(in crate::mqtt) unreadable: u64,
    /// Messages of QoS 2 among them that were to be sent again: their PUBRELs are sent when `committed`.
    pub(in crate::mqtt) released: Vec<PacketId>,
    pub(in crate::mqtt) committed: Completion,
    /// Whether more could be sent at once if the output had room.
    pub(in crate::mqtt) more: bool,
    /// Whether the queue is empty.
    pub(in crate::mqtt) queue_empty: bool,
    /// Whether the client has lost messages of QoS 1 or 2.
    pub(in crate::mqtt) lost: bool,
    /// Whether the client is to be disconnected for it.
    pub(in crate::mqtt) overrun: bool,
    /// Whether the client owes acknowledgements.
    pub(in crate::mqtt) awaiting: bool,
}
