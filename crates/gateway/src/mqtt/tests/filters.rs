//! SUBSCRIBE and UNSUBSCRIBE with very many filters: others have their turn in between.

use fogmux_mqtt::{PacketId, Subscribe, SubscribeEntries};

use super::*;

const FILTERS: usize = 10_000;
/// Filters that may be handled between two turns of another client: a portion, and what is left of the one before.
const PORTION: usize = 512;

/// Filters of which every tenth has too many levels, with every QoS.
fn filters() -> Vec<(String, SubscriptionOptions)> {
    let too_deep = "/".repeat(250);
    let filter = |number: usize| if number % 10 == 9 { format!("{number}{too_deep}") } else { format!("f/{number}") };
    (0..FILTERS).map(|number| (filter(number), SubscriptionOptions::qos(ALL_QOS[number % 3]))).collect()
}

fn subscribe_all(wire: &mut Wire, filters: &[(String, SubscriptionOptions)]) -> Vec<u8> {
    let filters: Vec<_> = filters.iter().map(|(filter, options)| (&**filter, *options)).collect();
    let mut out = Vec::new();
    wire.client.subscribe(&filters, Properties::NONE, &mut out).unwrap();
    out
}

async fn codes(wire: &mut Wire) -> Vec<u8> {
    wire.next(|event| match event {
        Event::Subscribed { codes, .. } | Event::Unsubscribed { codes, .. } => {
            codes.iter().map(|code| code.0).collect()
        }
        other => panic!("{other:?}"),
    })
    .await
}

/// Waits for `done` while a neighbour sends one PINGREQ after the other. Returns its turns, and by how much the number
/// of subscriptions changed between two of them at most.
async fn beside<T>(house: &House, neighbour: &mut Wire, done: impl Future<Output = T>) -> (T, usize, usize) {
    let (mut turns, mut most) = (0, 0);
    let mut before = house.ctx.bus().subscriptions();
    let pings = async {
        loop {
            neighbour.nothing().await;
            let now = house.ctx.bus().subscriptions();
            most = most.max(now.abs_diff(before));
            (turns, before) = (turns + 1, now);
        }
    };
    let done = tokio::select! {
        biased;
        never = pings => never,
        done = done => done,
    };
    (done, turns, most)
}

#[test]
fn s3_8_4_6_ten_thousand_filters_are_handled_in_portions_and_answered_in_order() {
    run(MqttConfig::default(), async |house: House| {
        let mut neighbour = house.client(Version::V5, "neighbour").await;
        let mut many = house.client(Version::V5, "many").await;
        let filters = filters();
        let out = subscribe_all(&mut many, &filters);
        many.stream.write_all(&out).await.unwrap();
        let (answer, turns, most) = beside(&house, &mut neighbour, codes(&mut many)).await;
        let wanted = |(number, (_, options)): (usize, &(String, SubscriptionOptions))| {
            if number % 10 == 9 { ReasonCode::TOPIC_FILTER_INVALID.0 } else { options.qos.bits() }
        };
        assert!(answer.into_iter().eq(filters.iter().enumerate().map(wanted)), "one code for each filter, in order");
        assert_eq!(house.ctx.bus().subscriptions(), FILTERS / 10 * 9);
        assert!(most <= PORTION, "{most} subscriptions in one turn, {turns} turns of the neighbour");
        assert!(turns >= FILTERS / PORTION, "{turns} turns of the neighbour");

        let filters: Vec<_> = filters.iter().map(|(filter, _)| &**filter).collect();
        let mut out = Vec::new();
        many.client.unsubscribe(&filters, &mut out).unwrap();
        many.stream.write_all(&out).await.unwrap();
        let (answer, turns, most) = beside(&house, &mut neighbour, codes(&mut many)).await;
        let invalid = ReasonCode::TOPIC_FILTER_INVALID.0;
        assert!(answer.into_iter().eq((0..FILTERS).map(|number| if number % 10 == 9 { invalid } else { 0 })));
        assert_eq!(house.ctx.bus().subscriptions(), 0);
        assert!(most <= PORTION, "{most} subscriptions in one turn, {turns} turns of the neighbour");
    });
}

#[test]
fn many_packets_with_few_filters_take_turns_too() {
    const PACKETS: u16 = 4000;
    run(MqttConfig::default(), async |house: House| {
        let mut neighbour = house.client(Version::V5, "neighbour").await;
        let mut many = house.client(Version::V311, "many").await;
        let mut out = Vec::new();
        for number in 1..=PACKETS {
            let entries = [(&*number.to_string(), SubscriptionOptions::default())];
            let (packet_id, entries) = (PacketId::new(number).unwrap(), SubscribeEntries::new(&entries));
            let subscribe = Subscribe { packet_id, properties: Properties::NONE, entries };
            Packet::Subscribe(subscribe).encode(Version::V311, &mut out).unwrap();
        }
        let sent = async {
            many.stream.write_all(&out).await.unwrap();
            for number in 1..=PACKETS {
                let mut suback = [0; 5];
                many.stream.read_exact(&mut suback).await.unwrap();
                let [high, low] = number.to_be_bytes();
                assert_eq!(suback, [0x90, 3, high, low, 0]);
            }
        };
        let ((), turns, most) = beside(&house, &mut neighbour, sent).await;
        assert!(most <= PORTION, "{most} subscriptions in one turn, {turns} turns of the neighbour");
    });
}

#[test]
fn what_comes_behind_many_filters_waits_for_them() {
    run(MqttConfig::default(), async |house: House| {
        let mut many = house.client(Version::V5, "many").await;
        let filters = filters();
        let mut out = subscribe_all(&mut many, &filters);
        many.client.publish(&message("f/9998", b"x", Qos::AtMostOnce), &mut out).unwrap();
        many.client.ping(&mut out);
        many.stream.write_all(&out).await.unwrap();
        assert_eq!(codes(&mut many).await.len(), FILTERS);
        let mut seen = Vec::new();
        while seen.len() < 2 {
            seen.push(many.next(|event| matches!(event, Event::Message(_))).await);
        }
        assert!(seen.contains(&true), "its own message comes back by the last of its subscriptions");
    });
}

#[test]
fn s4_13_1_a_malformed_filter_behind_many_makes_the_packet_have_no_effect() {
    run(MqttConfig::default(), async |house: House| {
        let mut many = house.client(Version::V5, "many").await;
        let mut filters = filters();
        filters.last_mut().unwrap().0 = "a/#/b".into();
        let out = subscribe_all(&mut many, &filters);
        many.stream.write_all(&out).await.unwrap();
        assert_eq!(many.disconnected().await, ReasonCode::MALFORMED_PACKET);
        assert_eq!(house.ctx.bus().subscriptions(), 0);
    });
}

#[test]
fn a_session_with_very_many_subscriptions_is_resumed_and_ended_in_portions() {
    run(MqttConfig::default(), async |house: House| {
        let mut neighbour = house.client(Version::V5, "neighbour").await;
        let mut list = PropertyBuffer::new();
        list.push(Property::SessionExpiryInterval(60)).unwrap();
        let connect = Connect { clean_start: false, properties: list.properties(), ..connect(Version::V5, "many") };
        let mut many = house.connect(&connect).await;
        let out = subscribe_all(&mut many, &filters());
        many.stream.write_all(&out).await.unwrap();
        codes(&mut many).await;
        drop(many);
        let (resumed, _, most) = beside(&house, &mut neighbour, house.connect(&connect)).await;
        assert!(resumed.session_present);
        assert_eq!(most, 0, "subscriptions stay where they are");
        let fresh = Connect { clean_start: true, ..connect };
        let (_, turns, most) = beside(&house, &mut neighbour, house.connect(&fresh)).await;
        assert_eq!(house.ctx.bus().subscriptions(), 0);
        // Some at once, the others in portions.
        assert!(most <= PORTION + PORTION / 2, "{most} subscriptions in one turn, {turns} turns of the neighbour");
    });
}
