//! Sessions that outlive the process (ADR 0042), over a store in memory that loses what was not committed.

mod any_order;
mod disk;
mod refused;
mod shared;
mod wills;

use std::future::Future;

use fogmux_bus::{
    ClockSet, Payload, Publication, Publisher, SessionKey, Subscription, Timestamp, TopicRef,
    durable::{MemoryStore, Record, RecordId, Recovered, Sequence, SessionLog, SessionStore, Wanted},
};
use fogmux_mqtt::Will;

use super::*;

fn run_stored(store: &MemoryStore, test: impl AsyncFnOnce(House)) {
    run(MqttConfig { store: Some(Arc::new(store.clone())), ..MqttConfig::default() }, test);
}

/// The same while the store commits what it is given.
fn run_committing(store: &MemoryStore, test: impl AsyncFnOnce(House)) {
    run_stored(store, async |house: House| committing(store, test(house)).await);
}

/// Commits what the store is given, for as long as the work goes on.
pub(super) async fn committing<T>(store: &MemoryStore, work: impl Future<Output = T>) -> T {
    let commits = async {
        loop {
            store.commit(usize::MAX);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = commits => unreachable!("it has no end"),
    }
}

pub(super) fn lasting<'l>(list: &'l mut PropertyBuffer, id: &'l str) -> Connect<'l> {
    list.push(Property::SessionExpiryInterval(100)).unwrap();
    Connect { clean_start: false, properties: list.properties(), ..connect(Version::V5, id) }
}

impl House {
    /// A client whose session outlives its connection: the one that is there, or a new one.
    async fn lasting(&self, id: &str) -> Wire {
        self.connect(&lasting(&mut PropertyBuffer::new(), id)).await
    }
}

/// A session without a connection that has this subscription.
async fn leave_behind(house: &House, id: &str, filter: &str, qos: Qos) {
    let mut client = house.lasting(id).await;
    assert!(!client.session_present);
    client.subscribe(filter, qos).await;
    client.disconnect(ReasonCode::SUCCESS).await;
}

impl Wire {
    async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next packet as it is, which is not answered.
    async fn packet(&mut self) -> Vec<u8> {
        loop {
            if let Some(length) = self.buffer.get(1).map(|length| usize::from(*length) + 2)
                && self.buffer.len() >= length
            {
                return self.buffer.drain(..length).collect();
            }
            assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0, "closed");
        }
    }

    /// Nothing but the answer to a PINGREQ is on its way.
    async fn silence(&mut self) {
        for _ in 0..2 {
            self.write(&[0xC0, 0]).await;
            assert_eq!(self.packet().await, [0xD0, 0]);
        }
    }
}

/// The packet identifier of a short PUBLISH, its DUP flag and its QoS.
fn publish_of(packet: &[u8]) -> (u16, bool, u8) {
    assert_eq!(packet[0] & 0xF0, 0x30, "{packet:?} instead of PUBLISH");
    let at = 4 + usize::from(packet[3]);
    (u16::from_be_bytes([packet[at], packet[at + 1]]), packet[0] & 8 != 0, packet[0] >> 1 & 3)
}

/// Lets a client answer until the store has only so many records.
async fn until_left(store: &MemoryStore, client: &mut Wire, records: usize) {
    while store.crashed(usize::MAX).len() > records {
        client.nothing().await;
    }
}

fn acknowledgement(first: u8, id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    vec![first, 2, high, low]
}

#[test]
fn s4_1_what_was_acknowledged_is_there_after_a_crash() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        leave_behind(&house, "s", "q", Qos::ExactlyOnce).await;
        let mut writer = house.client(Version::V311, "writer").await;
        for (payload, qos) in [(b"1", Qos::AtLeastOnce), (b"2", Qos::ExactlyOnce), (b"3", Qos::AtMostOnce)] {
            assert_eq!(writer.publish(&message("q", payload, qos)).await, ReasonCode::SUCCESS);
        }
    });
    let store = store.crashed(0);
    run_committing(&store, async |house: House| {
        let mut again = house.lasting("s").await;
        assert!(again.session_present);
        for payload in [b"1", b"2"] {
            assert_eq!(again.message().await.payload, payload);
        }
        again.nothing().await;
        let mut writer = house.client(Version::V5, "writer").await;
        writer.publish(&message("q", b"4", Qos::ExactlyOnce)).await;
        assert_eq!(again.message().await.payload, b"4", "the subscription is there");
        // The session and its subscription.
        until_left(&store, &mut again, 2).await;
    });
}

#[test]
fn s4_3_2_puback_waits_until_the_store_has_the_message() {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        committing(&store, leave_behind(&house, "s", "q", Qos::AtLeastOnce)).await;
        let mut writer = house.client(Version::V5, "writer").await;
        writer.send(&message("q", b"1", Qos::AtLeastOnce)).await;
        writer.nothing().await;
        assert_eq!(store.crashed(0).len(), 2, "nothing of it is there, so nothing was promised");
        // To nobody that has a record.
        let mut other = house.client(Version::V5, "other").await;
        other.publish(&message("other", b"1", Qos::AtLeastOnce)).await;
        store.commit(usize::MAX);
        let reason = writer.next(|event| matches!(event, Event::Published { .. }));
        assert!(reason.await);
        assert_eq!(store.len(), 4);
    });
}

#[test]
fn s4_3_3_publish_and_pubrel_of_qos_2_wait_for_the_store() {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        let mut reader = committing(&store, async {
            let mut reader = house.lasting("s").await;
            reader.subscribe("q", Qos::ExactlyOnce).await;
            reader
        })
        .await;
        let mut writer = house.client(Version::V5, "writer").await;
        writer.send(&message("q", b"1", Qos::ExactlyOnce)).await;
        writer.nothing().await;
        reader.silence().await;
        store.commit(usize::MAX);
        let (id, dup, qos) = publish_of(&reader.packet().await);
        assert_eq!((id, dup, qos), (1, false, 2));
        reader.write(&acknowledgement(0x50, id)).await;
        reader.silence().await;
        assert!(store.waiting() > 0);
        store.commit(usize::MAX);
        assert_eq!(reader.packet().await, acknowledgement(0x62, id));
    });
    // PUBREC has come, PUBCOMP has not: PUBREL again, and no PUBLISH.
    let store = store.crashed(usize::MAX);
    run_committing(&store, async |house: House| {
        let mut reader = house.lasting("s").await;
        assert!(reader.session_present);
        assert_eq!(reader.packet().await, acknowledgement(0x62, 1));
        reader.write(&acknowledgement(0x70, 1)).await;
        reader.silence().await;
    });
    assert_eq!(store.crashed(usize::MAX).len(), 2);
}

#[test]
fn s4_4_what_may_have_been_sent_comes_again_with_its_identifier() {
    let store = MemoryStore::default();
    let ids = [1, 2, 3];
    run_committing(&store, async |house: House| {
        let mut reader = house.lasting("s").await;
        reader.subscribe("q", Qos::ExactlyOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        for (payload, qos) in [(b"1", Qos::AtLeastOnce), (b"2", Qos::ExactlyOnce), (b"3", Qos::AtLeastOnce)] {
            writer.publish(&message("q", payload, qos)).await;
        }
        for id in ids {
            let (got, dup, _) = publish_of(&reader.packet().await);
            assert_eq!((got, dup), (id, false));
        }
        reader.write(&acknowledgement(0x40, 1)).await;
        reader.silence().await;
    });
    let store = store.crashed(usize::MAX);
    run_committing(&store, async |house: House| {
        let mut reader = house.lasting("s").await;
        for id in [2, 3] {
            let (got, dup, _) = publish_of(&reader.packet().await);
            assert_eq!((got, dup), (id, true));
        }
        reader.silence().await;
    });
}

/// A record of a received identifier would make the next message with it a duplicate for ever.
#[test]
fn s4_3_3_publish_and_its_pubrel_read_at_once_leave_no_identifier() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let mut writer = house.lasting("s").await;
        let publish = [0x34, 7, 0, 1, b'q', 0, 7, 0, b'x'];
        writer.write(&[&publish[..], &acknowledgement(0x62, 7)].concat()).await;
        let mut answers = [writer.packet().await[0], writer.packet().await[0]];
        answers.sort_unstable();
        assert_eq!(answers, [0x50, 0x70]);
        writer.silence().await;
    });
    assert_eq!(store.crashed(usize::MAX).len(), 1, "the session");
}

#[test]
fn s4_3_3_a_message_of_qos_2_is_taken_once_over_a_crash() {
    let store = MemoryStore::default();
    let publish = |first| [first, 7, 0, 1, b'q', 0, 7, 0, b'x'];
    run_committing(&store, async |house: House| {
        leave_behind(&house, "reader", "q", Qos::AtLeastOnce).await;
        let mut writer = house.lasting("s").await;
        writer.write(&publish(0x34)).await;
        assert_eq!(writer.packet().await[..4], acknowledgement(0x50, 7));
    });
    let store = store.crashed(usize::MAX);
    run_committing(&store, async |house: House| {
        let mut writer = house.lasting("s").await;
        assert!(writer.session_present);
        writer.write(&publish(0x3C)).await;
        assert_eq!(writer.packet().await[..4], acknowledgement(0x50, 7));
        writer.write(&acknowledgement(0x62, 7)).await;
        assert_eq!(writer.packet().await[..4], acknowledgement(0x70, 7));
        let mut reader = house.lasting("reader").await;
        assert_eq!(reader.message().await.payload, b"x");
        reader.nothing().await;
    });
    assert_eq!(store.crashed(usize::MAX).len(), 3, "two sessions and a subscription");
}

#[test]
fn connack_waits_for_the_store_and_refuses_what_it_does_not_take() {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        let mut list = PropertyBuffer::new();
        let mut out = Vec::new();
        Client::connect(&lasting(&mut list, "s"), ClientLimits::default(), &mut out).unwrap();
        let mut stream = house.open();
        stream.write_all(&out).await.unwrap();
        while store.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        // Another client is served meanwhile.
        house.client(Version::V5, "other").await.nothing().await;
        let mut answer = Vec::new();
        assert!(futures_pending(stream.read_buf(&mut answer)).await);
        store.commit(usize::MAX);
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0);
        assert_eq!((answer[0], answer[3]), (0x20, 0));
        store.set_full(true);
        let mut list = PropertyBuffer::new();
        let refused = house.try_connect(house.open(), &lasting(&mut list, "t")).await;
        assert_eq!(refused.err(), Some(ReasonCode::QUOTA_EXCEEDED));
        let lasting = Connect { clean_start: false, ..connect(Version::V311, "t") };
        assert!(house.try_connect(house.open(), &lasting).await.is_err());
        // A session that ends with its connection needs no store.
        house.client(Version::V5, "t").await.nothing().await;
    });
}

/// Whether a future is not ready.
async fn futures_pending<F: Future>(future: F) -> bool {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[test]
fn s3_1_2_4_a_clean_start_takes_the_session_out_of_the_store() {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        committing(&store, async {
            leave_behind(&house, "s", "q", Qos::AtLeastOnce).await;
            let mut writer = house.client(Version::V5, "writer").await;
            writer.publish(&message("q", b"1", Qos::AtLeastOnce)).await;
            assert_eq!(store.crashed(usize::MAX).len(), 4);
            // It ends with its connection, so nothing but the end of the one before is committed.
            assert!(!house.client(Version::V5, "s").await.session_present);
        })
        .await;
        assert!(store.is_empty(), "CONNACK came before that");
    });
}

#[test]
fn s3_10_unsuback_waits_and_the_subscription_is_gone() {
    let store = MemoryStore::default();
    run_stored(&store, async |house: House| {
        let mut client = committing(&store, async {
            let mut client = house.lasting("s").await;
            client.subscribe("q", Qos::AtLeastOnce).await;
            client
        })
        .await;
        client.write(&[0xA2, 6, 0, 9, 0, 0, 1, b'q']).await;
        client.silence().await;
        assert_eq!(store.crashed(0).len(), 2);
        store.commit(usize::MAX);
        assert_eq!(client.packet().await, [0xB0, 4, 0, 9, 0, 0]);
        assert_eq!(store.len(), 1);
    });
}

#[test]
fn a_refused_subscription_is_none() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let mut client = house.lasting("s").await;
        store.set_full(true);
        let options = SubscriptionOptions::qos(Qos::AtLeastOnce);
        let granted = client.subscribe_with("q", options, Properties::NONE).await;
        assert_eq!(granted, ReasonCode::QUOTA_EXCEEDED);
        assert_eq!(house.ctx.bus().subscriptions(), 0);
    });
}

/// §3.1.2.5: its connection has ended with the process.
#[test]
fn s3_1_2_5_a_will_is_published_after_a_crash() {
    let store = MemoryStore::default();
    let will = Will { qos: Qos::AtLeastOnce, retain: true, topic: "w", payload: b"gone", properties: Properties::NONE };
    let mut crashed = MemoryStore::default();
    run_stored(&store, async |house: House| {
        let client = committing(&store, async {
            let mut list = PropertyBuffer::new();
            house.connect(&Connect { will: Some(will), ..lasting(&mut list, "s") }).await
        })
        .await;
        // One that goes normally leaves none.
        committing(&store, async {
            let mut list = PropertyBuffer::new();
            let will = Will { topic: "none", ..will };
            let client = house.connect(&Connect { will: Some(will), ..lasting(&mut list, "t") }).await;
            client.disconnect(ReasonCode::SUCCESS).await;
        })
        .await;
        crashed = store.crashed(usize::MAX);
        drop(client);
    });
    let store = crashed;
    run_committing(&store, async |house: House| {
        let mut reader = house.client(Version::V5, "reader").await;
        reader.subscribe("#", Qos::AtLeastOnce).await;
        let got = reader.message().await;
        assert_eq!((&*got.topic, &*got.payload), ("w", &b"gone"[..]));
        reader.nothing().await;
    });
    assert_eq!(store.crashed(usize::MAX).len(), 2, "two sessions");
}

#[test]
fn s3_8_4_retained_messages_that_were_not_acknowledged_come_again() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        let mut writer = house.client(Version::V5, "writer").await;
        let retained = Outgoing { retain: true, ..message("q", b"1", Qos::AtLeastOnce) };
        writer.publish(&retained).await;
        let mut reader = house.lasting("s").await;
        reader.write(&[0x82, 7, 0, 9, 0, 0, 1, b'q', 1]).await;
        let mut got = [reader.packet().await, reader.packet().await];
        got.sort();
        let [publish, suback] = got;
        assert_eq!((publish_of(&publish), suback[0]), ((1, false, 1), 0x90));
    });
    let store = store.crashed(usize::MAX);
    run_committing(&store, async |house: House| {
        let mut reader = house.lasting("s").await;
        let packet = reader.packet().await;
        assert_eq!((publish_of(&packet), packet[0] & 1), ((1, true, 1), 1));
    });
}

fn away_since(store: &MemoryStore) -> Vec<Option<u64>> {
    let Recovered { sessions, .. } = Recovered::load(&store.crashed(usize::MAX));
    sessions.iter().map(|session| session.away_since_unix_ms).collect()
}

/// A board without a battery hears of the time after its start.
#[test]
fn the_ends_of_sessions_follow_a_clock_that_is_set() {
    const SHIFT: u64 = 1_000_000;
    let store = MemoryStore::default();
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let since = u64::try_from(unix.as_millis()).unwrap() - 50_000;
    let mut batch = store.batch();
    let mut log = SessionLog::begin(SessionKey(Arc::from("s")), Arc::from("anonymous"), Some(100), batch.as_mut());
    log.disconnect(since, None, batch.as_mut());
    drop(batch.append());
    store.commit(usize::MAX);
    run_stored(&store, async |house: House| {
        let door = &house.ctx.door;
        let left = || door.sessions.next_expiry().since(house.ctx.now()).as_secs();
        assert!((45..=50).contains(&left()), "{} s", left());
        let before_unix_ms = house.ctx.unix_ms(Timestamp::ZERO);
        // The last is ahead: a minute remains to find that out.
        for (origin_unix_ms, expected) in
            [(before_unix_ms - 20_000, 70), (before_unix_ms + 30_000, 20), (before_unix_ms + 100_000, 60)]
        {
            door.restamp(ClockSet { before_unix_ms, origin_unix_ms }, house.ctx.now());
            assert!((expected - 5..=expected).contains(&left()), "{} s instead of {expected}", left());
        }
        // One that was left since the start keeps its time, and is stamped again.
        committing(&store, leave_behind(&house, "t", "q", Qos::AtLeastOnce)).await;
        let [restored, Some(left_at)] = away_since(&store)[..] else { panic!("two sessions") };
        assert_eq!(restored, Some(since));
        let clock = ClockSet { before_unix_ms, origin_unix_ms: before_unix_ms + SHIFT };
        door.restamp(clock, house.ctx.now());
        assert_eq!(away_since(&store), [Some(since), Some(left_at + SHIFT)]);
    });
}

/// Clients without a name share their memory by addresses, and the store has none.
#[test]
fn a_restored_session_is_in_the_account_of_its_client_again() {
    let store = MemoryStore::default();
    run_committing(&store, async |house: House| {
        leave_behind(&house, "s", "q", Qos::AtLeastOnce).await;
        let mut writer = house.client(Version::V5, "writer").await;
        writer.publish(&message("q", &[b'x'; 1000], Qos::AtLeastOnce)).await;
    });
    let store = store.crashed(usize::MAX);
    run_stored(&store, async |house: House| {
        let slot = house.ctx.door.sessions.get(&SessionKey(Arc::from("s"))).unwrap();
        let account = || slot.with(|mailbox| (Arc::clone(mailbox.owned_by()), mailbox.held().bytes));
        let (nobody, held) = account();
        assert!(held >= 1000 && nobody.used() == held, "{held} of {}", nobody.used());
        committing(&store, async {
            let mut client = house.lasting("s").await;
            client.packet().await;
        })
        .await;
        let (own, held) = account();
        assert_eq!(own.owner(), &crate::unfinished::owner(&fogmux_auth::Principal::anonymous(), LOCAL));
        assert!(held >= 1000 && own.used() == held && nobody.used() == 0, "{held} of {}", own.used());
    });
}

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
