//! The end of a session with very many subscriptions, turn by turn (ADR 0020).

use std::{cell::Cell, sync::atomic::Ordering::Relaxed};

use super::*;

/// Subscriptions that may be removed between two looks of another task: those of two turns, and those that are removed
/// before the task for them begins.
const IN_A_TURN: usize = 1280;

#[test]
fn a_clean_start_removes_the_subscriptions_of_the_session_before_in_portions() {
    const FILTERS: usize = 10_000;
    run(MqttConfig::default(), async |house: House| {
        let lasting = Connect { clean_start: false, ..connect(Version::V311, "s") };
        let mut first = house.connect(&lasting).await;
        let filters: Vec<String> = (0..FILTERS).map(|number| format!("f/{number}/+")).collect();
        for some in filters.chunks(500) {
            let list: Vec<_> =
                some.iter().map(|filter| (filter.as_str(), SubscriptionOptions::qos(Qos::AtMostOnce))).collect();
            let mut out = Vec::new();
            first.client.subscribe(&list, Properties::NONE, &mut out).unwrap();
            first.stream.write_all(&out).await.unwrap();
            first.next(|event| assert!(matches!(event, Event::Subscribed { .. }), "{event:?}")).await;
        }
        first.disconnect(ReasonCode::SUCCESS).await;
        assert_eq!(house.ctx.bus().subscriptions(), FILTERS);
        let (ctx, largest) = (Rc::clone(&house.ctx), Rc::new(Cell::new((0, 0))));
        let seen = Rc::clone(&largest);
        tokio::task::spawn_local(async move {
            let mut before = FILTERS;
            while before > 0 {
                tokio::task::yield_now().await;
                let left = ctx.bus().subscriptions();
                let (most, turns) = seen.get();
                seen.set((most.max(before - left), turns + usize::from(left < before)));
                before = left;
            }
        });
        let mut fresh = house.connect(&Connect { clean_start: true, ..lasting }).await;
        assert_eq!((fresh.session_present, house.ctx.bus().subscriptions()), (false, 0), "CONNACK waits for the end");
        fresh.nothing().await;
        let (most, turns) = largest.get();
        println!("{turns} turns, {most} subscriptions in the largest");
        assert!(most <= IN_A_TURN && turns >= FILTERS / IN_A_TURN, "{most} in one turn, {turns} turns");
    });
}

/// Messages that may be handed on between two looks of another task: those of two turns, and those that are handed on
/// before the task for them begins.
pub(super) const HANDED_ON_IN_A_TURN: u64 = 3 * 1024;

#[test]
fn s4_8_2_the_messages_of_shared_subscriptions_go_to_others_in_portions() {
    const MESSAGES: u32 = 20_000;
    run(MqttConfig::default(), async |house: House| {
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
        let largest = watch_handed_on(&house, u64::from(MESSAGES));
        let fresh = house.connect(&Connect { clean_start: true, ..lasting }).await;
        assert!(!fresh.session_present);
        for number in 0..MESSAGES {
            assert_eq!(other.message().await.payload, number.to_be_bytes(), "in order, each once");
        }
        other.nothing().await;
        let most = largest.get();
        assert!(most <= HANDED_ON_IN_A_TURN, "{most} messages in one turn");
    });
}

/// The largest number of messages that were handed on between two turns of another task, until all of `count` are.
pub(super) fn watch_handed_on(house: &House, count: u64) -> Rc<Cell<u64>> {
    let (ctx, largest) = (Rc::clone(&house.ctx), Rc::new(Cell::new(0)));
    let seen = Rc::clone(&largest);
    tokio::task::spawn_local(async move {
        let mut before = 0;
        while before < count {
            tokio::task::yield_now().await;
            let now = ctx.bus().counters().handed_on.load(Relaxed);
            seen.set(seen.get().max(now - before));
            before = now;
        }
    });
    largest
}
