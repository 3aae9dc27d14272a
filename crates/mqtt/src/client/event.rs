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
        /// Why.
        reason: ReasonCode,
        /// For people.
        text: Option<&'a str>,
    },
    /// A message; it has been acknowledged already.
    Message(Incoming<'a>),
    /// A message of ours is done.
    Published {
        /// Which.
        packet_id: PacketId,
        /// How it went.
        reason: ReasonCode,
    },
    /// SUBACK.
    Subscribed {
        /// Of which SUBSCRIBE.
        packet_id: PacketId,
        /// For each filter.
        codes: ReasonCodes<'a>,
    },
    /// UNSUBACK; no codes before version 5.
    Unsubscribed {
        /// Of which UNSUBSCRIBE.
        packet_id: PacketId,
        /// For each filter.
        codes: ReasonCodes<'a>,
    },
    /// The server ends the connection.
    Disconnected {
        /// Why.
        reason: ReasonCode,
        /// For people.
        text: Option<&'a str>,
    },
    /// A step of extended authentication (§4.12): a challenge to be answered with [`Authentication::encode`](crate::Authentication::encode), or the
    /// success of a re-authentication.
    Authentication {
        /// Continue authentication, or success.
        reason: ReasonCode,
        /// The Authentication Data.
        data: Option<&'a [u8]>,
    },
    /// PINGRESP.
    Pong,
    /// A packet that says nothing to the caller.
    Nothing,
}

/// The server broke the protocol; the connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// A packet that is none.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A packet that may not come now.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// As much is unacknowledged as the server takes; wait for a [`Event::Published`].
    #[error("the server's receive maximum is reached")]
    NoRoom,
    /// Larger than the server takes.
    #[error("the packet is larger than the server accepts")]
    TooLarge,
    /// A field is longer than MQTT can say.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}
