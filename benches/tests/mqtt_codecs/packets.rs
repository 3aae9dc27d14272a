//! Packets as our encoder writes them, and damage to them.

use fogmux_mqtt::{
    Ack, Auth, Connack, Connect, Disconnect, Packet, PacketId, PacketType, Properties, Property, PropertyBuffer,
    Publish, Qos, ReasonCode, ReasonCodes, RetainHandling, Suback, Subscribe, SubscribeEntries, SubscriptionOptions,
    TopicFilters, Unsuback, Unsubscribe, Version, Will,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Bytes and the version that they are read as.
pub(crate) type Input = (Version, Vec<u8>);

/// Values from which the fields of one packet are taken.
#[derive(Clone, Debug)]
struct Seed {
    version: Version,
    kind: u8,
    /// Which of the possible properties are there, in a packet and in its will.
    present: [u32; 2],
    flags: [bool; 4],
    number: u32,
    short: u16,
    code: Index,
    qos: Qos,
    handling: RetainHandling,
    texts: [String; 3],
    data: Vec<u8>,
    filters: Vec<String>,
}

/// A packet of any type, without a fault.
pub(crate) fn written() -> impl Strategy<Value = Input> {
    seed().prop_map(|seed| (seed.version, seed.written()))
}

fn seed() -> impl Strategy<Value = Seed> {
    let version = select(vec![Version::V311, Version::V5]);
    let number = prop_oneof![0..3_u32, Just(0xFFFF), Just(u32::MAX), any::<u32>()];
    let short = prop_oneof![0..3_u16, Just(u16::MAX), any::<u16>()];
    let qos = select(vec![Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce]);
    let handling = select(vec![RetainHandling::Always, RetainHandling::IfNew, RetainHandling::Never]);
    let first = (version, 1..=15_u8, present(), any::<[bool; 4]>(), number, short, any::<Index>());
    let second = (qos, handling, [text(), text(), text()], data(), vec(filter(), 1..4));
    (first, second).prop_map(|(first, second)| {
        let (version, kind, present, flags, number, short, code) = first;
        let (qos, handling, texts, data, filters) = second;
        Seed { version, kind, present, flags, number, short, code, qos, handling, texts, data, filters }
    })
}

/// Often none, otherwise some.
fn present() -> impl Strategy<Value = [u32; 2]> {
    [prop_oneof![Just(0), any::<u32>()], prop_oneof![Just(0), any::<u32>()]]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z/$ é€𝄞_-]{1,12}",
        "[a-z]{1,4}",
        "\\PC{1,4}",
        "[\u{1}-\u{1F}\u{7F}-\u{9F}]{1,2}"
    ]
    .prop_map(|text| text.replace(['+', '#'], "-"))
}

fn filter() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/]{1,6}", "[a-z]{1,3}/[+]/[a-z]{1,3}", "[a-z]{1,3}/#", "[$]share/[a-z]{1,2}/[a-z]{1,2}", text()]
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    let text = "[a-z]{0,9}".prop_map(String::into_bytes);
    prop_oneof![8 => vec(any::<u8>(), 0..12), 4 => text, 1 => vec(any::<u8>(), 100..300)]
}

impl Seed {
    fn packet_id(&self) -> PacketId {
        PacketId::new(self.short).unwrap_or(PacketId::FIRST)
    }

    fn topic(&self) -> &str {
        if self.texts[0].is_empty() { "t" } else { &self.texts[0] }
    }

    /// A code that the packet may carry.
    fn reason(&self, kind: PacketType) -> ReasonCode {
        if !self.version.is_v5() {
            return ReasonCode::SUCCESS;
        }
        let codes: Vec<_> = (0..=u8::MAX).map(ReasonCode).filter(|code| code.allowed_in(kind)).collect();
        codes[self.code.index(codes.len())]
    }

    /// The listed properties that are present, and user properties.
    fn list(&self, present: u32, places: &[fn(&Self) -> Property<'_>]) -> PropertyBuffer {
        let mut list = PropertyBuffer::new();
        if !self.version.is_v5() {
            return list;
        }
        for (bit, property) in places.iter().enumerate() {
            if present >> bit & 1 == 1 {
                list.push(property(self)).unwrap();
            }
        }
        for bit in [30, 31] {
            if present >> bit & 1 == 1 {
                list.push(Property::UserProperty(&self.texts[0], &self.texts[bit % 2])).unwrap();
            }
        }
        list
    }

    fn written(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let own = self.list(self.present[0], places(self.kind));
        let properties = own.properties();
        let will = self.list(self.present[1], WILL);
        let packet_id = self.packet_id();
        let ack = |kind| Ack { packet_id, reason: self.reason(kind), properties };
        let names: Vec<_> = self.filters.iter().map(String::as_str).collect();
        let entries: Vec<_> = names.iter().map(|name| (*name, self.options(name))).collect();
        let packet = match self.kind {
            1 => Packet::Connect(self.connect(properties, will.properties())),
            2 => Packet::Connack(self.connack(properties)),
            4 => Packet::Puback(ack(PacketType::Puback)),
            5 => Packet::Pubrec(ack(PacketType::Pubrec)),
            6 => Packet::Pubrel(ack(PacketType::Pubrel)),
            7 => Packet::Pubcomp(ack(PacketType::Pubcomp)),
            8 => Packet::Subscribe(Subscribe { packet_id, properties, entries: SubscribeEntries::new(&entries) }),
            9 => {
                let codes = [self.qos.bits(), self.reason(PacketType::Suback).0];
                Packet::Suback(Suback { packet_id, properties, codes: ReasonCodes::new(&codes) })
                    .encode(self.version, &mut out)
                    .unwrap();
                return out;
            }
            10 => Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters: TopicFilters::new(&names) }),
            11 => {
                let codes = [0, self.reason(PacketType::Unsuback).0];
                Packet::Unsuback(Unsuback { packet_id, properties, codes: ReasonCodes::new(&codes) })
                    .encode(self.version, &mut out)
                    .unwrap();
                return out;
            }
            12 => Packet::Pingreq,
            13 => Packet::Pingresp,
            14 => Packet::Disconnect(Disconnect { reason: self.reason(PacketType::Disconnect), properties }),
            15 if self.version.is_v5() => Packet::Auth(Auth { reason: self.reason(PacketType::Auth), properties }),
            _ => Packet::Publish(self.publish(properties)),
        };
        packet.encode(self.version, &mut out).unwrap();
        out
    }

    fn options(&self, filter: &str) -> SubscriptionOptions {
        SubscriptionOptions {
            qos: self.qos,
            no_local: self.flags[0] && !filter.starts_with("$share/"),
            retain_as_published: self.flags[1],
            retain_handling: self.handling,
        }
    }

    fn connect<'a>(&'a self, properties: Properties<'a>, will: Properties<'a>) -> Connect<'a> {
        let [clean_start, retain, user, password] = self.flags;
        let will = (!self.number.is_multiple_of(3)).then_some(Will {
            qos: self.qos,
            retain,
            topic: self.topic(),
            payload: &self.data,
            properties: will,
        });
        Connect {
            version: self.version,
            bridge: false,
            clean_start,
            keep_alive: self.short,
            client_id: &self.texts[1],
            will,
            user: user.then_some(&*self.texts[2]),
            password: (password && (user || self.version.is_v5())).then_some(&*self.data),
            properties,
        }
    }

    fn connack<'a>(&self, properties: Properties<'a>) -> Connack<'a> {
        let reason = if self.version.is_v5() {
            self.reason(PacketType::Connack)
        } else {
            ReasonCode::from_connack_v3(u8::try_from(self.code.index(6)).unwrap()).unwrap()
        };
        Connack { session_present: self.flags[0] && !reason.is_error(), reason, properties }
    }

    fn publish<'a>(&'a self, properties: Properties<'a>) -> Publish<'a> {
        let packet_id = (self.qos != Qos::AtMostOnce).then_some(self.packet_id());
        let aliased = properties.iter().any(|property| matches!(property, Property::TopicAlias(_)));
        Publish {
            dup: self.flags[0] && packet_id.is_some(),
            qos: self.qos,
            retain: self.flags[1],
            topic: if aliased && self.flags[2] { "" } else { self.topic() },
            packet_id,
            properties,
            payload: &self.data,
        }
    }
}

type Place = &'static [fn(&Seed) -> Property<'_>];

const MESSAGE: [fn(&Seed) -> Property<'_>; 5] = [
    |seed| Property::PayloadFormatIndicator(seed.flags[3]),
    |seed| Property::MessageExpiryInterval(seed.number),
    |seed| Property::ContentType(&seed.texts[1]),
    |seed| Property::ResponseTopic(seed.topic()),
    |seed| Property::CorrelationData(&seed.data),
];
const WILL: Place =
    &[MESSAGE[0], MESSAGE[1], MESSAGE[2], MESSAGE[3], MESSAGE[4], |seed| Property::WillDelayInterval(seed.number)];
const REASON: fn(&Seed) -> Property<'_> = |seed| Property::ReasonString(&seed.texts[2]);
const IDENTIFIER: fn(&Seed) -> Property<'_> = |seed| Property::SubscriptionIdentifier(seed.number % 268_435_455 + 1);
const EXPIRY: fn(&Seed) -> Property<'_> = |seed| Property::SessionExpiryInterval(seed.number);
const METHOD: fn(&Seed) -> Property<'_> = |seed| Property::AuthenticationMethod(&seed.texts[0]);
const RECEIVE: fn(&Seed) -> Property<'_> = |seed| Property::ReceiveMaximum(seed.short.max(1));
const SIZE: fn(&Seed) -> Property<'_> = |seed| Property::MaximumPacketSize(seed.number.max(1));
const ALIASES: fn(&Seed) -> Property<'_> = |seed| Property::TopicAliasMaximum(seed.short);
const REFERENCE: fn(&Seed) -> Property<'_> = |seed| Property::ServerReference(&seed.texts[1]);

/// The properties that a packet of this type may have, but Authentication Data, which needs a method beside it.
const fn places(kind: u8) -> Place {
    match kind {
        1 => &[
            EXPIRY,
            RECEIVE,
            SIZE,
            ALIASES,
            METHOD,
            |seed| Property::RequestResponseInformation(seed.flags[1]),
            |seed| Property::RequestProblemInformation(seed.flags[2]),
        ],
        2 => &[
            EXPIRY,
            RECEIVE,
            SIZE,
            ALIASES,
            METHOD,
            REASON,
            REFERENCE,
            |seed| Property::MaximumQos(seed.flags[1]),
            |seed| Property::RetainAvailable(seed.flags[2]),
            |seed| Property::AssignedClientIdentifier(&seed.texts[0]),
            |seed| Property::WildcardSubscriptionAvailable(seed.flags[1]),
            |seed| Property::SubscriptionIdentifierAvailable(seed.flags[2]),
            |seed| Property::SharedSubscriptionAvailable(seed.flags[3]),
            |seed| Property::ServerKeepAlive(seed.short),
            |seed| Property::ResponseInformation(&seed.texts[2]),
        ],
        4..=7 | 9 | 11 => &[REASON],
        8 => &[IDENTIFIER],
        10 | 12 | 13 => &[],
        14 => &[EXPIRY, REASON, REFERENCE],
        15 => &[METHOD, REASON],
        _ => &[
            MESSAGE[0],
            MESSAGE[1],
            MESSAGE[2],
            MESSAGE[3],
            MESSAGE[4],
            |seed| Property::TopicAlias(seed.short.max(1)),
            IDENTIFIER,
            |seed| Property::SubscriptionIdentifier(seed.number / 2 % 268_435_455 + 1),
        ],
    }
}

/// One change to the bytes of a packet.
#[derive(Clone, Debug)]
enum Damage {
    /// A byte becomes another.
    Set(Index, u8),
    /// A bit is flipped.
    Flip(Index, u8),
    /// A byte appears.
    Insert(Index, u8),
    /// Bytes are lost.
    Remove(Index, usize),
    /// Bytes are there twice.
    Repeat(Index, usize),
    /// The end is missing.
    Cut(Index),
}

/// A packet with one fault or a few, mostly with a Remaining Length that holds all the same.
pub(crate) fn damaged() -> impl Strategy<Value = Input> {
    (written(), vec(damage(), 1..4), prop::bool::weighted(0.8)).prop_map(|((version, mut bytes), all, mend)| {
        for damage in &all {
            apply(damage, &mut bytes);
        }
        if mend {
            mend_length(&mut bytes);
        }
        (version, bytes)
    })
}

/// Any bytes, with a first byte that some packet has and a Remaining Length that holds.
pub(crate) fn nearly() -> impl Strategy<Value = Input> {
    let version = select(vec![Version::V311, Version::V5]);
    let byte = prop_oneof![0..5_u8, 0x20..0x2B_u8, any::<u8>()];
    (version, any::<u8>(), vec(byte, 0..40)).prop_map(|(version, first, body)| {
        let first =
            if first & 1 == 0 { first } else { first & 0xF0 | [0, 2][usize::from(matches!(first >> 4, 6 | 8 | 10))] };
        let mut bytes = vec![first, u8::try_from(body.len()).unwrap()];
        bytes.extend_from_slice(&body);
        (version, bytes)
    })
}

fn damage() -> impl Strategy<Value = Damage> {
    let byte = || prop_oneof![0..6_u8, 0x20..0x2B_u8, 0x7E..0x84_u8, any::<u8>()];
    prop_oneof![
        4 => (any::<Index>(), byte()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        3 => (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        2 => (any::<Index>(), byte()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        2 => (any::<Index>(), 1..4_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
        1 => (any::<Index>(), 1..8_usize).prop_map(|(at, count)| Damage::Repeat(at, count)),
        1 => any::<Index>().prop_map(Damage::Cut),
    ]
}

fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let length = bytes.len();
    match *damage {
        Damage::Set(at, byte) => bytes[at.index(length)] = byte,
        Damage::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
        Damage::Insert(at, byte) => bytes.insert(at.index(length + 1), byte),
        Damage::Remove(at, count) => {
            let at = at.index(length);
            bytes.drain(at..(at + count).min(length));
        }
        Damage::Repeat(at, count) => {
            let at = at.index(length);
            let part = bytes[at..(at + count).min(length)].to_vec();
            bytes.splice(at..at, part);
        }
        Damage::Cut(at) => bytes.truncate(at.index(length)),
    }
}

/// Writes the Remaining Length that the bytes behind the fixed header have.
fn mend_length(bytes: &mut Vec<u8>) {
    let Some(end) = bytes.iter().skip(1).take(4).position(|byte| byte & 0x80 == 0) else { return };
    let body = bytes.split_off(end + 2);
    bytes.truncate(1);
    let mut rest = body.len();
    loop {
        let low = u8::try_from(rest % 128).unwrap();
        rest /= 128;
        bytes.push(if rest > 0 { low | 0x80 } else { low });
        if rest == 0 {
            break;
        }
    }
    bytes.extend_from_slice(&body);
}
