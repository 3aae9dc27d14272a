//! UNSUBSCRIBE of a shared subscription by which many messages wait (ADR 0064).

use super::{
    ends::{HANDED_ON_IN_A_TURN, watch_handed_on},
    *,
};

#[test]
fn s3_10_4_the_messages_of_a_shared_subscription_that_is_left_go_to_others_in_portions() {
    const MESSAGES: u32 = 20_000;
    run(MqttConfig::default(), async |house: House| {
        let lasting = Connect { clean_start: false, ..connect(Version::V311, "s") };
        let mut first = house.connect(&lasting).await;
        first.subscribe("$share/g/q", Qos::AtLeastOnce).await;
        first.subscribe("own", Qos::AtLeastOnce).await;
        first.disconnect(ReasonCode::SUCCESS).await;
        let mut writer = house.client(Version::V5, "writer").await;
        for number in 0..MESSAGES {
            writer.publish(&message("q", &number.to_be_bytes(), Qos::AtLeastOnce)).await;
            if number % 100 == 0 {
                writer.publish(&message("own", &number.to_be_bytes(), Qos::AtLeastOnce)).await;
            }
        }
        let mut other = house.client(Version::V5, "other").await;
        other.subscribe("$share/g/q", Qos::AtLeastOnce).await;
        let largest = watch_handed_on(&house, u64::from(MESSAGES) - 1);
        // It takes nothing before it unsubscribes, so that all but what is in flight waits.
        let mut first = house.connect(&lasting).await;
        assert!(first.session_present);
        let mut out = Vec::new();
        first.client.unsubscribe(&["$share/g/q"], &mut out).unwrap();
        first.stream.write_all(&out).await.unwrap();
        let (mut own, mut shared, mut is_over) = (Vec::new(), Vec::new(), false);
        while !is_over || own.len() < MESSAGES as usize / 100 {
            let got = first.next(|event| match event {
                Event::Message(incoming) => {
                    Some((incoming.topic.as_str() == "own", u32::from_be_bytes(incoming.payload.try_into().unwrap())))
                }
                Event::Unsubscribed { .. } => None,
                other => panic!("{other:?}"),
            });
            match got.await {
                Some((true, number)) => own.push(number),
                Some((false, number)) => shared.push(number),
                None => is_over = true,
            }
        }
        assert!(own.iter().copied().eq((0..MESSAGES).step_by(100)), "its own messages stay, in order: {own:?}");
        let mut others = Vec::new();
        while others.len() + shared.len() < MESSAGES as usize {
            others.push(u32::from_be_bytes((&*other.message().await.payload).try_into().unwrap()));
        }
        assert!(others.is_sorted() && shared.is_sorted(), "in order");
        assert!(others.len() > MESSAGES as usize / 2, "{} of {MESSAGES} were handed on", others.len());
        others.extend(shared);
        others.sort_unstable();
        assert!(others.into_iter().eq(0..MESSAGES), "each once");
        other.nothing().await;
        first.nothing().await;
        let most = largest.get();
        assert!(most <= HANDED_ON_IN_A_TURN, "{most} messages in one turn");
    });
}

/// The numbers of the messages that come before the answer to a PINGREQ.
async fn numbers(wire: &mut Wire) -> Vec<u32> {
    let mut out = Vec::new();
    wire.client.ping(&mut out);
    wire.stream.write_all(&out).await.unwrap();
    let mut all = Vec::new();
    loop {
        let got = wire.next(|event| match event {
            Event::Message(incoming) => Some(Some(u32::from_be_bytes(incoming.payload.try_into().unwrap()))),
            Event::Subscribed { .. } | Event::Unsubscribed { .. } => Some(None),
            Event::Pong => None,
            other => panic!("{other:?}"),
        });
        match got.await {
            Some(number) => all.extend(number),
            None => return all,
        }
    }
}

/// Reads of clients until they have got so many messages together, and nothing more comes.
pub(super) async fn numbers_of_all(wires: &mut [Wire], count: usize, before: Vec<u32>) -> Vec<u32> {
    let (mut all, mut idle) = (before, 0);
    while idle < 3 {
        let known = all.len();
        for wire in &mut *wires {
            all.extend(numbers(wire).await);
        }
        idle = if all.len() == known && all.len() >= count { idle + 1 } else { 0 };
    }
    all.sort_unstable();
    all
}

/// Events that happen while the messages of a shared subscription go from the client that has left it to another.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    SubscribesAgain,
    /// And is refused, because it has as many subscriptions as it may have.
    SubscribesAgainAtItsLimit,
    LosesItsConnection,
    /// With filters of its UNSUBSCRIBE behind the shared one that had no turn yet.
    LosesItsConnectionEarly,
    EndsItsSession,
    TheOtherLeaves,
}

fn each_message_comes_once_although(meanwhile: Meanwhile) {
    const MESSAGES: u32 = 6000;
    const LIMIT: usize = 2;
    run(MqttConfig { subscriptions_max: LIMIT, ..MqttConfig::default() }, async |house: House| {
        let lasting = Connect { clean_start: false, ..connect(Version::V311, "s") };
        let mut first = house.connect(&lasting).await;
        first.subscribe("$share/g/q", Qos::AtLeastOnce).await;
        first.disconnect(ReasonCode::SUCCESS).await;
        let mut writer = house.client(Version::V5, "writer").await;
        for number in 0..MESSAGES {
            writer.publish(&message("q", &number.to_be_bytes(), Qos::AtLeastOnce)).await;
        }
        let mut other = house.client(Version::V5, "other").await;
        other.subscribe("$share/g/q", Qos::AtLeastOnce).await;
        let mut first = house.connect(&lasting).await;
        let mut out = Vec::new();
        let others = if let Meanwhile::LosesItsConnectionEarly = meanwhile { 100_000 } else { 0 };
        let filters: Vec<String> = (0..others).map(|number| format!("x/{number}")).collect();
        let filters: Vec<&str> = ["$share/g/q"].into_iter().chain(filters.iter().map(String::as_str)).collect();
        first.client.unsubscribe(&filters, &mut out).unwrap();
        let again = match meanwhile {
            Meanwhile::SubscribesAgain => &["$share/g/q"][..],
            Meanwhile::SubscribesAgainAtItsLimit => &["one", "two", "$share/g/q"],
            Meanwhile::LosesItsConnection
            | Meanwhile::LosesItsConnectionEarly
            | Meanwhile::EndsItsSession
            | Meanwhile::TheOtherLeaves => &[],
        };
        for filter in again {
            let filters = [(*filter, SubscriptionOptions::qos(Qos::AtLeastOnce))];
            first.client.subscribe(&filters, Properties::NONE, &mut out).unwrap();
        }
        first.stream.write_all(&out).await.unwrap();
        let handed_on = || house.ctx.bus().counters().handed_on.load(std::sync::atomic::Ordering::Relaxed);
        while handed_on() == 0 {
            tokio::task::yield_now().await;
        }
        let begun = handed_on();
        assert!(begun < u64::from(MESSAGES) / 2, "{begun} at once: {meanwhile:?}");
        let mut before = Vec::new();
        let wires = match meanwhile {
            Meanwhile::SubscribesAgain | Meanwhile::SubscribesAgainAtItsLimit => vec![first, other],
            Meanwhile::LosesItsConnection | Meanwhile::LosesItsConnectionEarly => {
                drop(first);
                vec![house.connect(&lasting).await, other]
            }
            Meanwhile::EndsItsSession => {
                drop(first);
                vec![house.connect(&Connect { clean_start: true, ..lasting }).await, other]
            }
            Meanwhile::TheOtherLeaves => {
                let mut third = house.client(Version::V5, "third").await;
                third.subscribe("$share/g/q", Qos::AtLeastOnce).await;
                before = numbers(&mut other).await;
                other.disconnect(ReasonCode::SUCCESS).await;
                vec![first, third]
            }
        };
        let mut wires = wires;
        let all = numbers_of_all(&mut wires, MESSAGES as usize, before).await;
        assert!(all.into_iter().eq(0..MESSAGES), "each once: {meanwhile:?}");
        if !matches!(meanwhile, Meanwhile::SubscribesAgain) {
            assert_eq!(house.ctx.bus().shared_subscriptions(), 1, "{meanwhile:?}");
        }
    });
}

#[test]
fn s4_8_2_a_message_that_is_handed_on_comes_once_whatever_happens_meanwhile() {
    use Meanwhile::{
        EndsItsSession, LosesItsConnection, LosesItsConnectionEarly, SubscribesAgain, SubscribesAgainAtItsLimit,
        TheOtherLeaves,
    };
    for meanwhile in [
        SubscribesAgain,
        SubscribesAgainAtItsLimit,
        LosesItsConnection,
        LosesItsConnectionEarly,
        EndsItsSession,
        TheOtherLeaves,
    ] {
        each_message_comes_once_although(meanwhile);
    }
}
