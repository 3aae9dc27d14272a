//! Conservation: each delivery to an observer has one outcome, which is counted, or waits.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;

const EVENTS: u64 = 20;

/// The counters of outcomes.
#[derive(Debug, PartialEq, Eq)]
struct Outcomes {
    sent: u64,
    full: u64,
    gone: u64,
    overtaken: u64,
    waiting: u64,
}

impl House {
    fn outcomes(&self) -> Outcomes {
        let counters = self.ctx.bus().counters();
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let outcomes = Outcomes {
            sent: read(&counters.sent),
            full: read(&counters.dropped_full),
            gone: read(&counters.dropped_gone),
            overtaken: read(&counters.conflated),
            waiting: self.ctx.bus().memory().waiting() as u64,
        };
        let Outcomes { sent, full, gone, overtaken, waiting } = outcomes;
        let other = read(&counters.dropped_expired) + read(&counters.dropped_too_large);
        assert_eq!(read(&counters.matched), sent + full + gone + overtaken + waiting + other, "{outcomes:?}");
        outcomes
    }

    /// A client that observes a filter with Confirmable notifications, and from now on reads nothing.
    async fn deaf(&self, filter: &str) -> (Device, CallId) {
        let mut device = self.device().await;
        let queries = vec![format!("filter={filter}"), "qos=1".to_owned()];
        let id = device.start(Call { observe: true, queries, ..Call::new(Code::FETCH, "/ps") }).await;
        assert!(matches!(device.event().await, ClientEvent::Answered { observed: true, .. }));
        (device, id)
    }

    /// Waits, for turns of the door, until the outcomes are so.
    async fn until(&self, wanted: impl Fn(&Outcomes) -> bool) -> Outcomes {
        loop {
            let outcomes = self.outcomes();
            if wanted(&outcomes) {
                return outcomes;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn publish_events(&self) {
        (0..EVENTS).for_each(|number| self.publish(&format!("e/{number}"), b"event", None));
    }
}

#[test]
fn events_of_an_observer_that_is_cut_off_by_5_03_are_counted_as_dropped() {
    run(CoapConfig { observer_queue_max: 8, ..CoapConfig::default() }, true, async |house| {
        let (mut device, _) = house.deaf("e/#").await;
        house.publish_events();
        let outcomes = house.until(|outcomes| outcomes.sent + outcomes.full + outcomes.gone == EVENTS).await;
        assert_eq!(house.ctx.bus().subscriptions(), 0, "the observation has ended");
        assert_eq!((outcomes.overtaken, outcomes.waiting), (0, 0));
        let mut notified = 0;
        loop {
            match device.notification().await.code {
                Code::CONTENT => notified += 1,
                Code::SERVICE_UNAVAILABLE => break,
                other => panic!("{other:?}"),
            }
        }
        // The last notification may be replaced by the 5.03 before it arrives.
        assert!(outcomes.sent <= notified + 1, "{notified} notifications came, {outcomes:?}");
        assert!(outcomes.full >= 9, "what waited, and the one that found no room: {outcomes:?}");
    });
}

#[test]
fn events_wait_for_a_slow_observer_and_are_dropped_when_it_goes() {
    run(CoapConfig::default(), true, async |house| {
        let (mut device, id) = house.deaf("e/#").await;
        house.publish_events();
        let outcomes = house.until(|outcomes| outcomes.sent > 0).await;
        assert_eq!(outcomes.sent + outcomes.waiting, EVENTS, "{outcomes:?}");
        assert!(outcomes.waiting > 0);
        // A newer event of a topic takes the place of the one that waits.
        house.publish(&format!("e/{}", EVENTS - 1), b"newer", None);
        let outcomes = house.until(|outcomes| outcomes.overtaken == 1).await;
        let now = device.now();
        device.client.cancel(now, id, &mut device.out);
        device.flush().await;
        let after = house.until(|outcomes| outcomes.waiting == 0).await;
        assert_eq!((after.full, after.overtaken), (0, 1));
        assert_eq!(after.gone, outcomes.waiting, "{outcomes:?}, then {after:?}");
    });
}
