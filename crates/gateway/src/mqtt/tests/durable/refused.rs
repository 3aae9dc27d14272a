//! Exchanges of QoS 2 whose records a full disk has refused: what has come of them outlives the connection.

use super::*;

/// A session that has been sent a message of QoS 2 and answers PUBREC, which the full disk does not take.
async fn refused_release(house: &House, store: &MemoryStore) -> u16 {
    let mut reader = house.lasting("s").await;
    reader.subscribe("q", Qos::ExactlyOnce).await;
    let mut writer = house.client(Version::V5, "writer").await;
    writer.publish(&message("q", b"1", Qos::ExactlyOnce)).await;
    let (id, ..) = publish_of(&reader.packet().await);
    store.set_full(true);
    reader.write(&acknowledgement(0x50, id)).await;
    reader.silence().await;
    drop(reader);
    while house.ctx.door.sessions_away() < 1 {
        tokio::task::yield_now().await;
    }
    id
}

#[test]
fn s4_3_3_a_release_that_was_refused_is_put_again_with_the_next_connect() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let id = refused_release(&house, &store).await;
        store.set_full(false);
        let mut reader = house.lasting("s").await;
        assert_eq!(reader.packet().await, acknowledgement(0x62, id));
    });
    // The client knows the message no more. A PUBLISH would be a new one for it.
    let store = store.crashed(usize::MAX);
    run_committing(&store, async |house: House| {
        let mut reader = house.lasting("s").await;
        assert_eq!(reader.packet().await, acknowledgement(0x62, 1));
        reader.write(&acknowledgement(0x70, 1)).await;
        until_left(&store, &mut reader, 2).await;
    });
}

#[test]
fn s4_3_3_pubrel_waits_for_the_disk_in_the_next_connection_too() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let id = refused_release(&house, &store).await;
        let mut reader = house.lasting("s").await;
        assert!(reader.session_present);
        reader.silence().await;
        // Nothing else is held up.
        house.client(Version::V5, "writer").await.publish(&message("q", b"2", Qos::AtMostOnce)).await;
        assert_eq!(reader.packet().await[0], 0x30);
        store.set_full(false);
        assert_eq!(reader.packet().await, acknowledgement(0x62, id));
        reader.write(&acknowledgement(0x70, id)).await;
        until_left(&store, &mut reader, 2).await;
    });
}

#[test]
fn s4_3_3_a_release_that_was_refused_does_not_take_the_message_from_the_store() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let mut other = house.lasting("other").await;
        other.subscribe("q", Qos::ExactlyOnce).await;
        refused_release(&house, &store).await;
        store.set_full(false);
        let (id, ..) = publish_of(&other.packet().await);
        other.write(&acknowledgement(0x50, id)).await;
        assert_eq!(other.packet().await, acknowledgement(0x62, id));
        other.write(&acknowledgement(0x70, id)).await;
        other.silence().await;
    });
    let store = store.crashed(usize::MAX);
    run_committing(&store, async |house: House| {
        let mut reader = house.lasting("s").await;
        let (id, dup, qos) = publish_of(&reader.packet().await);
        assert_eq!((id, dup, qos), (1, true, 2), "its exchange goes on");
    });
}

/// It says that there is no such subscription, which is not so after a crash as long as the store knows of it.
#[test]
fn s3_10_a_second_unsuback_waits_for_what_the_first_one_waited_for() {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        let mut client = committing(&store, async {
            let mut client = house.lasting("s").await;
            client.subscribe("q", Qos::AtLeastOnce).await;
            client
        })
        .await;
        let unsubscribe = [0xA2, 6, 0, 9, 0, 0, 1, b'q'];
        store.set_full(true);
        client.write(&unsubscribe).await;
        client.silence().await;
        drop(client);
        while house.ctx.door.sessions_away() < 1 {
            tokio::task::yield_now().await;
        }
        let mut client = house.lasting("s").await;
        assert!(client.session_present, "it is let in while the disk takes nothing");
        client.write(&unsubscribe).await;
        client.silence().await;
        assert_eq!(store.crashed(0).len(), 2, "the subscription is there");
        store.commit(usize::MAX);
        assert_eq!(client.packet().await, [0xB0, 4, 0, 9, 0, 0x11]);
        assert_eq!(store.len(), 1);
    });
}

/// Its deliveries need no record, and are made.
#[test]
fn s4_3_3_what_no_session_has_a_record_of_is_not_refused_for_its_publishers_session() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let mut reader = house.client(Version::V5, "reader").await;
        reader.subscribe("q", Qos::ExactlyOnce).await;
        let mut writer = house.lasting("writer").await;
        store.set_full(true);
        assert_eq!(writer.publish(&message("q", b"1", Qos::ExactlyOnce)).await, ReasonCode::SUCCESS);
        assert_eq!(reader.message().await.payload, b"1");
        store.set_full(false);
        assert_eq!(writer.publish(&message("q", b"2", Qos::ExactlyOnce)).await, ReasonCode::SUCCESS);
        assert_eq!(reader.message().await.payload, b"2");
    });
    assert_eq!(store.crashed(usize::MAX).len(), 1, "the session of the publisher");
}
