//! Exchanges over time: windows, acknowledgements, sending again, aliases, and the client against the server's halves.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::too_many_lines,
    reason = "a test that meets what it does not expect shall panic"
)]

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
fn a_peer_that_never_acknowledges_the_oldest_is_bounded() {
    let mut outbound = Outbound::new(CONFIG);
    let mut out = Vec::new();
    send(&mut outbound, "oldest", Qos::AtLeastOnce, &mut out);
    let mut sent = 0;
    while let Sent::Sent(Some(id)) = send(&mut outbound, "a", Qos::AtLeastOnce, &mut out) {
        outbound.handle_puback(id).unwrap();
        sent += 1;
        assert!(sent < 10_000);
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
    assert!(ids.remove(id(6)) && !ids.remove(id(6)));
    assert_eq!(ids.insert(id(6), 5), Received::Fresh);
    assert_eq!(ids.len(), 5);
    for number in [1, 2, 5, 6, 65_535] {
        assert!(ids.remove(id(number)));
    }
    assert!(ids.is_empty());
}

const LIMITS: ServerLimits = ServerLimits {
    session_expiry_max: 3600,
    receive_maximum: 100,
    packet_bytes_max: 1 << 20,
    topic_alias_maximum: 16,
    keep_alive_max: 600,
    window_max: 50,
    outgoing_alias_maximum: 8,
};

fn connect(version: Version, properties: Properties<'_>) -> Connect<'_> {
    Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive: 60,
        client_id: "c",
        will: None,
        user: None,
        password: None,
        properties,
    }
}

#[test]
fn s3_1_negotiation() {
    let mut list = PropertyBuffer::new();
    for property in [
        Property::SessionExpiryInterval(u32::MAX),
        Property::ReceiveMaximum(10),
        Property::MaximumPacketSize(5000),
        Property::TopicAliasMaximum(100),
        Property::RequestProblemInformation(false),
    ] {
        list.push(property).unwrap();
    }
    let granted = Negotiation::of(&connect(Version::V5, list.properties()), &LIMITS).unwrap();
    assert_eq!((granted.session_expiry, granted.window, granted.packet_bytes_max), (3600, 10, 5000));
    assert_eq!((granted.topic_alias_maximum, granted.problem_information), (8, false));
    let mut out = Vec::new();
    granted.accept(true, Some("made"), None, &mut PropertyBuffer::new(), &mut out).unwrap();
    let Ok(Some((Packet::Connack(connack), _))) = decode(&out, Version::V5, &Limits::PROTOCOL) else { panic!() };
    assert!(connack.session_present);
    let said = fogmux_mqtt::ConnackProperties::from(connack.properties);
    assert_eq!((said.session_expiry, said.receive_maximum, said.assigned_client_id), (Some(3600), 100, Some("made")));
    assert_eq!((said.server_keep_alive, said.topic_alias_maximum), (None, 16));

    let long = Connect { keep_alive: 0, ..connect(Version::V5, Properties::NONE) };
    let granted = Negotiation::of(&long, &LIMITS).unwrap();
    assert_eq!((granted.keep_alive, granted.session_expiry), (600, 0), "[MQTT-3.2.2-21], §3.1.2.11.2");
    let old = Connect { keep_alive: 0, clean_start: false, ..connect(Version::V311, Properties::NONE) };
    let granted = Negotiation::of(&old, &LIMITS).unwrap();
    assert_eq!((granted.keep_alive, granted.session_expiry), (0, 3600), "3.1.1 cannot be told");
    out.clear();
    granted.accept(true, None, None, &mut PropertyBuffer::new(), &mut out).unwrap();
    assert_eq!(out, [0x20, 2, 1, 0]);
}

#[test]
fn s3_1_2_24_no_connack_is_larger_than_the_client_takes() {
    let text = "x".repeat(50);
    for max in 1..=100 {
        let mut list = PropertyBuffer::new();
        list.push(Property::MaximumPacketSize(max)).unwrap();
        let asked = connect(Version::V5, list.properties());
        assert_eq!(asked.packet_bytes_max(), max);
        let granted = Negotiation::of(&asked, &LIMITS).unwrap();
        let mut out = vec![1];
        let accepted = granted.accept(false, Some("made"), None, &mut PropertyBuffer::new(), &mut out);
        // With an identifier of ours 20 bytes, 23 with the Topic Alias Maximum.
        assert_eq!(
            (accepted.is_ok(), out.len()),
            if max < 20 { (false, 1) } else { (true, if max < 23 { 21 } else { 24 }) }
        );
        out.clear();
        refuse(Version::V5, ReasonCode::NOT_AUTHORIZED, Some(&text), max, &mut out);
        let wanted = if max < 5 {
            0
        } else if max < 58 {
            5
        } else {
            58
        };
        assert_eq!(out.len(), wanted, "[MQTT-3.2.2-19] with {max}");
    }
}

#[test]
fn s3_1_3_1_empty_identifiers() {
    let empty = |version, clean_start| Connect { client_id: "", clean_start, ..connect(version, Properties::NONE) };
    let refused = Err(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID);
    let of = |connect: Connect<'_>| Negotiation::of(&connect, &LIMITS).map(|granted| granted.assign_client_id);
    assert_eq!(of(empty(Version::V5, false)), Ok(true), "[MQTT-3.1.3-6]");
    assert_eq!(of(empty(Version::V311, true)), Ok(true), "[MQTT-3.1.3-7] of 3.1.1");
    assert_eq!(of(empty(Version::V311, false)), refused, "[MQTT-3.1.3-8] of 3.1.1");
    assert_eq!(of(empty(Version::V31, true)), refused, "3.1");
}

#[test]
fn s4_12_a_challenge_an_answer_and_another_challenge() {
    let mut list = PropertyBuffer::new();
    let hello = Authentication { method: "SCRAM-SHA-256", data: Some(b"first") };
    hello.push(&mut list).unwrap();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let connect = connect(Version::V5, list.properties());
    let mut client = Client::connect(&connect, ClientLimits::default(), &mut up).unwrap();
    let (Packet::Connect(read), _) = decode(&up, Version::V5, &Limits::PROTOCOL).unwrap().unwrap() else { panic!() };
    assert_eq!(Authentication::of(read.properties), Some(hello));
    let server = |data| Authentication { method: "SCRAM-SHA-256", data: Some(data) };
    server(b"challenge").encode(ReasonCode::CONTINUE_AUTHENTICATION, &mut down).unwrap();
    let (event, used) = client.handle(&down, &mut up).unwrap().unwrap();
    let challenge = Event::Authentication { reason: ReasonCode::CONTINUE_AUTHENTICATION, data: Some(b"challenge") };
    assert_eq!((event, used), (challenge, down.len()));
    down.clear();
    let granted = Negotiation::of(&connect, &LIMITS).unwrap();
    granted.accept(false, None, Some(&server(b"last")), &mut PropertyBuffer::new(), &mut down).unwrap();
    let (event, _) = client.handle(&down, &mut up).unwrap().unwrap();
    let Event::Connected { properties, .. } = event else { panic!("{event:?}") };
    assert_eq!(properties.authentication, Some(server(b"last")), "[MQTT-4.12.0-5]");
}

#[test]
fn refusals_in_the_form_of_each_version() {
    let said = |version, reason| {
        let mut out = Vec::new();
        refuse(version, reason, None, u32::MAX, &mut out);
        out
    };
    assert_eq!(said(Version::V5, ReasonCode::BAD_USER_NAME_OR_PASSWORD), [0x20, 3, 0, 0x86, 0]);
    assert_eq!(said(Version::V311, ReasonCode::BAD_USER_NAME_OR_PASSWORD), [0x20, 2, 0, 4]);
    assert_eq!(said(Version::V31, ReasonCode::NOT_AUTHORIZED), [0x20, 2, 0, 5]);
    assert!(said(Version::V311, ReasonCode::MALFORMED_PACKET).is_empty());
    let unreadable = |bytes: &[u8]| {
        let mut out = Vec::new();
        let error = decode(bytes, Version::V311, &Limits::PROTOCOL).unwrap_err();
        refuse_unreadable(bytes, &error, &mut out);
        out
    };
    for level in [0, 1, 2, 3, 6, 0x7F, 0x80, 0x83, 0x85, 0xFF] {
        let packet = [b"\x10\x0c\0\x04MQTT".as_slice(), &[level, 2, 0, 60, 0, 0]].concat();
        assert_eq!(unreadable(&packet), [0x20, 2, 0, 1], "level {level}: [MQTT-3.1.2-2] of 3.1.1");
    }
    assert_eq!(unreadable(b"\x10\x0c\0\x04MQTT\x03\x02\0\x3c\0\0"), [0x20, 2, 0, 1], "[MQTT-3.1.2-2] of 3.1.1");
    assert_eq!(unreadable(b"\x10\x0e\0\x06MQIsdp\x05\x02\0\x3c\0\0"), [0x20, 2, 0, 1]);
    assert_eq!(unreadable(b"\x10\x0c\0\x04MQTT\x05\x03\0\x3c\0\0"), [0x20, 3, 0, 0x81, 0]);
    assert!(unreadable(b"\x10\x0c\0\x04MQTT\x04\x03\0\x3c\0\0").is_empty());
    assert!(unreadable(b"GET / HTTP/1.1\r\n").is_empty());
}

/// A client and what a server would answer, over two buffers.
#[test]
fn a_client_publishes_and_receives() {
    for version in [Version::V31, Version::V311, Version::V5] {
        let mut up = Vec::new();
        let mut client =
            Client::connect(&connect(version, Properties::NONE), ClientLimits::default(), &mut up).unwrap();
        let Ok(Some((Packet::Connect(asked), _))) = decode(&up, version, &Limits::PROTOCOL) else { panic!() };
        let granted = Negotiation::of(&asked, &LIMITS).unwrap();
        let mut down = Vec::new();
        granted.accept(false, None, None, &mut PropertyBuffer::new(), &mut down).unwrap();
        let mut up = Vec::new();
        let (event, used) = client.handle(&down, &mut up).unwrap().unwrap();
        assert!(matches!(event, Event::Connected { session_present: false, .. }));
        assert_eq!(used, down.len());

        let first = client.publish(&message("x", Qos::ExactlyOnce), &mut up).unwrap().unwrap();
        let request =
            client.subscribe(&[("#", SubscriptionOptions::qos(Qos::ExactlyOnce))], Properties::NONE, &mut up).unwrap();
        assert_ne!(first, request, "one space of identifiers [MQTT-2.2.1-2]");
        assert_eq!(client.in_flight(), 2);
        let mut down = Vec::new();
        Ack::success(first).encode(PacketType::Pubrec, version, &mut down).unwrap();
        message("hello", Qos::ExactlyOnce).encode(version, Some(id(9)), &mut down).unwrap();
        message("hello", Qos::ExactlyOnce).encode(version, Some(id(9)), &mut down).unwrap();
        Ack::success(first).encode(PacketType::Pubcomp, version, &mut down).unwrap();
        Ack::success(id(9)).encode(PacketType::Pubrel, version, &mut down).unwrap();
        let mut events = Vec::new();
        let (mut rest, mut up) = (down.as_slice(), Vec::new());
        while let Some((event, used)) = client.handle(rest, &mut up).unwrap() {
            match event {
                Event::Message(incoming) => events.push(String::from_utf8_lossy(incoming.payload).into_owned()),
                Event::Published { packet_id, .. } => events.push(format!("done {}", packet_id.get())),
                Event::Nothing => {}
                other => panic!("{other:?}"),
            }
            rest = &rest[used..];
        }
        assert_eq!(events, ["hello", "done 1"], "a duplicate is not given twice");
        assert_eq!(
            packets_v(&up, version),
            [PacketType::Pubrel, PacketType::Pubrec, PacketType::Pubrec, PacketType::Pubcomp]
        );
    }
}

fn packets_v(mut out: &[u8], version: Version) -> Vec<PacketType> {
    let mut kinds = Vec::new();
    while let Some((packet, used)) = decode(out, version, &Limits::PROTOCOL).unwrap() {
        kinds.push(packet.kind());
        out = &out[used..];
    }
    kinds
}

#[test]
fn a_client_does_not_take_what_a_server_may_not_send() {
    let mut up = Vec::new();
    let connect = connect(Version::V5, Properties::NONE);
    let mut client = Client::connect(&connect, ClientLimits::default(), &mut up).unwrap();
    let early = client.handle(&[0xD0, 0], &mut up);
    assert_eq!(early.unwrap_err(), ClientError::Protocol(ProtocolError::Unexpected(PacketType::Pingresp)));
    client.handle(&[0x20, 3, 0, 0, 0], &mut up).unwrap();
    for bytes in [&[0xC0, 0][..], &[0x20, 3, 0, 0, 0], &[0x82, 7, 0, 1, 0, 0, 1, b'a', 0]] {
        assert!(matches!(client.handle(bytes, &mut up), Err(ClientError::Protocol(ProtocolError::Unexpected(_)))));
    }
}
