//! QoS 2 messages whose connection ends before they are published or before the store has them: sent again in the next
//! connection, they are no duplicates of what does not exist ([MQTT-4.3.3-10]).

mod refusals;

use std::sync::Mutex;

use fogmux_bus::{
    Completer, Completion, FifoLimits, FifoMailbox, StoreFailed, Stored, SubscribeOptions, Subscription, Topic,
};

use super::*;

/// A session that stays, and a client that keeps to nothing but what it is told to send.
struct Raw(Wire);

impl House {
    async fn raw(&self, version: Version, id: &str) -> Raw {
        let mut list = PropertyBuffer::new();
        if version.is_v5() {
            list.push(Property::SessionExpiryInterval(100)).unwrap();
            list.push(Property::RequestProblemInformation(false)).unwrap();
        }
        let properties = list.properties();
        Raw(self.connect(&Connect { clean_start: false, properties, ..connect(version, id) }).await)
    }

    /// Until no connection of a session that stays is left.
    async fn until_away(&self, sessions: usize) {
        while self.ctx.door.sessions_away() < sessions {
            tokio::task::yield_now().await;
        }
    }
}

/// A QoS 2 message of the version, whose payload is its identifier.
fn publish(version: Version, topic: &str, id: u16, retain: bool, dup: bool) -> Vec<u8> {
    let mut body = vec![0, u8::try_from(topic.len()).unwrap()];
    body.extend_from_slice(topic.as_bytes());
    body.extend_from_slice(&id.to_be_bytes());
    if version.is_v5() {
        body.push(0);
    }
    body.extend_from_slice(&id.to_be_bytes());
    let first = 0x34 | u8::from(retain) | u8::from(dup) << 3;
    [vec![first, u8::try_from(body.len()).unwrap()], body].concat()
}

impl Raw {
    async fn send(&mut self, bytes: &[u8]) {
        self.0.stream.write_all(bytes).await.unwrap();
    }

    /// The next packet; `None` at the end of the connection.
    async fn packet(&mut self) -> Option<Vec<u8>> {
        let Wire { stream, buffer, .. } = &mut self.0;
        loop {
            if let Some(length) = buffer.get(1).map(|length| usize::from(*length) + 2)
                && buffer.len() >= length
            {
                return Some(buffer.drain(..length).collect());
            }
            if stream.read_buf(buffer).await.unwrap() == 0 {
                return None;
            }
        }
    }

    /// The next packet, which is PUBREC: its identifier and reason code.
    async fn pubrec(&mut self) -> Option<(u16, ReasonCode)> {
        let packet = self.packet().await?;
        assert_eq!(packet[0], 0x50, "{packet:?} instead of PUBREC");
        Some((u16::from_be_bytes([packet[2], packet[3]]), ReasonCode(packet.get(4).copied().unwrap_or(0))))
    }

    /// Nothing is on its way: a PINGREQ is answered next, and another one. The first may be answered before a message
    /// that was read with it.
    async fn nothing(&mut self) {
        for _ in 0..2 {
            self.send(&[0xC0, 0]).await;
            assert_eq!(self.packet().await.as_deref(), Some(&[0xD0, 0][..]));
        }
    }

    async fn release(&mut self, id: u16) {
        let [high, low] = id.to_be_bytes();
        self.send(&[0x62, 2, high, low]).await;
        assert_eq!(self.packet().await.as_deref(), Some(&[0x70, 2, high, low][..]), "PUBCOMP");
    }
}

const VERSIONS: [Version; 2] = [Version::V311, Version::V5];

#[test]
fn a_message_before_a_packet_that_ends_the_connection_is_published_when_it_comes_again() {
    for version in VERSIONS {
        run(MqttConfig::default(), async |house: House| {
            let mut reader = house.client(Version::V5, "reader").await;
            reader.subscribe("t", Qos::AtMostOnce).await;
            let mut device = house.raw(version, "device").await;
            device.0.subscribe("in", Qos::AtLeastOnce).await;
            house.client(Version::V5, "writer").await.send(&message("in", b"x", Qos::AtLeastOnce)).await;
            let came = device.packet().await.unwrap();
            assert_eq!((came[0], &came[4..6]), (0x32, &b"in"[..]));
            // PUBCOMP for a message of QoS 1 breaks the protocol.
            let (message, again) = (publish(version, "t", 7, false, false), publish(version, "t", 7, false, true));
            device.send(&[&message[..], &[0x70, 2, came[6], came[7]]].concat()).await;
            while let Some(last) = device.packet().await {
                assert_eq!(last[0], 0xE0, "{last:?} instead of DISCONNECT");
            }
            let mut device = house.raw(version, "device").await;
            assert_eq!(device.packet().await.unwrap()[0] & 0xF7, 0x32, "the unacknowledged one");
            device.send(&again).await;
            assert_eq!(device.pubrec().await, Some((7, ReasonCode::SUCCESS)));
            assert_eq!(reader.message().await.payload, [0, 7]);
            device.release(7).await;
            reader.nothing().await;
        });
    }
}

/// 3.1.1 has no Receive Maximum. PUBREL comes behind the messages, so not to read these would be to wait for ever.
#[test]
fn a_client_of_3_1_1_may_send_as_many_messages_as_there_are_identifiers() {
    const COUNT: u16 = 1000;
    run(MqttConfig { receive_maximum: 2, ..MqttConfig::default() }, async |house: House| {
        let mut reader = house.client(Version::V5, "reader").await;
        reader.subscribe("t", Qos::AtMostOnce).await;
        let mut device = house.raw(Version::V311, "device").await;
        for id in 1..=COUNT {
            device.send(&publish(Version::V311, "t", id, false, false)).await;
            assert_eq!(reader.message().await.payload, id.to_be_bytes());
        }
        for id in 1..=COUNT {
            assert_eq!(device.pubrec().await, Some((id, ReasonCode::SUCCESS)));
        }
        assert!(house.ctx.bus().memory().used() >= 2 * usize::from(COUNT), "they are counted as memory");
        for id in 1..=COUNT {
            device.release(id).await;
        }
        assert_eq!(house.ctx.bus().memory().used(), 0);
    });
}

/// The commit of a topic that begins with `w` is written later; that of any other topic is refused.
#[derive(Clone, Default)]
struct Later(Arc<Mutex<Arc<Completer>>>);

impl Later {
    fn complete(&self, result: Result<(), StoreFailed>) {
        std::mem::take(&mut *self.0.lock().unwrap()).complete(result);
    }
}

impl RetainedStore for Later {
    fn put(&self, one: &Arc<fogmux_bus::Message>, _: Option<u64>, _: Option<&Arc<fogmux_bus::Message>>) -> Completion {
        self.pending(&one.topic)
    }

    fn remove(&self, topic: &Topic, _: Option<&Arc<fogmux_bus::Message>>) -> Completion {
        self.pending(topic)
    }

    fn pending(&self, topic: &str) -> Completion {
        if topic.starts_with('w') {
            Completion::Waiting(Arc::clone(&self.0.lock().unwrap()))
        } else {
            Completion::Failed
        }
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}
}

fn run_later(test: impl AsyncFnOnce(House, Later)) {
    let later = Later::default();
    run_on(Box::new(later.clone()), MqttConfig::default(), Rules::default(), async |house| test(house, later).await);
}

/// How the first connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    /// Before the next one comes.
    Before,
    /// When the next one takes the session over.
    TakenOver,
    /// Not at all: the message comes again on the same one.
    Not,
}

#[test]
fn a_repeat_waits_for_the_store_as_the_first_did() {
    for (version, ends) in VERSIONS.into_iter().flat_map(|v| [Ends::Before, Ends::TakenOver, Ends::Not].map(|e| (v, e)))
    {
        run_later(async |house, store| {
            let mut reader = house.client(Version::V5, "reader").await;
            reader.subscribe("w", Qos::AtMostOnce).await;
            let mut first = house.raw(version, "device").await;
            first.send(&publish(version, "w", 1, true, false)).await;
            assert_eq!(reader.message().await.payload, [0, 1]);
            first.nothing().await;
            let mut device = again(&house, version, first, ends).await;
            device.send(&publish(version, "w", 1, true, true)).await;
            device.nothing().await;
            // And the one after that.
            let mut device = again(&house, version, device, ends).await;
            device.send(&publish(version, "w", 1, true, true)).await;
            device.nothing().await;
            store.complete(Ok(()));
            assert_eq!(device.pubrec().await, Some((1, ReasonCode::SUCCESS)), "{version:?} {ends:?}");
            if ends == Ends::Not {
                let again = [device.pubrec().await, device.pubrec().await];
                assert_eq!(again, [Some((1, ReasonCode::SUCCESS)); 2]);
            }
            device.release(1).await;
            reader.nothing().await;
            // The identifier is free.
            device.send(&publish(version, "w", 1, true, false)).await;
            assert_eq!(reader.message().await.payload, [0, 1]);
            device.nothing().await;
            store.complete(Ok(()));
            assert_eq!(device.pubrec().await, Some((1, ReasonCode::SUCCESS)));
        });
    }
}

async fn again(house: &House, version: Version, before: Raw, ends: Ends) -> Raw {
    match ends {
        Ends::Not => return before,
        Ends::Before => {
            drop(before);
            house.until_away(1).await;
        }
        Ends::TakenOver => {
            let next = house.raw(version, "device").await;
            assert!(next.0.session_present);
            return next;
        }
    }
    let next = house.raw(version, "device").await;
    assert!(next.0.session_present);
    next
}

/// The next connection goes on after a while. What the one before it has still to publish is not acknowledged by then.
#[test]
fn a_repeat_waits_for_a_displaced_connection_that_takes_longer_than_the_next_one_waits() {
    const SET_ASIDE: u16 = 60;
    for version in VERSIONS {
        for topic in ["no", "wide"] {
            run_later(async |house, _| {
                tokio::time::pause();
                let (bus, wide) = (house.ctx.bus(), Subscription::parse("wide").unwrap());
                let limits = FifoLimits { messages: 100, bytes: 1 << 20 };
                let slots: Vec<_> = (0..17_000).map(|_| bus.slot(FifoMailbox::new(limits), WorkerId(0))).collect();
                for slot in &slots {
                    bus.subscribe(slot, &wide, SubscribeOptions::default()).unwrap();
                }
                let mut warm = house.raw(Version::V5, "warm").await;
                let both = [("wide", 1), ("no", 2)].map(|(to, id)| publish(Version::V5, to, id, id == 2, false));
                warm.send(&both.concat()).await;
                assert_eq!(warm.pubrec().await, Some((1, ReasonCode::SUCCESS)));
                let counted = || bus.counters().published.load(std::sync::atomic::Ordering::Relaxed);
                let before = counted();
                let published = || counted() - before;
                let mut first = house.raw(version, "device").await;
                let mut batch: Vec<u8> =
                    (10..10 + SET_ASIDE).flat_map(|id| publish(version, "wide", id, false, false)).collect();
                batch.extend(publish(version, topic, 2, topic == "no", false));
                first.send(&batch).await;
                while published() == 0 {
                    tokio::task::yield_now().await;
                }
                let (next, ()) = tokio::join!(house.raw(version, "device"), async {
                    // Not before the next connection waits.
                    tokio::task::yield_now().await;
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                    tokio::time::advance(Duration::from_secs(4)).await;
                });
                let mut device = next;
                assert!(device.0.session_present);
                assert!(published() < u64::from(SET_ASIDE), "the first connection still publishes");
                device.send(&publish(version, topic, 2, topic == "no", true)).await;
                let outcome = device.pubrec().await;
                assert!(published() > u64::from(SET_ASIDE), "told {outcome:?} before the message is published");
                let refused = version.is_v5().then_some((2, ReasonCode::QUOTA_EXCEEDED));
                let taken = Some((2, ReasonCode::SUCCESS));
                assert_eq!(outcome, if topic == "no" { refused } else { taken }, "{version:?}");
            });
        }
    }
}
