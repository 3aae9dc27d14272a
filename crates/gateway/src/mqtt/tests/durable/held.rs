//! Messages that the store holds until they are acknowledged, or are due (ADR 0070).

use super::*;

/// One that an absent session is to get as well is not held. What its publisher has published before is on the disk
/// before it; what others have is held on.
#[test]
fn s4_6_what_is_not_held_does_not_overtake_what_its_publisher_has_held() {
    let store = MemoryStore::default();
    store.set_holding(true);
    let mut crashed = Vec::new();
    run_stored(&store, async |house: House| {
        let mut one = committing(&store, house.lasting("one")).await;
        committing(&store, one.subscribe("a", Qos::AtLeastOnce)).await;
        committing(&store, one.subscribe("b", Qos::AtLeastOnce)).await;
        committing(&store, leave_behind(&house, "two", "b", Qos::AtLeastOnce)).await;
        let mut writer = house.client(Version::V5, "writer").await;
        let mut other = house.client(Version::V5, "other").await;
        other.nothing().await;
        // Absence begins behind DISCONNECT.
        store.commit(usize::MAX);
        for writer in [&mut writer, &mut other] {
            writer.send(&message("a", b"1", Qos::AtLeastOnce)).await;
            writer.nothing().await;
            assert_eq!(store.waiting(), 0, "it is held");
        }
        writer.send(&message("b", b"2", Qos::AtLeastOnce)).await;
        writer.nothing().await;
        assert_eq!(store.waiting(), 2, "that of the other publisher is held on");
        crashed.extend((0..=2).map(|count| store.crashed(count)));
    });
    for (store, expected) in crashed.iter().zip([&[][..], &[b"1"], &[b"1", b"2"]]) {
        run_committing(store, async |house: House| {
            let mut one = house.lasting("one").await;
            for payload in expected {
                assert_eq!(one.message().await.payload, *payload);
            }
            one.nothing().await;
        });
    }
}

/// Nobody sends a will again after a crash.
#[test]
fn s3_1_2_5_a_will_is_not_held() {
    let store = MemoryStore::default();
    store.set_holding(true);
    run_stored(&store, async |house: House| {
        let mut one = committing(&store, house.lasting("one")).await;
        committing(&store, one.subscribe("w", Qos::AtLeastOnce)).await;
        let will =
            Will { qos: Qos::AtLeastOnce, retain: false, topic: "w", payload: b"gone", properties: Properties::NONE };
        drop(house.connect(&Connect { will: Some(will), ..connect(Version::V5, "willing") }).await);
        assert_eq!(publish_of(&one.packet().await).2, 1);
        assert_eq!(store.waiting(), 1);
    });
}
