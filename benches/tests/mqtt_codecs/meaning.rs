//! The meaning of a packet, apart from how it is written: the order of properties, and properties at their default.

use fogmux_mqtt::{
    Ack, Auth, Connack, Connect, DecodeError, Disconnect, Limits, Packet, Properties, Property, Publish, Suback,
    Subscribe, Unsuback, Unsubscribe, Version, Will, decode,
};

use crate::peers::{self, Peer, Verdict, Written};

/// Equal for packets that say the same.
#[derive(Debug, PartialEq)]
pub(crate) struct Meaning<'a> {
    /// The packet without properties.
    pub(crate) packet: Packet<'a>,
    /// Its properties, and those of a will.
    pub(crate) properties: [Vec<Property<'a>>; 2],
}

/// The answer of our codec to bytes.
type Decoded<'a> = Result<Option<(Packet<'a>, usize)>, DecodeError>;

/// Reads the packet at the front as our codec does.
fn ours(version: Version, bytes: &[u8]) -> Decoded<'_> {
    decode(bytes, version, &Limits { packet_bytes_max: 1 << 20 })
}

/// Bytes, and what two codecs say to them.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) peer: Peer,
    pub(crate) version: Version,
    pub(crate) bytes: &'a [u8],
    pub(crate) ours: Decoded<'a>,
    pub(crate) theirs: Verdict,
}

impl<'a> Case<'a> {
    /// `None` for MQTT 3.1, of which only `rmqtt-codec` knows anything.
    pub(crate) fn new(peer: Peer, version: Version, bytes: &'a [u8]) -> Option<Self> {
        let version = level(bytes).unwrap_or(version);
        let theirs = (version != Version::V31).then(|| peers::read(peer, version, bytes))?;
        Some(Self { peer, version, bytes, ours: ours(version, bytes), theirs })
    }

    /// Whether both read the same, both refuse, or both wait.
    pub(crate) fn agree(&self) -> bool {
        match (&self.ours, &self.theirs) {
            (Err(_), Verdict::Refused(_)) | (Ok(None), Verdict::More) => true,
            (Ok(Some((packet, length))), Verdict::Packet { used, again: Written::Bytes(bytes) }) => {
                let Ok(Some((again, all))) = ours(self.version, bytes) else { return false };
                used == length && all == bytes.len() && Meaning::of(packet) == Meaning::of(&again)
            }
            _ => false,
        }
    }

    /// The packet that we read.
    pub(crate) fn packet(&self) -> Option<&Packet<'a>> {
        if let Ok(Some((packet, _))) = &self.ours { Some(packet) } else { None }
    }

    /// The type in the first byte.
    pub(crate) fn kind(&self) -> u8 {
        self.bytes.first().map_or(0, |first| first >> 4)
    }

    /// Whether they refuse in words that contain these.
    pub(crate) fn they_say(&self, words: &str) -> bool {
        matches!(&self.theirs, Verdict::Refused(error) if error.contains(words))
    }

    /// Reads what they write of what they have read.
    pub(crate) fn again(&self) -> Option<Decoded<'_>> {
        self.written().map(|bytes| ours(self.version, bytes))
    }

    /// Whether they write the same packet and more bytes behind it.
    pub(crate) fn writes_more(&self) -> bool {
        let Some((Ok(Some((again, all))), bytes)) = self.again().zip(self.written()) else { return false };
        all < bytes.len() && self.packet().is_some_and(|packet| Meaning::of(packet) == Meaning::of(&again))
    }

    fn written(&self) -> Option<&[u8]> {
        if let Verdict::Packet { again: Written::Bytes(bytes), .. } = &self.theirs { Some(bytes) } else { None }
    }

    /// Whether a property of the packet or of its will is like that.
    pub(crate) fn has_property(&self, like: impl Fn(&Property<'_>) -> bool) -> bool {
        self.packet().is_some_and(|packet| Meaning::of(packet).properties.iter().flatten().any(like))
    }

    /// Whether a filter of SUBSCRIBE or UNSUBSCRIBE is like that.
    pub(crate) fn has_filter(&self, like: impl Fn(&str) -> bool) -> bool {
        match self.packet() {
            Some(Packet::Subscribe(packet)) => packet.entries.iter().any(|(filter, _)| like(filter)),
            Some(Packet::Unsubscribe(packet)) => packet.filters.iter().any(like),
            _ => false,
        }
    }
}

/// The version of a CONNECT by its level, as a server chooses the codec.
fn level(bytes: &[u8]) -> Option<Version> {
    let (first, rest) = bytes.split_first()?;
    let header = rest.iter().take(4).position(|byte| byte & 0x80 == 0)?;
    let (length, body) = rest.get(header + 1..)?.split_first_chunk::<2>()?;
    match body.get(usize::from(u16::from_be_bytes(*length)))? {
        _ if *first != 0x10 => None,
        3 | 0x83 => Some(Version::V31),
        4 | 0x84 => Some(Version::V311),
        5 => Some(Version::V5),
        _ => None,
    }
}

impl<'a> Meaning<'a> {
    pub(crate) fn of(packet: &Packet<'a>) -> Self {
        let none = Properties::NONE;
        let (packet, properties, will) = match *packet {
            Packet::Connect(packet @ Connect { properties, will, .. }) => {
                let bare = will.map(|will| Will { properties: none, ..will });
                let will = will.map_or(none, |will| will.properties);
                let packet = Packet::Connect(Connect { properties: none, will: bare, ..packet });
                let mut said = said(properties);
                said.retain(|property| *property != Property::SessionExpiryInterval(0));
                return Self { packet, properties: [said, self::said(will)] };
            }
            Packet::Connack(packet) => {
                (Packet::Connack(Connack { properties: none, ..packet }), packet.properties, none)
            }
            Packet::Publish(packet) => {
                (Packet::Publish(Publish { properties: none, ..packet }), packet.properties, none)
            }
            Packet::Puback(ack) => (Packet::Puback(Ack { properties: none, ..ack }), ack.properties, none),
            Packet::Pubrec(ack) => (Packet::Pubrec(Ack { properties: none, ..ack }), ack.properties, none),
            Packet::Pubrel(ack) => (Packet::Pubrel(Ack { properties: none, ..ack }), ack.properties, none),
            Packet::Pubcomp(ack) => (Packet::Pubcomp(Ack { properties: none, ..ack }), ack.properties, none),
            Packet::Subscribe(packet) => {
                (Packet::Subscribe(Subscribe { properties: none, ..packet }), packet.properties, none)
            }
            Packet::Suback(packet) => (Packet::Suback(Suback { properties: none, ..packet }), packet.properties, none),
            Packet::Unsubscribe(packet) => {
                (Packet::Unsubscribe(Unsubscribe { properties: none, ..packet }), packet.properties, none)
            }
            Packet::Unsuback(packet) => {
                (Packet::Unsuback(Unsuback { properties: none, ..packet }), packet.properties, none)
            }
            Packet::Disconnect(packet) => {
                (Packet::Disconnect(Disconnect { properties: none, ..packet }), packet.properties, none)
            }
            Packet::Auth(packet) => (Packet::Auth(Auth { properties: none, ..packet }), packet.properties, none),
            packet @ (Packet::Pingreq | Packet::Pingresp) => (packet, none, none),
        };
        Self { packet, properties: [said(properties), said(will)] }
    }
}

/// Properties sorted by identifier; those that may repeat stay in order ([MQTT-3.3.2-18]). One at its default says what
/// its absence says.
fn said(properties: Properties<'_>) -> Vec<Property<'_>> {
    let mut list: Vec<_> = properties.iter().filter(|property| !is_default(property)).collect();
    list.sort_by_key(Property::id);
    list
}

/// Whether the property's section says that this value is assumed without it. Of Session Expiry Interval only that of
/// CONNECT says so (§3.1.2.11.2): in CONNACK and DISCONNECT its absence means the value of CONNECT.
const fn is_default(property: &Property<'_>) -> bool {
    matches!(
        property,
        // §3.3.2.3.2, §3.1.3.2.2
        Property::PayloadFormatIndicator(false) | Property::WillDelayInterval(0)
        // §3.1.2.11.3, §3.1.2.11.5 to §3.1.2.11.7
        | Property::ReceiveMaximum(u16::MAX) | Property::TopicAliasMaximum(0)
        | Property::RequestResponseInformation(false) | Property::RequestProblemInformation(true)
        // §3.2.2.3.5, §3.2.2.3.11 to §3.2.2.3.13
        | Property::RetainAvailable(true) | Property::WildcardSubscriptionAvailable(true)
        | Property::SubscriptionIdentifierAvailable(true) | Property::SharedSubscriptionAvailable(true)
    )
}
