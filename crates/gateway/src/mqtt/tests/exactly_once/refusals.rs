//! Repeats of messages that were refused, or whose store has failed meanwhile.

use super::*;

#[test]
fn a_repeat_is_refused_if_the_store_has_failed_meanwhile() {
    for (version, ends) in VERSIONS.into_iter().flat_map(|v| [Ends::Before, Ends::TakenOver, Ends::Not].map(|e| (v, e)))
    {
        run_later(async |house, store| {
            let mut reader = house.client(Version::V5, "reader").await;
            reader.subscribe("w", Qos::AtMostOnce).await;
            let mut device = house.raw(version, "device").await;
            device.send(&publish(version, "w", 1, true, false)).await;
            assert_eq!(reader.message().await.payload, [0, 1]);
            device.nothing().await;
            let mut device = again(&house, version, device, ends).await;
            if ends == Ends::Before {
                // Whether it fails before the message comes again or after.
                store.complete(Err(StoreFailed));
                device.send(&publish(version, "w", 1, true, true)).await;
            } else {
                device.send(&publish(version, "w", 1, true, true)).await;
                device.nothing().await;
                store.complete(Err(StoreFailed));
            }
            let refused = version.is_v5().then_some((1, ReasonCode::QUOTA_EXCEEDED));
            assert_eq!(device.pubrec().await, refused, "{version:?} {ends:?}");
            if ends == Ends::Not && version.is_v5() {
                assert_eq!(device.pubrec().await, refused, "the repeat too");
            }
            reader.nothing().await;
            // The identifier is free: the next one is a new message.
            let mut device = if version.is_v5() { device } else { house.raw(version, "device").await };
            device.send(&publish(version, "w", 1, true, true)).await;
            assert_eq!(reader.message().await.payload, [0, 1]);
            store.complete(Ok(()));
            assert_eq!(device.pubrec().await, Some((1, ReasonCode::SUCCESS)));
        });
    }
}

/// Refused by a rule (`$SYS/x`) or by the store (`no`), which a client of version 5 is to be told after the messages
/// before.
#[test]
fn a_refusal_that_was_not_sent_is_given_to_the_repeat() {
    for (topic, reason) in [("$SYS/x", ReasonCode::NOT_AUTHORIZED), ("no", ReasonCode::QUOTA_EXCEEDED)] {
        for ends in [Ends::Before, Ends::TakenOver, Ends::Not] {
            run_later(async |house, store| {
                let both =
                    |dup| [publish(Version::V5, "w", 1, true, dup), publish(Version::V5, topic, 2, true, dup)].concat();
                let mut reader = house.client(Version::V5, "reader").await;
                reader.subscribe("w", Qos::AtMostOnce).await;
                let mut device = house.raw(Version::V5, "device").await;
                device.send(&both(false)).await;
                device.nothing().await;
                let mut device = again(&house, Version::V5, device, ends).await;
                device.send(&both(true)).await;
                device.nothing().await;
                store.complete(Ok(()));
                for _ in 0..=usize::from(ends == Ends::Not) {
                    assert_eq!(device.pubrec().await, Some((1, ReasonCode::SUCCESS)));
                    assert_eq!(device.pubrec().await, Some((2, reason)), "{topic} {ends:?}");
                }
            });
        }
    }
}

/// In 3.1.1 the end of the connection is the refusal. What comes behind it was published, and nothing is said of it.
#[test]
fn what_is_behind_a_refusal_waits_for_the_store_too() {
    run_later(async |house, store| {
        let mut device = house.raw(Version::V311, "device").await;
        let batch = [("w", 1), ("no", 2), ("w", 3)].map(|(topic, id)| publish(Version::V311, topic, id, true, false));
        device.send(&batch.concat()).await;
        assert_eq!(device.pubrec().await, None);
        let mut device = house.raw(Version::V311, "device").await;
        device.send(&[1, 3].map(|id| publish(Version::V311, "w", id, true, true)).concat()).await;
        device.nothing().await;
        store.complete(Ok(()));
        for id in [1, 3] {
            assert_eq!(device.pubrec().await, Some((id, ReasonCode::SUCCESS)));
        }
    });
}

/// The rest of a batch with very many deliveries is published when its connection was displaced already.
#[test]
fn a_refusal_after_the_connection_was_displaced_is_given_to_the_repeat() {
    for version in VERSIONS {
        run_later(async |house, _| {
            // The next connection does not wait for ever; a paused clock stands still while there is work.
            tokio::time::pause();
            let (bus, wide) = (house.ctx.bus(), Subscription::parse("wide").unwrap());
            let limits = FifoLimits { messages: 100, bytes: 1 << 20 };
            let slots: Vec<_> = (0..17_000).map(|_| bus.slot(FifoMailbox::new(limits), WorkerId(0))).collect();
            for slot in &slots {
                bus.subscribe(slot, &wide, SubscribeOptions::default()).unwrap();
            }
            let mut warm = house.raw(Version::V5, "warm").await;
            warm.send(&[("wide", 1), ("no", 2)].map(|(to, id)| publish(Version::V5, to, id, id == 2, false)).concat())
                .await;
            assert_eq!(warm.pubrec().await, Some((1, ReasonCode::SUCCESS)));
            let mut first = house.raw(version, "device").await;
            // From the second batch on each of those with many subscribers has a turn of its own.
            let mut batch: Vec<u8> = (10..15).flat_map(|id| publish(version, "wide", id, false, false)).collect();
            batch.extend(publish(version, "no", 2, true, false));
            first.send(&batch).await;
            let mut device = house.raw(version, "device").await;
            assert!(device.0.session_present);
            device.send(&publish(version, "no", 2, true, true)).await;
            let refused = version.is_v5().then_some((2, ReasonCode::QUOTA_EXCEEDED));
            assert_eq!(device.pubrec().await, refused, "{version:?}");
        });
    }
}
