//! Which refusals were said already, so that each is logged once: a device that asks again every second fills no log.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::{Mutex, PoisonError},
};

use crate::{
    acl::{Action, Decision, Door},
    principal::Principal,
};

/// Principals remembered at most, and refusals of each; what comes beyond is not logged until [`QUIET_MS`] have passed.
const PRINCIPALS_MAX: usize = 4096;
const OF_PRINCIPAL_MAX: usize = 32;
/// After this everything is forgotten, and may be said again.
const QUIET_MS: u64 = 24 * 3600 * 1000;

/// The refusals of a day.
#[derive(Debug, Default)]
pub struct Refusals {
    hasher: RandomState,
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    since_ms: u64,
    by_principal: HashMap<u64, HashSet<u64>>,
}

impl Refusals {
    /// Whether this refusal is new and to be logged: it is told apart by principal, door and action, and by the rule
    /// that refused or – where no rule spoke – by the topic.
    pub fn note(
        &self,
        principal: &Principal,
        door: Door,
        action: Action,
        topic: &str,
        decision: &Decision,
        now_ms: u64,
    ) -> bool {
        let whose = self.hasher.hash_one((&principal.name, principal.anonymous));
        let rule = decision.rule.as_ref().map(|rule| (rule.file(), rule.line()));
        let what = match rule {
            Some(rule) => self.hasher.hash_one((door, action, rule)),
            None => self.hasher.hash_one((door, action, topic)),
        };
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ms.saturating_sub(said.since_ms) >= QUIET_MS {
            *said = Said { since_ms: now_ms, ..Said::default() };
        }
        let room = said.by_principal.len() < PRINCIPALS_MAX;
        match said.by_principal.get_mut(&whose) {
            Some(known) => known.len() < OF_PRINCIPAL_MAX && known.insert(what),
            None if room => said.by_principal.entry(whose).or_default().insert(what),
            None => false,
        }
    }

    /// Forgets everything: the rules have changed.
    pub fn forget(&self) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).by_principal.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_new_once_and_the_memory_is_bounded() {
        let refusals = Refusals::default();
        let refused = Decision { allowed: false, rule: None };
        let alice = Principal::user("alice", []);
        let note = |who: &Principal, door, topic: &str, now_ms| {
            refusals.note(who, door, Action::Write, topic, &refused, now_ms)
        };
        assert!(note(&alice, Door::Mqtt, "a", 0));
        assert!(!note(&alice, Door::Mqtt, "a", 1));
        assert!(note(&alice, Door::Http, "a", 1) && note(&alice, Door::Mqtt, "b", 1));
        assert!(note(&Principal::user("bob", []), Door::Mqtt, "a", 1));
        let topics = (0..1000).filter(|number| note(&alice, Door::Mqtt, &number.to_string(), 1)).count();
        assert_eq!(topics, OF_PRINCIPAL_MAX - 3);
        for number in 0..PRINCIPALS_MAX * 2 {
            note(&Principal::user(&number.to_string(), []), Door::Mqtt, "a", 1);
        }
        assert_eq!(refusals.said.lock().unwrap().by_principal.len(), PRINCIPALS_MAX);
        assert!(note(&alice, Door::Mqtt, "a", QUIET_MS), "the next day");
    }
}
