//! The client role: connects, publishes with any QoS, subscribes, receives and acknowledges.
//!
//! [`Client::handle`] takes bytes from the server and returns one [`Event`]; [`Client::handle_all`] takes all whole
//! packets at once and allocates nothing for a message. Everything to send is appended to the caller's buffer. The
//! caller keeps the time: [`Client::ping`] is due when nothing was sent for [`Client::ping_interval`].

mod event;
mod limits;
mod receive;

use std::collections::VecDeque;
use std::time::Duration;

pub use self::event::{ClientError, Event, RequestError};
pub use self::limits::ClientLimits;

use crate::authentication::Authentication;
use crate::inbound::{Inbound, InboundConfig, ReceivedIds, Role};
use crate::outbound::{Acknowledged, Outbound, OutboundConfig, Sent};
use crate::packet::{
    Connect, Disconnect, Outgoing, Packet, Subscribe, SubscribeEntries, TopicFilters, Unsubscribe, decode,
};
use crate::property::{Properties, PropertyBuffer};
use crate::{EncodeError, Limits, PacketId, ReasonCode, SubscriptionOptions, Version};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    AwaitingConnack,
    Connected,
}

/// One connection of a client. `M` is kept of each QoS 1 and 2 message and comes back when it is done.
#[derive(Debug)]
pub struct Client<M = ()> {
    version: Version,
    limits: ClientLimits,
    state: State,
    /// The method of CONNECT.
    method: Option<Box<str>>,
    keep_alive: u16,
    inbound: Inbound,
    received: ReceivedIds,
    outbound: Outbound<M>,
    /// QoS 2 messages that await PUBCOMP, in the order of their PUBRELs.
    released: VecDeque<(PacketId, M)>,
    /// Acknowledgements that answered nothing.
    unknown: u64,
}

impl Client {
    /// As [`Client::open`]; nothing is kept of messages.
    ///
    /// # Errors
    /// When a field is too long.
    pub fn connect(connect: &Connect<'_>, limits: ClientLimits, out: &mut Vec<u8>) -> Result<Self, EncodeError> {
        Self::open(connect, limits, out)
    }

    /// Appends a message; the identifier for QoS 1 and 2.
    ///
    /// # Errors
    /// When it cannot be sent now or never.
    pub fn publish(&mut self, message: &Outgoing<'_>, out: &mut Vec<u8>) -> Result<Option<PacketId>, RequestError> {
        self.publish_with(message, || (), out)
    }
}

impl<M> Client<M> {
    /// Appends CONNECT and awaits CONNACK. In version 5 the limits are added to the properties of `connect`, where they
    /// are not those of the protocol.
    ///
    /// # Errors
    /// When a field is too long.
    pub fn open(connect: &Connect<'_>, limits: ClientLimits, out: &mut Vec<u8>) -> Result<Self, EncodeError> {
        let version = connect.version;
        let mut list = PropertyBuffer::new();
        for property in &connect.properties {
            list.push(property)?;
        }
        limits.push(&mut list)?;
        let properties = if version.is_v5() { list.properties() } else { Properties::NONE };
        Packet::Connect(Connect { properties, ..*connect }).encode(version, out)?;
        let inbound = InboundConfig {
            role: Role::Client,
            receive_maximum: limits.receive_maximum.max(1),
            topic_alias_maximum: limits.topic_alias_maximum,
            alias_bytes_max: usize::from(limits.topic_alias_maximum) * usize::from(u16::MAX),
        };
        let outbound =
            OutboundConfig { version, window: limits.window, packet_bytes_max: usize::MAX, topic_alias_maximum: 0 };
        Ok(Self {
            version,
            limits,
            state: State::AwaitingConnack,
            method: Authentication::of(connect.properties).map(|said| said.method.into()),
            keep_alive: connect.keep_alive,
            inbound: Inbound::new(version, inbound),
            received: ReceivedIds::new(),
            outbound: Outbound::new(outbound),
            released: VecDeque::new(),
            unknown: 0,
        })
    }

    /// Whether CONNACK of success has come.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// The Keep Alive in seconds; zero: none. Final once connected, for the server may set it (§3.2.2.3.14).
    #[must_use]
    pub const fn keep_alive(&self) -> u16 {
        self.keep_alive
    }

    /// How long nothing may have been sent before PINGREQ is: three quarters of the Keep Alive, so that the ping has
    /// time to travel ([MQTT-3.1.2-20]). `None` without one.
    #[must_use]
    pub fn ping_interval(&self) -> Option<Duration> {
        (self.keep_alive > 0).then(|| Duration::from_secs(u64::from(self.keep_alive)) * 3 / 4)
    }

    /// Messages and requests that await an acknowledgement.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.outbound.in_flight()
    }

    /// PUBACKs, PUBRECs and PUBCOMPs so far of packet identifiers that no message in flight had.
    #[must_use]
    pub const fn unknown_acknowledgements(&self) -> u64 {
        self.unknown
    }

    /// Whether a QoS 1 or 2 message can be sent now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.outbound.has_room()
    }

    /// Appends a message; the identifier for QoS 1 and 2, of which `keep` is kept until it is done.
    ///
    /// # Errors
    /// When it cannot be sent now or never.
    #[inline]
    pub fn publish_with(
        &mut self,
        message: &Outgoing<'_>,
        keep: impl FnOnce() -> M,
        out: &mut Vec<u8>,
    ) -> Result<Option<PacketId>, RequestError> {
        match self.outbound.publish(message, keep, out) {
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

    /// Takes the packet at the front of `buf`: its event and how many bytes it took, `None` when it is incomplete.
    /// Acknowledgements are appended to `out`.
    ///
    /// # Errors
    /// When the server breaks the protocol.
    pub fn handle<'a>(&mut self, buf: &'a [u8], out: &mut Vec<u8>) -> Result<Option<(Event<'a>, usize)>, ClientError> {
        let Some((packet, used)) = decode(buf, self.version, &self.limits())? else { return Ok(None) };
        Ok(Some((self.handle_packet(packet, out)?.0, used)))
    }

    /// Takes all whole packets from the front of `buf` and returns how many bytes they took. Of each with an event,
    /// `heard` is told, with [`Event::Published`] also what was kept of the message. Acknowledgements are appended to
    /// `out`.
    ///
    /// # Errors
    /// When the server breaks the protocol.
    #[inline]
    pub fn handle_all<'a>(
        &mut self,
        buf: &'a [u8],
        out: &mut Vec<u8>,
        mut heard: impl FnMut(Event<'a>, Option<M>),
    ) -> Result<usize, ClientError> {
        let limits = self.limits();
        let mut rest = buf;
        while let Some((packet, used)) = decode(rest, self.version, &limits)? {
            // The two packets that come by the million are not carried about as events.
            if let Packet::Publish(publish) = &packet
                && self.is_connected()
            {
                if let Some(incoming) = self.handle_publish(publish, out)? {
                    heard(Event::Message(incoming), None);
                }
            } else if let Packet::Puback(ack) = &packet
                && self.is_connected()
            {
                match self.outbound.handle_puback(ack.packet_id)? {
                    Acknowledged::Over(kept) => {
                        heard(Event::Published { packet_id: ack.packet_id, reason: ack.reason }, kept);
                    }
                    Acknowledged::Released(_) | Acknowledged::Unknown => self.unknown += 1,
                }
            } else {
                let (event, kept) = self.handle_packet(packet, out)?;
                if !matches!(event, Event::Nothing) {
                    heard(event, kept);
                }
            }
            rest = rest.get(used..).unwrap_or_default();
        }
        Ok(buf.len() - rest.len())
    }

    fn limits(&self) -> Limits {
        Limits { packet_bytes_max: usize::try_from(self.limits.packet_bytes_max).unwrap_or(usize::MAX) }
    }
}
