//! MQTT 3.1, 3.1.1 and 5.0 as data and pure state machines, both roles.
//!
//! Nothing here opens a socket, reads a clock, spawns or draws random numbers. [`decode`] borrows from the bytes that
//! arrived, everything sent is appended to the caller's buffer. Section numbers are those of MQTT 5.0 unless marked.

mod alias;
mod authentication;
mod client;
mod cursor;
mod error;
mod inbound;
mod negotiation;
mod outbound;
mod packet;
mod property;
mod protocol_error;
mod reason;
mod types;
mod version;
mod writer;

pub use authentication::{AuthStep, Authentication};
pub use client::{Client, ClientError, ClientLimits, Event, RequestError};
pub use error::{DecodeError, EncodeError};
pub use inbound::{Inbound, InboundConfig, Incoming, Received, ReceivedIds, Role, TopicName};
pub use negotiation::{
    ConnackProperties, Negotiation, SESSION_NEVER_EXPIRES, ServerLimits, WillProperties, refuse, refuse_unreadable,
};
pub use outbound::{Acknowledged, Outbound, OutboundConfig, Sent, Unfinished};
pub use packet::{
    Ack, Auth, Connack, Connect, Disconnect, Frame, Limits, Outgoing, Packet, PacketType, Publish, PublishProperties,
    ReasonCodes, Suback, Subscribe, SubscribeEntries, TopicFilters, Unsuback, Unsubscribe, Will, decode,
};
pub use property::{Place, Properties, Property, PropertyBuffer, PropertyIter};
pub use protocol_error::ProtocolError;
pub use reason::ReasonCode;
pub use types::{PacketId, Qos, RetainHandling, SubscriptionOptions};
pub use version::Version;
