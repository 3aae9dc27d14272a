//! Protocol errors of well-formed packets.

use thiserror::Error;

use crate::{PacketType, ReasonCode};

/// The peer broke the protocol with a packet that is well formed. The connection cannot go on ([MQTT-4.13.1-1]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A packet that the peer's role or the state of the connection forbids ([MQTT-3.1.0-2] and its like).
    #[error("{0:?} does not belong here (§4.13)")]
    Unexpected(PacketType),
    /// More unacknowledged QoS 1 and 2 messages than announced ([MQTT-3.3.4-9]).
    #[error("more than {max} unacknowledged messages [MQTT-3.3.4-9]")]
    ReceiveMaximum {
        /// The announced maximum.
        max: u16,
    },
    /// A Topic Alias above the maximum ([MQTT-3.3.2-9]).
    #[error("Topic Alias {0} [MQTT-3.3.2-9]")]
    TopicAlias(u16),
    /// A Topic Alias that stands for nothing (§3.3.2.3.4).
    #[error("unknown Topic Alias {0} (§3.3.2.3.4)")]
    TopicAliasUnknown(u16),
    /// The topics behind the aliases are longer than the configured number of bytes.
    #[error("topics behind aliases above {max} bytes")]
    AliasBytes {
        /// The configured limit.
        max: usize,
    },
    /// A client put a Subscription Identifier into PUBLISH ([MQTT-3.3.4-6]).
    #[error("a Subscription Identifier from a client [MQTT-3.3.4-6]")]
    SubscriptionIdentifier,
    /// A property that only the server may send, or only the client ([MQTT-3.14.2-2]).
    #[error("a property that this peer may not send (§3.14.2.2)")]
    Property,
    /// An acknowledgement of the wrong kind for the message's QoS (§4.3).
    #[error("{0:?} for a message of another QoS (§4.3)")]
    WrongAcknowledgement(PacketType),
    /// AUTH without a method, or with another than that of CONNECT ([MQTT-4.12.0-5]).
    #[error("the Authentication Method is not that of CONNECT [MQTT-4.12.0-5]")]
    AuthenticationMethod,
}

impl ProtocolError {
    /// The reason code the peer is told.
    #[must_use]
    pub const fn reason(&self) -> ReasonCode {
        match self {
            Self::Unexpected(_)
            | Self::TopicAliasUnknown(_)
            | Self::SubscriptionIdentifier
            | Self::Property
            | Self::WrongAcknowledgement(_)
            | Self::AuthenticationMethod => ReasonCode::PROTOCOL_ERROR,
            Self::ReceiveMaximum { .. } => ReasonCode::RECEIVE_MAXIMUM_EXCEEDED,
            Self::TopicAlias(_) => ReasonCode::TOPIC_ALIAS_INVALID,
            Self::AliasBytes { .. } => ReasonCode::QUOTA_EXCEEDED,
        }
    }
}
