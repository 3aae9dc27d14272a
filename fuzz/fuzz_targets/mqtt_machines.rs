//! MQTT machines: the bytes are a server's to our client, and a client's to our negotiation and inbound half. Nothing
//! they say may make the machines panic or hold more than what was promised.
#![no_main]

use fogmux_mqtt::{
    Client, ClientLimits, Connect, Inbound, InboundConfig, Limits, Negotiation, Outgoing, Packet, Properties, Qos,
    Role, ServerLimits, Version, decode, refuse_unreadable,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: ServerLimits = ServerLimits {
    session_expiry_max: 3600,
    receive_maximum: 16,
    packet_bytes_max: 1 << 20,
    topic_alias_maximum: 16,
    keep_alive_max: 600,
    window_max: 16,
    outgoing_alias_maximum: 16,
};

fn as_client(version: Version, data: &[u8]) {
    let connect = Connect {
        version,
        bridge: false,
        clean_start: true,
        keep_alive: 30,
        client_id: "fuzz",
        will: None,
        user: None,
        password: None,
        properties: Properties::NONE,
    };
    let mut out = Vec::new();
    let limits = ClientLimits { receive_maximum: 16, ..ClientLimits::default() };
    let mut client = Client::connect(&connect, limits, &mut out).expect("short enough");
    let mut rest = data;
    for _ in 0..1000 {
        let Ok(Some((_, used))) = client.handle(rest, &mut out) else { break };
        rest = &rest[used..];
        for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
            let _ = client.publish(&Outgoing { topic: "t", qos, ..Outgoing::default() }, &mut out);
        }
    }
    assert!(client.in_flight() <= 70_000);
}

fn as_server(version: Version, data: &[u8]) {
    let mut rest = data;
    let mut out = Vec::new();
    let config =
        InboundConfig { role: Role::Server, receive_maximum: 16, topic_alias_maximum: 16, alias_bytes_max: 4096 };
    let mut inbound = Inbound::new(version, config);
    loop {
        match decode(rest, version, &Limits::default()) {
            Ok(Some((packet, used))) => {
                match &packet {
                    Packet::Connect(connect) => {
                        let _ = Negotiation::of(connect, &LIMITS);
                    }
                    Packet::Publish(publish) => match inbound.handle_publish(publish) {
                        Ok(incoming) => {
                            assert!(!incoming.topic.as_str().is_empty());
                            let _ = incoming.is_payload_valid();
                        }
                        Err(_) => return,
                    },
                    Packet::Pubrel(_) => inbound.release(),
                    _ => {}
                }
                // The older versions have no such limit; there the caller stops reading.
                assert!(inbound.unacknowledged() <= 16 || !version.is_v5());
                rest = &rest[used..];
            }
            Ok(None) => return,
            Err(error) => return refuse_unreadable(rest, &error, &mut out),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let version = [Version::V31, Version::V311, Version::V5][usize::from(first % 3)];
    if first & 0x80 == 0 { as_client(version, rest) } else { as_server(version, rest) }
});
