//! Exchanges over time: windows, acknowledgements, sending again, aliases, and the client against the server's halves.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "a test that meets what it does not expect shall panic"
)]

mod negotiation;

use fogmux_mqtt::{
    Ack, Acknowledged, Authentication, Client, ClientError, ClientLimits, Connect, Event, Inbound, InboundConfig,
    Limits, Negotiation, Outbound, OutboundConfig, Outgoing, Packet, PacketId, PacketType, Properties, Property,
    PropertyBuffer, ProtocolError, Publish, Qos, ReasonCode, Received, ReceivedIds, Role, Sent, ServerLimits,
    SubscriptionOptions, TopicName, Version, decode, refuse, refuse_unreadable,
};

const CONFIG: OutboundConfig =
    OutboundConfig { version: Version::V5, window: 2, packet_bytes_max: 1000, topic_alias_maximum: 0 };

fn id(number: u16) -> PacketId {
    PacketId::new(number).unwrap()
}

fn message(payload: &str, qos: Qos) -> Outgoing<'_> {
    Outgoing { topic: "t", qos, payload: payload.as_bytes(), ..Outgoing::default() }
}

fn send(outbound: &mut Outbound<String>, payload: &str, qos: Qos, out: &mut Vec<u8>) -> Sent {
    outbound.publish(&message(payload, qos), || payload.to_owned(), out)
}

/// The packets in `out`: kind, identifier, DUP, and payload or topic.
fn packets(mut out: &[u8]) -> Vec<String> {
    let mut list = Vec::new();
    while let Some((packet, used)) = decode(out, Version::V5, &Limits::PROTOCOL).unwrap() {
        list.push(match packet {
            Packet::Publish(publish) => {
                let id = publish.packet_id.map_or(0, PacketId::get);
                let dup = if publish.dup { " dup" } else { "" };
                format!("publish {id} {}{dup}", String::from_utf8_lossy(publish.payload))
            }
            Packet::Pubrel(ack) => format!("pubrel {} {:02x}", ack.packet_id.get(), ack.reason.0),
            other => format!("{:?}", other.kind()),
        });
        out = &out[used..];
    }
    list
}

#[test]
fn s4_9_the_window_closes_and_opens() {
    let mut outbound = Outbound::new(CONFIG);
    let mut out = Vec::new();
    assert_eq!(send(&mut outbound, "a", Qos::AtLeastOnce, &mut out), Sent::Sent(Some(id(1))));
    assert_eq!(send(&mut outbound, "b", Qos::ExactlyOnce, &mut out), Sent::Sent(Some(id(2))));
    assert_eq!(send(&mut outbound, "c", Qos::AtLeastOnce, &mut out), Sent::NoRoom);
    assert_eq!(send(&mut outbound, "q", Qos::AtMostOnce, &mut out), Sent::Sent(None), "QoS 0 is not counted");
    assert_eq!(outbound.handle_puback(id(1)), Ok(Acknowledged::Over(Some("a".into()))));
    assert_eq!(send(&mut outbound, "c", Qos::AtLeastOnce, &mut out), Sent::Sent(Some(id(3))));
    out.clear();
    let released = outbound.handle_pubrec(id(2), ReasonCode::SUCCESS, &mut out);
    assert_eq!(released, Ok(Acknowledged::Released(Some("b".into()))));
    assert_eq!(packets(&out), ["pubrel 2 00"]);
    assert!(!outbound.has_room(), "PUBREL does not open the window");
    assert_eq!(outbound.handle_pubcomp(id(2)), Ok(Acknowledged::Over(None)));
    assert!(outbound.has_room());
}

#[test]
fn s4_3_3_pubrec_with_a_failure_ends_the_exchange() {
    let mut outbound = Outbound::new(CONFIG);
    let mut out = Vec::new();
    send(&mut outbound, "a", Qos::ExactlyOnce, &mut out);
    out.clear();
    let over = outbound.handle_pubrec(id(1), ReasonCode::QUOTA_EXCEEDED, &mut out);
    assert_eq!(over, Ok(Acknowledged::Over(Some("a".into()))));
    assert!(out.is_empty());
    assert_eq!(outbound.handle_pubcomp(id(1)), Ok(Acknowledged::Unknown));
    assert_eq!(outbound.in_flight(), 0);
}

#[test]
fn s4_3_wrong_and_unknown_acknowledgements() {
    let mut outbound = Outbound::new(CONFIG);
    let mut out = Vec::new();
    send(&mut outbound, "a", Qos::AtLeastOnce, &mut out);
    send(&mut outbound, "b", Qos::ExactlyOnce, &mut out);
    out.clear();
    let wrong = outbound.handle_pubrec(id(1), ReasonCode::SUCCESS, &mut out).unwrap_err();
    assert_eq!(wrong, ProtocolError::WrongAcknowledgement(PacketType::Pubrec));
    assert_eq!(wrong.reason(), ReasonCode::PROTOCOL_ERROR);
    assert!(outbound.handle_puback(id(2)).is_err());
    assert!(outbound.handle_pubcomp(id(2)).is_err(), "not released yet");
    assert_eq!(outbound.handle_puback(id(77)), Ok(Acknowledged::Unknown));
    assert_eq!(outbound.handle_pubrec(id(77), ReasonCode::SUCCESS, &mut out), Ok(Acknowledged::Unknown));
    assert_eq!(packets(&out), ["pubrel 77 92"], "[MQTT-4.3.3-7], Packet Identifier not found");
}

#[test]
fn s4_4_a_resumed_session_sends_again_in_order() {
    let mut outbound = Outbound::new(OutboundConfig { window: 5, ..CONFIG });
    let mut out = Vec::new();
    for (payload, qos) in
        [("a", Qos::AtLeastOnce), ("b", Qos::ExactlyOnce), ("c", Qos::ExactlyOnce), ("d", Qos::AtLeastOnce)]
    {
        send(&mut outbound, payload, qos, &mut out);
    }
    outbound.handle_pubrec(id(2), ReasonCode::SUCCESS, &mut out).unwrap();
    outbound.handle_puback(id(1)).unwrap();
    out.clear();
    outbound.resume(OutboundConfig { window: 1, ..CONFIG });
    assert!(!outbound.has_room(), "what is in flight goes first");
    fn describe(payload: &String) -> Outgoing<'_> {
        message(payload, if payload == "c" { Qos::ExactlyOnce } else { Qos::AtLeastOnce })
    }
    outbound.resend(usize::MAX, describe, &mut out);
    assert_eq!(packets(&out), ["pubrel 2 00", "publish 3 c dup"], "[MQTT-4.4.0-1] in a window of one");
    assert_eq!(send(&mut outbound, "e", Qos::AtLeastOnce, &mut out), Sent::NoRoom);
    outbound.handle_pubcomp(id(2)).unwrap();
    out.clear();
    outbound.resend(usize::MAX, describe, &mut out);
    assert!(out.is_empty(), "[MQTT-3.3.4-9]: one is unacknowledged, and PUBREL took nothing of the quota");
    outbound.handle_pubrec(id(3), ReasonCode::SUCCESS, &mut out).unwrap();
    outbound.handle_pubcomp(id(3)).unwrap();
    out.clear();
    outbound.resend(usize::MAX, describe, &mut out);
    assert_eq!(packets(&out), ["publish 4 d dup"]);
    outbound.handle_puback(id(4)).unwrap();
    assert_eq!(send(&mut outbound, "e", Qos::AtLeastOnce, &mut out), Sent::Sent(Some(id(5))));
}

#[test]
fn identifiers_go_round_and_stay_apart() {
    let mut outbound = Outbound::new(CONFIG);
    let mut out = Vec::new();
    let mut last = 0;
    for round in 0..70_000_u32 {
        out.clear();
        let Sent::Sent(Some(id)) = send(&mut outbound, "a", Qos::AtLeastOnce, &mut out) else { panic!("{round}") };
        assert_eq!(u32::from(id.get()), round % 65_535 + 1);
        assert_ne!(id.get(), last);
        last = id.get();
        assert!(outbound.handle_puback(id).is_ok());
    }
    assert_eq!(outbound.in_flight(), 0);
}

#[test]
fn a_peer_that_never_acknowledges_the_oldest_is_sent_the_others() {
    let mut outbound = Outbound::new(CONFIG);
    let mut out = Vec::new();
    send(&mut outbound, "oldest", Qos::AtLeastOnce, &mut out);
    for number in 0..10_000 {
        out.clear();
        let Sent::Sent(Some(id)) = send(&mut outbound, "a", Qos::AtLeastOnce, &mut out) else { panic!("{number}") };
        outbound.handle_puback(id).unwrap();
    }
    assert!(outbound.bytes() < 100_000);
    outbound.handle_puback(id(1)).unwrap();
    assert!(outbound.has_room() && outbound.in_flight() == 0);
}

#[test]
fn s3_1_2_25_what_is_too_large_is_not_sent() {
    let mut outbound = Outbound::new(OutboundConfig { packet_bytes_max: 20, ..CONFIG });
    let mut out = Vec::new();
    let long = "x".repeat(30);
    assert_eq!(send(&mut outbound, &long, Qos::AtLeastOnce, &mut out), Sent::TooLarge);
    assert!(out.is_empty() && outbound.in_flight() == 0);
    assert_eq!(send(&mut outbound, "x", Qos::AtLeastOnce, &mut out), Sent::Sent(Some(id(1))));
}

#[test]
fn s3_3_2_3_4_aliases_both_ways() {
    let mut outbound: Outbound<()> = Outbound::new(OutboundConfig { topic_alias_maximum: 3, ..CONFIG });
    let config = InboundConfig { role: Role::Client, receive_maximum: 9, topic_alias_maximum: 3, alias_bytes_max: 100 };
    let mut inbound = Inbound::new(Version::V5, config);
    let mut sizes = Vec::new();
    for round in 0..5 {
        for topic in ["a/long/topic/name", "another/long/topic"] {
            let mut out = Vec::new();
            outbound.publish(&Outgoing { topic, ..Outgoing::default() }, || (), &mut out);
            let Ok(Some((Packet::Publish(publish), _))) = decode(&out, Version::V5, &Limits::PROTOCOL) else {
                panic!()
            };
            let incoming = inbound.handle_publish(&publish).unwrap();
            assert_eq!(incoming.topic.as_str(), topic, "round {round}");
            sizes.push(out.len());
        }
    }
    assert!(sizes.last() < sizes.first());
}

fn aliased<'a>(alias: u16, topic: &'a str, list: &'a mut PropertyBuffer) -> Publish<'a> {
    list.clear();
    list.push(Property::TopicAlias(alias)).unwrap();
    let properties = list.properties();
    Publish { dup: false, qos: Qos::AtMostOnce, retain: false, topic, packet_id: None, properties, payload: &[] }
}

#[test]
fn s3_3_2_9_alias_abuse() {
    let config = InboundConfig { role: Role::Server, receive_maximum: 9, topic_alias_maximum: 3, alias_bytes_max: 8 };
    let mut inbound = Inbound::new(Version::V5, config);
    let mut list = PropertyBuffer::new();
    let above = inbound.handle_publish(&aliased(4, "a", &mut list)).unwrap_err();
    assert_eq!(above.reason(), ReasonCode::TOPIC_ALIAS_INVALID);
    assert_eq!(inbound.handle_publish(&aliased(2, "", &mut list)), Err(ProtocolError::TopicAliasUnknown(2)));
    inbound.handle_publish(&aliased(2, "abcd", &mut list)).unwrap();
    let named = inbound.handle_publish(&aliased(2, "", &mut list)).unwrap();
    assert!(matches!(named.topic, TopicName::Aliased(topic) if &*topic == "abcd"));
    inbound.handle_publish(&aliased(2, "efgh", &mut list)).unwrap();
    assert_eq!(inbound.handle_publish(&aliased(2, "", &mut list)).unwrap().topic.as_str(), "efgh");
    let full = inbound.handle_publish(&aliased(1, "ijklm", &mut list)).unwrap_err();
    assert_eq!(full.reason(), ReasonCode::QUOTA_EXCEEDED);
}

#[test]
fn s3_3_4_receive_maximum() {
    let config = InboundConfig { role: Role::Server, receive_maximum: 2, topic_alias_maximum: 0, alias_bytes_max: 0 };
    let publish = |number| Publish {
        dup: false,
        qos: Qos::AtLeastOnce,
        retain: false,
        topic: "t",
        packet_id: Some(id(number)),
        properties: Properties::NONE,
        payload: b"",
    };
    let mut inbound = Inbound::new(Version::V5, config);
    inbound.handle_publish(&publish(1)).unwrap();
    inbound.handle_publish(&publish(2)).unwrap();
    let error = inbound.handle_publish(&publish(3)).unwrap_err();
    assert_eq!(
        (error, error.reason()),
        (ProtocolError::ReceiveMaximum { max: 2 }, ReasonCode::RECEIVE_MAXIMUM_EXCEEDED)
    );
    inbound.release();
    inbound.handle_publish(&publish(3)).unwrap();
    let mut old = Inbound::new(Version::V311, config);
    for number in 1..10 {
        old.handle_publish(&publish(number)).unwrap();
    }
    assert_eq!(old.unacknowledged(), 9, "before version 5 the caller stops reading instead");
}

#[test]
fn s3_3_4_6_subscription_identifier_from_a_client() {
    let mut list = PropertyBuffer::new();
    list.push(Property::SubscriptionIdentifier(1)).unwrap();
    let properties = list.properties();
    let publish = Publish {
        dup: false,
        qos: Qos::AtMostOnce,
        retain: false,
        topic: "t",
        packet_id: None,
        properties,
        payload: b"",
    };
    let config = InboundConfig { role: Role::Server, receive_maximum: 1, topic_alias_maximum: 0, alias_bytes_max: 0 };
    let error = Inbound::new(Version::V5, config).handle_publish(&publish).unwrap_err();
    assert_eq!(error.reason(), ReasonCode::PROTOCOL_ERROR);
    let client = InboundConfig { role: Role::Client, ..config };
    assert!(Inbound::new(Version::V5, client).handle_publish(&publish).is_ok());
}

#[test]
fn s4_3_3_received_identifiers() {
    let mut ids = ReceivedIds::new();
    for number in [5, 6, 65_535, 1, 2] {
        assert_eq!(ids.insert(id(number), 5), Received::Fresh);
    }
    assert_eq!(ids.insert(id(6), 5), Received::Duplicate);
    assert_eq!(ids.insert(id(7), 5), Received::Full);
    assert!(ids.contains(id(6)) && ids.remove(id(6)) && !ids.remove(id(6)) && !ids.contains(id(6)));
    assert_eq!(ids.insert(id(6), 5), Received::Fresh);
    assert_eq!(ids.len(), 5);
    for number in [1, 2, 5, 6, 65_535] {
        assert!(ids.remove(id(number)));
    }
    assert!(ids.is_empty());
}

#[test]
fn messages_in_flight_are_those_whose_exchange_is_not_over() {
    let mut outbound = Outbound::new(OutboundConfig { window: 10, ..CONFIG });
    let mut out = Vec::new();
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce, Qos::AtLeastOnce, Qos::AtLeastOnce] {
        send(&mut outbound, "a", qos, &mut out);
    }
    let reserved = outbound.reserve().unwrap();
    assert_eq!((outbound.in_flight(), outbound.unfinished()), (5, 4));
    for number in [3, 4] {
        outbound.handle_puback(id(number)).unwrap();
    }
    outbound.handle_pubrec(id(2), ReasonCode::SUCCESS, &mut out).unwrap();
    assert_eq!((outbound.in_flight(), outbound.unfinished()), (5, 2), "one not acknowledged, one not complete");
    outbound.handle_puback(id(1)).unwrap();
    outbound.handle_pubcomp(id(2)).unwrap();
    assert_eq!((outbound.in_flight(), outbound.unfinished()), (1, 0), "the identifier of SUBSCRIBE");
    assert!(outbound.unreserve(reserved));
    assert_eq!(outbound.in_flight(), 0);
}
