//! The door over in-memory streams, with the client role of `fogmux-mqtt` on the other end.

#![allow(clippy::indexing_slicing, clippy::wildcard_enum_match_arm, reason = "a test that meets the unexpected panics")]

use std::{net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use fogmux_auth::{Authority, Rules};
use fogmux_bus::{Bus, BusConfig, Forgetful, WorkerId};
use fogmux_mqtt::{
    Client, ClientLimits, Connect, Event, Limits, Outgoing, Packet, Properties, Property, PropertyBuffer,
    PublishProperties, Qos, ReasonCode, RetainHandling, SubscriptionOptions, Version, Will, decode,
};
use fogmux_net::{Admission, AdmissionLimits};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::watch,
    task::LocalSet,
};

use super::{MqttConfig, MqttDoor, serve};
use crate::{
    Clock, Peer, Shared, WorkerContext,
    coap::{CoapConfig, CoapDoor},
    http::{HttpConfig, HttpDoor},
    metrics::Metrics,
    xmpp::{XmppConfig, XmppDoor},
};

/// A worker with its door, and what begins a drain.
struct House {
    ctx: Rc<WorkerContext>,
    drain: watch::Sender<crate::context::Phase>,
}

fn house(config: MqttConfig) -> House {
    let clock = Clock::start();
    let now = clock.now();
    let bus = Bus::new(&BusConfig::default(), Box::new(Forgetful), now, clock.unix_ms(now));
    let (drain, draining) = watch::channel(crate::context::Phase::Open);
    let shared = Shared {
        bus,
        authority: Arc::new(Authority::new(Rules::default())),
        clock,
        metrics: Metrics::default(),
        admission: Admission::new(AdmissionLimits::default()),
        mqtt: MqttDoor::new(config),
        coap: CoapDoor::new(CoapConfig::default()),
        http: HttpDoor::new(HttpConfig::default()),
        xmpp: XmppDoor::new(XmppConfig::default()),
        draining,
    };
    let ctx = WorkerContext::new(Arc::new(shared), WorkerId(0));
    tokio::task::spawn_local(super::housekeeping(Rc::clone(&ctx)));
    House { ctx, drain }
}

fn run(config: MqttConfig, test: impl AsyncFnOnce(House)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let all = async { test(house(config)).await };
        tokio::time::timeout(Duration::from_secs(20), all).await.expect("the test hangs");
    });
}

/// A client's end of a connection.
struct Wire {
    stream: DuplexStream,
    client: Client,
    buffer: Vec<u8>,
    session_present: bool,
}

#[derive(Debug, PartialEq)]
struct Message {
    topic: String,
    payload: Vec<u8>,
    qos: Qos,
    retain: bool,
    ids: Vec<u32>,
}

impl House {
    fn open(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let peer = Peer { address, secure: false, anonymous: true };
        tokio::task::spawn_local(serve(Rc::clone(&self.ctx), theirs, peer));
        ours
    }

    async fn connect(&self, connect: &Connect<'_>) -> Wire {
        let mut out = Vec::new();
        let client = Client::connect(connect, ClientLimits::default(), &mut out).unwrap();
        let mut wire = Wire { stream: self.open(), client, buffer: Vec::new(), session_present: false };
        wire.stream.write_all(&out).await.unwrap();
        let accepted = wire
            .next(|event| match event {
                Event::Connected { session_present, .. } => Ok(*session_present),
                Event::Refused { reason, .. } => Err(*reason),
                other => panic!("{other:?}"),
            })
            .await;
        wire.session_present = accepted.unwrap();
        wire
    }

    async fn client(&self, version: Version, id: &str) -> Wire {
        self.connect(&connect(version, id)).await
    }
}

fn connect(version: Version, id: &str) -> Connect<'_> {
    Connect {
        version,
        clean_start: true,
        keep_alive: 60,
        client_id: id,
        will: None,
        user: None,
        password: None,
        properties: Properties::NONE,
    }
}

fn message<'a>(topic: &'a str, payload: &'a [u8], qos: Qos) -> Outgoing<'a> {
    Outgoing { topic, payload, qos, ..Outgoing::default() }
}

impl Wire {
    /// The next event that says something.
    async fn next<T>(&mut self, look: impl Fn(&Event<'_>) -> T) -> T {
        loop {
            let mut out = Vec::new();
            let handled = self.client.handle(&self.buffer, &mut out).unwrap();
            let found = handled.map(|(event, used)| ((event != Event::Nothing).then(|| look(&event)), used));
            self.stream.write_all(&out).await.unwrap();
            match found {
                Some((found, used)) => {
                    self.buffer.drain(..used);
                    if let Some(found) = found {
                        return found;
                    }
                }
                None => {
                    let mut more = [0; 4096];
                    let read = self.stream.read(&mut more).await.unwrap();
                    assert!(read > 0, "closed");
                    self.buffer.extend_from_slice(&more[..read]);
                }
            }
        }
    }

    async fn subscribe_with(&mut self, filter: &str, options: SubscriptionOptions, list: Properties<'_>) -> ReasonCode {
        let mut out = Vec::new();
        self.client.subscribe(&[(filter, options)], list, &mut out).unwrap();
        self.stream.write_all(&out).await.unwrap();
        self.next(|event| match event {
            Event::Subscribed { codes, .. } => codes.iter().next().unwrap(),
            other => panic!("{other:?}"),
        })
        .await
    }

    async fn subscribe(&mut self, filter: &str, qos: Qos) {
        let granted = self.subscribe_with(filter, SubscriptionOptions::qos(qos), Properties::NONE).await;
        assert_eq!(granted.0, qos.bits());
    }

    async fn send(&mut self, message: &Outgoing<'_>) {
        let mut out = Vec::new();
        self.client.publish(message, &mut out).unwrap();
        self.stream.write_all(&out).await.unwrap();
    }

    /// Publishes and waits for the end of the exchange.
    async fn publish(&mut self, message: &Outgoing<'_>) -> ReasonCode {
        self.send(message).await;
        if message.qos == Qos::AtMostOnce {
            return ReasonCode::SUCCESS;
        }
        self.next(|event| match event {
            Event::Published { reason, .. } => *reason,
            other => panic!("{other:?}"),
        })
        .await
    }

    async fn message(&mut self) -> Message {
        self.next(|event| match event {
            Event::Message(incoming) => Message {
                topic: incoming.topic.as_str().to_owned(),
                payload: incoming.payload.to_vec(),
                qos: incoming.qos,
                retain: incoming.retain,
                ids: incoming.properties.subscription_ids().collect(),
            },
            other => panic!("{other:?}"),
        })
        .await
    }

    /// Nothing is on its way: a PINGREQ is answered next.
    async fn nothing(&mut self) {
        let mut out = Vec::new();
        self.client.ping(&mut out);
        self.stream.write_all(&out).await.unwrap();
        let pong = self.next(|event| format!("{event:?}")).await;
        assert_eq!(pong, "Pong");
    }

    async fn disconnected(&mut self) -> ReasonCode {
        self.next(|event| match event {
            Event::Disconnected { reason, .. } => *reason,
            other => panic!("{other:?}"),
        })
        .await
    }

    async fn closed(mut self) {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).await.unwrap();
    }

    async fn disconnect(mut self, reason: ReasonCode) {
        let mut out = Vec::new();
        self.client.disconnect(reason, &mut out);
        self.stream.write_all(&out).await.unwrap();
        self.closed().await;
    }
}

const ALL_QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

#[test]
fn s4_3_every_qos_between_every_version() {
    run(MqttConfig::default(), async |house: House| {
        for from in [Version::V31, Version::V311, Version::V5] {
            for to in [Version::V31, Version::V311, Version::V5] {
                let mut reader = house.client(to, "reader").await;
                reader.subscribe("a/#", Qos::ExactlyOnce).await;
                let mut writer = house.client(from, "writer").await;
                for qos in ALL_QOS {
                    for payload in [b"".to_vec(), b"\0\xff".to_vec(), vec![7; 100_000], vec![8; 1 << 20]] {
                        assert_eq!(writer.publish(&message("a/b", &payload, qos)).await, ReasonCode::SUCCESS);
                        let got = reader.message().await;
                        assert_eq!((&*got.topic, got.qos, got.retain), ("a/b", qos, false));
                        assert!(got.payload == payload, "{from:?} to {to:?}, {} bytes", payload.len());
                    }
                }
                reader.nothing().await;
            }
        }
    });
}

#[test]
fn s3_3_2_3_properties_arrive_unchanged() {
    run(MqttConfig::default(), async |house: House| {
        let mut reader = house.client(Version::V5, "reader").await;
        let mut id = PropertyBuffer::new();
        id.push(Property::SubscriptionIdentifier(300)).unwrap();
        reader.subscribe_with("t", SubscriptionOptions::qos(Qos::AtLeastOnce), id.properties()).await;
        let mut writer = house.client(Version::V5, "writer").await;
        let user: Vec<(Box<str>, Box<str>)> = vec![("k".into(), "1".into()), ("k".into(), "2".into())];
        let sent = Outgoing {
            utf8: true,
            expiry: Some(60),
            content_type: Some("text/plain"),
            response_topic: Some("answer/here"),
            correlation: Some(b"\x00\x01"),
            user: &user,
            ..message("t", "grüß".as_bytes(), Qos::AtLeastOnce)
        };
        assert_eq!(writer.publish(&sent).await, ReasonCode::SUCCESS);
        reader
            .next(|event| {
                let Event::Message(incoming) = event else { panic!("{event:?}") };
                let said = PublishProperties::from(incoming.properties);
                assert!(said.utf8);
                assert!(said.expiry.is_some_and(|left| (59..=60).contains(&left)));
                assert_eq!(said.content_type, Some("text/plain"));
                assert_eq!((said.response_topic, said.correlation), (Some("answer/here"), Some(&b"\x00\x01"[..])));
                assert_eq!(incoming.properties.user().collect::<Vec<_>>(), [("k", "1"), ("k", "2")]);
                assert_eq!(incoming.properties.subscription_ids().collect::<Vec<_>>(), [300]);
            })
            .await;
        let broken = Outgoing { utf8: true, ..message("t", b"\xff", Qos::AtLeastOnce) };
        assert_eq!(writer.publish(&broken).await, ReasonCode::PAYLOAD_FORMAT_INVALID);
        let unheard = message("nobody", b"x", Qos::AtLeastOnce);
        assert_eq!(writer.publish(&unheard).await, ReasonCode::NO_MATCHING_SUBSCRIBERS);
    });
}

#[test]
fn s3_8_3_1_retained_messages() {
    run(MqttConfig::default(), async |house: House| {
        let mut writer = house.client(Version::V5, "writer").await;
        for number in 0..200 {
            let topic = format!("kept/{number:03}");
            let kept = Outgoing { retain: true, ..message(&topic, b"old", Qos::AtLeastOnce) };
            writer.publish(&kept).await;
        }
        let mut reader = house.client(Version::V311, "reader").await;
        reader.subscribe("kept/#", Qos::AtLeastOnce).await;
        for number in 0..200 {
            let got = reader.message().await;
            assert_eq!((got.topic, got.retain, got.qos), (format!("kept/{number:03}"), true, Qos::AtLeastOnce));
        }
        let live = Outgoing { retain: true, ..message("kept/000", b"new", Qos::AtMostOnce) };
        writer.publish(&live).await;
        assert!(!reader.message().await.retain, "[MQTT-3.3.1-9] of 3.1.1");
        writer.publish(&Outgoing { retain: true, ..message("kept/000", b"", Qos::AtMostOnce) }).await;
        assert_eq!(reader.message().await.payload, b"");

        let mut modern = house.client(Version::V5, "modern").await;
        let options = |retain_handling, retain_as_published| SubscriptionOptions {
            retain_handling,
            retain_as_published,
            ..SubscriptionOptions::qos(Qos::AtMostOnce)
        };
        let never = options(RetainHandling::Never, true);
        modern.subscribe_with("kept/+", never, Properties::NONE).await;
        modern.nothing().await;
        modern.subscribe_with("kept/001", options(RetainHandling::IfNew, false), Properties::NONE).await;
        assert_eq!(modern.message().await.topic, "kept/001");
        modern.subscribe_with("kept/001", options(RetainHandling::IfNew, false), Properties::NONE).await;
        modern.nothing().await;
        modern.subscribe_with("kept/000", SubscriptionOptions::default(), Properties::NONE).await;
        modern.nothing().await;
        writer.publish(&live).await;
        assert!(modern.message().await.retain, "retain as published by one of the subscriptions");
    });
}

fn lasting(list: &mut PropertyBuffer, seconds: u32) -> Properties<'_> {
    list.clear();
    list.push(Property::SessionExpiryInterval(seconds)).unwrap();
    list.properties()
}

#[test]
fn s4_1_sessions_survive_and_are_taken_over() {
    run(MqttConfig::default(), async |house: House| {
        let mut list = PropertyBuffer::new();
        let lasting = Connect { clean_start: false, properties: lasting(&mut list, 100), ..connect(Version::V5, "s") };
        let mut first = house.connect(&lasting).await;
        assert!(!first.session_present);
        first.subscribe("q/#", Qos::ExactlyOnce).await;
        first.disconnect(ReasonCode::SUCCESS).await;

        let mut writer = house.client(Version::V311, "writer").await;
        for (number, qos) in ALL_QOS.into_iter().cycle().take(9).enumerate() {
            writer.publish(&message("q/t", &[u8::try_from(number).unwrap()], qos)).await;
        }
        let mut second = house.connect(&lasting).await;
        assert!(second.session_present);
        for number in [1, 2, 4, 5, 7, 8] {
            assert_eq!(second.message().await.payload, [number], "QoS 1 and 2 in order, QoS 0 not at all");
        }
        second.nothing().await;

        let mut third = house.connect(&lasting).await;
        assert!(third.session_present);
        assert_eq!(second.disconnected().await, ReasonCode::SESSION_TAKEN_OVER);
        writer.publish(&message("q/t", b"x", Qos::AtMostOnce)).await;
        assert_eq!(third.message().await.payload, b"x");

        let mut fresh = house.connect(&Connect { clean_start: true, ..lasting }).await;
        assert!(!fresh.session_present);
        assert_eq!(third.disconnected().await, ReasonCode::SESSION_TAKEN_OVER);
        writer.publish(&message("q/t", b"y", Qos::AtLeastOnce)).await;
        fresh.nothing().await;
        assert_eq!(house.ctx.bus().subscriptions(), 0);
    });
}

#[test]
fn s4_4_what_was_not_acknowledged_comes_again() {
    run(MqttConfig::default(), async |house: House| {
        let lasting = Connect { clean_start: false, ..connect(Version::V311, "s") };
        let mut out = Vec::new();
        let mut deaf = house.connect(&lasting).await;
        deaf.subscribe("t", Qos::ExactlyOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        for (payload, qos) in [(b"1", Qos::AtLeastOnce), (b"2", Qos::ExactlyOnce), (b"3", Qos::AtLeastOnce)] {
            writer.publish(&message("t", payload, qos)).await;
        }
        deaf.stream.read_buf(&mut out).await.unwrap();
        drop(deaf);
        let mut again = house.connect(&lasting).await;
        assert!(again.session_present);
        for payload in [b"1", b"2", b"3"] {
            let (got, dup) = again
                .next(|event| match event {
                    Event::Message(incoming) => (incoming.payload.to_vec(), incoming.dup),
                    other => panic!("{other:?}"),
                })
                .await;
            assert_eq!((&*got, dup), (&payload[..], true));
        }
        again.nothing().await;
    });
}

fn will(topic: &str) -> Will<'_> {
    Will { qos: Qos::AtLeastOnce, retain: false, topic, payload: b"gone", properties: Properties::NONE }
}

#[test]
fn s3_1_2_5_wills() {
    run(MqttConfig::default(), async |house: House| {
        let mut reader = house.client(Version::V5, "reader").await;
        reader.subscribe("will/#", Qos::AtLeastOnce).await;
        let with = |id, topic| Connect { will: Some(will(topic)), ..connect(Version::V5, id) };
        house.connect(&with("a", "will/plain")).await.disconnect(ReasonCode::SUCCESS).await;
        house.connect(&with("b", "will/asked")).await.disconnect(ReasonCode::DISCONNECT_WITH_WILL).await;
        assert_eq!(reader.message().await.topic, "will/asked");
        drop(house.connect(&with("c", "will/lost")).await);
        assert_eq!(reader.message().await.topic, "will/lost");
        let mut broken = house.connect(&with("d", "will/misbehaved")).await;
        broken.stream.write_all(&[0x36, 0]).await.unwrap();
        assert_eq!(reader.message().await.topic, "will/misbehaved");
        assert_eq!(broken.disconnected().await, ReasonCode::MALFORMED_PACKET);

        let mut delay = PropertyBuffer::new();
        delay.push(Property::WillDelayInterval(1)).unwrap();
        let mut list = PropertyBuffer::new();
        let delayed = Connect {
            clean_start: false,
            will: Some(Will { properties: delay.properties(), ..will("will/late") }),
            properties: lasting(&mut list, 100),
            ..connect(Version::V5, "e")
        };
        drop(house.connect(&delayed).await);
        let back = house.connect(&delayed).await;
        reader.nothing().await;
        drop(back);
        assert_eq!(reader.message().await.topic, "will/late", "after its delay");
        drop(house.connect(&delayed).await);
        let _fresh = house.connect(&Connect { will: None, clean_start: true, ..delayed }).await;
        assert_eq!(reader.message().await.topic, "will/late", "its session ended");
    });
}

#[test]
fn drain_sends_wills_and_says_goodbye() {
    run(MqttConfig::default(), async |house: House| {
        let mut reader = house.client(Version::V5, "reader").await;
        reader.subscribe("will", Qos::AtLeastOnce).await;
        let mut leaving = house.connect(&Connect { will: Some(will("will")), ..connect(Version::V5, "leaving") }).await;
        house.drain.send_replace(crate::context::Phase::Farewell);
        assert_eq!(reader.message().await.payload, b"gone");
        assert_eq!(reader.disconnected().await, ReasonCode::SERVER_SHUTTING_DOWN);
        assert_eq!(leaving.disconnected().await, ReasonCode::SERVER_SHUTTING_DOWN);
    });
}

#[test]
fn s4_8_2_shared_subscriptions_take_turns() {
    run(MqttConfig::default(), async |house: House| {
        let mut one = house.client(Version::V5, "one").await;
        let mut two = house.client(Version::V5, "two").await;
        one.subscribe("$share/g/t", Qos::AtLeastOnce).await;
        two.subscribe("$share/g/t", Qos::AtLeastOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        for number in 0..10 {
            writer.publish(&message("t", &[number], Qos::AtLeastOnce)).await;
        }
        for _ in 0..5 {
            one.message().await;
            two.message().await;
        }
        one.nothing().await;
        two.nothing().await;
    });
}

#[test]
fn s3_8_3_1_no_local_and_overlapping() {
    run(MqttConfig::default(), async |house: House| {
        let mut client = house.client(Version::V5, "c").await;
        let options = SubscriptionOptions { no_local: true, ..SubscriptionOptions::qos(Qos::AtLeastOnce) };
        client.subscribe_with("x/#", options, Properties::NONE).await;
        client.publish(&message("x/y", b"own", Qos::AtLeastOnce)).await;
        client.nothing().await;
        let mut list = PropertyBuffer::new();
        for (id, filter, qos) in
            [(1, "o/#", Qos::AtMostOnce), (2, "o/+", Qos::AtLeastOnce), (3, "+/p", Qos::AtMostOnce)]
        {
            list.clear();
            list.push(Property::SubscriptionIdentifier(id)).unwrap();
            client.subscribe_with(filter, SubscriptionOptions::qos(qos), list.properties()).await;
        }
        client.send(&message("o/p", b"m", Qos::AtLeastOnce)).await;
        let mut got = None;
        for _ in 0..2 {
            let seen = client
                .next(|event| match event {
                    Event::Message(incoming) => {
                        let mut ids: Vec<_> = incoming.properties.subscription_ids().collect();
                        ids.sort_unstable();
                        Some((incoming.qos, ids))
                    }
                    Event::Published { .. } => None,
                    other => panic!("{other:?}"),
                })
                .await;
            got = got.or(seen);
        }
        assert_eq!(got, Some((Qos::AtLeastOnce, vec![1, 2, 3])), "[MQTT-3.3.4-2], [MQTT-3.3.4-3], [MQTT-3.3.4-4]");
        client.nothing().await;
    });
}

#[test]
fn refusals_and_limits() {
    let config =
        MqttConfig { subscriptions_max: 2, packet_bytes_max: 1000, receive_maximum: 2, ..MqttConfig::default() };
    run(config, async |house: House| {
        let mut client = house.client(Version::V5, "c").await;
        let plain = SubscriptionOptions::default();
        assert_eq!(client.subscribe_with("a/#/b", plain, Properties::NONE).await, ReasonCode::TOPIC_FILTER_INVALID);
        for filter in ["a", "b", "a"] {
            assert_eq!(client.subscribe_with(filter, plain, Properties::NONE).await, ReasonCode::SUCCESS);
        }
        assert_eq!(client.subscribe_with("c", plain, Properties::NONE).await, ReasonCode::QUOTA_EXCEEDED);
        let sys = message("$SYS/x", b"", Qos::AtLeastOnce);
        assert_eq!(client.publish(&sys).await, ReasonCode::NOT_AUTHORIZED);
        let deep = "/".repeat(300);
        assert_eq!(client.publish(&message(&deep, b"", Qos::AtLeastOnce)).await, ReasonCode::TOPIC_NAME_INVALID);
        // The client role keeps to what the server announced; here is one that does not.
        client.stream.write_all(&[0x30, 0xFF, 0x7F]).await.unwrap();
        assert_eq!(client.disconnected().await, ReasonCode::PACKET_TOO_LARGE);

        let mut greedy = house.client(Version::V5, "greedy").await;
        for id in 1..=3 {
            greedy.stream.write_all(&[0x34, 6, 0, 1, b't', 0, id, 0]).await.unwrap();
        }
        assert_eq!(greedy.disconnected().await, ReasonCode::RECEIVE_MAXIMUM_EXCEEDED);

        let mut twice = house.client(Version::V5, "twice").await;
        let mut out = Vec::new();
        Packet::Connect(connect(Version::V5, "twice")).encode(Version::V5, &mut out).unwrap();
        twice.stream.write_all(&out).await.unwrap();
        assert_eq!(twice.disconnected().await, ReasonCode::PROTOCOL_ERROR);
    });
}

#[test]
fn a_deaf_reader_is_bounded_and_refused_messages_are_told() {
    let config = MqttConfig { out_bytes_max: 2000, queue_bytes_max: 100_000, ..MqttConfig::default() };
    run(config, async |house: House| {
        let mut deaf = house.client(Version::V5, "deaf").await;
        deaf.subscribe("t", Qos::AtLeastOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        let payload = vec![0; 1000];
        let mut refused = 0;
        for _ in 0..1000 {
            if writer.publish(&message("t", &payload, Qos::AtLeastOnce)).await == ReasonCode::QUOTA_EXCEEDED {
                refused += 1;
            }
        }
        assert!(refused > 500, "{refused} refused");
        for _ in 0..1000 {
            writer.publish(&message("t", &payload, Qos::AtMostOnce)).await;
        }
        writer.nothing().await;
        assert!(house.ctx.bus().memory().used() < 1_500_000, "{}", house.ctx.bus().memory().used());
        // It recovers once it reads.
        for _ in 0..(1000 - refused) {
            deaf.message().await;
        }
        assert_eq!(writer.publish(&message("t", b"again", Qos::AtLeastOnce)).await, ReasonCode::SUCCESS);
        drop((deaf, writer));
    });
}

#[test]
fn keep_alive_and_login_deadline() {
    let config = MqttConfig { login_deadline: Duration::from_millis(50), ..MqttConfig::default() };
    run(config, async |house: House| {
        let mut silent = house.open();
        assert_eq!(silent.read(&mut [0; 10]).await.unwrap(), 0);
        let mut short = house.connect(&Connect { keep_alive: 1, ..connect(Version::V5, "c") }).await;
        assert_eq!(short.disconnected().await, ReasonCode::KEEP_ALIVE_TIMEOUT);
        let other = house.open();
        let (mut read, mut write) = tokio::io::split(other);
        write.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!(read.read(&mut [0; 10]).await.unwrap(), 0);
    });
}

#[test]
fn s3_1_3_1_assigned_identifiers_and_versions() {
    run(MqttConfig::default(), async |house: House| {
        let mut stream = house.open();
        let mut out = Vec::new();
        Packet::Connect(connect(Version::V5, "")).encode(Version::V5, &mut out).unwrap();
        // In the same turn as CONNECT.
        out.extend_from_slice(&[0xC0, 0]);
        stream.write_all(&out).await.unwrap();
        let mut got = Vec::new();
        loop {
            stream.read_buf(&mut got).await.unwrap();
            let Some((Packet::Connack(connack), used)) = decode(&got, Version::V5, &Limits::PROTOCOL).unwrap() else {
                continue;
            };
            let assigned = fogmux_mqtt::ConnackProperties::from(connack.properties).assigned_client_id.unwrap();
            assert_eq!(assigned.len(), 31);
            if got.len() >= used + 2 {
                assert_eq!(got[used..], [0xD0, 0]);
                break;
            }
        }
        let mut old = house.open();
        old.write_all(b"\x10\x0c\0\x04MQTT\x04\x00\0\x3c\0\0").await.unwrap();
        let mut answer = Vec::new();
        old.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, [0x20, 2, 0, 2], "[MQTT-3.1.3-8] of 3.1.1");
    });
}

#[test]
fn an_idle_connection_is_small() {
    let connection = size_of::<super::connection::Connection<tokio::net::TcpStream>>();
    let mailbox = size_of::<super::mailbox::MqttMailbox>();
    assert!(connection + mailbox < 640, "{connection} + {mailbox}");
}
