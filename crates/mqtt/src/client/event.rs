//! The events of a connection, and how it and requests fail.

use thiserror::Error;

use crate::inbound::Incoming;
use crate::negotiation::ConnackProperties;
use crate::packet::ReasonCodes;
use crate::{DecodeError, EncodeError, PacketId, ProtocolError, ReasonCode};

/// An event from the server.
#[derive(Debug, PartialEq)]
pub enum Event<'a> {
    /// CONNACK of success.
    Connected {
        /// The server still has the session.
        session_present: bool,
        /// The properties of CONNACK.
        properties: ConnackProperties<'a>,
    },
    /// CONNACK of refusal; the server closes.
    Refused {
        /// The reason code of CONNACK; before version 5 the one that corresponds to the return code.
        reason: ReasonCode,
        /// The Reason String.
        text: Option<&'a str>,
    },
    /// A message. Its acknowledgement has been appended.
    Message(Incoming<'a>),
    /// A QoS 1 or 2 message of the client is acknowledged for good: PUBACK, PUBCOMP, or PUBREC with a failure (§4.3).
    Published {
        /// Its identifier, which is free again.
        packet_id: PacketId,
        /// The reason code of the acknowledgement.
        reason: ReasonCode,
    },
    /// SUBACK.
    Subscribed {
        /// The identifier of SUBSCRIBE.
        packet_id: PacketId,
        /// A reason code for each filter.
        codes: ReasonCodes<'a>,
    },
    /// UNSUBACK; no codes before version 5.
    Unsubscribed {
        /// The identifier of UNSUBSCRIBE.
        packet_id: PacketId,
        /// A reason code for each filter.
        codes: ReasonCodes<'a>,
    },
    /// DISCONNECT: the server ends the connection (version 5).
    Disconnected {
        /// The reason code of DISCONNECT.
        reason: ReasonCode,
        /// The Reason String.
        text: Option<&'a str>,
    },
    /// A step of extended authentication (§4.12): a challenge to be answered with
    /// [`Authentication::encode`](crate::Authentication::encode), or the success of a re-authentication.
    Authentication {
        /// Continue authentication, or success.
        reason: ReasonCode,
        /// The Authentication Data.
        data: Option<&'a [u8]>,
    },
    /// PINGRESP.
    Pong,
    /// A packet without an event: PUBREL, a duplicate, PUBREC of success, or an unknown acknowledgement.
    Nothing,
}

/// The server broke the protocol; the connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// A malformed packet.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A packet that the server may not send now.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// As many messages are unacknowledged as the server takes, or no packet identifier is free: wait for an
    /// [`Event::Published`].
    #[error("the server's receive maximum is reached")]
    NoRoom,
    /// The packet is larger than the server's Maximum Packet Size.
    #[error("the packet is larger than the server accepts")]
    TooLarge,
    /// A field is longer than 65 535 bytes, or the packet longer than 268 435 460.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}
