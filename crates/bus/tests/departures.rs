//! Departures: a connection that takes a session over learns when nothing more comes from those before it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use fogmux_bus::{
    Asked, Attached, Bus, BusConfig, Claim, FifoLimits, FifoMailbox, Forgetful, SessionKey, Sessions, Slot, Timestamp,
    WorkerId,
};

const WORKER: WorkerId = WorkerId(0);

struct Registry {
    bus: Arc<Bus>,
    sessions: Sessions<FifoMailbox>,
    key: SessionKey,
    principal: Arc<str>,
}

/// A connection, and whether its departure is over.
struct Connection {
    slot: Arc<Slot<FifoMailbox>>,
    claim: Claim,
    gone: bool,
}

impl Registry {
    fn new() -> Self {
        let bus = Bus::new(&BusConfig::default(), Box::new(Forgetful), Timestamp::ZERO, 0);
        Self { bus, sessions: Sessions::new(8), key: SessionKey("device".into()), principal: "user".into() }
    }

    fn attach(&self, fresh: bool) -> (Connection, bool) {
        let make = || self.bus.slot(FifoMailbox::new(FifoLimits { messages: 8, bytes: 1 << 16 }), WORKER);
        let asked = Asked { fresh, transient: false };
        let attached = self.sessions.attach(&self.key, &self.principal, asked, WORKER, make).unwrap();
        let Attached { slot, claim, behind, .. } = attached;
        (Connection { slot, claim, gone: false }, behind)
    }

    fn waits(&self, connection: &Connection) -> bool {
        let cx = Context::from_waker(Waker::noop());
        self.sessions.poll_departures(&self.key, &connection.slot, connection.claim, &cx).is_pending()
    }

    fn end(&self, connection: &mut Connection) {
        connection.gone = true;
        self.sessions.end_departure(&self.key, &connection.slot, connection.claim);
    }

    fn detach(&self, connection: &Connection, keep: Duration) {
        let Connection { slot, claim, .. } = connection;
        self.sessions.detach(&self.key, slot, *claim, Some(keep), Timestamp::ZERO);
    }
}

#[test]
fn nobody_waits_unless_a_connection_is_displaced() {
    let registry = Registry::new();
    let (first, behind) = registry.attach(false);
    assert!(!behind && !registry.waits(&first));
    registry.detach(&first, Duration::from_secs(1));
    let (second, behind) = registry.attach(false);
    assert!(!behind && !registry.waits(&second));
    registry.detach(&second, Duration::ZERO);
    let (third, behind) = registry.attach(true);
    assert!(!behind && !registry.waits(&third));
    assert_eq!(registry.sessions.departing(), 0);
}

#[test]
fn each_connection_waits_for_all_before_it_in_any_order() {
    // Five connections, with continued and fresh sessions, that depart in every order.
    for fresh in 0..1_u8 << 4 {
        for order in 0..24 {
            let registry = Registry::new();
            let mut all = vec![registry.attach(true).0];
            for bit in 0..4 {
                let (next, behind) = registry.attach(fresh >> bit & 1 == 1);
                assert!(behind);
                all.push(next);
            }
            let mut left = vec![0, 1, 2, 3];
            let mut order = order;
            for places in (1..=4).rev() {
                let gone = left.remove(order % places);
                order /= places;
                registry.end(&mut all[gone]);
                for (index, connection) in all.iter().enumerate().filter(|(_, connection)| !connection.gone) {
                    let expected = all[..index].iter().any(|before| !before.gone);
                    assert_eq!(registry.waits(connection), expected, "fresh {fresh:b}, connection {index}");
                }
            }
            assert_eq!(registry.sessions.departing(), 0);
        }
    }
}

#[test]
fn a_connection_that_detached_may_still_depart() {
    for keep in [Duration::ZERO, Duration::from_secs(1)] {
        let registry = Registry::new();
        let (mut first, _) = registry.attach(false);
        registry.sessions.begin_departure(&registry.key, &first.slot, first.claim);
        registry.detach(&first, keep);
        let (second, behind) = registry.attach(false);
        assert!(behind && registry.waits(&second));
        registry.end(&mut first);
        assert!(!registry.waits(&second));
        assert_eq!(registry.sessions.departing(), 0);
    }
}

#[test]
fn a_will_departs_and_what_takes_too_long_is_forgotten() {
    let registry = Registry::new();
    let (mut first, _) = registry.attach(false);
    let will = registry.sessions.depart(&registry.key);
    let (second, _) = registry.attach(false);
    let (third, _) = registry.attach(false);
    registry.end(&mut first);
    assert!(registry.waits(&second) && registry.waits(&third));
    registry.sessions.departed(&registry.key, &will);
    assert!(!registry.waits(&second) && registry.waits(&third));
    registry.sessions.forget_departures(&registry.key, &third.slot, third.claim);
    assert!(!registry.waits(&third));
    assert_eq!(registry.sessions.departing(), 0);
}
