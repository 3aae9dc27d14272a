//! The limits of a client, and how CONNECT announces them (§3.1.2.11).

use crate::EncodeError;
use crate::property::{Property, PropertyBuffer};

/// The largest packet there is, in bytes (§2.1.4).
const PACKET_BYTES_MAX: u32 = 268_435_460;

/// The limits that the client announces to the server, in version 5, and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Largest packet taken, in bytes.
    pub packet_bytes_max: u32,
    /// Unacknowledged QoS 1 and 2 messages from the server.
    pub receive_maximum: u16,
    /// Highest topic alias of the server.
    pub topic_alias_maximum: u16,
    /// Unacknowledged QoS 1 and 2 messages to the server before version 5, where it announces no Receive Maximum; at
    /// least 1.
    pub window: u16,
}

impl ClientLimits {
    /// The defaults of the protocol, which need no property in CONNECT (§3.1.2.11.3 to §3.1.2.11.5), and a window of
    /// all identifiers.
    pub const PROTOCOL: Self = Self {
        packet_bytes_max: PACKET_BYTES_MAX,
        receive_maximum: u16::MAX,
        topic_alias_maximum: 0,
        window: u16::MAX,
    };

    /// Adds what differs from the defaults of the protocol to the properties of CONNECT.
    pub(super) fn push(&self, list: &mut PropertyBuffer) -> Result<(), EncodeError> {
        if self.receive_maximum != Self::PROTOCOL.receive_maximum {
            list.push(Property::ReceiveMaximum(self.receive_maximum.max(1)))?;
        }
        if self.packet_bytes_max < Self::PROTOCOL.packet_bytes_max {
            list.push(Property::MaximumPacketSize(self.packet_bytes_max.max(1)))?;
        }
        if self.topic_alias_maximum != Self::PROTOCOL.topic_alias_maximum {
            list.push(Property::TopicAliasMaximum(self.topic_alias_maximum))?;
        }
        Ok(())
    }
}

impl Default for ClientLimits {
    /// Packets as large as the protocol allows, 1000 unacknowledged messages from the server and 100 to it, 16 aliases.
    fn default() -> Self {
        Self { receive_maximum: 1000, topic_alias_maximum: 16, window: 100, ..Self::PROTOCOL }
    }
}
