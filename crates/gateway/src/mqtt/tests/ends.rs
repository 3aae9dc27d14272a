//! The end of a session with very many subscriptions, turn by turn (ADR 0020).

use std::cell::Cell;

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
