//! A process that ends while clients are connected that have not taken their queues: what was not sent is known.

use std::time::Duration;

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

/// A disk that fails holds no client up that takes its queue of QoS 1.
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

/// How long the record of a session waits until it is put again.
const AGAIN: Duration = Duration::from_millis(1100);

/// The next packet, for which seconds may have to pass.
async fn packet_later(client: &mut Wire) -> Vec<u8> {
    for _ in 0..100 {
        tokio::select! {
            biased;
            packet = client.packet() => return packet,
            () = async {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            } => tokio::time::advance(AGAIN / 10).await,
        }
    }
    panic!("nothing comes")
}

/// QoS 2 waits until the disk knows of it; and nothing that was sent is unknown for longer than a second.
#[test]
fn a_record_of_a_connection_that_the_store_has_refused_is_put_again() {
    for (filter, qos) in [("q", Qos::AtLeastOnce), ("q", Qos::ExactlyOnce), ("$share/g/q", Qos::ExactlyOnce)] {
        let store = MemoryStore::default();
        run_committing(&store, async |house: House| {
            leave_behind(&house, "s", filter, qos).await;
            publish(&house, qos).await;
            tokio::time::pause();
            store.set_full(true);
            let mut client = house.lasting("s").await;
            let passes = if qos == Qos::AtLeastOnce { MESSAGES } else { 0 };
            for _ in 0..passes {
                client.packet().await;
            }
            client.silence().await;
            assert_eq!(sent(&store, "s"), (0, usize::from(MESSAGES)), "{filter} {qos:?}");
            // However often it is refused, it allows no more than a first one does.
            for _ in 0..10 {
                tokio::time::advance(AGAIN).await;
                client.silence().await;
            }
            store.set_full(false);
            tokio::time::advance(AGAIN).await;
            for number in passes..MESSAGES {
                client.packet().await;
                let (may_be_sent, _) = sent(&store, "s");
                assert!(may_be_sent > 0 && (number > 0 || may_be_sent < 4), "{filter} {qos:?}: {may_be_sent}");
            }
            client.silence().await;
            assert_eq!(sent(&store, "s").0, usize::from(MESSAGES), "{filter} {qos:?}");
        });
    }
}

#[test]
fn a_mark_that_the_store_has_refused_is_put_again() {
    for (filter, qos) in [("q", Qos::AtLeastOnce), ("q", Qos::ExactlyOnce), ("$share/g/q", Qos::ExactlyOnce)] {
        let store = MemoryStore::default();
        run_committing(&store, async |house: House| {
            leave_behind(&house, "s", filter, qos).await;
            publish(&house, qos).await;
            let mut client = slow(&house, "s").await;
            let (id, ..) = publish_of(&client.packet().await);
            tokio::time::pause();
            store.set_full(true);
            let mut ids = vec![id];
            let answer = if qos == Qos::AtLeastOnce { 0x40 } else { 0x50 };
            // The store takes no release either; what may pass does so one by one.
            for _ in 0..10 {
                client.write(&acknowledgement(answer, *ids.last().unwrap())).await;
                if qos == Qos::ExactlyOnce {
                    break;
                }
                ids.push(publish_of(&client.packet().await).0);
            }
            store.set_full(false);
            let id = if qos == Qos::ExactlyOnce {
                let release = packet_later(&mut client).await;
                assert_eq!(release[0], 0x62);
                client.write(&acknowledgement(0x70, u16::from_be_bytes([release[2], release[3]]))).await;
                publish_of(&packet_later(&mut client).await).0
            } else {
                tokio::time::advance(AGAIN).await;
                client.write(&acknowledgement(answer, *ids.last().unwrap())).await;
                client.packet().await;
                client.silence().await;
                *ids.last().unwrap() + 1
            };
            let Recovered { sessions, .. } = Recovered::load(&store.crashed(usize::MAX));
            let session = sessions.iter().find(|session| &*session.key.0 == "s").unwrap();
            let first = session.deliveries.iter().find(|one| one.stored.sequence().packet_id().get() == id).unwrap();
            assert!(first.may_be_sent, "{filter} {qos:?}: {id}");
        });
    }
}

#[test]
fn the_expiry_that_was_granted_while_the_store_took_nothing_is_kept_a_second_later() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        leave_behind(&house, "s", "q", Qos::AtLeastOnce).await;
        tokio::time::pause();
        store.set_full(true);
        let mut list = PropertyBuffer::new();
        list.push(Property::SessionExpiryInterval(7)).unwrap();
        let connect = Connect { clean_start: false, properties: list.properties(), ..connect(Version::V5, "s") };
        let mut client = house.connect(&connect).await;
        client.silence().await;
        store.set_full(false);
        tokio::time::advance(AGAIN).await;
        client.silence().await;
        let Recovered { sessions, .. } = Recovered::load(&store.crashed(usize::MAX));
        assert_eq!((sessions[0].expiry_s, sessions[0].away_since_unix_ms), (Some(7), None));
    });
}

#[test]
fn that_a_client_has_left_is_put_again_with_the_next_message() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let mut client = house.lasting("s").await;
        client.subscribe("q", Qos::AtLeastOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        store.set_full(true);
        client.disconnect(ReasonCode::SUCCESS).await;
        writer.nothing().await;
        store.set_full(false);
        for payload in [b"a", b"b"] {
            assert_eq!(writer.publish(&message("q", payload, Qos::AtLeastOnce)).await, ReasonCode::SUCCESS);
        }
        assert_eq!(sent(&store, "s"), (0, 2));
    });
}
