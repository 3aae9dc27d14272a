//! The rate of log lines about refused actions. Pure: the time is an argument.
//!
//! Each named principal has a share of the lines of a minute, and its first line is written however many others have
//! had; all anonymous clients have one share together, because they have any number of addresses. What is not written
//! is counted, and the next line about the principal carries the count.

use std::collections::{HashMap, HashSet};

use super::lines::{Suppressed, WINDOW_MS};

/// Named principals remembered at most.
pub(super) const PRINCIPALS_MAX: usize = 4096;
/// Refusals remembered of each, which are not said again; beyond them the rate alone bounds the lines.
pub(super) const OF_PRINCIPAL_MAX: usize = 64;
/// The same of all anonymous clients together.
const OF_ANONYMOUS_MAX: usize = 4096;
/// After this a refusal may be said again.
pub(super) const QUIET_MS: u64 = 24 * 3600 * 1000;

/// How many lines about refused actions may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionLimits {
    /// Lines a minute in all, beside the first of each named principal.
    pub per_minute: u32,
    /// Lines a minute for one principal; all anonymous clients are one.
    pub per_principal: u32,
}

impl Default for ActionLimits {
    fn default() -> Self {
        Self { per_minute: 600, per_principal: 10 }
    }
}

/// The refused actions of late.
#[derive(Debug, Default)]
pub(super) struct Actions {
    limits: ActionLimits,
    since_ms: u64,
    window: u64,
    written: u32,
    anonymous: OfPrincipal,
    named: HashMap<u64, OfPrincipal>,
    /// Of principals that are forgotten.
    others: u64,
    suppressed: u64,
}

#[derive(Debug, Default)]
struct OfPrincipal {
    said: HashSet<u64>,
    /// The minute of the last refusal.
    window: u64,
    written: u32,
    suppressed: u64,
}

impl Actions {
    pub(super) fn configure(&mut self, limits: ActionLimits) {
        self.limits = limits;
    }

    /// Refusals that were not written since the start.
    pub(super) fn suppressed(&self) -> u64 {
        self.suppressed
    }

    /// Lets everything be said again: the rules have changed.
    pub(super) fn forget(&mut self) {
        self.anonymous.said.clear();
        self.named.values_mut().for_each(|known| known.said.clear());
    }

    /// Whether the refusal `what` of a principal is written now; `None` stands for all anonymous clients.
    pub(super) fn admit(&mut self, now_ms: u64, whose: Option<u64>, what: u64) -> Option<Suppressed> {
        self.turn(now_ms);
        if let Some(whose) = whose {
            self.make_room(whose);
        }
        let Self { limits, window, .. } = *self;
        let (known, said_max) = match whose {
            Some(whose) => (self.named.entry(whose).or_default(), OF_PRINCIPAL_MAX),
            None => (&mut self.anonymous, OF_ANONYMOUS_MAX),
        };
        if known.window != window {
            (known.window, known.written) = (window, 0);
        }
        let first = whose.is_some() && known.written == 0 && limits.per_minute > 0;
        let has_room = known.written < limits.per_principal && (first || self.written < limits.per_minute);
        if !has_room || known.said.contains(&what) {
            self.suppressed += 1;
            known.suppressed += 1;
            return None;
        }
        if known.said.len() >= said_max {
            known.said.clear();
        }
        known.said.insert(what);
        known.written += 1;
        self.written = self.written.saturating_add(1);
        Some(Suppressed { same: std::mem::take(&mut known.suppressed), others: std::mem::take(&mut self.others) })
    }

    /// Begins a new minute, and perhaps a new day.
    fn turn(&mut self, now_ms: u64) {
        let window = now_ms / WINDOW_MS;
        if window != self.window {
            (self.window, self.written) = (window, 0);
        }
        if now_ms.saturating_sub(self.since_ms) >= QUIET_MS {
            self.since_ms = now_ms;
            self.forget();
        }
    }

    /// Forgets the quarter of the principals that was refused nothing for longest, if a new one would find no room.
    fn make_room(&mut self, whose: u64) {
        if self.named.len() < PRINCIPALS_MAX || self.named.contains_key(&whose) {
            return;
        }
        let mut windows: Vec<u64> = self.named.values().map(|known| known.window).collect();
        windows.sort_unstable();
        let oldest = windows.get(windows.len() / 4).copied().unwrap_or_default();
        let (mut room, others) = (PRINCIPALS_MAX / 4, &mut self.others);
        self.named.retain(|_, known| {
            let goes = room > 0 && known.window <= oldest;
            (room, *others) = if goes { (room - 1, *others + known.suppressed) } else { (room, *others) };
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_in_a_line_or_in_a_count() {
        for principals in [1, 2, 97, 1000, 10_000] {
            for refusals in [1, 2, 63, 64, 65, 1000] {
                let mut actions = Actions::default();
                let (mut written, mut counted, events) = (0, 0, 20_000_u64);
                for event in 0..events {
                    let whose = (event % (principals + 1)).checked_sub(1);
                    if let Some(suppressed) = actions.admit(event * 40, whose, event % refusals) {
                        written += 1;
                        counted += suppressed.same + suppressed.others;
                    }
                    assert!(actions.named.len() <= PRINCIPALS_MAX);
                }
                assert_eq!(written + actions.suppressed(), events);
                let waiting: u64 = actions.named.values().map(|known| known.suppressed).sum();
                assert_eq!(counted + waiting + actions.anonymous.suppressed + actions.others, actions.suppressed());
            }
        }
    }

    #[test]
    fn nobody_hides_the_refusals_of_another() {
        let mut actions = Actions::default();
        // Any number of anonymous addresses, and any number of named principals.
        let anonymous = (0..100_000).filter(|what| actions.admit(0, None, *what).is_some()).count();
        assert_eq!(anonymous, 10);
        assert_eq!((0..1000).filter(|what| actions.admit(0, Some(0), *what).is_some()).count(), 10);
        for whose in 1..10_000 {
            assert!(actions.admit(0, Some(whose), 0).is_some(), "{whose}");
        }
        assert!(actions.admit(0, Some(9_999), 1).is_none(), "the second line finds no room");
        assert!(actions.admit(WINDOW_MS, Some(9_999), 1).is_some());
        actions.configure(ActionLimits { per_minute: 0, per_principal: 10 });
        assert!(actions.admit(2 * WINDOW_MS, Some(9_999), 2).is_none());
    }

    #[test]
    fn a_device_that_asks_for_ever_is_said_once_a_day() {
        let mut actions = Actions::default();
        let asks = |actions: &mut Actions, what: u64| {
            (0..QUIET_MS / 1000).filter(|second| actions.admit(second * 1000, Some(1), second % what).is_some()).count()
        };
        assert_eq!(asks(&mut actions, 1), 1);
        let mut actions = Actions::default();
        assert_eq!(asks(&mut actions, 64), 64);
    }
}
