//! Messages in flight that the client that comes back may not be sent any more: too large for it, or expired.

use std::path::Path;

use fogmux_auth::{Acl, AnonymousPolicy, Users};
use fogmux_bus::{
    Meaning,
    durable::{Gathering, Manner, Parcel, StoredMessage},
};

use super::*;

/// Whatever cannot be sent again leaves the window, and an identifier of QoS 2 is released ([MQTT-4.3.3-8]): the client
/// would drop a later message under it.
#[test]
fn a_client_that_takes_less_than_before_gets_what_comes_after() {
    let config = || MqttConfig { inflight_bytes_max: 100, ..MqttConfig::default() };
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        run(config(), async |house: House| {
            let mut client = house.lasting("s").await;
            client.subscribe("q", qos).await;
            let mut writer = house.client(Version::V5, "writer").await;
            writer.publish(&message("q", &[b'x'; 100], qos)).await;
            let (id, ..) = publish_of(&client.packet().await);
            drop(client);
            let mut list = PropertyBuffer::new();
            list.push(Property::MaximumPacketSize(50)).unwrap();
            let mut client = house.connect(&lasting(&mut list, "s")).await;
            assert!(client.session_present);
            if qos == Qos::ExactlyOnce {
                assert_eq!(client.packet().await, acknowledgement(0x62, id), "PUBREL");
                client.write(&acknowledgement(0x70, id)).await;
            }
            writer.publish(&message("q", b"1", qos)).await;
            let packet = client.packet().await;
            assert_eq!((publish_of(&packet).1, packet.last()), (false, Some(&b'1')), "{qos:?}");
        });
    }
}

/// A client that has had PUBREL knows nothing of the message any more: after a crash it is not sent again.
#[test]
fn what_is_given_up_is_released_in_the_store_before_pubrel_says_it() {
    let store = MemoryStore::default();
    let mut id = 0;
    run_stored(&store, async |house: House| {
        committing(&store, async {
            let mut client = house.lasting("s").await;
            client.subscribe("q", Qos::ExactlyOnce).await;
            let mut writer = house.client(Version::V5, "writer").await;
            writer.publish(&message("q", &[b'x'; 100], Qos::ExactlyOnce)).await;
            (id, ..) = publish_of(&client.packet().await);
            drop(client);
            let mut list = PropertyBuffer::new();
            list.push(Property::MaximumPacketSize(50)).unwrap();
            let mut client = house.connect(&lasting(&mut list, "s")).await;
            assert_eq!(client.packet().await, acknowledgement(0x62, id), "PUBREL");
        })
        .await;
    });
    run_committing(&store.crashed(0), async |house: House| {
        let mut client = house.lasting("s").await;
        assert!(client.session_present);
        assert_eq!(client.packet().await, acknowledgement(0x62, id), "PUBREL");
        client.write(&acknowledgement(0x70, id)).await;
        client.silence().await;
    });
}

/// Has nobody read anything from now on.
fn forbid_reading(house: &House) {
    let acl = "[[allow]]\nanonymous = true\nwrite = [\"#\"]\n";
    let acl = Acl::parse(Path::new("acl.toml"), acl).unwrap();
    house.ctx.authority().replace(Rules::new(Users::default(), Some(acl), AnonymousPolicy::Everywhere));
    house.ctx.bus().invalidate();
}

/// A client that was sent messages of QoS 2, with room for so many at once.
async fn with_room_for(house: &House, messages: u16) -> Wire {
    let limits = ClientLimits { receive_maximum: messages, ..ClientLimits::default() };
    house.try_connect_within(limits, house.open(), &lasting(&mut PropertyBuffer::new(), "s")).await.unwrap()
}

/// The same when the client has lost the right to read it, and comes back.
#[test]
fn what_may_not_be_read_any_more_is_released_in_the_store() {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        committing(&store, async {
            let mut client = house.lasting("s").await;
            client.subscribe("q", Qos::ExactlyOnce).await;
            let mut writer = house.client(Version::V5, "writer").await;
            writer.publish(&message("q", b"1", Qos::ExactlyOnce)).await;
            assert_eq!(publish_of(&client.packet().await).0, 1);
            drop(client);
            forbid_reading(&house);
            let mut client = house.lasting("s").await;
            assert_eq!(client.packet().await, acknowledgement(0x62, 1), "PUBREL");
        })
        .await;
    });
    // It was lost on its way to the client, which would drop a later message under that identifier.
    run_committing(&store.crashed(0), async |house: House| {
        let mut client = house.lasting("s").await;
        assert!(client.session_present);
        assert_eq!(client.packet().await, acknowledgement(0x62, 1), "PUBREL");
        client.write(&acknowledgement(0x70, 1)).await;
        client.silence().await;
    });
}

/// The same when the rules change while messages wait to be sent again, at any moment of a crash.
#[test]
fn pubrel_of_what_may_not_be_read_any_more_waits_for_the_store() {
    let store = MemoryStore::default();
    let mut at_the_crash = None;
    run_stored(&store, async |house: House| {
        let mut client = committing(&store, async {
            let mut client = with_room_for(&house, 2).await;
            client.subscribe("q", Qos::ExactlyOnce).await;
            let mut writer = house.client(Version::V5, "writer").await;
            for payload in [b"1", b"2"] {
                writer.publish(&message("q", payload, Qos::ExactlyOnce)).await;
                publish_of(&client.packet().await);
            }
            drop(client);
            let mut client = with_room_for(&house, 1).await;
            assert_eq!(publish_of(&client.packet().await), (1, true, 2));
            client
        })
        .await;
        // The second waits behind the first, which may be on its way.
        forbid_reading(&house);
        client.silence().await;
        at_the_crash = Some(store.crashed(0));
        store.commit(usize::MAX);
        assert_eq!(client.packet().await, acknowledgement(0x62, 2), "PUBREL");
    });
    // Nothing was said before the crash, so both come again.
    run_committing(&at_the_crash.unwrap(), async |house: House| {
        let mut client = house.lasting("s").await;
        assert!(client.session_present);
        assert_eq!(publish_of(&client.packet().await), (1, true, 2));
        assert_eq!(publish_of(&client.packet().await), (2, true, 2));
    });
}

/// Milliseconds since 1970, so many seconds from now.
fn in_seconds(seconds: i64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap().saturating_add_signed(1000 * seconds)
}

/// The session `s` with these messages in flight, each with its QoS and the time at which it expires; its client was
/// connected when the process ended.
fn in_flight(messages: &[(u8, Qos, Option<u64>)]) -> MemoryStore {
    let store = MemoryStore::default();
    let mut batch = store.batch();
    let mut log = SessionLog::begin(SessionKey(Arc::from("s")), Arc::from("anonymous"), Some(100), batch.as_mut());
    drop(batch.append());
    let gathering = Gathering::new(&store);
    let parcels: Vec<_> = messages
        .iter()
        .map(|&(payload, qos, expires_unix_ms)| {
            let message = StoredMessage {
                topic: TopicRef::new("q").unwrap().to_topic(),
                payload: vec![payload].into(),
                qos: match qos {
                    Qos::AtMostOnce => fogmux_bus::Qos::AtMostOnce,
                    Qos::AtLeastOnce => fogmux_bus::Qos::AtLeastOnce,
                    Qos::ExactlyOnce => fogmux_bus::Qos::ExactlyOnce,
                },
                meaning: Meaning::Event,
                content_type: None,
                expires_unix_ms,
                properties: None,
                ingest_unix_ms: in_seconds(-120),
                principal: "anonymous".into(),
                client: "writer".into(),
                door: None,
            };
            let manner = Manner { qos: message.qos, retain: false, share: 0, ids: [].into_iter().collect() };
            let parcel = Parcel::new(&gathering, message).unwrap();
            drop(log.deliver(&parcel, manner, &gathering).unwrap());
            parcel
        })
        .collect();
    drop(gathering.append_published(parcels));
    store.commit(usize::MAX);
    store
}

/// Of QoS 1 nobody knows whether it was sent ([MQTT-3.3.2-5]); of QoS 2 it is sent again (§4.3.3), with DUP and its
/// identifier, whatever has expired before it.
#[test]
fn what_expired_before_the_start_is_over_and_what_is_behind_it_is_sent_again() {
    let past = Some(in_seconds(-60));
    for first in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let messages = [(b'a', first, past), (b'b', Qos::ExactlyOnce, None), (b'c', Qos::AtLeastOnce, None)];
        let store = in_flight(&messages);
        run_committing(&store, async |house: House| {
            let mut client = house.lasting("s").await;
            assert!(client.session_present);
            let skipped = usize::from(first == Qos::AtLeastOnce);
            for (number, (payload, qos, _)) in (1..).zip(messages).skip(skipped) {
                let packet = client.packet().await;
                assert_eq!(publish_of(&packet), (number, true, qos as u8), "{packet:?}");
                assert_eq!(packet.last(), Some(&payload));
            }
        });
    }
}

#[test]
fn what_expires_before_its_client_comes_back_after_a_start_is_over() {
    for elapsed_s in [1, 12] {
        let soon = Some(in_seconds(10));
        let store = in_flight(&[(b'a', Qos::AtLeastOnce, soon), (b'b', Qos::AtLeastOnce, None)]);
        run_committing(&store, async |house: House| {
            tokio::time::pause();
            tokio::time::advance(std::time::Duration::from_secs(elapsed_s)).await;
            let mut client = house.lasting("s").await;
            assert!(client.session_present);
            let expected: &[u8] = if elapsed_s > 10 { b"b" } else { b"ab" };
            for payload in expected {
                assert_eq!(client.packet().await.last(), Some(payload), "after {elapsed_s} s");
            }
            client.silence().await;
        });
    }
}
