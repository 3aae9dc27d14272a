//! Messages of shared subscriptions whose members leave, and exchanges whose numbers come round.

use super::{super::leaving::numbers_of_all, *};

/// A message of a shared subscription is in the store as long as a member has to get it.
#[test]
fn s4_8_2_what_a_member_left_is_in_the_store_for_another() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        leave_behind(&house, "one", "$share/g/q", Qos::AtLeastOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        writer.publish(&message("q", b"1", Qos::AtLeastOnce)).await;
        leave_behind(&house, "two", "$share/g/q", Qos::AtLeastOnce).await;
        house.client(Version::V5, "one").await.nothing().await;
    });
    let store = store.crashed(usize::MAX);
    run_committing(&store, async |house: House| {
        let mut other = house.lasting("two").await;
        assert_eq!(other.message().await.payload, b"1");
        other.nothing().await;
    });
    assert_eq!(store.crashed(usize::MAX).len(), 2, "a session and its subscription");
}

/// A member was sent a message at once, so that the store holds its batch, and ends its session without an
/// acknowledgement: the publisher waits until the store has the message for another member.
#[test]
fn s4_8_2_a_publisher_waits_for_what_a_member_was_sent_and_left() {
    let store = MemoryStore::default();
    store.set_holding(true);
    run_stored(&store, async |house: House| {
        let mut one = committing(&store, house.lasting("one")).await;
        committing(&store, one.subscribe("$share/g/q", Qos::AtLeastOnce)).await;
        let mut writer = house.client(Version::V5, "writer").await;
        writer.send(&message("q", b"1", Qos::AtLeastOnce)).await;
        assert_eq!(publish_of(&one.packet().await).2, 1);
        writer.nothing().await;
        assert_eq!(store.waiting(), 0, "the batch is held");
        committing(&store, leave_behind(&house, "two", "$share/g/q", Qos::AtLeastOnce)).await;
        let (mut again, mut out) = (house.open(), Vec::new());
        Client::connect(&connect(Version::V5, "one"), ClientLimits::default(), &mut out).unwrap();
        again.write_all(&out).await.unwrap();
        writer.nothing().await;
        assert_eq!(store.crashed(0).len(), 4, "two sessions and their subscriptions");
        store.release(usize::MAX);
        store.commit(usize::MAX);
        assert!(writer.next(|event| matches!(event, Event::Published { .. })).await);
    });
    run_committing(&store.crashed(0), async |house: House| {
        assert_eq!(house.lasting("two").await.message().await.payload, b"1");
    });
}

/// More messages than are handed on in a turn: each is in the store for the other member.
#[test]
fn s4_8_2_what_a_member_left_in_portions_is_in_the_store_for_another() {
    const MESSAGES: u32 = 2500;
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        committing(&store, async {
            leave_behind(&house, "one", "$share/g/q", Qos::AtLeastOnce).await;
            let mut writer = house.client(Version::V5, "writer").await;
            for number in 0..MESSAGES {
                writer.publish(&message("q", &number.to_be_bytes(), Qos::AtLeastOnce)).await;
            }
            leave_behind(&house, "two", "$share/g/q", Qos::AtLeastOnce).await;
            house.client(Version::V5, "one").await.nothing().await;
        })
        .await;
    });
    let store = store.crashed(usize::MAX);
    run_stored(&store, async |house: House| {
        committing(&store, async {
            let mut list = PropertyBuffer::new();
            let mut other = house.connect(&lasting(&mut list, "two")).await;
            for number in 0..MESSAGES {
                assert_eq!(other.message().await.payload, number.to_be_bytes());
            }
            other.nothing().await;
        })
        .await;
    });
    assert_eq!(store.crashed(usize::MAX).len(), 2, "a session and its subscription");
}

/// A member ends its session when the disk is full, which is found when its batch is appended or when it is written.
/// What was acknowledged goes to the other member all the same, and no record of the first is left.
fn left_on_a_full_disk(qos: Qos, found_when_written: bool) {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        committing(&store, async {
            leave_behind(&house, "one", "$share/g/q", qos).await;
            let mut writer = house.client(Version::V5, "writer").await;
            for payload in [b"1", b"2", b"3"] {
                assert_eq!(writer.publish(&message("q", payload, qos)).await, ReasonCode::SUCCESS);
            }
            leave_behind(&house, "two", "$share/g/q", qos).await;
            while house.ctx.door.sessions_away() < 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        store.commit(usize::MAX);
        store.set_full(!found_when_written);
        let fails = async {
            while found_when_written && store.waiting() == 0 {
                tokio::task::yield_now().await;
            }
            store.fail();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = fails => unreachable!("it has no end"),
            _ = committing(&store, async { house.client(Version::V5, "one").await.nothing().await }) => {}
        }
        committing(&store, async {
            // QoS 2 waits until the disk knows that the client is there.
            store.set_full(!found_when_written && qos == Qos::AtLeastOnce);
            let mut other = house.lasting("two").await;
            for payload in [b"1", b"2", b"3"] {
                let got = other.message().await;
                assert_eq!((&*got.payload, got.qos), (&payload[..], qos));
            }
            store.set_full(false);
            // Its session and its subscription.
            until_left(&store, &mut other, 2).await;
        })
        .await;
    });
}

#[test]
fn s4_8_2_what_a_member_left_on_a_full_disk_stays_with_another() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        left_on_a_full_disk(qos, false);
    }
}

#[test]
fn s4_8_2_what_a_member_left_when_the_disk_became_full_stays_with_another() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        left_on_a_full_disk(qos, true);
    }
}

/// A member has left the subscription when the gateway is killed, at whatever point: what it had not been sent waits
/// for it as a member, or for the other one. So the other one gets everything when it is gone.
#[test]
fn s3_10_4_what_a_member_leaves_survives_a_crash_in_between() {
    const MESSAGES: u32 = 3000;
    let store = MemoryStore::default();
    let mut crashed = Vec::new();
    run_stored(&store, async |house: House| {
        committing(&store, async {
            leave_behind(&house, "one", "$share/g/q", Qos::AtLeastOnce).await;
            let mut writer = house.client(Version::V5, "writer").await;
            for number in 0..MESSAGES {
                writer.publish(&message("q", &number.to_be_bytes(), Qos::AtLeastOnce)).await;
            }
            leave_behind(&house, "two", "$share/g/q", Qos::AtLeastOnce).await;
        })
        .await;
        let mut one = committing(&store, house.lasting("one")).await;
        assert!(one.session_present);
        store.commit(usize::MAX);
        let mut out = Vec::new();
        one.client.unsubscribe(&["$share/g/q"], &mut out).unwrap();
        one.write(&out).await;
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        assert!(store.waiting() >= 3, "{} batches: two portions, and the subscription", store.waiting());
        crashed.extend((0..=store.waiting()).map(|count| store.crashed(count)));
        store.commit(usize::MAX);
    });
    for store in crashed {
        run_stored(&store, async |house: House| {
            committing(&store, async {
                // Behind the last portion it is none any more, and has only what it was sent.
                let is_member = house.ctx.bus().shared_subscriptions() == 2;
                let one = if is_member { house.client(Version::V5, "one").await } else { house.lasting("one").await };
                let mut both = [one, house.lasting("two").await];
                let all = numbers_of_all(&mut both, MESSAGES as usize, Vec::new()).await;
                assert!(all.into_iter().eq(0..MESSAGES), "each once, is a member: {is_member}");
            })
            .await;
        });
    }
}

/// The disk is full when a member leaves the subscription.
#[test]
fn s3_10_4_what_a_member_leaves_on_a_full_disk_stays_with_another() {
    const MESSAGES: u32 = 1500;
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        leave_behind(&house, "one", "$share/g/q", Qos::ExactlyOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        for number in 0..MESSAGES {
            writer.publish(&message("q", &number.to_be_bytes(), Qos::AtLeastOnce)).await;
        }
        leave_behind(&house, "two", "$share/g/q", Qos::ExactlyOnce).await;
        store.set_full(true);
        let mut one = house.lasting("one").await;
        let mut out = Vec::new();
        one.client.unsubscribe(&["$share/g/q"], &mut out).unwrap();
        one.write(&out).await;
        let (mut is_over, mut all) = (false, Vec::new());
        while !is_over {
            let got = one.next(|event| match event {
                Event::Message(incoming) => Some(u32::from_be_bytes(incoming.payload.try_into().unwrap())),
                Event::Unsubscribed { .. } => None,
                other => panic!("{other:?}"),
            });
            let number = got.await;
            is_over = number.is_none();
            all.extend(number);
        }
        let mut two = house.lasting("two").await;
        while all.len() < MESSAGES as usize {
            all.push(u32::from_be_bytes((&*two.message().await.payload).try_into().unwrap()));
        }
        one.nothing().await;
        two.nothing().await;
        all.sort_unstable();
        assert!(all.into_iter().eq(0..MESSAGES), "each once");
        store.set_full(false);
        // Two sessions, and the subscription of one.
        until_left(&store, &mut two, 3).await;
    });
}

/// The refusal of a message to its publisher is not undone because the member that had it leaves.
#[test]
fn s4_8_2_what_was_refused_is_not_handed_on() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        leave_behind(&house, "one", "$share/g/q", Qos::AtLeastOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        store.set_full(true);
        let refused = writer.publish(&message("q", b"1", Qos::AtLeastOnce)).await;
        assert_eq!(refused, ReasonCode::QUOTA_EXCEEDED);
        store.set_full(false);
        leave_behind(&house, "two", "$share/g/q", Qos::AtLeastOnce).await;
        house.client(Version::V5, "one").await.nothing().await;
        house.lasting("two").await.nothing().await;
    });
}

/// The client never completes its oldest exchange, and more messages than there are identifiers are dropped meanwhile.
#[test]
fn s4_3_3_what_is_complete_is_forgotten_when_identifiers_have_come_round() {
    const ROUND: u64 = 66_000;
    let store = MemoryStore::default();
    let mut batch = store.batch();
    let mut log = SessionLog::begin(SessionKey(Arc::from("s")), Arc::from("anonymous"), None, batch.as_mut());
    let wanted =
        Wanted { max_qos: fogmux_bus::Qos::ExactlyOnce, no_local: false, retain_as_published: false, id: None };
    log.subscribe(&Subscription::parse("q").unwrap(), wanted, batch.as_mut());
    log.disconnect(1, Some(Sequence(ROUND)), batch.as_mut());
    let session = RecordId(0);
    batch.put(&Record::Released(session, Sequence(0)));
    drop(batch.append());
    store.commit(usize::MAX);
    let id = Sequence(ROUND).packet_id().get();
    run_committing(&store, async |house: House| {
        let mut reader = house.lasting("s").await;
        assert_eq!(reader.packet().await, acknowledgement(0x62, 1));
        let mut writer = house.client(Version::V5, "writer").await;
        writer.publish(&message("q", b"x", Qos::ExactlyOnce)).await;
        assert_eq!(publish_of(&reader.packet().await), (id, false, 2));
        reader.write(&acknowledgement(0x50, id)).await;
        assert_eq!(reader.packet().await, acknowledgement(0x62, id));
        reader.write(&acknowledgement(0x70, id)).await;
        reader.silence().await;
    });
    let store = store.crashed(usize::MAX);
    assert_eq!(store.len(), 3, "the session, its subscription, and the oldest exchange");
    run_committing(&store, async |house: House| {
        let mut reader = house.lasting("s").await;
        assert_eq!(reader.packet().await, acknowledgement(0x62, 1));
        reader.silence().await;
    });
}
