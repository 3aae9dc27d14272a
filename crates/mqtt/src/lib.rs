//! MQTT 3.1, 3.1.1 and 5.0 as data and pure state machines, both roles.
//!
//! Nothing here opens a socket, reads a clock, spawns or draws random numbers. [`decode`] borrows from the bytes that
//! arrived, everything sent is appended to the caller's buffer. Section numbers are those of MQTT 5.0 unless marked.

mod cursor;
mod error;
mod packet;
mod property;
mod reason;
mod types;
mod version;
mod writer;

pub use error::{DecodeError, EncodeError};
pub use packet::{
    Ack, Auth, Connack, Connect, Disconnect, Frame, Limits, Outgoing, Packet, PacketType, Publish, PublishProperties,
    ReasonCodes, Suback, Subscribe, SubscribeEntries, TopicFilters, Unsuback, Unsubscribe, Will, decode,
};
pub use property::{Place, Properties, Property, PropertyBuffer, PropertyIter};
pub use reason::ReasonCode;
pub use types::{PacketId, Qos, RetainHandling, SubscriptionOptions};
pub use version::Version;
