//! The four properties every parser has here: what is written is read back; what is read, written and read again is
//! the same; how the bytes are cut changes nothing; any bytes at all neither panic nor are believed beyond their end.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "a test that meets what it does not expect shall panic"
)]

use fogmux_mqtt::{
    Ack, Auth, Connack, Connect, DecodeError, Disconnect, Limits, Outgoing, Packet, PacketId, PacketType, Properties,
    Property, PropertyBuffer, Publish, Qos, ReasonCode, ReasonCodes, RetainHandling, Suback, Subscribe,
    SubscribeEntries, SubscriptionOptions, TopicFilters, Unsuback, Unsubscribe, Version, Will, decode,
};
use proptest::collection::vec;
use proptest::prelude::*;

const VERSIONS: [Version; 3] = [Version::V31, Version::V311, Version::V5];

fn version() -> impl Strategy<Value = Version> {
    prop::sample::select(VERSIONS.to_vec())
}

fn qos() -> impl Strategy<Value = Qos> {
    prop::sample::select(vec![Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce])
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z0-9/$ ]{0,40}", "[^\u{0}+#]{0,12}"]
}

fn topic() -> impl Strategy<Value = String> {
    text().prop_filter("a topic has a character", |topic| !topic.is_empty())
}

fn id() -> impl Strategy<Value = PacketId> {
    (1..=u16::MAX).prop_map(|id| PacketId::new(id).unwrap())
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 0..20_000)]
}

/// A property that owns what it says.
#[derive(Clone, Debug)]
enum Owned {
    Flag(u8, bool),
    Short(u8, u16),
    Number(u8, u32),
    Text(u8, String),
    Binary(u8, Vec<u8>),
    User(String, String),
}

fn push(list: &mut PropertyBuffer, owned: &Owned) {
    let property = match owned {
        Owned::Flag(0x01, v) => Property::PayloadFormatIndicator(*v),
        Owned::Flag(0x17, v) => Property::RequestProblemInformation(*v),
        Owned::Flag(0x19, v) => Property::RequestResponseInformation(*v),
        Owned::Flag(0x24, v) => Property::MaximumQos(*v),
        Owned::Flag(_, v) => Property::SharedSubscriptionAvailable(*v),
        Owned::Short(0x21, v) => Property::ReceiveMaximum((*v).max(1)),
        Owned::Short(0x22, v) => Property::TopicAliasMaximum(*v),
        Owned::Short(0x23, v) => Property::TopicAlias((*v).max(1)),
        Owned::Short(_, v) => Property::ServerKeepAlive(*v),
        Owned::Number(0x02, v) => Property::MessageExpiryInterval(*v),
        Owned::Number(0x0B, v) => Property::SubscriptionIdentifier((*v % 268_435_455) + 1),
        Owned::Number(0x11, v) => Property::SessionExpiryInterval(*v),
        Owned::Number(0x18, v) => Property::WillDelayInterval(*v),
        Owned::Number(_, v) => Property::MaximumPacketSize((*v).max(1)),
        Owned::Text(0x03, v) => Property::ContentType(v),
        Owned::Text(0x08, v) => Property::ResponseTopic(v),
        Owned::Text(0x12, v) => Property::AssignedClientIdentifier(v),
        Owned::Text(0x1C, v) => Property::ServerReference(v),
        Owned::Text(0x15, v) => Property::AuthenticationMethod(v),
        Owned::Text(_, v) => Property::ReasonString(v),
        Owned::Binary(_, v) => Property::CorrelationData(v),
        Owned::User(k, v) => Property::UserProperty(k, v),
    };
    list.push(property).unwrap();
}

/// Some of the listed properties, none twice, and user properties.
fn properties(list: Vec<Owned>) -> impl Strategy<Value = PropertyBuffer> {
    let count = list.len();
    let some = prop::sample::subsequence(list, 0..=count);
    (some, vec((text(), text()), 0..3), any::<u32>(), any::<u16>(), text(), bytes()).prop_map(
        |(some, user, number, short, text, bytes)| {
            let mut list = PropertyBuffer::new();
            for owned in some {
                let owned = match owned {
                    Owned::Short(id, _) => Owned::Short(id, short),
                    Owned::Number(id, _) => Owned::Number(id, number),
                    // A Response Topic has a character.
                    Owned::Text(0x08, _) => Owned::Text(0x08, format!("t{text}")),
                    Owned::Text(id, _) => Owned::Text(id, text.clone()),
                    Owned::Binary(id, _) => Owned::Binary(id, bytes.clone()),
                    other @ (Owned::Flag(..) | Owned::User(..)) => other,
                };
                push(&mut list, &owned);
            }
            for (k, v) in user {
                push(&mut list, &Owned::User(k, v));
            }
            list
        },
    )
}

fn number(id: u8) -> Owned {
    Owned::Number(id, 0)
}

fn short(id: u8) -> Owned {
    Owned::Short(id, 0)
}

fn string(id: u8) -> Owned {
    Owned::Text(id, String::new())
}

fn message() -> Vec<Owned> {
    vec![Owned::Flag(1, true), number(2), string(3), string(8), Owned::Binary(9, vec![])]
}

/// The packet as `version` has it, written.
fn written(packet: &Packet<'_>, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(version, &mut out).unwrap();
    out
}

fn only_v5(list: &PropertyBuffer, version: Version) -> Properties<'_> {
    if version.is_v5() { list.properties() } else { Properties::NONE }
}

fn round_trip(packet: &Packet<'_>, version: Version) -> Result<(), TestCaseError> {
    let bytes = written(packet, version);
    match decode(&bytes, version, &Limits::PROTOCOL) {
        Ok(Some((read, used))) => {
            prop_assert_eq!(used, bytes.len());
            prop_assert_eq!(&read, packet);
        }
        other => prop_assert!(false, "{packet:?} became {other:?}"),
    }
    cuts(&bytes, version)
}

/// However a packet is cut, nothing is said before it is whole, and what follows it does not matter.
fn cuts(bytes: &[u8], version: Version) -> Result<(), TestCaseError> {
    let whole = decode(bytes, version, &Limits::PROTOCOL);
    for end in (0..bytes.len()).step_by(1 + bytes.len() / 64) {
        prop_assert_eq!(decode(&bytes[..end], version, &Limits::PROTOCOL), Ok(None), "cut at {}", end);
    }
    let mut more = bytes.to_vec();
    more.extend_from_slice(&[0x00, 0xFF, 0x30]);
    prop_assert_eq!(decode(&more, version, &Limits::PROTOCOL), whole);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn publish_round_trip(
        version in version(), qos in qos(), dup: bool, retain: bool, topic in topic(), id in id(),
        list in properties([message(), vec![short(0x23), number(0x0B)]].concat()), payload in bytes(),
    ) {
        let packet_id = (qos != Qos::AtMostOnce).then_some(id);
        let properties = only_v5(&list, version);
        let dup = dup && qos != Qos::AtMostOnce;
        let publish = Publish { dup, qos, retain, topic: &topic, packet_id, properties, payload: &payload };
        round_trip(&Packet::Publish(publish), version)?;
    }

    #[test]
    fn outgoing_is_read_as_it_was_said(
        version in version(), qos in qos(), retain: bool, utf8: bool, expiry: Option<u32>, topic in topic(), id in id(),
        content_type in proptest::option::of(text()), response_topic in proptest::option::of(topic()),
        correlation in proptest::option::of(bytes()), user in vec((text(), text()), 0..3),
        subscription_ids in vec(1_u32..=268_435_455, 0..3), payload in bytes(),
    ) {
        let user: Vec<(Box<str>, Box<str>)> = user.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        let message = Outgoing {
            topic: &topic, qos, retain, utf8, expiry, content_type: content_type.as_deref(),
            response_topic: response_topic.as_deref(), correlation: correlation.as_deref(), user: &user,
            subscription_ids: &subscription_ids, payload: &payload,
        };
        let packet_id = (qos != Qos::AtMostOnce).then_some(id);
        let mut out = b"before".to_vec();
        message.encode(version, packet_id, &mut out).unwrap();
        let Ok(Some((Packet::Publish(read), used))) = decode(&out[6..], version, &Limits::PROTOCOL) else {
            return Err(TestCaseError::fail("not read back"));
        };
        prop_assert_eq!(used, out.len() - 6);
        prop_assert_eq!((read.topic, read.payload, read.qos, read.retain), (&*topic, &*payload, qos, retain));
        prop_assert_eq!(read.packet_id, packet_id);
        if version.is_v5() {
            let said = fogmux_mqtt::PublishProperties::from(read.properties);
            prop_assert_eq!((said.utf8, said.expiry), (utf8, expiry));
            prop_assert_eq!(said.content_type, content_type.as_deref());
            prop_assert_eq!(said.response_topic, response_topic.as_deref());
            prop_assert_eq!(said.correlation, correlation.as_deref());
            prop_assert_eq!(read.properties.subscription_ids().collect::<Vec<_>>(), subscription_ids);
            let pairs: Vec<_> = read.properties.user().map(|(k, v)| (Box::from(k), Box::from(v))).collect();
            prop_assert_eq!(pairs, user);
        }
    }

    #[test]
    fn connect_round_trip(
        version in version(), bridge: bool, clean_start: bool, keep_alive: u16, client_id in text(),
        will in proptest::option::of((qos(), any::<bool>(), topic(), bytes())),
        will_list in properties([message(), vec![number(0x18)]].concat()),
        user in proptest::option::of(text()), password in proptest::option::of(bytes()),
        list in properties(vec![number(0x11), short(0x21), number(0x27), short(0x22), Owned::Flag(0x19, true),
            Owned::Flag(0x17, false), string(0x15)]),
    ) {
        let will = will.as_ref().map(|(qos, retain, topic, payload)| Will {
            qos: *qos, retain: *retain, topic, payload, properties: only_v5(&will_list, version),
        });
        let password = password.as_deref().filter(|_| version.is_v5() || user.is_some());
        let connect = Connect {
            version, bridge: bridge && !version.is_v5(), clean_start, keep_alive, client_id: &client_id, will,
            user: user.as_deref(), password, properties: only_v5(&list, version),
        };
        round_trip(&Packet::Connect(connect), version)?;
    }

    #[test]
    fn connack_round_trip(
        version in version(), session_present: bool,
        list in properties(vec![number(0x11), short(0x21), Owned::Flag(0x24, true), number(0x27), string(0x12),
            short(0x22), string(0x1F), Owned::Flag(0x2A, false), short(0x13), string(0x1C), string(0x15)]),
    ) {
        let session_present = session_present && version != Version::V31;
        let accepted = Connack { session_present, reason: ReasonCode::SUCCESS, properties: only_v5(&list, version) };
        round_trip(&Packet::Connack(accepted), version)?;
        let reason = ReasonCode::NOT_AUTHORIZED;
        let refused = Connack { session_present: false, reason, properties: only_v5(&list, version) };
        round_trip(&Packet::Connack(refused), version)?;
    }

    #[test]
    fn acknowledgements_round_trip(version in version(), id in id(), code: u8, list in properties(vec![string(0x1F)])) {
        let make = |kind| {
            let reason = if version.is_v5() && ReasonCode(code).allowed_in(kind) { ReasonCode(code) } else { ReasonCode::SUCCESS };
            Ack { packet_id: id, reason, properties: only_v5(&list, version) }
        };
        round_trip(&Packet::Puback(make(PacketType::Puback)), version)?;
        round_trip(&Packet::Pubrec(make(PacketType::Pubrec)), version)?;
        round_trip(&Packet::Pubrel(make(PacketType::Pubrel)), version)?;
        round_trip(&Packet::Pubcomp(make(PacketType::Pubcomp)), version)?;
    }

    #[test]
    fn subscriptions_round_trip(
        version in version(), id in id(), filters in vec((text(), qos(), any::<(bool, bool)>(), 0..3_u8), 1..5),
        list in properties(vec![number(0x0B)]), acks in properties(vec![string(0x1F)]),
        users in properties(vec![]),
    ) {
        let entries: Vec<_> = filters.iter().map(|(filter, qos, (no_local, as_published), handling)| {
            let mut options = SubscriptionOptions::qos(*qos);
            if version.is_v5() {
                options.no_local = *no_local && !filter.starts_with("$share/");
                options.retain_as_published = *as_published;
                options.retain_handling = [RetainHandling::Always, RetainHandling::IfNew, RetainHandling::Never][usize::from(*handling)];
            }
            (filter.as_str(), options)
        }).collect();
        let entries = SubscribeEntries::new(&entries);
        round_trip(&Packet::Subscribe(Subscribe { packet_id: id, properties: only_v5(&list, version), entries }), version)?;
        let names: Vec<_> = filters.iter().map(|row| row.0.as_str()).collect();
        let filters = TopicFilters::new(&names);
        round_trip(&Packet::Unsubscribe(Unsubscribe { packet_id: id, properties: only_v5(&users, version), filters }), version)?;
        let codes = ReasonCodes::new(&[0, 1, 2, 0x80]);
        round_trip(&Packet::Suback(Suback { packet_id: id, properties: only_v5(&acks, version), codes }), version)?;
        let codes = ReasonCodes::new(if version.is_v5() { &[0, 0x11, 0x87] } else { &[] });
        round_trip(&Packet::Unsuback(Unsuback { packet_id: id, properties: only_v5(&acks, version), codes }), version)?;
    }

    #[test]
    fn the_rest_round_trip(version in version(), list in properties(vec![number(0x11), string(0x1F), string(0x1C)]), auth in properties(vec![string(0x1F)]), method in text()) {
        round_trip(&Packet::Pingreq, version)?;
        round_trip(&Packet::Pingresp, version)?;
        let reason = if version.is_v5() { ReasonCode::DISCONNECT_WITH_WILL } else { ReasonCode::SUCCESS };
        round_trip(&Packet::Disconnect(Disconnect { reason, properties: only_v5(&list, version) }), version)?;
        if version.is_v5() {
            let reason = ReasonCode::CONTINUE_AUTHENTICATION;
            let mut auth = auth;
            push(&mut auth, &Owned::Text(0x15, method));
            round_trip(&Packet::Auth(Auth { reason, properties: auth.properties() }), version)?;
        }
    }
}

/// Reads bytes as packets until they end or are none, writing each again.
fn read_all(mut bytes: &[u8], version: Version) -> Result<(), TestCaseError> {
    while let Ok(Some((packet, used))) = decode(bytes, version, &Limits::PROTOCOL) {
        prop_assert!(used > 0 && used <= bytes.len());
        let speaks = if let Packet::Connect(connect) = &packet { connect.version } else { version };
        let again = written(&packet, speaks);
        let Ok(Some((reread, all))) = decode(&again, speaks, &Limits::PROTOCOL) else {
            return Err(TestCaseError::fail(format!("{packet:?} cannot be read again from {again:02x?}")));
        };
        prop_assert_eq!((&reread, all), (&packet, again.len()));
        bytes = &bytes[used..];
    }
    Ok(())
}

/// An error may come early, but the same one comes however many bytes follow.
fn same_error(bytes: &[u8], version: Version) -> Result<(), TestCaseError> {
    let mut early: Option<DecodeError> = None;
    for end in 0..=bytes.len() {
        let result = decode(&bytes[..end], version, &Limits::PROTOCOL);
        if let Some(error) = early {
            prop_assert_eq!(result, Err(error));
        } else {
            early = result.err();
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(version in version(), bytes in vec(any::<u8>(), 0..200)) {
        read_all(&bytes, version)?;
        same_error(&bytes, version)?;
    }

    /// Bytes that look like a packet: a good first byte, a length that holds, small numbers.
    #[test]
    fn nearly_packets(version in version(), kind in 1..=15_u8, flags in 0..16_u8, body in vec(prop_oneof![0..5_u8, 0x20..0x30_u8, any::<u8>()], 0..60)) {
        let flags = match kind { 3 => flags, 6 | 8 | 10 => 2, _ => 0 };
        let mut bytes = vec![kind << 4 | flags, u8::try_from(body.len()).unwrap()];
        bytes.extend_from_slice(&body);
        read_all(&bytes, version)?;
        same_error(&bytes, version)?;
    }
}
