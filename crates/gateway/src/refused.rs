//! The last refusals of logins and actions, for the administration API: the same that the log names, but each with how
//! often it came and when last, also beyond the rate of lines of the log.
//!
//! Bounded by [`LINES_MAX`] and [`BYTES_MAX`]. Principals share the room, and peers that have shown no credential by
//! network and address (ADR 0036): none pushes out the lines of another that has fewer. Like the log, it holds no
//! secret.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hash, RandomState},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fogmux_auth::{Action, Door, RuleRef};
use fogmux_fair::{Owner, Room};

/// Different refusals that are kept at most.
pub(crate) const LINES_MAX: usize = 256;
/// Bytes of them at most.
pub(crate) const BYTES_MAX: usize = 128 << 10;
/// Refusals of an owner that are always kept apart. Beyond, it gets a new one each [`APART_MS`]: what comes between is
/// counted with the one before, so that a flood of different refusals costs little.
const APART: usize = 8;
const APART_MS: u64 = 50;

/// A refusal, as the log names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) door: Door,
    /// The address of the peer, if it is known.
    pub(crate) from: Option<SocketAddr>,
    /// The client identifier, or nothing.
    pub(crate) client: Box<str>,
    pub(crate) what: What,
}

/// A login or an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A login.
    Login {
        /// The kind of credential.
        by: Box<str>,
        /// The name or identity that the peer claimed, or nothing.
        claimed: Box<str>,
        reason: Box<str>,
    },
    /// An action.
    Action {
        principal: Box<str>,
        /// The groups that the credential gave.
        granted: Arc<[Arc<str>]>,
        action: Action,
        topic: Box<str>,
        /// Whether the topic is longer than what is kept of it.
        is_cut: bool,
        /// The rule that refused it; `None` if no rule allows it.
        rule: Option<RuleRef>,
    },
}

impl Refusal {
    /// Whether it is a login that was refused for this reason.
    #[cfg(test)]
    pub(crate) fn is_login_for(&self, expected: &str) -> bool {
        matches!(&self.what, What::Login { reason, .. } if &**reason == expected)
    }

    fn bytes(&self) -> usize {
        let texts = match &self.what {
            What::Login { by, claimed, reason } => by.len() + claimed.len() + reason.len(),
            What::Action { principal, granted, topic, .. } => {
                principal.len() + granted.iter().map(|group| group.len()).sum::<usize>() + topic.len()
            }
        };
        size_of::<Line>() + self.client.len() + texts
    }
}

/// A refusal with its times.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) refusal: Refusal,
    /// When it came first and last, in milliseconds since 1970.
    pub(crate) first_unix_ms: u64,
    pub(crate) last_unix_ms: u64,
    /// How often it came.
    pub(crate) count: u64,
    /// Other refusals of the same owner that came too fast to have lines of their own.
    pub(crate) others: u64,
    key: u64,
    entered_ms: u64,
}

/// The moment of a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    /// By the monotonic clock, in milliseconds.
    pub(crate) now_ms: u64,
    /// Milliseconds since 1970.
    pub(crate) unix_ms: u64,
}

/// The last refusals.
#[derive(Debug, Default)]
pub(crate) struct LastRefusals {
    hasher: RandomState,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    room: Room<Line>,
    /// The numbers of the lines by what makes two refusals the same.
    known: HashMap<u64, u64>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { room: Room::new(BYTES_MAX), known: HashMap::new() }
    }
}

/// The owner of refusals of a peer without a name.
pub(crate) fn of_address(address: Option<IpAddr>) -> Owner {
    Owner::nameless(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()))
}

impl LastRefusals {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a refusal. `same` is what makes two refusals of an owner the same; `describe` is asked for a new one only.
    pub(crate) fn note(&self, owner: &Owner, same: impl Hash, when: When, describe: impl FnOnce() -> Refusal) {
        let key = self.hasher.hash_one((owner, same));
        if self.lock().repeats(owner, key, when) {
            return;
        }
        // Without the lock: a token may have to be read.
        let refusal = describe();
        self.lock().enter(owner.clone(), key, when, refusal);
    }

    /// All of them, the last first.
    pub(crate) fn all(&self) -> Vec<Line> {
        let kept = self.lock();
        let mut lines: Vec<Line> = kept.known.values().filter_map(|number| kept.room.get(*number)).cloned().collect();
        drop(kept);
        lines.sort_by_key(|line| std::cmp::Reverse(line.last_unix_ms));
        lines
    }
}

impl Kept {
    /// Whether a refusal is counted with one that is there.
    fn repeats(&mut self, owner: &Owner, key: u64, when: When) -> bool {
        if let Some(line) = self.known.get(&key).and_then(|number| self.room.get_mut(*number)) {
            line.count += 1;
            line.last_unix_ms = when.unix_ms;
            return true;
        }
        let newest = self.room.of_owner(owner).next_back().map(|(number, line)| (number, line.entered_ms));
        let Some((number, entered_ms)) = newest.filter(|_| self.room.weight_of_owner(owner) >= APART * LEAST) else {
            return false;
        };
        if when.now_ms.saturating_sub(entered_ms) >= APART_MS {
            return false;
        }
        if let Some(line) = self.room.get_mut(number) {
            line.others += 1;
        }
        true
    }

    fn enter(&mut self, owner: Owner, key: u64, when: When, refusal: Refusal) {
        let When { now_ms, unix_ms } = when;
        let weight = refusal.bytes().max(LEAST);
        let (first_unix_ms, last_unix_ms) = (unix_ms, unix_ms);
        let line = Line { refusal, first_unix_ms, last_unix_ms, count: 1, others: 0, key, entered_ms: now_ms };
        let number = self.room.enter(owner, weight, line);
        // Two workers may have described the same refusal at once.
        if let Some(twin) = self.known.insert(key, number) {
            self.room.leave(twin);
        }
        // The oldest of the owner that has most.
        while let Some(gone) = self.room.give_way(|_| Some(())) {
            self.known.remove(&gone.value.key);
        }
    }
}

/// The least weight of a line, which bounds their number.
const LEAST: usize = BYTES_MAX / LINES_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn login(claimed: &str) -> Refusal {
        let what = What::Login { by: "password".into(), claimed: claimed.into(), reason: "wrong".into() };
        Refusal { door: Door::Mqtt, from: None, client: "".into(), what }
    }

    fn note(refusals: &LastRefusals, host: u8, claimed: &str, now_ms: u64) {
        let owner = of_address(Some([192, 0, 2, host].into()));
        refusals.note(&owner, claimed, When { now_ms, unix_ms: now_ms }, || login(claimed));
    }

    #[test]
    fn the_same_refusal_is_one_line_with_its_count() {
        let refusals = LastRefusals::default();
        (0..1000).for_each(|now_ms| note(&refusals, 1, "alice", now_ms));
        note(&refusals, 2, "alice", 5);
        let lines = refusals.all();
        let counts: Vec<_> = lines.iter().map(|line| (line.count, line.first_unix_ms, line.last_unix_ms)).collect();
        assert_eq!(counts, [(1000, 0, 999), (1, 5, 5)]);
    }

    #[test]
    fn a_flood_from_one_address_pushes_out_no_line_of_another() {
        let refusals = LastRefusals::default();
        for number in 0..5 {
            note(&refusals, 2, &format!("mine {number}"), 0);
        }
        for number in 0..100_000 {
            note(&refusals, 1, &format!("guess {number} {}", "x".repeat(400)), number * 10);
        }
        let lines = refusals.all();
        let is_mine =
            |line: &&Line| matches!(&line.refusal.what, What::Login { claimed, .. } if claimed.starts_with("mine"));
        assert_eq!(lines.iter().filter(is_mine).count(), 5);
        assert!(lines.len() <= LINES_MAX && lines.len() > 50, "{}", lines.len());
        let bytes: usize = lines.iter().map(|line| line.refusal.bytes()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes}");
        let flood: u64 = lines.iter().map(|line| line.others).sum();
        assert!(flood > 0, "what comes too fast is counted");
        let kept = refusals.lock();
        assert_eq!((kept.known.len(), kept.room.len()), (lines.len(), lines.len()));
    }

    #[test]
    fn a_principal_that_has_few_always_gets_a_line() {
        let refusals = LastRefusals::default();
        for host in 0..=255 {
            (0..20).for_each(|number| note(&refusals, host, &number.to_string(), number * 100));
        }
        let owner = Owner::principal("carol".into());
        refusals.note(&owner, 1, When { now_ms: 0, unix_ms: 9 }, || login("carol"));
        assert!(refusals.all().iter().any(|line| line.refusal == login("carol")));
    }
}
