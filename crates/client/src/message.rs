//! A message as the clients send and receive it, whatever the door.

use bytes::Bytes;

/// What is sent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Where to.
    pub topic: String,
    /// What.
    pub payload: Bytes,
    /// MIME type of the payload.
    pub content_type: Option<String>,
    /// Quality of service; on CoAP 0 goes Non-confirmable if it fits into one message, else Confirmable.
    pub qos: u8,
    /// Whether the topic keeps it.
    pub retain: bool,
}

/// What arrives; a door leaves out what it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Where it was published.
    pub topic: String,
    /// What.
    pub payload: Bytes,
    /// MIME type of the payload.
    pub content_type: Option<String>,
    /// Quality of service.
    pub qos: Option<u8>,
    /// Whether it is what the topic keeps.
    pub retain: Option<bool>,
}
