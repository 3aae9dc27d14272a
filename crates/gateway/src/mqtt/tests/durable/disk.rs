//! A disk that is full, or that fails, under sessions with records.

use super::*;

#[test]
fn a_full_disk_refuses_what_sessions_would_have_to_keep() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        leave_behind(&house, "s", "q", Qos::ExactlyOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        let mut older = house.client(Version::V311, "older").await;
        store.set_full(true);
        for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
            assert_eq!(writer.publish(&message("q", b"1", qos)).await, ReasonCode::QUOTA_EXCEEDED);
        }
        writer.publish(&message("q", b"2", Qos::AtMostOnce)).await;
        let unread = writer.publish(&message("unread", b"3", Qos::AtLeastOnce)).await;
        assert_eq!(unread, ReasonCode::NO_MATCHING_SUBSCRIBERS);
        older.send(&message("q", b"4", Qos::AtLeastOnce)).await;
        older.closed().await;
        store.set_full(false);
        assert_eq!(writer.publish(&message("q", b"5", Qos::AtLeastOnce)).await, ReasonCode::SUCCESS);
        let mut reader = house.lasting("s").await;
        assert_eq!(reader.message().await.payload, b"5");
        reader.nothing().await;
    });
}

#[test]
fn s4_3_3_pubrel_is_tried_again_until_the_disk_has_room() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let mut reader = house.lasting("s").await;
        reader.subscribe("q", Qos::ExactlyOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        writer.publish(&message("q", b"1", Qos::ExactlyOnce)).await;
        let (id, ..) = publish_of(&reader.packet().await);
        store.set_full(true);
        reader.write(&acknowledgement(0x50, id)).await;
        reader.silence().await;
        store.set_full(false);
        assert_eq!(reader.packet().await, acknowledgement(0x62, id));
        // The session, its subscription, and the release: neither the delivery nor the message.
        assert_eq!(store.crashed(usize::MAX).len(), 3);
        reader.write(&acknowledgement(0x70, id)).await;
        until_left(&store, &mut reader, 2).await;
    });
}

/// Each answer that was refused has waited once, not each behind the one before it.
#[test]
fn s4_3_3_many_pubrels_that_were_refused_come_when_the_disk_has_room() {
    const MESSAGES: usize = 30;
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let mut reader = house.lasting("s").await;
        reader.subscribe("q", Qos::ExactlyOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        let mut ids = Vec::new();
        for _ in 0..MESSAGES {
            writer.publish(&message("q", b"1", Qos::ExactlyOnce)).await;
            ids.push(publish_of(&reader.packet().await).0);
        }
        store.set_full(true);
        for id in &ids {
            reader.write(&acknowledgement(0x50, *id)).await;
            reader.silence().await;
        }
        store.set_full(false);
        let began = tokio::time::Instant::now();
        for id in &ids {
            assert_eq!(reader.packet().await, acknowledgement(0x62, *id));
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?} for {MESSAGES}");
    });
}

/// A full queue is not walked for each message that comes: what is looked at for refusals is bounded, committed or not.
#[test]
fn a_message_for_a_full_queue_is_not_work_on_all_of_it() {
    const QUEUED: usize = 2000;
    for commits in [false, true] {
        let store = MemoryStore::default();
        let sessions = Some(Arc::new(store.clone()) as Arc<dyn SessionStore>);
        let config = MqttConfig { store: sessions, queue_messages_max: QUEUED, ..MqttConfig::default() };
        run(config, async |house: House| {
            committing(&store, leave_behind(&house, "s", "q", Qos::AtLeastOnce)).await;
            let slot = house.ctx.door.sessions.get(&SessionKey(Arc::from("s"))).unwrap();
            let looks = || slot.with(|mailbox| mailbox.durable.as_ref().map_or(0, |durable| durable.looked.looks));
            let publisher = Publisher::internal();
            let publish = |count: usize| {
                for _ in 0..count {
                    let topic = TopicRef::new("q").unwrap();
                    let now = house.ctx.now();
                    let mut publication = Publication::new(topic, Payload::Slice(b"x"), &publisher, now, 0);
                    publication.qos = fogmux_bus::Qos::AtLeastOnce;
                    drop(house.ctx.worker.borrow_mut().publish(&mut [publication]));
                    if commits {
                        store.commit(usize::MAX);
                    }
                }
            };
            publish(QUEUED);
            assert!(!slot.with(|mailbox| mailbox.is_empty()));
            let before = looks();
            publish(QUEUED);
            let looked = looks() - before;
            assert!(looked <= 10 * QUEUED as u64, "{looked} looks for {QUEUED} messages, commits: {commits}");
        });
    }
}

/// A refused message must not displace one that was acknowledged.
#[test]
fn what_a_full_disk_refused_takes_no_place_in_a_queue() {
    let store = MemoryStore::default();
    let config = MqttConfig { store: Some(Arc::new(store.clone())), queue_messages_max: 8, ..MqttConfig::default() };
    run(config, async |house: House| {
        committing(&store, async {
            leave_behind(&house, "s", "q", Qos::AtLeastOnce).await;
            let mut writer = house.client(Version::V5, "writer").await;
            for number in 0..8_u8 {
                writer.publish(&message("q", &[number], Qos::AtLeastOnce)).await;
            }
            store.set_full(true);
            for _ in 0..20 {
                let refused = writer.publish(&message("q", b"x", Qos::AtLeastOnce)).await;
                assert_eq!(refused, ReasonCode::QUOTA_EXCEEDED);
            }
            store.set_full(false);
            let mut reader = house.lasting("s").await;
            let first = reader.message().await.payload;
            // The first one that was refused took the place of the oldest: its fate was not known.
            assert!(first == [0] || first == [1], "{first:?}");
            for number in first[0] + 1..8 {
                assert_eq!(reader.message().await.payload, [number]);
            }
            reader.nothing().await;
        })
        .await;
    });
}

#[test]
fn what_was_over_while_the_disk_was_full_is_over_after_a_restart() {
    let store = MemoryStore::default();
    let will = Will { qos: Qos::AtLeastOnce, retain: true, topic: "w", payload: b"gone", properties: Properties::NONE };
    run_committing(&store, async |house: House| {
        let mut list = PropertyBuffer::new();
        let willing = house.connect(&Connect { will: Some(will), ..lasting(&mut list, "willing") }).await;
        leave_behind(&house, "ended", "q", Qos::AtLeastOnce).await;
        store.set_full(true);
        willing.disconnect(ReasonCode::SUCCESS).await;
        assert_eq!(wills(&store), 0, "its connection has ended normally");
        for _ in 0..3 {
            let again = house.lasting("ended").await;
            assert!(again.session_present);
            again.disconnect(ReasonCode::SUCCESS).await;
        }
        store.set_full(false);
        house.lasting("ended").await.disconnect(ReasonCode::SUCCESS).await;
        assert!(!house.client(Version::V5, "ended").await.session_present);
    });
    assert_eq!(store.crashed(usize::MAX).len(), 1, "the session that had a will");
}

/// Those who are connected have it, and absent sessions do without, as without any message that a full disk refuses.
#[test]
fn s3_1_2_8_a_will_that_the_disk_does_not_take_is_published_once() {
    for is_known in [true, false] {
        let store = MemoryStore::default();
        run_stored(&store, async |house: House| {
            let mut list = PropertyBuffer::new();
            let will = Will {
                qos: Qos::AtLeastOnce,
                retain: false,
                topic: "w",
                payload: b"gone",
                properties: Properties::NONE,
            };
            let connect = Connect { will: Some(will), ..lasting(&mut list, "willing") };
            let (mut watcher, willing) = committing(&store, async {
                leave_behind(&house, "absent", "w", Qos::AtLeastOnce).await;
                let mut watcher = house.client(Version::V5, "watcher").await;
                watcher.subscribe("w", Qos::AtLeastOnce).await;
                (watcher, house.connect(&connect).await)
            })
            .await;
            assert_eq!(wills(&store), 1);
            store.set_full(is_known);
            drop(willing);
            assert_eq!(watcher.message().await.payload, b"gone");
            if !is_known {
                store.fail();
            }
            watcher.nothing().await;
            assert_eq!(wills(&store), 0, "known to be full: {is_known}");
        });
    }
}

/// Wills that another process finds.
fn wills(store: &MemoryStore) -> usize {
    let Recovered { sessions, .. } = Recovered::load(&store.crashed(usize::MAX));
    sessions.iter().filter(|session| session.will.is_some()).count()
}
