//! The driver against a small server of its own, over streams in memory that hold little and give pieces.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bytes::BytesMut;
use fogmux_client::Counted;
use fogmux_http::websocket::{self, Incoming, Opcode, push_frame};
use fogmux_mqtt::{
    Ack, Connack, Connect, Limits, Outgoing, Packet, PacketId, PacketType, Properties, ReasonCode, ReasonCodes, Suback,
    Version, decode,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::runtime::{Builder, LocalOptions};

use super::carrier::Carrier;
use super::client::MqttClient;
use super::session::{Session, Wanted};
use crate::driver::testing::{Seen, turn as until};
use crate::driver::{Client, DriverError, Request};

/// Less than any large message, and than what is sent in a turn.
const PIPE_BYTES: usize = 1_000;

/// More than any message here has.
const PACKET_BYTES_MAX: usize = 64 << 20;

/// How the server behaves.
#[derive(Clone, Copy)]
struct Manner {
    version: Version,
    /// Of what it gives back.
    qos: fogmux_mqtt::Qos,
    /// A return code for CONNECT.
    greeting: ReasonCode,
    /// A return code for SUBSCRIBE.
    granted: ReasonCode,
    /// Payload of the message that every topic keeps.
    kept: Option<&'static [u8]>,
}

impl Manner {
    fn of(version: Version, qos: fogmux_mqtt::Qos) -> Self {
        Self { version, qos, greeting: ReasonCode::SUCCESS, granted: ReasonCode::SUCCESS, kept: None }
    }
}

/// A broker with one client, which is sent everything that it publishes.
struct Broker {
    manner: Manner,
    next: PacketId,
    output: Vec<u8>,
}

impl Broker {
    fn handle(&mut self, packet: &Packet<'_>) {
        let version = self.manner.version;
        let ack = |kind, id, output: &mut Vec<u8>| Ack::success(id).encode(kind, version, output).unwrap();
        let output = &mut self.output;
        match packet {
            Packet::Connect(_) => {
                let reason = self.manner.greeting;
                let connack = Connack { session_present: false, reason, properties: Properties::NONE };
                Packet::Connack(connack).encode(version, output).unwrap();
            }
            Packet::Subscribe(subscribe) => {
                let codes = [self.manner.granted.0];
                let (packet_id, properties) = (subscribe.packet_id, Properties::NONE);
                let suback = Suback { packet_id, properties, codes: ReasonCodes::new(&codes) };
                Packet::Suback(suback).encode(version, output).unwrap();
                if let Some(payload) = self.manner.kept {
                    self.publish("kept", payload, true);
                }
            }
            Packet::Publish(publish) => {
                match (publish.qos, publish.packet_id) {
                    (fogmux_mqtt::Qos::AtLeastOnce, Some(id)) => ack(PacketType::Puback, id, output),
                    (fogmux_mqtt::Qos::ExactlyOnce, Some(id)) => ack(PacketType::Pubrec, id, output),
                    (_, _) => {}
                }
                self.publish(publish.topic, publish.payload, false);
            }
            Packet::Pubrec(Ack { packet_id, .. }) => ack(PacketType::Pubrel, *packet_id, output),
            Packet::Pubrel(Ack { packet_id, .. }) => ack(PacketType::Pubcomp, *packet_id, output),
            Packet::Puback(_) | Packet::Pubcomp(_) | Packet::Disconnect(_) => {}
            other @ (Packet::Connack(_)
            | Packet::Suback(_)
            | Packet::Unsubscribe(_)
            | Packet::Unsuback(_)
            | Packet::Pingreq
            | Packet::Pingresp
            | Packet::Auth(_)) => panic!("{other:?}"),
        }
    }

    fn publish(&mut self, topic: &str, payload: &[u8], retain: bool) {
        let qos = self.manner.qos;
        let id = (qos != fogmux_mqtt::Qos::AtMostOnce).then_some(self.next);
        let message = Outgoing { topic, qos, retain, payload, ..Outgoing::default() };
        message.encode(self.manner.version, id, &mut self.output).unwrap();
        self.next = self.next.next();
    }
}

async fn serve(mut stream: DuplexStream, manner: Manner, framed: bool) {
    let mut broker = Broker { manner, next: PacketId::FIRST, output: Vec::new() };
    let mut receiver = websocket::Receiver::new(websocket::Role::Server, 1 << 30);
    let (mut input, mut packets) = (BytesMut::new(), Vec::new());
    loop {
        while let Some((packet, used)) =
            decode(&packets, manner.version, &Limits { packet_bytes_max: 1 << 28 }).unwrap()
        {
            broker.handle(&packet);
            packets.drain(..used);
        }
        let output = std::mem::take(&mut broker.output);
        if framed && !output.is_empty() {
            let mut frames = Vec::new();
            push_frame(Opcode::Ping, b"there?", None, &mut frames);
            push_frame(Opcode::Binary, &output, None, &mut frames);
            stream.write_all(&frames).await.unwrap();
        } else {
            stream.write_all(&output).await.unwrap();
        }
        if stream.read_buf(&mut input).await.unwrap() == 0 {
            return;
        }
        if !framed {
            packets.extend_from_slice(&input.split());
        }
        while framed && let Some(incoming) = receiver.receive(&mut input).unwrap() {
            match incoming {
                Incoming::Binary { bytes, .. } => packets.extend_from_slice(&bytes),
                Incoming::Pong(payload) => assert_eq!(&payload[..], b"there?"),
                Incoming::Close(_) => return,
                Incoming::Ping(_) | Incoming::Text { .. } => panic!("{incoming:?}"),
            }
        }
    }
}

/// A client at such a server.
async fn connect(manner: Manner, wanted: Wanted, framed: bool) -> Result<MqttClient, DriverError> {
    let (near, far) = duplex(PIPE_BYTES);
    tokio::task::spawn_local(serve(far, manner, framed));
    let near = Counted::new(near);
    let counter = near.counter();
    let carrier = if framed { Carrier::websocket(near, 1) } else { Carrier::stream(near) };
    let connect = Connect {
        version: manner.version,
        bridge: false,
        clean_start: true,
        keep_alive: 0,
        client_id: "c",
        will: None,
        user: None,
        password: None,
        properties: Properties::NONE,
    };
    let session = Session::open(&connect, wanted)?;
    let mut client = MqttClient::new(carrier, session, counter, Rc::new(RefCell::new(vec![0; 4_096].into())));
    until(&mut client, &mut Seen::default(), |client, _| client.is_connected()).await?;
    Ok(client)
}

fn here<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().build_local(LocalOptions::default()).unwrap();
    // Made within the runtime, whose clock it takes.
    let done = async { tokio::time::timeout(std::time::Duration::from_secs(20), work).await };
    runtime.block_on(done).expect("an end")
}

const LEVELS: [fogmux_mqtt::Qos; 3] =
    [fogmux_mqtt::Qos::AtMostOnce, fogmux_mqtt::Qos::AtLeastOnce, fogmux_mqtt::Qos::ExactlyOnce];

#[test]
fn every_message_is_answered_and_comes_back_whatever_its_size_and_promise() {
    for (version, framed) in [(Version::V311, false), (Version::V5, false), (Version::V311, true)] {
        for qos in LEVELS {
            here(async {
                let wanted = Wanted { qos, retain: false, packet_bytes_max: PACKET_BYTES_MAX };
                let mut client = connect(Manner::of(version, qos), wanted, framed).await.unwrap();
                let mut seen = Seen::default();
                client.submit(Request::Subscribe { topic: "t" }, 77).unwrap();
                let sizes = [0, 1, 10, 500, 5_000, 100_000];
                for (tag, size) in (0..).zip(sizes) {
                    client.submit(Request::Publish { topic: "t", payload: &vec![b'x'; size] }, tag).unwrap();
                }
                let all = |_: &MqttClient, seen: &Seen| seen.done.len() == 7 && seen.messages.len() == 6;
                until(&mut client, &mut seen, all).await.unwrap();
                seen.done.sort();
                let tags: Vec<_> = seen.done.iter().map(|(tag, answer)| (*tag, answer.is_ok())).collect();
                assert_eq!(tags, [0, 1, 2, 3, 4, 5, 77].map(|tag| (tag, true)));
                assert_eq!(seen.messages.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
                let bytes = client.bytes();
                let payload = sizes.iter().sum::<usize>() as u64;
                assert_eq!((bytes.payload_up, bytes.payload_down), (payload, payload));
                assert!(bytes.protocol_up > payload && bytes.protocol_down > payload);
                if framed {
                    assert!(bytes.socket_up > bytes.protocol_up && bytes.socket_down > bytes.protocol_down);
                } else {
                    assert_eq!((bytes.socket_up, bytes.socket_down), (bytes.protocol_up, bytes.protocol_down));
                }
                Box::new(client).close().await;
            });
        }
    }
}

#[test]
fn a_message_without_a_promise_is_done_when_its_last_byte_is_gone_and_not_before() {
    here(async {
        let wanted = Wanted { qos: fogmux_mqtt::Qos::AtMostOnce, retain: false, packet_bytes_max: PACKET_BYTES_MAX };
        let (near, mut far) = duplex(PIPE_BYTES);
        let near = Counted::new(near);
        let counter = near.counter();
        let connect = Connect {
            version: Version::V311,
            bridge: false,
            clean_start: true,
            keep_alive: 0,
            client_id: "",
            will: None,
            user: None,
            password: None,
            properties: Properties::NONE,
        };
        let session = Session::open(&connect, wanted).unwrap();
        let buffer = Rc::new(RefCell::new(vec![0; 4_096].into()));
        let mut client = MqttClient::new(Carrier::stream(near), session, counter, buffer);
        for tag in 0..3 {
            client.submit(Request::Publish { topic: "t", payload: &[0; 590] }, tag).unwrap();
        }
        let mut seen = Seen::default();
        // 14 of CONNECT, and 596 of each message: one whole message fits into the pipe.
        let mut turn = async || poll_fn(|cx| Poll::Ready(client.poll_turn(cx, &mut seen))).await;
        assert!(turn().await.is_ready());
        assert!(turn().await.is_pending());
        far.read_exact(&mut [0; 500]).await.unwrap();
        assert!(turn().await.is_ready());
        far.read_exact(&mut [0; 500]).await.unwrap();
        assert!(turn().await.is_ready());
        assert_eq!(client.bytes().socket_up, 14 + 3 * 596);
        assert_eq!(seen.done.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [0, 1, 2]);
    });
}

#[test]
fn the_kept_message_answers_who_asks_for_it() {
    for version in [Version::V311, Version::V5] {
        here(async {
            let qos = fogmux_mqtt::Qos::AtLeastOnce;
            let manner = Manner { kept: Some(b"21.5"), ..Manner::of(version, qos) };
            let mut client =
                connect(manner, Wanted { qos, retain: true, packet_bytes_max: PACKET_BYTES_MAX }, false).await.unwrap();
            let mut seen = Seen::default();
            for tag in 0..3 {
                client.submit(Request::Get { topic: "kept" }, tag).unwrap();
            }
            until(&mut client, &mut seen, |_, seen| seen.done.len() == 3).await.unwrap();
            assert_eq!(seen.done, [0, 1, 2].map(|tag| (tag, Ok(b"21.5".to_vec()))));
            assert_eq!(seen.messages.len(), 0);
        });
    }
}

#[test]
fn a_packet_larger_than_any_that_is_expected_ends_the_connection() {
    for framed in [false, true] {
        here(async {
            let qos = fogmux_mqtt::Qos::AtMostOnce;
            let manner = Manner { kept: Some(&[b'x'; 300_000]), ..Manner::of(Version::V311, qos) };
            let wanted = Wanted { qos, retain: true, packet_bytes_max: 100_000 };
            let mut client = connect(manner, wanted, framed).await.unwrap();
            client.submit(Request::Get { topic: "kept" }, 1).unwrap();
            let ended = until(&mut client, &mut Seen::default(), |_, seen: &Seen| !seen.done.is_empty()).await;
            assert_eq!(ended, Err(DriverError::Protocol("a packet of more than 100000 bytes".to_owned())), "{framed}");
            assert!(client.bytes().socket_down < 200_000, "{:?}", client.bytes());
        });
    }
}

#[test]
fn refusals_are_told_with_their_reason() {
    here(async {
        let wanted = Wanted { qos: fogmux_mqtt::Qos::AtMostOnce, retain: false, packet_bytes_max: PACKET_BYTES_MAX };
        let manner = Manner::of(Version::V5, wanted.qos);
        let closed = Manner { greeting: ReasonCode::NOT_AUTHORIZED, ..manner };
        let error = connect(closed, wanted, false).await.err();
        assert_eq!(error, Some(DriverError::Refused("Not authorized (0x87)".to_owned())));
        let private = Manner { granted: ReasonCode::NOT_AUTHORIZED, ..manner };
        let mut client = connect(private, wanted, false).await.unwrap();
        let mut seen = Seen::default();
        client.submit(Request::Subscribe { topic: "t" }, 1).unwrap();
        client.submit(Request::Get { topic: "t" }, 2).unwrap();
        until(&mut client, &mut seen, |_, seen| seen.done.len() == 2).await.unwrap();
        assert_eq!(seen.done, [1, 2].map(|tag| (tag, Err("Not authorized".to_owned()))));
    });
}

#[test]
fn what_the_server_has_no_room_for_waits_and_is_sent_in_order() {
    here(async {
        let qos = fogmux_mqtt::Qos::AtLeastOnce;
        let mut client = connect(
            Manner::of(Version::V311, qos),
            Wanted { qos, retain: false, packet_bytes_max: PACKET_BYTES_MAX },
            false,
        )
        .await
        .unwrap();
        let mut seen = Seen::default();
        for tag in 0..64_100_u64 {
            client.submit(Request::Publish { topic: "t", payload: &tag.to_be_bytes() }, tag).unwrap();
        }
        until(&mut client, &mut seen, |_, seen| seen.done.len() == 64_100 && seen.messages.len() == 64_100)
            .await
            .unwrap();
        assert!(seen.done.iter().map(|(tag, _)| *tag).eq(0..64_100));
        assert!(
            seen.messages.iter().eq((0..64_100_u64).map(|tag| tag.to_be_bytes().to_vec()).collect::<Vec<_>>().iter())
        );
    });
}
