//! Reason codes (MQTT 5.0 §2.4), the return codes of 3.1.1 they stand for, and which packet may carry which.

use std::fmt;

use crate::PacketType;

/// A reason code: below 0x80 success, from 0x80 on failure (MQTT 5.0 §2.4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReasonCode(pub u8);

macro_rules! reasons {
    ($($code:literal $constant:ident $text:literal;)*) => {
        impl ReasonCode {
            $(#[doc = concat!($text, ".")] pub const $constant: Self = Self($code);)*

            /// The standard's name of the code, for logs and reason strings.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => $text,)*
                    _ => "Unassigned reason code",
                }
            }
        }
    };
}

reasons! {
    0x00 SUCCESS "Success";
    0x01 GRANTED_QOS_1 "Granted QoS 1";
    0x02 GRANTED_QOS_2 "Granted QoS 2";
    0x04 DISCONNECT_WITH_WILL "Disconnect with Will Message";
    0x10 NO_MATCHING_SUBSCRIBERS "No matching subscribers";
    0x11 NO_SUBSCRIPTION_EXISTED "No subscription existed";
    0x18 CONTINUE_AUTHENTICATION "Continue authentication";
    0x19 RE_AUTHENTICATE "Re-authenticate";
    0x80 UNSPECIFIED_ERROR "Unspecified error";
    0x81 MALFORMED_PACKET "Malformed Packet";
    0x82 PROTOCOL_ERROR "Protocol Error";
    0x83 IMPLEMENTATION_SPECIFIC_ERROR "Implementation specific error";
    0x84 UNSUPPORTED_PROTOCOL_VERSION "Unsupported Protocol Version";
    0x85 CLIENT_IDENTIFIER_NOT_VALID "Client Identifier not valid";
    0x86 BAD_USER_NAME_OR_PASSWORD "Bad User Name or Password";
    0x87 NOT_AUTHORIZED "Not authorized";
    0x88 SERVER_UNAVAILABLE "Server unavailable";
    0x89 SERVER_BUSY "Server busy";
    0x8A BANNED "Banned";
    0x8B SERVER_SHUTTING_DOWN "Server shutting down";
    0x8C BAD_AUTHENTICATION_METHOD "Bad authentication method";
    0x8D KEEP_ALIVE_TIMEOUT "Keep Alive timeout";
    0x8E SESSION_TAKEN_OVER "Session taken over";
    0x8F TOPIC_FILTER_INVALID "Topic Filter invalid";
    0x90 TOPIC_NAME_INVALID "Topic Name invalid";
    0x91 PACKET_IDENTIFIER_IN_USE "Packet Identifier in use";
    0x92 PACKET_IDENTIFIER_NOT_FOUND "Packet Identifier not found";
    0x93 RECEIVE_MAXIMUM_EXCEEDED "Receive Maximum exceeded";
    0x94 TOPIC_ALIAS_INVALID "Topic Alias invalid";
    0x95 PACKET_TOO_LARGE "Packet too large";
    0x96 MESSAGE_RATE_TOO_HIGH "Message rate too high";
    0x97 QUOTA_EXCEEDED "Quota exceeded";
    0x98 ADMINISTRATIVE_ACTION "Administrative action";
    0x99 PAYLOAD_FORMAT_INVALID "Payload format invalid";
    0x9A RETAIN_NOT_SUPPORTED "Retain not supported";
    0x9B QOS_NOT_SUPPORTED "QoS not supported";
    0x9C USE_ANOTHER_SERVER "Use another server";
    0x9D SERVER_MOVED "Server moved";
    0x9E SHARED_SUBSCRIPTIONS_NOT_SUPPORTED "Shared Subscriptions not supported";
    0x9F CONNECTION_RATE_EXCEEDED "Connection rate exceeded";
    0xA0 MAXIMUM_CONNECT_TIME "Maximum connect time";
    0xA1 SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED "Subscription Identifiers not supported";
    0xA2 WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED "Wildcard Subscriptions not supported";
}

impl ReasonCode {
    /// Whether the operation failed (MQTT 5.0 §2.4).
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }

    /// The CONNACK return code of 3.1 and 3.1.1 that says the same (MQTT 3.1.1 §3.2.2.3), `None` where the older
    /// standards have the server close the connection without one.
    #[must_use]
    pub const fn connack_v3(self) -> Option<u8> {
        match self {
            Self::SUCCESS => Some(0),
            Self::UNSUPPORTED_PROTOCOL_VERSION => Some(1),
            Self::CLIENT_IDENTIFIER_NOT_VALID => Some(2),
            Self::SERVER_UNAVAILABLE
            | Self::SERVER_BUSY
            | Self::SERVER_SHUTTING_DOWN
            | Self::QUOTA_EXCEEDED
            | Self::CONNECTION_RATE_EXCEEDED
            | Self::USE_ANOTHER_SERVER
            | Self::SERVER_MOVED => Some(3),
            Self::BAD_USER_NAME_OR_PASSWORD => Some(4),
            Self::NOT_AUTHORIZED | Self::BANNED | Self::BAD_AUTHENTICATION_METHOD => Some(5),
            _ => None,
        }
    }

    /// The reason code a return code of 3.1.1 stands for, `None` for the reserved ones [MQTT-3.2.2-6 of 3.1.1].
    #[must_use]
    pub const fn from_connack_v3(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::SUCCESS),
            1 => Some(Self::UNSUPPORTED_PROTOCOL_VERSION),
            2 => Some(Self::CLIENT_IDENTIFIER_NOT_VALID),
            3 => Some(Self::SERVER_UNAVAILABLE),
            4 => Some(Self::BAD_USER_NAME_OR_PASSWORD),
            5 => Some(Self::NOT_AUTHORIZED),
            _ => None,
        }
    }

    /// Whether MQTT 5.0 lets a packet of this type carry the code (the table of each packet's section; [MQTT-3.2.2-8],
    /// [MQTT-3.4.2-1], [MQTT-3.5.2-1], [MQTT-3.6.2-1], [MQTT-3.7.2-1], [MQTT-3.9.3-2], [MQTT-3.11.3-2],
    /// [MQTT-3.14.2-1], [MQTT-3.15.2-1]).
    #[must_use]
    pub const fn allowed_in(self, packet: PacketType) -> bool {
        match packet {
            PacketType::Connack => {
                matches!(self.0, 0x00 | 0x80..=0x8A | 0x8C | 0x90 | 0x95 | 0x97 | 0x99..=0x9D | 0x9F)
            }
            PacketType::Puback | PacketType::Pubrec => {
                matches!(self.0, 0x00 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99)
            }
            PacketType::Pubrel | PacketType::Pubcomp => matches!(self.0, 0x00 | 0x92),
            PacketType::Suback => {
                matches!(self.0, 0..=2 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91 | 0x97 | 0x9E | 0xA1 | 0xA2)
            }
            PacketType::Unsuback => matches!(self.0, 0x00 | 0x11 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91),
            PacketType::Disconnect => matches!(
                self.0,
                0x00 | 0x04 | 0x80..=0x83 | 0x87 | 0x89 | 0x8B | 0x8D..=0x90 | 0x93..=0xA2
            ),
            PacketType::Auth => matches!(self.0, 0x00 | 0x18 | 0x19),
            PacketType::Connect
            | PacketType::Publish
            | PacketType::Subscribe
            | PacketType::Unsubscribe
            | PacketType::Pingreq
            | PacketType::Pingresp => false,
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:02X})", self.name(), self.0)
    }
}

impl fmt::Debug for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
