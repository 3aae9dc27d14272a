//! A message as the clients of all doors send and receive it.

use bytes::Bytes;

/// A message to publish.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: Bytes,
    /// MIME type of the payload.
    pub content_type: Option<String>,
    /// Quality of service. On CoAP, 0 is sent Non-confirmable if it fits into one message, otherwise Confirmable.
    pub qos: u8,
    /// Whether the message is retained.
    pub retain: bool,
}

/// A received message. Fields that the door does not transmit are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// The topic it was published on.
    pub topic: String,
    /// The payload.
    pub payload: Bytes,
    /// MIME type of the payload.
    pub content_type: Option<String>,
    /// Quality of service.
    pub qos: Option<u8>,
    /// Whether it is the retained message of the topic.
    pub retain: Option<bool>,
}
