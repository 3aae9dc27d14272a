//! Takeovers: a connection that is displaced leaves the registry as if it had ended just before.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{sync::Arc, time::Duration};

use fogmux_bus::{
    Asked, Attached, Bus, BusConfig, Claim, FifoLimits, FifoMailbox, Forgetful, SessionKey, Sessions, Slot, Timestamp,
    WorkerId,
};

const WORKER: WorkerId = WorkerId(0);

/// How a connection gives way to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Detached,
    Displaced,
}

/// A connection, and what it says about its session before it ends.
#[derive(Clone, Copy, Debug)]
struct Step {
    asked: Asked,
    /// It changes its mind.
    changes: bool,
    ends: Ends,
}

impl Step {
    fn of(bits: usize) -> Self {
        let bit = |index: usize| bits >> index & 1 == 1;
        let asked = Asked { fresh: bit(0), transient: bit(1) };
        Self { asked, changes: bit(2), ends: if bit(3) { Ends::Detached } else { Ends::Displaced } }
    }

    /// Whether its session ends with it.
    const fn ends_session(self) -> bool {
        self.asked.transient != self.changes
    }
}

struct Registry {
    bus: Arc<Bus>,
    sessions: Sessions<FifoMailbox>,
    key: SessionKey,
}

/// The registry after an attachment.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    present: bool,
    /// It is the slot of the connection before.
    same: bool,
    sessions: usize,
    share: usize,
    away: usize,
}

impl Registry {
    fn new() -> Self {
        Self::on(Bus::new(&BusConfig::default(), Box::new(Forgetful), Timestamp::ZERO, 0))
    }

    fn on(bus: Arc<Bus>) -> Self {
        Self { bus, sessions: Sessions::new(1), key: SessionKey("device".into()) }
    }

    fn attach(&self, asked: Asked) -> Attached<FifoMailbox> {
        let make = || self.bus.slot(FifoMailbox::new(FifoLimits { messages: 8, bytes: 1 << 16 }), WORKER);
        self.sessions.attach(&self.key, &"user".into(), asked, WORKER, make).unwrap()
    }

    /// Ends a connection if it ends by itself. Returns its session if that ended.
    fn end(&self, step: Step, slot: &Arc<Slot<FifoMailbox>>, claim: Claim) -> Option<Arc<Slot<FifoMailbox>>> {
        if step.changes {
            self.sessions.set_transient(&self.key, slot, claim, step.ends_session());
        }
        let keep = if step.ends_session() { Duration::ZERO } else { Duration::from_secs(60) };
        let detach = || self.sessions.detach(&self.key, slot, claim, Some(keep), Timestamp::ZERO);
        (step.ends == Ends::Detached).then(detach).flatten()
    }
}

/// Every sequence of four connections, each of which is displaced or ends by itself.
#[test]
fn a_displaced_connection_leaves_the_same_as_one_that_ended() {
    let Registry { bus, .. } = Registry::new();
    // How the last one ends makes no difference.
    for bits in 0..1_usize << 14 {
        let steps: Vec<Step> = (0..4).map(|index| Step::of(bits >> (4 * index) & 15)).collect();
        let registry = Registry::on(Arc::clone(&bus));
        let mut before: Option<(Step, Arc<Slot<FifoMailbox>>, Claim)> = None;
        for step in &steps {
            let over = before.as_ref().and_then(|(before, slot, claim)| registry.end(*before, slot, *claim));
            let attached = registry.attach(step.asked);
            let continues = before.as_ref().is_some_and(|(before, ..)| !before.ends_session() && !step.asked.fresh);
            let same = before.as_ref().is_some_and(|(_, slot, _)| Arc::ptr_eq(slot, &attached.slot));
            let seen = Seen {
                present: attached.present,
                same,
                sessions: registry.sessions.len(),
                share: registry.sessions.largest_share(),
                away: registry.sessions.away(),
            };
            let expected = Seen { present: continues, same: continues, sessions: 1, share: 1, away: 0 };
            assert_eq!(seen, expected, "{steps:?}");
            // A session that ends is given back once, by whichever call ended it.
            let ended = over.or(attached.ended);
            let of_before = |slot| before.as_ref().is_some_and(|(_, own, _)| Arc::ptr_eq(own, slot));
            assert!(ended.as_ref().is_none_or(of_before), "{steps:?}");
            assert_eq!(ended.is_some(), before.is_some() && !continues, "{steps:?}");
            if let Some((before, slot, claim)) = &before {
                assert!(slot.with_claim(*claim, |_| ()).is_err() || before.ends == Ends::Detached, "{steps:?}");
                let continued = registry.sessions.is_continued(&registry.key, slot, *claim);
                assert_eq!(continued, continues, "{steps:?}");
                registry.sessions.end_departure(&registry.key, slot, *claim);
            }
            before = Some((*step, attached.slot, attached.claim));
        }
    }
}

/// The session of a displaced connection went on, or not, whatever happened to it later.
#[test]
fn what_became_of_a_session_is_said_of_that_takeover() {
    for (fresh, later) in [(false, true), (false, false), (true, false), (true, true)] {
        let registry = Registry::new();
        let first = registry.attach(Asked { fresh: true, transient: false });
        let second = registry.attach(Asked { fresh, transient: later });
        assert_eq!(second.present, !fresh);
        let third = registry.attach(Asked { fresh: false, transient: false });
        assert_eq!(third.present, !later);
        assert_eq!(registry.sessions.is_continued(&registry.key, &first.slot, first.claim), !fresh);
        assert_eq!(registry.sessions.is_continued(&registry.key, &second.slot, second.claim), !later);
    }
}

/// A connection without the session cannot end it.
#[test]
fn a_displaced_connection_does_not_change_the_session_of_the_next() {
    let registry = Registry::new();
    let asked = Asked { fresh: false, transient: false };
    let first = registry.attach(asked);
    let second = registry.attach(asked);
    registry.sessions.set_transient(&registry.key, &first.slot, first.claim, true);
    assert!(registry.attach(asked).present);
    drop(second);
}
