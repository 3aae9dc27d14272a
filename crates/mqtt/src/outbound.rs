//! The sending half of a session: packet identifiers, the window the peer allows, QoS 1 and 2 exchanges, and
//! retransmission.
//!
//! Identifiers are assigned in order, and every identifier from the oldest unfinished one on has an entry, so that an
//! acknowledgement finds its message by subtraction. `M` is what the caller needs to send a message again; it is
//! returned when the exchange is over. [`Outbound::resume`] continues the session on another connection.

mod again;
mod finished;
mod overtaken;
mod restored;

use std::collections::VecDeque;

use overtaken::Overtaken;
pub use restored::Unfinished;

use crate::alias::{Aliasing, OutgoingAliases};
use crate::packet::Transmission;
use crate::{Outgoing, PacketId, Qos, Version};

/// Finished entries that may stand behind an unfinished one, beyond the window. A peer that acknowledges in order
/// ([MQTT-4.6.0-2]) leaves hardly any; the exchanges that one leaves open for longer are kept apart.
const FINISHED_SPAN: usize = 1024;

/// Identifiers that there are ([MQTT-2.2.1-3]); one that is in flight may not be used again ([MQTT-2.2.1-4]).
const IDENTIFIERS: usize = 65_535;

/// The limits that the peer has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboundConfig {
    /// The peer's protocol.
    pub version: Version,
    /// The peer's Receive Maximum (§3.1.2.11.3) or our bound on it; at least 1.
    pub window: u16,
    /// The peer's Maximum Packet Size in bytes (§3.1.2.11.4).
    pub packet_bytes_max: usize,
    /// The peer's Topic Alias Maximum (§3.1.2.11.5) or our bound on it.
    pub topic_alias_maximum: u16,
}

/// The packet that an unfinished exchange awaits.
#[derive(Debug)]
enum State<M> {
    /// QoS 1, sent.
    AwaitingPuback(M),
    /// QoS 2, sent.
    AwaitingPubrec(M),
    /// QoS 2, PUBREL sent; the peer owns the message.
    AwaitingPubcomp,
    /// The identifier is taken by SUBSCRIBE or UNSUBSCRIBE.
    Reserved,
    /// Over.
    Finished,
}

/// The outcome of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Appended; the identifier for QoS 1 and 2.
    Sent(Option<PacketId>),
    /// The window is closed; try again after an acknowledgement.
    NoRoom,
    /// The peer takes no packet that large; the message counts as delivered ([MQTT-3.1.2-25]).
    TooLarge,
}

/// The effect of an acknowledgement.
#[derive(Debug, PartialEq, Eq)]
pub enum Acknowledged<M> {
    /// The exchange is over; the message is given back where it was still kept.
    Over(Option<M>),
    /// PUBREC: PUBREL has been appended, the message is given back.
    Released(Option<M>),
    /// No such exchange; nothing to do beyond what was appended.
    Unknown,
}

/// The sending half of a session.
#[derive(Debug)]
pub struct Outbound<M> {
    config: OutboundConfig,
    /// Messages that may still be sent (§4.9).
    quota: u16,
    /// PUBRELs sent again after a resume. Their messages took no place in this connection's window, so their PUBCOMPs
    /// free none ([MQTT-3.3.4-9]).
    released_before: u16,
    /// The identifier of the first entry; of the next one when there is none.
    first: PacketId,
    /// By identifier, `first` on.
    entries: VecDeque<State<M>>,
    /// Entries before this one were sent on this connection.
    resent: usize,
    /// Exchanges older than `first`, which few peers leave.
    overtaken: Option<Box<Overtaken<M>>>,
    aliases: OutgoingAliases,
}

impl<M> Outbound<M> {
    /// Nothing in flight.
    #[must_use]
    pub fn new(config: OutboundConfig) -> Self {
        Self {
            config,
            quota: config.window.max(1),
            released_before: 0,
            first: PacketId::FIRST,
            entries: VecDeque::new(),
            resent: 0,
            overtaken: None,
            aliases: OutgoingAliases::new(if config.version.is_v5() { config.topic_alias_maximum } else { 0 }),
        }
    }

    /// The limits that the peer has set.
    #[must_use]
    pub const fn config(&self) -> &OutboundConfig {
        &self.config
    }

    /// Whether a QoS 1 or 2 message can be sent now. Messages in flight at a resume go first ([MQTT-4.6.0-1]).
    #[must_use]
    #[inline]
    pub fn has_room(&self) -> bool {
        self.quota > 0 && !self.is_resending() && self.may_grow(1)
    }

    /// Exchanges that are not over, finished ones between them and reserved identifiers included: in constant time, and
    /// 0 only if nothing is unfinished.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.entries.len() + self.overtaken_count()
    }

    /// Messages whose exchange is not over, those of QoS 2 up to PUBCOMP. Looks at each identifier of
    /// [`in_flight`](Self::in_flight).
    #[must_use]
    pub fn unfinished(&self) -> usize {
        let overtaken = self.overtaken.iter().flat_map(|overtaken| overtaken.states());
        overtaken.chain(&self.entries).filter(|state| state.is_of_message()).count()
    }

    /// The messages of unfinished exchanges, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &M> {
        let overtaken = self.overtaken.iter().flat_map(|overtaken| overtaken.states());
        overtaken.chain(&self.entries).filter_map(State::message)
    }

    /// Appends a message to `out`. `keep` is called for QoS 1 and 2 only, when it is sent.
    #[inline]
    pub fn publish(&mut self, message: &Outgoing<'_>, keep: impl FnOnce() -> M, out: &mut Vec<u8>) -> Sent {
        self.send(message, false, keep, out)
    }

    /// Like [`publish`](Self::publish), but the payload is not appended: the caller sends it next, from where it is.
    pub fn publish_head(&mut self, message: &Outgoing<'_>, keep: impl FnOnce() -> M, out: &mut Vec<u8>) -> Sent {
        self.send(message, true, keep, out)
    }

    #[inline]
    fn send(&mut self, message: &Outgoing<'_>, head_only: bool, keep: impl FnOnce() -> M, out: &mut Vec<u8>) -> Sent {
        if message.qos == Qos::AtMostOnce {
            let how = Transmission { head_only, ..Transmission::default() };
            return if self.transmit(message, how, out) { Sent::Sent(None) } else { Sent::TooLarge };
        }
        if !self.has_room() {
            return Sent::NoRoom;
        }
        let id = self.take_next_id();
        if !self.transmit(message, Transmission { packet_id: Some(id), head_only, ..Transmission::default() }, out) {
            return Sent::TooLarge;
        }
        self.quota -= 1;
        self.entries.push_back(if message.qos == Qos::AtLeastOnce {
            State::AwaitingPuback(keep())
        } else {
            State::AwaitingPubrec(keep())
        });
        self.resent = self.entries.len();
        Sent::Sent(Some(id))
    }

    /// Appends the packet, with an alias if the peer allows one. Returns whether it fits.
    #[inline]
    fn transmit(&mut self, message: &Outgoing<'_>, plain: Transmission, out: &mut Vec<u8>) -> bool {
        let OutboundConfig { version, packet_bytes_max, .. } = self.config;
        let (how, established) =
            if self.config.topic_alias_maximum == 0 { (plain, None) } else { self.with_alias(message.topic, plain) };
        if message.transmit(version, how, packet_bytes_max, out).is_ok() {
            return true;
        }
        // The alias itself may have made the packet too large.
        let Some(alias) = established else { return false };
        self.aliases.forget(alias);
        message.transmit(version, plain, packet_bytes_max, out).is_ok()
    }

    /// The transmission with an alias, and the alias if it is new.
    fn with_alias(&mut self, topic: &str, plain: Transmission) -> (Transmission, Option<u16>) {
        match self.aliases.choose(topic) {
            Aliasing::None => (plain, None),
            Aliasing::Establish(alias) => (Transmission { alias: Some(alias), ..plain }, Some(alias)),
            Aliasing::Known(alias) => (Transmission { alias: Some(alias), alias_only: true, ..plain }, None),
        }
    }

    /// The identifier of the next packet, for which there is a place.
    #[inline]
    fn take_next_id(&mut self) -> PacketId {
        if self.entries.len() >= self.span() {
            self.make_way(1);
        }
        if self.overtaken.is_some() {
            self.pass_taken();
        }
        self.next_id()
    }

    fn next_id(&self) -> PacketId {
        self.id_at(self.entries.len())
    }

    /// Reserves an identifier for SUBSCRIBE or UNSUBSCRIBE; `None` when there is no room.
    pub fn reserve(&mut self) -> Option<PacketId> {
        if self.is_resending() || !self.may_grow(1) {
            return None;
        }
        let id = self.take_next_id();
        self.entries.push_back(State::Reserved);
        self.resent = self.entries.len();
        Some(id)
    }

    /// Handles SUBACK or UNSUBACK. Returns whether the identifier was reserved.
    pub fn unreserve(&mut self, id: PacketId) -> bool {
        match self.entry(id) {
            Some(entry @ State::Reserved) => {
                *entry = State::Finished;
                self.drop_finished();
                true
            }
            _ => false,
        }
    }

    #[inline]
    fn entry(&mut self, id: PacketId) -> Option<&mut State<M>> {
        if self.is_overtaken(id) {
            return self.overtaken_entry(id);
        }
        self.entries.get_mut(usize::from(id.steps_from(self.first)))
    }

    /// Continues the session on a new connection: everything unfinished is to be sent again ([MQTT-4.4.0-1]).
    pub fn resume(&mut self, config: OutboundConfig) {
        let overtaken = self.overtaken.iter_mut().flat_map(|overtaken| overtaken.states_mut());
        for entry in overtaken.chain(&mut self.entries) {
            if matches!(entry, State::Reserved) {
                *entry = State::Finished;
            }
        }
        if let Some(overtaken) = &mut self.overtaken {
            overtaken.resume();
        }
        self.drop_finished();
        (self.quota, self.released_before) = (config.window.max(1), 0);
        self.resent = 0;
        self.aliases = OutgoingAliases::new(if config.version.is_v5() { config.topic_alias_maximum } else { 0 });
        self.config = config;
    }

    fn id_at(&self, index: usize) -> PacketId {
        let ahead = (usize::from(self.first.get()) - 1 + index) % usize::from(u16::MAX);
        u16::try_from(ahead + 1).ok().and_then(PacketId::new).unwrap_or(PacketId::FIRST)
    }

    /// Ends the session: every message that was in flight, oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = M> + use<'_, M> {
        self.first = self.id_at(self.entries.len());
        self.resent = 0;
        (self.quota, self.released_before) = (self.config.window.max(1), 0);
        let overtaken = self.overtaken.take().into_iter().flat_map(|overtaken| overtaken.into_states());
        overtaken.chain(self.entries.drain(..)).filter_map(State::into_message)
    }

    /// Bytes held, the messages aside.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let overtaken = self.overtaken.as_ref().map_or(0, |overtaken| overtaken.bytes());
        self.entries.capacity() * size_of::<State<M>>() + overtaken + self.aliases.bytes()
    }
}

impl<M> State<M> {
    const fn is_of_message(&self) -> bool {
        match self {
            Self::AwaitingPuback(_) | Self::AwaitingPubrec(_) | Self::AwaitingPubcomp => true,
            Self::Reserved | Self::Finished => false,
        }
    }

    const fn message(&self) -> Option<&M> {
        match self {
            Self::AwaitingPuback(message) | Self::AwaitingPubrec(message) => Some(message),
            Self::AwaitingPubcomp | Self::Reserved | Self::Finished => None,
        }
    }

    const fn message_mut(&mut self) -> Option<&mut M> {
        match self {
            Self::AwaitingPuback(message) | Self::AwaitingPubrec(message) => Some(message),
            Self::AwaitingPubcomp | Self::Reserved | Self::Finished => None,
        }
    }

    /// The state after its message is taken back. An identifier of QoS 2 may be known to the peer, which would take the
    /// next message under it for the same one: it is released, whether the peer knows it or not ([MQTT-4.3.3-8],
    /// [MQTT-4.3.3-11]).
    const fn withdrawn(&self) -> Self {
        if matches!(self, Self::AwaitingPubrec(_)) { Self::AwaitingPubcomp } else { Self::Finished }
    }

    fn into_message(self) -> Option<M> {
        match self {
            Self::AwaitingPuback(message) | Self::AwaitingPubrec(message) => Some(message),
            Self::AwaitingPubcomp | Self::Reserved | Self::Finished => None,
        }
    }
}
