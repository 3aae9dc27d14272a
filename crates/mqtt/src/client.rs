//! The client role: connects, publishes with any QoS, subscribes, receives and acknowledges.
//!
//! Pure like the rest: [`Client::handle`] takes bytes from the server and gives one [`Event`] at a time, everything to
//! send is appended to the caller's buffer. Keeping alive is the caller's: send [`Client::ping`] when nothing was sent
//! for [`Client::keep_alive`] seconds.

use thiserror::Error;

use crate::authentication::Authentication;
use crate::inbound::{Inbound, InboundConfig, Incoming, Received, ReceivedIds, Role};
use crate::negotiation::ConnackProperties;
use crate::outbound::{Acknowledged, Outbound, OutboundConfig, Sent};
use crate::packet::{
    Ack, Auth, Connack, Connect, Disconnect, Outgoing, Packet, ReasonCodes, Subscribe, SubscribeEntries, TopicFilters,
    Unsubscribe, decode,
};
use crate::property::{Properties, Property, PropertyBuffer};
use crate::{
    DecodeError, EncodeError, Limits, PacketId, PacketType, ProtocolError, Qos, ReasonCode, SubscriptionOptions,
    Version,
};

/// Unacknowledged messages of a client before version 5, where the server announces no maximum.
const WINDOW_V3: u16 = 100;

/// The limits that the client announces to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Largest packet, in bytes.
    pub packet_bytes_max: u32,
    /// Unacknowledged QoS 1 and 2 messages.
    pub receive_maximum: u16,
    /// Highest topic alias.
    pub topic_alias_maximum: u16,
}

impl Default for ClientLimits {
    /// As large as the protocol can say, 1000 unacknowledged messages, 16 aliases.
    fn default() -> Self {
        Self { packet_bytes_max: 268_435_460, receive_maximum: 1000, topic_alias_maximum: 16 }
    }
}

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
    /// A step of extended authentication (§4.12): a challenge to be answered with [`Authentication::encode`], or the
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    AwaitingConnack,
    Connected,
}

/// One connection of a client.
#[derive(Debug)]
pub struct Client {
    version: Version,
    limits: ClientLimits,
    state: State,
    /// The method of CONNECT.
    method: Option<Box<str>>,
    keep_alive: u16,
    inbound: Inbound,
    received: ReceivedIds,
    outbound: Outbound<()>,
}

impl Client {
    /// Appends CONNECT and awaits CONNACK. In version 5 the limits are added to the properties of `connect`.
    ///
    /// # Errors
    /// When a field is too long.
    pub fn connect(connect: &Connect<'_>, limits: ClientLimits, out: &mut Vec<u8>) -> Result<Self, EncodeError> {
        let version = connect.version;
        let mut list = PropertyBuffer::new();
        for property in &connect.properties {
            list.push(property)?;
        }
        list.push(Property::ReceiveMaximum(limits.receive_maximum.max(1)))?;
        list.push(Property::MaximumPacketSize(limits.packet_bytes_max.max(1)))?;
        list.push(Property::TopicAliasMaximum(limits.topic_alias_maximum))?;
        let properties = if version.is_v5() { list.properties() } else { Properties::NONE };
        Packet::Connect(Connect { properties, ..*connect }).encode(version, out)?;
        let inbound = InboundConfig {
            role: Role::Client,
            receive_maximum: limits.receive_maximum.max(1),
            topic_alias_maximum: limits.topic_alias_maximum,
            alias_bytes_max: usize::from(limits.topic_alias_maximum) * usize::from(u16::MAX),
        };
        let outbound =
            OutboundConfig { version, window: WINDOW_V3, packet_bytes_max: usize::MAX, topic_alias_maximum: 0 };
        Ok(Self {
            version,
            limits,
            state: State::AwaitingConnack,
            method: Authentication::of(connect.properties).map(|said| said.method.into()),
            keep_alive: connect.keep_alive,
            inbound: Inbound::new(version, inbound),
            received: ReceivedIds::new(),
            outbound: Outbound::new(outbound),
        })
    }

    /// Seconds after which something has to be sent; zero: never. Final once connected.
    #[must_use]
    pub const fn keep_alive(&self) -> u16 {
        self.keep_alive
    }

    /// Messages and requests that await an acknowledgement.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.outbound.in_flight()
    }

    /// Appends a message; the identifier for QoS 1 and 2.
    ///
    /// # Errors
    /// When it cannot be sent now or never.
    pub fn publish(&mut self, message: &Outgoing<'_>, out: &mut Vec<u8>) -> Result<Option<PacketId>, RequestError> {
        match self.outbound.publish(message, || (), out) {
            Sent::Sent(id) => Ok(id),
            Sent::NoRoom => Err(RequestError::NoRoom),
            Sent::TooLarge => Err(RequestError::TooLarge),
        }
    }

    /// Appends SUBSCRIBE.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn subscribe(
        &mut self,
        entries: &[(&str, SubscriptionOptions)],
        properties: Properties<'_>,
        out: &mut Vec<u8>,
    ) -> Result<PacketId, RequestError> {
        let packet_id = self.outbound.reserve().ok_or(RequestError::NoRoom)?;
        let packet = Subscribe { packet_id, properties, entries: SubscribeEntries::new(entries) };
        self.request(packet_id, &Packet::Subscribe(packet), out)
    }

    /// Appends UNSUBSCRIBE.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn unsubscribe(&mut self, filters: &[&str], out: &mut Vec<u8>) -> Result<PacketId, RequestError> {
        let packet_id = self.outbound.reserve().ok_or(RequestError::NoRoom)?;
        let packet = Unsubscribe { packet_id, properties: Properties::NONE, filters: TopicFilters::new(filters) };
        self.request(packet_id, &Packet::Unsubscribe(packet), out)
    }

    fn request(&mut self, id: PacketId, packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<PacketId, RequestError> {
        let before = out.len();
        let result = packet.encode(self.version, out).map_err(RequestError::from);
        let result = match result {
            Ok(()) if out.len() - before > self.outbound.config().packet_bytes_max => Err(RequestError::TooLarge),
            other => other,
        };
        if result.is_err() {
            out.truncate(before);
            self.outbound.unreserve(id);
        }
        result.map(|()| id)
    }

    /// Appends PINGREQ.
    pub fn ping(&self, out: &mut Vec<u8>) {
        // A packet of two bytes always fits.
        let _ = Packet::Pingreq.encode(self.version, out);
    }

    /// Appends DISCONNECT; the connection is to be closed after it ([MQTT-3.14.4-1]).
    pub fn disconnect(&self, reason: ReasonCode, out: &mut Vec<u8>) {
        // A packet without properties always fits.
        let _ = Packet::Disconnect(Disconnect::with_reason(reason)).encode(self.version, out);
    }

    /// Takes the packet at the front of `buf`: what it says and how many bytes it took, `None` when it is incomplete.
    /// Acknowledgements are appended to `out`.
    ///
    /// # Errors
    /// When the server breaks the protocol.
    pub fn handle<'a>(&mut self, buf: &'a [u8], out: &mut Vec<u8>) -> Result<Option<(Event<'a>, usize)>, ClientError> {
        let limits = Limits { packet_bytes_max: usize::try_from(self.limits.packet_bytes_max).unwrap_or(usize::MAX) };
        let Some((packet, used)) = decode(buf, self.version, &limits)? else { return Ok(None) };
        let event = match (self.state, packet) {
            (State::AwaitingConnack, Packet::Connack(connack)) => self.handle_connack(&connack),
            (_, Packet::Auth(auth)) => self.handle_auth(&auth)?,
            (State::AwaitingConnack, other) | (State::Connected, other @ Packet::Connack(_)) => {
                return Err(ProtocolError::Unexpected(other.kind()).into());
            }
            (State::Connected, packet) => self.handle_packet(packet, out)?,
        };
        Ok(Some((event, used)))
    }

    fn handle_connack<'a>(&mut self, connack: &Connack<'a>) -> Event<'a> {
        let properties = ConnackProperties::from(connack.properties);
        if connack.reason.is_error() {
            return Event::Refused { reason: connack.reason, text: properties.reason_string };
        }
        self.state = State::Connected;
        self.keep_alive = properties.server_keep_alive.unwrap_or(self.keep_alive);
        self.outbound.resume(OutboundConfig {
            version: self.version,
            window: if self.version.is_v5() { properties.receive_maximum } else { WINDOW_V3 },
            packet_bytes_max: usize::try_from(properties.packet_bytes_max).unwrap_or(usize::MAX),
            topic_alias_maximum: properties.topic_alias_maximum,
        });
        Event::Connected { session_present: connack.session_present, properties }
    }

    /// [MQTT-4.12.0-5], [MQTT-4.12.0-6].
    fn handle_auth<'a>(&self, auth: &Auth<'a>) -> Result<Event<'a>, ClientError> {
        let method = self.method.as_deref().ok_or(ProtocolError::Unexpected(PacketType::Auth))?;
        let said = Authentication::of(auth.properties);
        if said.is_some_and(|said| said.method != method) || auth.reason == ReasonCode::RE_AUTHENTICATE {
            return Err(ProtocolError::AuthenticationMethod.into());
        }
        Ok(Event::Authentication { reason: auth.reason, data: said.and_then(|said| said.data) })
    }

    fn handle_packet<'a>(&mut self, packet: Packet<'a>, out: &mut Vec<u8>) -> Result<Event<'a>, ClientError> {
        Ok(match packet {
            Packet::Publish(publish) => {
                let incoming = self.inbound.handle_publish(&publish)?;
                self.acknowledge(incoming, out)?
            }
            Packet::Puback(ack) => published(&self.outbound.handle_puback(ack.packet_id)?, &ack),
            Packet::Pubrec(ack) => published(&self.outbound.handle_pubrec(ack.packet_id, ack.reason, out)?, &ack),
            Packet::Pubcomp(ack) => published(&self.outbound.handle_pubcomp(ack.packet_id)?, &ack),
            Packet::Pubrel(ack) => {
                self.release(ack.packet_id, out);
                Event::Nothing
            }
            Packet::Suback(ack) => {
                self.outbound.unreserve(ack.packet_id);
                Event::Subscribed { packet_id: ack.packet_id, codes: ack.codes }
            }
            Packet::Unsuback(ack) => {
                self.outbound.unreserve(ack.packet_id);
                Event::Unsubscribed { packet_id: ack.packet_id, codes: ack.codes }
            }
            Packet::Pingresp => Event::Pong,
            Packet::Disconnect(packet) if self.version.is_v5() => {
                Event::Disconnected { reason: packet.reason, text: packet.properties.reason_string() }
            }
            other @ (Packet::Connect(_)
            | Packet::Connack(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::Pingreq
            | Packet::Disconnect(_)
            | Packet::Auth(_)) => return Err(ProtocolError::Unexpected(other.kind()).into()),
        })
    }

    fn acknowledge<'a>(&mut self, incoming: Incoming<'a>, out: &mut Vec<u8>) -> Result<Event<'a>, ClientError> {
        let (kind, id, received) = match (incoming.qos, incoming.packet_id) {
            (Qos::AtMostOnce, _) | (_, None) => return Ok(Event::Message(incoming)),
            (Qos::AtLeastOnce, Some(id)) => {
                self.inbound.release();
                (PacketType::Puback, id, Received::Fresh)
            }
            (Qos::ExactlyOnce, Some(id)) => {
                let max = usize::from(self.limits.receive_maximum);
                (PacketType::Pubrec, id, self.received.insert(id, max))
            }
        };
        if received == Received::Full {
            return Err(ProtocolError::ReceiveMaximum { max: self.limits.receive_maximum }.into());
        }
        // An acknowledgement without properties always fits.
        let _ = Ack::success(id).encode(kind, self.version, out);
        Ok(if received == Received::Fresh { Event::Message(incoming) } else { Event::Nothing })
    }

    fn release(&mut self, id: PacketId, out: &mut Vec<u8>) {
        let reason = if self.received.remove(id) {
            self.inbound.release();
            ReasonCode::SUCCESS
        } else {
            ReasonCode::PACKET_IDENTIFIER_NOT_FOUND
        };
        let _ = Ack::with_reason(id, reason).encode(PacketType::Pubcomp, self.version, out);
    }
}

fn published<'a>(done: &Acknowledged<()>, ack: &Ack<'_>) -> Event<'a> {
    match done {
        Acknowledged::Over(_) => Event::Published { packet_id: ack.packet_id, reason: ack.reason },
        Acknowledged::Released(_) | Acknowledged::Unknown => Event::Nothing,
    }
}
