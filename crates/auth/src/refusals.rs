//! The rate of log lines about refusals: each refusal by a rule is logged once a day, refused logins have a rate of
//! their own ([`lines`]). So a device that asks again every second does not fill the log.

mod lines;

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

pub use lines::{LineLimits, Suppressed};

use crate::{
    access::Access,
    acl::{Action, Decision},
    backoff::network,
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
    lines: Mutex<lines::Lines>,
}

#[derive(Debug, Default)]
struct Said {
    since_ms: u64,
    by_principal: HashMap<u64, HashSet<u64>>,
}

impl Refusals {
    /// Whether this refusal is new and to be logged. Refusals are told apart by principal, address, door and action, and
    /// by the rule that refused or, if no rule matched, by the topic.
    pub fn note(
        &self,
        access: &Access,
        from: Option<IpAddr>,
        action: Action,
        topic: &str,
        decision: &Decision,
        now_ms: u64,
    ) -> bool {
        let (principal, door) = (access.principal(), access.door());
        let from = from.map(network);
        let whose = self.hasher.hash_one((&principal.name, principal.anonymous, from));
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

    /// Whether a refused login from that address may be logged now, and how many were not.
    pub fn admit_login(&self, address: IpAddr, now_ms: u64) -> Option<Suppressed> {
        self.lines().admit(now_ms, address)
    }

    /// Refused logins that were not logged.
    #[must_use]
    pub fn logins_suppressed(&self) -> u64 {
        self.lines().suppressed()
    }

    /// Changes the rate of lines about refused logins.
    pub fn configure(&self, limits: LineLimits) {
        self.lines().configure(limits);
    }

    fn lines(&self) -> MutexGuard<'_, lines::Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything: the rules have changed.
    pub fn forget(&self) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).by_principal.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{acl::Door, authority::Authority, principal::Principal, rules::Rules};

    #[test]
    fn a_refusal_is_new_once_and_the_memory_is_bounded() {
        let authority = Arc::new(Authority::new(Rules::default()));
        let refusals = Refusals::default();
        let refused = Decision { allowed: false, rule: None };
        let access = |user: &str, door, from: [u8; 4]| {
            authority.access(&Principal::user(user, []), "", door).of_peer((from, 1).into())
        };
        let here = [192, 0, 2, 1];
        let note = |who: &Access, topic: &str, now_ms| {
            refusals.note(who, who.peer().map(|peer| peer.ip()), Action::Write, topic, &refused, now_ms)
        };
        let alice = access("alice", Door::Mqtt, here);
        assert!(note(&alice, "a", 0));
        assert!(!note(&alice, "a", 1));
        assert!(note(&access("alice", Door::Http, here), "a", 1) && note(&alice, "b", 1));
        assert!(note(&access("alice", Door::Mqtt, [192, 0, 2, 2]), "a", 1), "another address");
        assert!(note(&access("bob", Door::Mqtt, here), "a", 1));
        let topics = (0..1000).filter(|number| note(&alice, &number.to_string(), 1)).count();
        assert_eq!(topics, OF_PRINCIPAL_MAX - 3);
        for number in 0..PRINCIPALS_MAX * 2 {
            note(&access(&number.to_string(), Door::Mqtt, here), "a", 1);
        }
        assert_eq!(refusals.said.lock().unwrap().by_principal.len(), PRINCIPALS_MAX);
        assert!(note(&alice, "a", QUIET_MS), "the next day");
    }
}
