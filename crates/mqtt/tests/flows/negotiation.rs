//! CONNECT, authentication and refusals as the server negotiates them (§3.1, §4.12), and the client against them.

use super::*;

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
