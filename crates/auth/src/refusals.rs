//! The rate of log lines about refusals: each refusal by a rule is logged once a day and at a limited rate
//! ([`actions`]), refused logins have a rate of their own ([`lines`]). So a device that asks again every second does
//! not fill the log.

mod actions;
mod lines;

use std::{
    hash::{BuildHasher as _, RandomState},
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
};

pub use actions::ActionLimits;
pub use lines::{LineLimits, Suppressed};

use crate::{
    access::Access,
    acl::{Action, Decision},
    backoff::network,
};

/// The refusals of a day.
#[derive(Debug, Default)]
pub struct Refusals {
    hasher: RandomState,
    actions: Mutex<actions::Actions>,
    lines: Mutex<lines::Lines>,
}

impl Refusals {
    /// Whether this refusal is to be logged now, and how many were not. Refusals are told apart by principal, address,
    /// door and action, and by the rule that refused or, if no rule matched, by the topic.
    pub fn note(
        &self,
        access: &Access,
        from: Option<IpAddr>,
        action: Action,
        topic: &str,
        decision: &Decision,
        now_ms: u64,
    ) -> Option<Suppressed> {
        let (principal, door) = (access.principal(), access.door());
        let from = from.map(network);
        let whose = (!principal.anonymous).then(|| self.hasher.hash_one(&principal.name));
        let rule = decision.rule.as_ref().map(|rule| (rule.file(), rule.line()));
        let what = match rule {
            Some(rule) => self.hasher.hash_one((from, door, action, rule)),
            None => self.hasher.hash_one((from, door, action, topic)),
        };
        self.actions().admit(now_ms, whose, what)
    }

    /// Whether the end of something that a principal had open is to be logged now, and how many ends and refusals of it
    /// were not: it has lost its right. Those of one connection for one reason are said once.
    pub fn note_end(&self, access: &Access, from: Option<SocketAddr>, reason: &str, now_ms: u64) -> Option<Suppressed> {
        let principal = access.principal();
        let whose = (!principal.anonymous).then(|| self.hasher.hash_one(&principal.name));
        let what = self.hasher.hash_one((from, access.door(), "ended", reason));
        self.actions().admit(now_ms, whose, what)
    }

    /// Refused actions that were not logged.
    #[must_use]
    pub fn actions_suppressed(&self) -> u64 {
        self.actions().suppressed()
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

    /// Changes the rates of lines.
    pub fn configure(&self, logins: LineLimits, actions: ActionLimits) {
        self.lines().configure(logins);
        self.actions().configure(actions);
    }

    fn actions(&self) -> MutexGuard<'_, actions::Actions> {
        self.actions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> MutexGuard<'_, lines::Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everything be said again: the rules have changed.
    pub fn forget(&self) {
        self.actions().forget();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{acl::Door, authority::Authority, principal::Principal, rules::Rules};

    #[test]
    fn a_refusal_is_said_once() {
        let authority = Arc::new(Authority::new(Rules::default()));
        let refusals = Refusals::default();
        let refused = Decision { allowed: false, rule: None };
        let access = |user: &str, door, from: [u8; 4]| {
            authority.access(&Principal::user(user, []), "", door).of_peer((from, 1).into())
        };
        let here = [192, 0, 2, 1];
        let note = |who: &Access, topic: &str, now_ms| {
            let from = who.peer().map(|peer| peer.ip());
            refusals.note(who, from, Action::Write, topic, &refused, now_ms).is_some()
        };
        let alice = access("alice", Door::Mqtt, here);
        assert!(note(&alice, "a", 0));
        assert!(!note(&alice, "a", 1));
        assert!(note(&access("alice", Door::Http, here), "a", 1) && note(&alice, "b", 1));
        assert!(note(&access("alice", Door::Mqtt, [192, 0, 2, 2]), "a", 1), "another address");
        assert!(note(&access("bob", Door::Mqtt, here), "a", 1));
        let topics = (0..1000).filter(|number| note(&alice, &number.to_string(), 1)).count();
        assert_eq!(topics, 10 - 4, "lines of a minute");
        assert!(note(&alice, "a", actions::QUIET_MS), "the next day");
        let end = |port: u16, reason: &str| {
            refusals.note_end(&alice, Some((here, port).into()), reason, actions::QUIET_MS).is_some()
        };
        assert!(end(1, "expired") && !end(1, "expired") && end(2, "expired") && end(1, "removed"));
    }
}
