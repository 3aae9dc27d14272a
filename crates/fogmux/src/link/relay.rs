//! The packets of a link, from the gateway to the other broker and back, as a state machine without I/O.
//!
//! A message keeps its packet identifier, and each acknowledgement is passed on as it came: of PUBLISH, PUBACK, PUBREC,
//! PUBREL and PUBCOMP none is made here, unless a message is dropped. So the state of an exchange is in the sessions of
//! the two brokers only, which outlive the link, and an acknowledgement means that the last receiver has the message.

use std::sync::Arc;

use fogmux_gateway::links::{Dropped, Link, Way};
use fogmux_mqtt::{
    Ack, EncodeError, Packet, PacketId, PacketType, Properties, Property, PropertyBuffer, Publish, Qos, ReasonCode,
    ReasonCodes, Version,
};

use super::characters::may_be_refused;
use super::failure::{Failure, TEXT_MAX, side, told};
use super::mapping::{Direction, Mapping};
use super::search::{Message, Search, Verdict};

/// Bytes for the other broker above which messages of QoS 0 are dropped. Others have the Receive Maximum for a bound.
const BACKLOG_BYTES: usize = 1 << 20;

/// The longest topic in a line of the log, in characters.
const TOPIC_MAX: usize = 128;

/// The limits of a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiver {
    pub(super) packet_bytes_max: u32,
    pub(super) qos_max: u8,
    pub(super) retains: bool,
}

/// The messages and acknowledgements between two brokers.
pub(super) struct Relay {
    link: Arc<Link>,
    out: Arc<Mapping>,
    inward: Arc<Mapping>,
    here: Receiver,
    there: Receiver,
    /// PUBCOMPs that answer PUBRELs of our own, by the side they come from.
    own_here: Ids,
    own_there: Ids,
    awaits_here: bool,
    awaits_there: bool,
    /// UNSUBACK of the other broker has come.
    is_unsubscribed: bool,
    /// PINGRESP of the other broker has come since it was asked for.
    is_answered: bool,
    /// Messages of QoS 1 and 2 for the other broker, on this connection.
    sent: u64,
    acknowledged: u64,
    pub(super) search: Option<Search>,
    list: PropertyBuffer,
}

/// Bytes to send to one side and to the other.
pub(super) struct Outputs<'a> {
    /// To the receiver of the direction.
    pub(super) on: &'a mut Vec<u8>,
    /// Back to the side that the packet came from.
    pub(super) back: &'a mut Vec<u8>,
}

impl Relay {
    /// Begins when both sides have accepted the connection and SUBSCRIBE was sent to those that have filters.
    pub(super) fn new(
        link: Arc<Link>,
        (out, inward): (Arc<Mapping>, Arc<Mapping>),
        (here, there): (Receiver, Receiver),
        search: Option<Search>,
    ) -> Self {
        let (awaits_here, awaits_there) = (!out.filters().is_empty(), !inward.filters().is_empty());
        let (own_here, own_there) = (Ids::default(), Ids::default());
        let list = PropertyBuffer::new();
        Self {
            link,
            out,
            inward,
            here,
            there,
            own_here,
            own_there,
            awaits_here,
            awaits_there,
            is_unsubscribed: false,
            is_answered: false,
            sent: 0,
            acknowledged: 0,
            search,
            list,
        }
    }

    /// Whether UNSUBACK of the other broker has come since the last call.
    pub(super) const fn take_unsubscribed(&mut self) -> bool {
        std::mem::replace(&mut self.is_unsubscribed, false)
    }

    /// The same of PINGRESP.
    pub(super) const fn take_answered(&mut self) -> bool {
        std::mem::replace(&mut self.is_answered, false)
    }

    /// Whether messages wait for an acknowledgement of the other broker.
    pub(super) const fn is_waiting(&self) -> bool {
        self.sent > self.acknowledged
    }

    /// Whether the other broker has acknowledged a message on this connection.
    pub(super) const fn is_acknowledged(&self) -> bool {
        self.acknowledged > 0
    }

    /// Whether everything is subscribed to.
    pub(super) const fn is_subscribed(&self) -> bool {
        !self.awaits_here && !self.awaits_there
    }

    /// Has the gateway forget every QoS 2 message that it has received and that was not released: the other broker
    /// lost its session, and gives their identifiers to other messages, which would be taken for repetitions
    /// ([MQTT-4.3.3-10]).
    pub(super) fn release_all(&mut self, here: &mut Vec<u8>) {
        for id in (1..=u16::MAX).filter_map(PacketId::new) {
            acknowledge(PacketType::Pubrel, Ack::success(id), here);
            self.own_here.insert(id);
        }
    }

    /// Handles a packet from the sender of the direction.
    ///
    /// # Errors
    /// [`Failure`] when the connection is over or of no use.
    pub(super) fn handle(
        &mut self,
        direction: Direction,
        packet: &Packet<'_>,
        outputs: Outputs<'_>,
    ) -> Result<(), Failure> {
        match packet {
            Packet::Publish(publish) => self.publish(direction, publish, outputs),
            Packet::Puback(ack) => self.acknowledged(direction, PacketType::Puback, ack, outputs),
            Packet::Pubrec(ack) => self.acknowledged(direction, PacketType::Pubrec, ack, outputs),
            Packet::Pubrel(ack) => acknowledge(PacketType::Pubrel, *ack, outputs.on),
            Packet::Pubcomp(ack) if self.own(direction).remove(ack.packet_id) => {}
            Packet::Pubcomp(ack) => acknowledge(PacketType::Pubcomp, *ack, outputs.on),
            Packet::Suback(ack) => return self.subscribed(direction, ack.codes),
            Packet::Unsuback(_) => self.is_unsubscribed |= direction == Direction::In,
            Packet::Pingresp => self.is_answered |= direction == Direction::In,
            Packet::Disconnect(packet) => {
                return Err(Failure::disconnected(direction, packet.reason, packet.properties.reason_string()));
            }
            Packet::Connect(_)
            | Packet::Connack(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::Pingreq
            | Packet::Auth(_) => return Err(Failure::misbehaved(direction, "sent a packet that it may not send now")),
        }
        Ok(())
    }

    const fn own(&mut self, from: Direction) -> &mut Ids {
        match from {
            Direction::Out => &mut self.own_here,
            Direction::In => &mut self.own_there,
        }
    }

    fn way(&self, direction: Direction) -> &Way {
        match direction {
            Direction::Out => &self.link.out,
            Direction::In => &self.link.inward,
        }
    }

    fn publish(&mut self, direction: Direction, publish: &Publish<'_>, outputs: Outputs<'_>) {
        let (mapping, receiver) = match direction {
            Direction::Out => (&self.out, self.there),
            Direction::In => (&self.inward, self.here),
        };
        let Some(topic) = mapping.map(publish.topic) else {
            return self.drop(direction, publish, Dropped::Unmapped, outputs);
        };
        let is_refusable = direction == Direction::Out && may_be_refused(&topic, publish.properties);
        if is_refusable || publish.qos.bits() > receiver.qos_max {
            return self.drop(direction, publish, Dropped::Refused, outputs);
        }
        if publish.qos == Qos::AtMostOnce && outputs.on.len() > BACKLOG_BYTES {
            return self.drop(direction, publish, Dropped::Slow, outputs);
        }
        let message = self.searched(direction, publish);
        let mut is_held = false;
        if let Some(search) = self.search.as_mut().filter(|_| direction == Direction::Out) {
            // None of QoS 0 goes between, or it could be the one.
            let Some(message) = &message else { return self.drop(direction, publish, Dropped::Slow, outputs) };
            match search.judge(message) {
                Verdict::Drop => {
                    tracing::warn!(
                        link = self.link.name,
                        topic = told(publish.topic, TOPIC_MAX),
                        "the other broker has closed each connection at this message"
                    );
                    return self.drop(direction, publish, Dropped::Refused, outputs);
                }
                Verdict::Hold => is_held = true,
                Verdict::Pass => {}
            }
        }
        let Ok(properties) = passed_on(&mut self.list, publish.properties) else {
            return self.drop(direction, publish, Dropped::TooLarge, outputs);
        };
        let passed = Publish { topic: &topic, retain: publish.retain && receiver.retains, properties, ..*publish };
        let mut held = Vec::new();
        let on = if is_held { &mut held } else { &mut *outputs.on };
        if Packet::Publish(passed).encode_within(Version::V5, receiver.packet_bytes_max, on).is_err() {
            return self.drop(direction, publish, Dropped::TooLarge, outputs);
        }
        self.sent += u64::from(direction == Direction::Out && publish.qos != Qos::AtMostOnce);
        if let Some((search, message)) = self.search.as_mut().zip(message).filter(|_| is_held) {
            search.hold(message, held);
        }
        let way = self.way(direction);
        way.messages.increment();
        way.bytes.add(u64::try_from(publish.payload.len()).unwrap_or(u64::MAX));
    }

    /// A message as the search knows it, if there is a search.
    fn searched(&self, direction: Direction, publish: &Publish<'_>) -> Option<Message> {
        let is_searched = self.search.is_some() && direction == Direction::Out;
        let id = publish.packet_id.filter(|_| is_searched)?;
        Some(Message { id, topic: publish.topic.to_owned() })
    }

    /// Drops a message, and has its sender forget it.
    fn drop(&mut self, direction: Direction, publish: &Publish<'_>, why: Dropped, outputs: Outputs<'_>) {
        self.way(direction).dropped(why).increment();
        let reason = match why {
            Dropped::Unmapped => ReasonCode::TOPIC_NAME_INVALID,
            Dropped::Refused | Dropped::TooLarge | Dropped::Slow => ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
        };
        if why != Dropped::Slow {
            tracing::warn!(
                link = self.link.name, topic = told(publish.topic, TOPIC_MAX), direction = ?direction, reason = why.name(),
                "a message was dropped"
            );
        }
        let Some(id) = publish.packet_id else { return };
        let ack = Ack::with_reason(id, reason);
        if publish.qos == Qos::AtLeastOnce {
            return acknowledge(PacketType::Puback, ack, outputs.back);
        }
        // A reason code of failure ends the exchange (§4.3.3).
        acknowledge(PacketType::Pubrec, ack, outputs.back);
        if publish.dup {
            // The receiver may know the identifier, from when this message was passed on.
            acknowledge(PacketType::Pubrel, Ack::success(id), outputs.on);
            let receiver = match direction {
                Direction::Out => Direction::In,
                Direction::In => Direction::Out,
            };
            self.own(receiver).insert(id);
        }
    }

    /// Passes on PUBACK or PUBREC. With a reason code of failure it ends the exchange, so that a message that the
    /// receiver does not want is not sent for ever.
    fn acknowledged(&mut self, direction: Direction, kind: PacketType, ack: &Ack<'_>, outputs: Outputs<'_>) {
        if direction == Direction::In {
            self.acknowledged += 1;
            if let Some(search) = &mut self.search {
                search.acknowledged();
            }
        }
        if ack.reason.is_error() {
            let (refused, by) = match direction {
                Direction::Out => (&self.link.inward, "the gateway"),
                Direction::In => (&self.link.out, "the other broker"),
            };
            refused.dropped(Dropped::Refused).increment();
            tracing::warn!(
                link = self.link.name, reason = %ack.reason, text = ack.properties.reason_string().map(|text| told(text, TEXT_MAX)),
                "a message was refused by {by} and is dropped"
            );
        }
        acknowledge(kind, *ack, outputs.on);
    }

    fn subscribed(&mut self, direction: Direction, codes: ReasonCodes<'_>) -> Result<(), Failure> {
        let (mapping, awaits) = match direction {
            Direction::Out => (&self.out, &mut self.awaits_here),
            Direction::In => (&self.inward, &mut self.awaits_there),
        };
        *awaits = false;
        for ((filter, _), code) in mapping.filters().into_iter().zip(codes.iter()) {
            if code.is_error() {
                return Err(Failure::not_subscribed(direction, filter, code));
            }
        }
        if let Some((filter, qos)) = lowered(mapping, codes) {
            tracing::warn!(
                link = self.link.name,
                filter,
                qos,
                "{} gives a subscription less than the QoS of its entry",
                side(direction)
            );
        }
        Ok(())
    }
}

/// The first filter that was given less QoS than its entry has, and how much.
fn lowered<'a>(mapping: &'a Mapping, codes: ReasonCodes<'_>) -> Option<(&'a str, u8)> {
    let mut given = mapping.filters().into_iter().zip(codes.iter());
    given.find(|((_, qos), code)| code.0 < qos.bits()).map(|((filter, _), code)| (filter, code.0))
}

/// Appends an acknowledgement without its properties, which are for people.
fn acknowledge(kind: PacketType, ack: Ack<'_>, out: &mut Vec<u8>) {
    // Without properties it always fits.
    let _ = Ack::with_reason(ack.packet_id, ack.reason).encode(kind, Version::V5, out);
}

/// The properties of a message for the other side: all but those that are about one connection.
fn passed_on<'a>(list: &'a mut PropertyBuffer, properties: Properties<'a>) -> Result<Properties<'a>, EncodeError> {
    let is_own =
        |property: &Property<'_>| matches!(property, Property::TopicAlias(_) | Property::SubscriptionIdentifier(_));
    if !properties.iter().any(|property| is_own(&property)) {
        return Ok(properties);
    }
    list.clear();
    for property in properties.iter().filter(|property| !is_own(property)) {
        list.push(property)?;
    }
    Ok(list.properties())
}

/// A set of packet identifiers.
#[derive(Default)]
struct Ids(Option<Box<[u64; 1024]>>);

impl Ids {
    fn insert(&mut self, id: PacketId) {
        let (word, bit) = place(id);
        if let Some(word) = self.0.get_or_insert_with(|| Box::new([0; 1024])).get_mut(word) {
            *word |= bit;
        }
    }

    /// Returns whether it was there.
    fn remove(&mut self, id: PacketId) -> bool {
        let (word, bit) = place(id);
        let Some(word) = self.0.as_mut().and_then(|words| words.get_mut(word)) else { return false };
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

fn place(id: PacketId) -> (usize, u64) {
    (usize::from(id.get() / 64), 1 << (id.get() % 64))
}
