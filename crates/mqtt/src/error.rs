//! Errors in packets: every variant names the clause it breaks and the reason code for the peer.

use thiserror::Error;

use crate::{PacketType, ReasonCode};

/// The peer sent something that no packet of its version may be. The connection cannot go on ([MQTT-4.13.1-1]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The Remaining Length has a fifth byte or is not in its shortest form ([MQTT-1.5.5-1]).
    #[error("the Remaining Length is not a Variable Byte Integer [MQTT-1.5.5-1]")]
    RemainingLength,
    /// The packet is larger than we announced ([MQTT-3.1.2-24], [MQTT-3.2.2-15]).
    #[error("a packet of {bytes} bytes, {max} are allowed [MQTT-3.2.2-15]")]
    PacketTooLarge {
        /// Size of the whole packet.
        bytes: usize,
        /// The limit that was announced.
        max: usize,
    },
    /// Packet type 0, or AUTH before version 5 (§2.1.2).
    #[error("packet type {0} is reserved (§2.1.2)")]
    ReservedType(u8),
    /// The reserved flags of the fixed header differ from the table of §2.1.3 ([MQTT-2.1.3-1]).
    #[error("wrong fixed header flags in {0:?} [MQTT-2.1.3-1]")]
    HeaderFlags(PacketType),
    /// The packet ends inside a field.
    #[error("the packet ends inside a field (§4.13)")]
    Truncated,
    /// Bytes are left after the last field.
    #[error("bytes after the last field (§4.13)")]
    TrailingBytes,
    /// A string is not UTF-8 ([MQTT-1.5.4-1]).
    #[error("a string is not UTF-8 [MQTT-1.5.4-1]")]
    Utf8,
    /// A string contains U+0000 ([MQTT-1.5.4-2]).
    #[error("a string contains U+0000 [MQTT-1.5.4-2]")]
    Nul,
    /// A Variable Byte Integer inside the packet is too long or not minimal ([MQTT-1.5.5-1]).
    #[error("an integer is not a minimal Variable Byte Integer [MQTT-1.5.5-1]")]
    VariableByteInteger,
    /// A Packet Identifier of zero ([MQTT-2.2.1-3], [MQTT-2.2.1-4]).
    #[error("Packet Identifier 0 [MQTT-2.2.1-3]")]
    PacketIdZero,
    /// Both QoS bits set ([MQTT-3.3.1-4], [MQTT-3.1.2-12], [MQTT-3.8.3-5]).
    #[error("QoS 3 [MQTT-3.3.1-4]")]
    Qos,
    /// DUP on a QoS 0 message ([MQTT-3.3.1-2]).
    #[error("DUP with QoS 0 [MQTT-3.3.1-2]")]
    DupWithQos0,
    /// A Topic Name contains a wildcard ([MQTT-3.3.2-2]).
    #[error("a Topic Name with a wildcard [MQTT-3.3.2-2]")]
    TopicWildcard,
    /// A Topic Name or Topic Filter of no characters ([MQTT-4.7.3-1]).
    #[error("an empty Topic Name [MQTT-4.7.3-1]")]
    TopicEmpty,
    /// A Topic Name of no characters and no Topic Alias (§3.3.2.1).
    #[error("an empty Topic Name without a Topic Alias (§3.3.2.1)")]
    TopicMissing,
    /// A Response Topic with a wildcard ([MQTT-3.3.2-14]).
    #[error("a Response Topic with a wildcard [MQTT-3.3.2-14]")]
    ResponseTopicWildcard,
    /// A Response Topic of no characters ([MQTT-4.7.3-1]).
    #[error("an empty Response Topic [MQTT-4.7.3-1]")]
    ResponseTopicEmpty,
    /// Topic Alias 0 ([MQTT-3.3.2-8]).
    #[error("Topic Alias 0 [MQTT-3.3.2-8]")]
    TopicAliasZero,
    /// The protocol name of CONNECT is neither `MQTT` nor `MQIsdp` ([MQTT-3.1.2-1]).
    #[error("unknown protocol name [MQTT-3.1.2-1]")]
    ProtocolName,
    /// The protocol level is none of 3, 4 and 5, nor 0x83 or 0x84 of a bridge ([MQTT-3.1.2-2]).
    #[error("protocol level {0} [MQTT-3.1.2-2]")]
    ProtocolLevel(u8),
    /// The reserved bit of the Connect Flags is set ([MQTT-3.1.2-3]).
    #[error("reserved Connect Flag [MQTT-3.1.2-3]")]
    ConnectFlags,
    /// Will QoS or Will Retain without Will Flag ([MQTT-3.1.2-11], [MQTT-3.1.2-13]).
    #[error("Will QoS or Will Retain without Will Flag [MQTT-3.1.2-11]")]
    WillFlags,
    /// A password without a user name before version 5 ([MQTT-3.1.2-22] of 3.1.1).
    #[error("a password without a user name [MQTT-3.1.2-22]")]
    PasswordWithoutUser,
    /// A reserved bit of the Connect Acknowledge Flags is set ([MQTT-3.2.2-1]).
    #[error("reserved Connect Acknowledge Flag [MQTT-3.2.2-1]")]
    ConnackFlags,
    /// Session Present with a failure ([MQTT-3.2.2-6]).
    #[error("Session Present in a refusal [MQTT-3.2.2-6]")]
    SessionPresentOnFailure,
    /// A property identifier that does not exist or not in this packet (§2.2.2.2).
    #[error("property 0x{0:02X} does not belong here (§2.2.2.2)")]
    Property(u32),
    /// A property appears more than once (§2.2.2.2).
    #[error("property 0x{0:02X} twice (§2.2.2.2)")]
    PropertyTwice(u8),
    /// A property has a value that its section forbids.
    #[error("property 0x{0:02X} has a forbidden value")]
    PropertyValue(u8),
    /// Authentication Data without an Authentication Method (§3.1.2.11.10).
    #[error("Authentication Data without a method (§3.1.2.11.10)")]
    AuthenticationData,
    /// AUTH without an Authentication Method (§3.15.2.2.2).
    #[error("AUTH without an Authentication Method (§3.15.2.2.2)")]
    AuthenticationMethod,
    /// SUBSCRIBE without a Topic Filter ([MQTT-3.8.3-2]).
    #[error("SUBSCRIBE without a Topic Filter [MQTT-3.8.3-2]")]
    SubscribeEmpty,
    /// UNSUBSCRIBE without a Topic Filter ([MQTT-3.10.3-2]).
    #[error("UNSUBSCRIBE without a Topic Filter [MQTT-3.10.3-2]")]
    UnsubscribeEmpty,
    /// Reserved bits of the Subscription Options ([MQTT-3.8.3-5]).
    #[error("reserved Subscription Options [MQTT-3.8.3-5]")]
    SubscriptionOptions,
    /// Retain Handling 3 (§3.8.3.1).
    #[error("Retain Handling 3 (§3.8.3.1)")]
    RetainHandling,
    /// No Local on a Shared Subscription ([MQTT-3.8.3-4]).
    #[error("No Local on a Shared Subscription [MQTT-3.8.3-4]")]
    NoLocalShared,
    /// A reason code the packet may not carry ([MQTT-3.4.2-1] and its like).
    #[error("reason code 0x{code:02X} in {packet:?} (§2.4)")]
    Reason {
        /// The packet.
        packet: PacketType,
        /// The code it carried.
        code: u8,
    },
    /// SUBACK or UNSUBACK without a code ([MQTT-3.9.3-1], [MQTT-3.11.3-1]).
    #[error("an acknowledgement without a reason code [MQTT-3.9.3-1]")]
    AckEmpty,
}

impl DecodeError {
    /// The reason code for the peer (§4.13): the one that the standard names, otherwise Malformed Packet if the packet
    /// cannot be parsed and Protocol Error if it is not allowed.
    #[must_use]
    pub const fn reason(&self) -> ReasonCode {
        match self {
            Self::PacketTooLarge { .. } => ReasonCode::PACKET_TOO_LARGE,
            Self::ProtocolName | Self::ProtocolLevel(_) => ReasonCode::UNSUPPORTED_PROTOCOL_VERSION,
            Self::TopicAliasZero => ReasonCode::TOPIC_ALIAS_INVALID,
            Self::TopicWildcard => ReasonCode::TOPIC_NAME_INVALID,
            Self::RemainingLength
            | Self::ReservedType(_)
            | Self::HeaderFlags(_)
            | Self::Truncated
            | Self::TrailingBytes
            | Self::Utf8
            | Self::Nul
            | Self::VariableByteInteger
            | Self::Qos
            | Self::DupWithQos0
            | Self::TopicEmpty
            | Self::ConnectFlags
            | Self::WillFlags
            | Self::PasswordWithoutUser
            | Self::ConnackFlags
            | Self::Property(_)
            | Self::SubscriptionOptions => ReasonCode::MALFORMED_PACKET,
            Self::PacketIdZero
            | Self::TopicMissing
            | Self::ResponseTopicWildcard
            | Self::ResponseTopicEmpty
            | Self::SessionPresentOnFailure
            | Self::PropertyTwice(_)
            | Self::PropertyValue(_)
            | Self::AuthenticationData
            | Self::AuthenticationMethod
            | Self::SubscribeEmpty
            | Self::UnsubscribeEmpty
            | Self::RetainHandling
            | Self::NoLocalShared
            | Self::Reason { .. }
            | Self::AckEmpty => ReasonCode::PROTOCOL_ERROR,
        }
    }
}

/// The caller asked to encode what no packet can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// A string or binary field longer than 65 535 bytes (§1.5.4, §1.5.6).
    #[error("a field of {0} bytes, 65535 fit")]
    FieldTooLong(usize),
    /// A packet longer than a Remaining Length can say (§2.1.4), or than the peer accepts ([MQTT-3.1.2-24]).
    #[error("a packet of {0} bytes does not fit")]
    PacketTooLong(usize),
}
