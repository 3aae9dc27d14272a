//! One file for each protocol: connections that take operations, and say what became of them.
//!
//! A [`Driver`] connects; a [`Client`] is one connection, logged in. A client does not wait: operations are put into it
//! as many as the pattern wants, and [`Client::poll_turn`] sends what waits, reads what came, and reports it to a
//! [`Sink`]. So a turn costs one read and one write whatever it carries, and a pattern drives every door alike.

pub mod coap;
pub mod http;
pub mod mqtt;
#[cfg(test)]
mod testing;
pub mod xmpp;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::experiment::{Door, Experiment};
use crate::outcome::Bytes;
use crate::target::Access;
use crate::text::said;

/// A future of one thread.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Makes connections of one door under one kind of protection.
pub trait Driver {
    /// Connects as client `number` of its role and logs in; with XMPP and HTTP everything that must precede the first
    /// operation is done too.
    fn connect(&self, role: Role, number: u32) -> Pending<'_, Result<Connected, DriverError>>;
}

/// The role of a client. Client identifiers and users are derived from it, so that they are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Publishes, or sends requests.
    Publisher,
    /// Subscribes to a topic.
    Subscriber,
}

/// A connection and what it took.
pub struct Connected {
    /// The connection.
    pub client: Box<dyn Client>,
    /// Of the transport, TLS and the protocol's own beginning together.
    pub took: Duration,
    /// The cipher suite as IANA names it; empty without one.
    pub cipher: String,
}

/// One operation; `tag` comes back with its outcome.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Publishes with the QoS and retain flag of the experiment.
    Publish {
        /// The topic.
        topic: &'a str,
        /// The payload.
        payload: &'a [u8],
    },
    /// Requests the retained message.
    Get {
        /// Of this topic.
        topic: &'a str,
    },
    /// Follows; done when the other end has confirmed it.
    Subscribe {
        /// This topic.
        topic: &'a str,
    },
}

/// A connection of any door.
pub trait Client {
    /// Puts a request in line; it goes out with the next turn.
    ///
    /// # Errors
    /// The door has no such request, or its own limit is reached (65 535 packet identifiers).
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<(), DriverError>;

    /// Sends what waits and reads what came. Ready when something happened or was sent – the sink knows what –, pending
    /// when there is nothing to do until the socket or a deadline of the protocol wakes the task.
    ///
    /// # Errors
    /// The connection is over.
    fn poll_turn(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>>;

    /// Sends what was submitted since [`Client::poll_turn`], within the same poll of the task. Ready and pending mean
    /// what they mean there; a client that has just found its socket empty, and is woken by it, need not look again.
    ///
    /// # Errors
    /// The connection is over.
    fn poll_flush(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        self.poll_turn(cx, sink)
    }

    /// Whether the connection is there. A client that makes a new one when it has something to send may have none.
    fn is_open(&self) -> bool {
        true
    }

    /// Payload, protocol and socket bytes so far, in both directions.
    fn bytes(&self) -> Bytes;

    /// Closes the connection properly: DISCONNECT, `close_notify`, `</stream:stream>`.
    fn close(self: Box<Self>) -> Pending<'static, ()>;
}

/// The receiver of a client's events in a turn.
pub trait Sink {
    /// A request was answered. With QoS 0 and NON, it was sent.
    fn done(&mut self, tag: u64, answer: Answer<'_>);
    /// A message arrived for a subscriber.
    fn message(&mut self, arrival: Arrival<'_>);
    /// Something arrived that answers nothing.
    fn stray(&mut self, _what: &str) {}
}

/// A message as a subscriber receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// The topic that it names, where the protocol has it named.
    pub topic: Option<&'a str>,
    /// The other end says that it was kept before the subscription.
    pub is_kept: bool,
    /// Its payload.
    pub payload: &'a [u8],
}

impl<'a> Arrival<'a> {
    /// Of a protocol in which the message names no topic.
    #[must_use]
    pub fn unnamed(payload: &'a [u8]) -> Self {
        Self { topic: None, is_kept: false, payload }
    }
}

/// A sink that ignores everything, while a client logs in or closes.
struct Nobody;

impl Sink for Nobody {
    fn done(&mut self, _: u64, _: Answer<'_>) {}
    fn message(&mut self, _: Arrival<'_>) {}
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// As it should be, with the payload of a `Get`.
    Success(&'a [u8]),
    /// The other end refused.
    Refused(&'a str),
    /// There was none in the time that the protocol gives (CoAP: all retransmissions are over).
    Lost,
}

/// Bytes of an answer beyond the expected payload: a problem document, a diagnostic message, and what stands around a
/// payload.
const SLACK_BYTES: usize = 64 << 10;

/// Bytes of the largest body that an experiment expects of the other end. One that sends more is told so by nobody, and
/// would fill the memory.
fn body_bytes_max(experiment: &Experiment) -> usize {
    experiment.payload_bytes.saturating_add(SLACK_BYTES)
}

/// The same where a payload may be written as text: in JSON a byte takes six (`\u001b`), in XML as many (`&quot;`).
fn text_bytes_max(experiment: &Experiment) -> usize {
    experiment.payload_bytes.saturating_mul(6).saturating_add(SLACK_BYTES)
}

/// The refusal of an answer that is larger than that.
fn too_large(bytes_max: usize) -> String {
    format!("protocol: an answer of more than {bytes_max} bytes")
}

/// Why a client cannot go on. The other end may have had a say in it: its text is shown without control characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// It could not be connected, or the connection broke.
    #[error("{}", said(.0))]
    Connection(String),
    /// The other end broke the protocol.
    #[error("protocol: {}", said(.0))]
    Protocol(String),
    /// It does not let us in.
    #[error("refused: {}", said(.0))]
    Refused(String),
    /// The door does not support the request.
    #[error("{door} has no {what}")]
    Unsupported {
        /// The door.
        door: Door,
        /// The unsupported operation.
        what: &'static str,
    },
}

/// The driver of a door.
///
/// # Errors
/// The door and the protection do not go together, or credentials cannot be read.
pub fn open(door: Door, experiment: &Experiment, access: &Access) -> Result<Box<dyn Driver>, DriverError> {
    match door {
        Door::Mqtt | Door::Mqtt5 | Door::MqttWs => mqtt::driver(door, experiment, access),
        Door::Coap | Door::CoapTcp => coap::driver(door, experiment, access),
        Door::Http1 | Door::Http2 | Door::Http3 => http::driver(door, experiment, access),
        Door::Xmpp | Door::Xmpps => xmpp::driver(door, experiment, access),
    }
}
