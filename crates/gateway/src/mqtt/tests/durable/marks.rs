//! A process that ends while clients are connected that have not taken their queues: what was not sent is known.

use super::*;

const MESSAGES: u8 = 60;

/// A client that takes one message at a time.
async fn slow(house: &House, id: &str) -> Wire {
    let limits = ClientLimits { receive_maximum: 1, ..ClientLimits::default() };
    house.try_connect_within(limits, house.open(), &lasting(&mut PropertyBuffer::new(), id)).await.unwrap()
}

async fn publish(house: &House, qos: Qos) {
    let mut writer = house.client(Version::V5, "writer").await;
    for number in 0..MESSAGES {
        assert_eq!(writer.publish(&message("q", &[number], qos)).await, ReasonCode::SUCCESS);
    }
}

/// How many of a session's messages may have been sent, and how many there are.
fn sent(store: &MemoryStore, id: &str) -> (usize, usize) {
    let Recovered { sessions, losses, .. } = Recovered::load(&store.crashed(usize::MAX));
    assert!(losses.is_none(), "{losses:?}");
    let session = sessions.iter().find(|session| &*session.key.0 == id).unwrap();
    let may_be_sent = session.deliveries.iter().filter(|one| one.may_be_sent).count();
    (may_be_sent, session.deliveries.len())
}

#[test]
fn s4_8_2_what_a_member_was_not_sent_before_a_crash_goes_to_another() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        leave_behind(&house, "one", "$share/g/q", Qos::ExactlyOnce).await;
        publish(&house, Qos::ExactlyOnce).await;
        leave_behind(&house, "two", "$share/g/q", Qos::ExactlyOnce).await;
        let mut one = slow(&house, "one").await;
        assert_eq!(publish_of(&one.packet().await).2, 2);
        assert_eq!(sent(&store, "one"), (1, usize::from(MESSAGES)));
    });
    run_committing(&store.crashed(usize::MAX), async |house: House| {
        // Its session ends.
        drop(house.client(Version::V5, "one").await);
        let mut other = house.lasting("two").await;
        for number in 1..MESSAGES {
            assert_eq!(other.message().await.payload, [number]);
        }
        other.nothing().await;
    });
}

#[test]
fn a_mark_goes_before_what_a_client_takes_and_is_given_up_behind_a_short_queue() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        leave_behind(&house, "s", "q", Qos::AtLeastOnce).await;
        publish(&house, Qos::AtLeastOnce).await;
        let mut client = slow(&house, "s").await;
        for number in 0..MESSAGES {
            let (id, ..) = publish_of(&client.packet().await);
            let (may_be_sent, left) = sent(&store, "s");
            assert!(may_be_sent > 0, "{number}");
            // It is doubled each time.
            assert!(may_be_sent <= 1 + 2 * usize::from(number) + 2 || left < 2 * usize::from(number), "{number}");
            client.write(&acknowledgement(0x40, id)).await;
        }
        client.silence().await;
        let mut writer = house.client(Version::V5, "writer").await;
        writer.publish(&message("q", b"x", Qos::AtLeastOnce)).await;
        client.packet().await;
        assert_eq!(sent(&store, "s"), (1, 1), "it is sent at once");
    });
}

/// A client that was there all the time and has fallen behind.
#[test]
fn a_client_that_falls_behind_gets_a_mark() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let mut client = slow(&house, "s").await;
        client.subscribe("q", Qos::AtLeastOnce).await;
        publish(&house, Qos::AtLeastOnce).await;
        let (may_be_sent, left) = sent(&store, "s");
        assert!(may_be_sent < 8 && left == usize::from(MESSAGES), "{may_be_sent} of {left}");
    });
}

/// A disk that fails holds no client up that takes its queue.
#[test]
fn a_mark_that_the_store_does_not_take_holds_nobody_up() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        leave_behind(&house, "s", "q", Qos::AtLeastOnce).await;
        publish(&house, Qos::AtLeastOnce).await;
        let mut client = slow(&house, "s").await;
        store.set_full(true);
        for _ in 0..MESSAGES {
            let (id, ..) = publish_of(&client.packet().await);
            client.write(&acknowledgement(0x40, id)).await;
        }
        client.silence().await;
    });
}
