//! Sessions that outlive the process (ADR 0042), over a store in memory that loses what was not committed.

mod any_order;
mod asleep;
mod disk;
mod held;
mod marks;
mod over;
mod refused;
mod sessions;
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
    // Messages leave memory at once when their client is away, and marks are moved for each few of them.
    let store = Some(Arc::new(store.clone()) as Arc<dyn SessionStore>);
    run(MqttConfig { store, queue_memory_bytes_max: 0, mark_messages: 1, ..MqttConfig::default() }, test);
}

/// The same while the store commits what it is given, and holds what it may hold for a turn.
fn run_committing(store: &MemoryStore, test: impl AsyncFnOnce(House)) {
    store.set_holding(true);
    let keep = || {
        store.release(usize::MAX);
        store.commit(usize::MAX);
    };
    run_stored(store, async |house: House| keeping(keep, test(house)).await);
}

/// Commits what the store is given, for as long as the work goes on.
pub(super) async fn committing<T>(store: &MemoryStore, work: impl Future<Output = T>) -> T {
    keeping(|| store.commit(usize::MAX), work).await
}

async fn keeping<T>(keep: impl Fn(), work: impl Future<Output = T>) -> T {
    let keeps = async {
        loop {
            keep();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = keeps => unreachable!("it has no end"),
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
