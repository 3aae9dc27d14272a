//! Sessions, wills, deadlines, and what an idle connection costs.

use fogmux_mqtt::{Limits, Will, decode};

use super::*;

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
        house.drain.send_replace(crate::phase::Phase::Quiescing);
        assert_eq!(reader.message().await.payload, b"gone");
        leaving.send(&message("t", b"too late", Qos::AtLeastOnce)).await;
        reader.nothing().await;
        house.drain.send_replace(crate::phase::Phase::Emptying);
        let shutdown = &house.ctx.shared.shutdown;
        tokio::task::spawn_local({
            let shared = std::sync::Arc::clone(&house.ctx.shared);
            async move {
                while !shared.shutdown.is_over() {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    shared.shutdown.look(&[]);
                }
            }
        });
        assert!(!shutdown.is_over(), "two clients are there");
        assert_eq!(reader.disconnected().await, ReasonCode::SERVER_SHUTTING_DOWN);
        assert_eq!(leaving.disconnected().await, ReasonCode::SERVER_SHUTTING_DOWN);
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
    let connection = size_of::<super::super::connection::Connection<tokio::net::TcpStream>>();
    // Only debug builds have it.
    let connection = connection - size_of::<super::super::boundary::Boundary>();
    let mailbox = size_of::<super::super::mailbox::MqttMailbox>();
    assert!(connection + mailbox <= 608, "{connection} + {mailbox}");
    assert!(size_of::<super::super::Serve<'_, tokio::net::TcpStream>>() <= 2 * size_of::<usize>());
}

#[test]
#[cfg(feature = "http")]
fn messages_that_are_acknowledged_out_of_turn_are_not_in_flight() {
    use crate::held::HeldSessions as _;

    run(MqttConfig::default(), async |house: House| {
        let mut reader = house.open();
        reader.write_all(b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01r\x82\x06\0\x01\0\x01t\x01").await.unwrap();
        reader.read_exact(&mut [0; 4 + 5]).await.unwrap();
        let mut writer = house.client(Version::V5, "w").await;
        for payload in [b"1", b"2", b"3"] {
            writer.publish(&message("t", payload, Qos::AtLeastOnce)).await;
        }
        let mut messages = [[0; 8]; 3];
        reader.read_exact(messages.as_flattened_mut()).await.unwrap();
        let inflight = || {
            let sessions = house.ctx.page(0, 10).0;
            sessions.iter().find(|session| &*session.client == "r").unwrap().inflight
        };
        assert_eq!(inflight(), 3);
        for [.., high, low, _] in &messages[1..] {
            reader.write_all(&[0x40, 2, *high, *low]).await.unwrap();
        }
        // Answered after the acknowledgements.
        reader.write_all(b"\xc0\0").await.unwrap();
        reader.read_exact(&mut [0; 2]).await.unwrap();
        assert_eq!(inflight(), 1);
    });
}
