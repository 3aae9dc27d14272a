//! The client role in batches: what is kept of messages comes back once, limits are announced only where they differ
//! from the protocol's, and duplicates take no room.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use fogmux_mqtt::{
    Ack, Acknowledged, Client, ClientLimits, Connack, Connect, Event, Limits, Outbound, OutboundConfig, Outgoing,
    Packet, PacketId, PacketType, Properties, Property, PropertyBuffer, Qos, ReasonCode, RequestError, Sent, Version,
    decode,
};

const VERSIONS: [Version; 2] = [Version::V311, Version::V5];

fn hello(version: Version, keep_alive: u16) -> Connect<'static> {
    Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive,
        client_id: "c",
        will: None,
        user: None,
        password: None,
        properties: Properties::NONE,
    }
}

/// A client whose server has answered with these properties.
fn connected(version: Version, limits: ClientLimits, list: &PropertyBuffer) -> Client<u64> {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let mut client = Client::open(&hello(version, 0), limits, &mut up).unwrap();
    let properties = if version.is_v5() { list.properties() } else { Properties::NONE };
    let connack = Connack { session_present: false, reason: ReasonCode::SUCCESS, properties };
    Packet::Connack(connack).encode(version, &mut down).unwrap();
    assert!(!client.is_connected());
    client.handle_all(&down, &mut up, |_, _| {}).unwrap();
    assert!(client.is_connected());
    client
}

fn id(number: u16) -> PacketId {
    PacketId::new(number).unwrap()
}

fn message(qos: Qos) -> Outgoing<'static> {
    Outgoing { topic: "t", qos, payload: b"x", ..Outgoing::default() }
}

/// Has the client take acknowledgements, and returns what came back, with whether it succeeded.
fn acknowledge(client: &mut Client<u64>, version: Version, acks: &[(PacketType, u16, ReasonCode)]) -> Vec<(u64, bool)> {
    let (mut down, mut up, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, number, reason) in acks {
        Ack::with_reason(id(*number), *reason).encode(*kind, version, &mut down).unwrap();
    }
    // Half a packet is left for the next time.
    let whole = down.len();
    down.push(0x40);
    let used = client.handle_all(&down, &mut up, |event, tag| {
        let Event::Published { reason, .. } = event else { panic!("{event:?}") };
        kept.push((tag.unwrap(), !reason.is_error()));
    });
    assert_eq!(used, Ok(whole));
    kept
}

#[test]
fn s4_3_what_is_kept_of_a_message_comes_back_when_it_is_done() {
    use PacketType::{Puback, Pubcomp, Pubrec};
    const OK: ReasonCode = ReasonCode::SUCCESS;
    for version in VERSIONS {
        let mut client = connected(version, ClientLimits::PROTOCOL, &PropertyBuffer::new());
        let mut out = Vec::new();
        let levels = [Qos::AtLeastOnce, Qos::ExactlyOnce, Qos::ExactlyOnce, Qos::AtMostOnce, Qos::AtLeastOnce];
        for (tag, qos) in (0..).zip(levels) {
            client.publish_with(&message(qos), || tag, &mut out).unwrap();
        }
        assert_eq!(client.in_flight(), 4);
        let acks = [(Puback, 4, OK), (Pubrec, 2, OK), (Pubrec, 3, OK), (Puback, 1, OK)];
        assert_eq!(acknowledge(&mut client, version, &acks), [(4, true), (0, true)]);
        // Also of a server that answers out of order, and once each.
        let acks = [(Pubcomp, 3, OK), (Pubcomp, 2, OK), (Pubcomp, 2, OK), (Puback, 1, OK)];
        assert_eq!(acknowledge(&mut client, version, &acks), [(2, true), (1, true)]);
        assert_eq!(client.in_flight(), 0);
    }
    let mut client = connected(Version::V5, ClientLimits::PROTOCOL, &PropertyBuffer::new());
    client.publish_with(&message(Qos::ExactlyOnce), || 7, &mut Vec::new()).unwrap();
    let refused = [(Pubrec, 1, ReasonCode::QUOTA_EXCEEDED)];
    assert_eq!(acknowledge(&mut client, Version::V5, &refused), [(7, false)], "over with PUBREC (§4.3.3)");
}

#[test]
fn s4_9_the_window_is_the_servers_or_before_version_5_our_own() {
    let mut list = PropertyBuffer::new();
    list.push(Property::ReceiveMaximum(2)).unwrap();
    for version in VERSIONS {
        let mut client = connected(version, ClientLimits { window: 2, ..ClientLimits::PROTOCOL }, &list);
        let mut out = Vec::new();
        for _ in 0..2 {
            assert!(client.has_room());
            client.publish_with(&message(Qos::AtLeastOnce), || 0, &mut out).unwrap();
        }
        assert!(!client.has_room());
        let third = client.publish_with(&message(Qos::AtLeastOnce), || 0, &mut out);
        assert_eq!(third, Err(RequestError::NoRoom));
    }
}

#[test]
fn s3_1_2_11_only_limits_that_are_not_the_protocols_are_announced() {
    let announced = |limits| {
        let mut up = Vec::new();
        let client: Client = Client::connect(&hello(Version::V5, 0), limits, &mut up).unwrap();
        assert_eq!(client.ping_interval(), None);
        let Ok(Some((Packet::Connect(connect), _))) = decode(&up, Version::V5, &Limits::PROTOCOL) else { panic!() };
        connect.properties.iter().map(|property| format!("{property:?}")).collect::<Vec<_>>()
    };
    assert!(announced(ClientLimits::PROTOCOL).is_empty());
    let limits = ClientLimits { packet_bytes_max: 5, receive_maximum: 6, topic_alias_maximum: 7, window: 8 };
    assert_eq!(announced(limits), ["ReceiveMaximum(6)", "MaximumPacketSize(5)", "TopicAliasMaximum(7)"]);
}

#[test]
fn s3_1_2_10_the_ping_leaves_in_time_also_for_a_keep_alive_of_the_server() {
    let mut list = PropertyBuffer::new();
    list.push(Property::ServerKeepAlive(40)).unwrap();
    let client = connected(Version::V5, ClientLimits::PROTOCOL, &list);
    assert_eq!(client.ping_interval(), Some(Duration::from_secs(30)));
    let own: Client = Client::connect(&hello(Version::V311, 1), ClientLimits::PROTOCOL, &mut Vec::new()).unwrap();
    assert_eq!(own.ping_interval(), Some(Duration::from_millis(750)));
}

#[test]
fn s4_3_3_a_duplicate_takes_no_room_of_the_receive_maximum() {
    let limits = ClientLimits { receive_maximum: 2, ..ClientLimits::PROTOCOL };
    let mut client = connected(Version::V5, limits, &PropertyBuffer::new());
    let (mut up, mut heard) = (Vec::new(), 0);
    for number in 1..=3 {
        let mut down = Vec::new();
        for _ in 0..5 {
            message(Qos::ExactlyOnce).encode(Version::V5, Some(id(number)), &mut down).unwrap();
        }
        Ack::success(id(number)).encode(PacketType::Pubrel, Version::V5, &mut down).unwrap();
        client.handle_all(&down, &mut up, |_, _| heard += 1).unwrap();
    }
    assert_eq!(heard, 3);
}

#[test]
fn s2_2_1_an_identifier_in_flight_is_not_given_to_another_message() {
    let config =
        OutboundConfig { version: Version::V5, window: u16::MAX, packet_bytes_max: 100, topic_alias_maximum: 0 };
    let mut outbound = Outbound::new(config);
    let mut out = Vec::new();
    for number in 1..=u16::MAX {
        out.clear();
        assert_eq!(outbound.publish(&message(Qos::AtLeastOnce), || number, &mut out), Sent::Sent(Some(id(number))));
    }
    // The window has room for another, but every identifier from the oldest one in flight on is taken.
    assert_eq!(outbound.handle_puback(id(5)), Ok(Acknowledged::Over(Some(5))));
    assert_eq!(outbound.publish(&message(Qos::AtLeastOnce), || 0, &mut out), Sent::NoRoom);
    assert_eq!(outbound.reserve(), None);
    assert_eq!(outbound.handle_puback(id(1)), Ok(Acknowledged::Over(Some(1))));
    assert_eq!(outbound.publish(&message(Qos::AtLeastOnce), || 6, &mut out), Sent::Sent(Some(id(1))));
}
