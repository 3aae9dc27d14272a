//! Messages: every QoS and version, properties, retained ones, sharing, limits.

use super::*;

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
        let deep = "/".repeat(300);
        assert_eq!(client.subscribe_with(&deep, plain, Properties::NONE).await, ReasonCode::TOPIC_FILTER_INVALID);
        for filter in ["a", "b", "a"] {
            assert_eq!(client.subscribe_with(filter, plain, Properties::NONE).await, ReasonCode::SUCCESS);
        }
        assert_eq!(client.subscribe_with("c", plain, Properties::NONE).await, ReasonCode::QUOTA_EXCEEDED);
        let sys = message("$SYS/x", b"", Qos::AtLeastOnce);
        assert_eq!(client.publish(&sys).await, ReasonCode::NOT_AUTHORIZED);
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
fn a_deaf_reader_is_bounded_and_disconnected_and_nobody_is_refused() {
    let config = MqttConfig { out_bytes_max: 2000, queue_bytes_max: 100_000, ..MqttConfig::default() };
    run(config, async |house: House| {
        let mut deaf = house.client(Version::V5, "deaf").await;
        deaf.subscribe("t", Qos::AtLeastOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        let payload = vec![0; 1000];
        for _ in 0..300 {
            let reason = writer.publish(&message("t", &payload, Qos::AtLeastOnce)).await;
            assert!(matches!(reason, ReasonCode::SUCCESS | ReasonCode::NO_MATCHING_SUBSCRIBERS), "{reason:?}");
        }
        assert!(house.ctx.bus().memory().used() < 400_000, "{}", house.ctx.bus().memory().used());
        assert_eq!(house.ctx.shared.metrics.mqtt_cut.queue_full.get(), 1);
        let disconnect = |event: &Event<'_>| match event {
            Event::Disconnected { reason, .. } => Some(*reason),
            _ => None,
        };
        let reason = loop {
            if let Some(reason) = deaf.next(disconnect).await {
                break reason;
            }
        };
        assert_eq!(reason, ReasonCode::QUOTA_EXCEEDED);
    });
}

#[test]
fn retained_messages_wait_outside_the_queues_of_readers_that_pause() {
    const MESSAGES: usize = 40;
    const BYTES: usize = 256 << 10;
    const READERS: usize = 5;
    for qos in ALL_QOS {
        let config = MqttConfig { tight_bytes: 8 << 20, ..MqttConfig::default() };
        run(config, async |house: House| {
            let mut writer = house.client(Version::V5, "writer").await;
            let payload = vec![7; BYTES];
            let topics: Vec<String> = (0..MESSAGES).map(|number| format!("z/{number:02}")).collect();
            for topic in &topics {
                let retained = Outgoing { retain: true, ..message(topic, &payload, Qos::AtLeastOnce) };
                assert!(!writer.publish(&retained).await.is_error());
            }
            tokio::time::pause();
            let mut readers = Vec::new();
            for number in 0..READERS {
                let mut reader = house.client(Version::V5, &format!("reader {number}")).await;
                reader.subscribe("z/#", qos).await;
                readers.push(reader);
            }
            // Memory is looked at every second, and a client may take nothing for two.
            for _ in 0..6 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let _ = house.ctx.now();
            }
            let held = house.ctx.bus().memory().held();
            assert!(held <= READERS * 3 * BYTES, "{held} bytes wait for {READERS} readers");
            for mut reader in readers {
                for topic in &topics {
                    assert_eq!(&reader.message().await.topic, topic, "{qos:?}");
                }
                reader.nothing().await;
            }
        });
    }
}
