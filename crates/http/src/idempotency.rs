//! `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header-07): a POST that is sent again is not done again.
//!
//! The store is bounded in entries and bytes, and entries expire. It keeps answers of finished requests and the mark of
//! unfinished ones; keys belong to a principal.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// Bounds of a [`Store`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most entries.
    pub entries: usize,
    /// Most bytes of kept answers, keys included.
    pub bytes: usize,
    /// How long an answer is kept.
    pub lifetime: Duration,
}

impl Default for Limits {
    /// Ten thousand answers, 4 MiB, ten minutes: retries come within seconds, and a gateway is small.
    fn default() -> Self {
        Self { entries: 10_000, bytes: 4 << 20, lifetime: Duration::from_secs(600) }
    }
}

/// Whose key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The principal's name.
    pub principal: Box<str>,
    /// The key.
    pub key: Box<str>,
}

/// What to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<A> {
    /// Do it, then call [`Store::finish`] or [`Store::abandon`] with this ticket.
    Perform(Ticket),
    /// Answer so again.
    Replay(A),
    /// The first one is under way: 409 (§2.6).
    Conflict,
    /// The key was used for something else: 422 (§2.6).
    Mismatch,
    /// No room for another mark: 503.
    Full,
}

/// Names a request under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

#[derive(Debug)]
struct Entry<A> {
    serial: u64,
    fingerprint: u64,
    answer: Option<A>,
    bytes: usize,
}

/// The answers of the last requests with a key. `now` is any clock that only goes forward.
#[derive(Debug)]
pub struct Store<A> {
    limits: Limits,
    entries: HashMap<Scope, Entry<A>>,
    /// Finished entries, oldest first.
    finished: VecDeque<(Duration, u64, Scope)>,
    bytes: usize,
    serial: u64,
}

impl<A: Clone> Store<A> {
    /// Empty.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, entries: HashMap::new(), finished: VecDeque::new(), bytes: 0, serial: 0 }
    }

    /// Asks about a request. `fingerprint` is a hash of everything that makes it the same request.
    pub fn begin(&mut self, now: Duration, scope: &Scope, fingerprint: u64) -> Verdict<A> {
        self.expire(now);
        if let Some(entry) = self.entries.get(scope) {
            if entry.fingerprint != fingerprint {
                return Verdict::Mismatch;
            }
            return entry.answer.clone().map_or(Verdict::Conflict, Verdict::Replay);
        }
        let bytes = scope.principal.len() + scope.key.len();
        while self.entries.len() >= self.limits.entries || self.bytes + bytes > self.limits.bytes {
            if !self.drop_oldest() {
                return Verdict::Full;
            }
        }
        self.serial += 1;
        self.bytes += bytes;
        self.entries.insert(scope.clone(), Entry { serial: self.serial, fingerprint, answer: None, bytes });
        Verdict::Perform(Ticket(self.serial))
    }

    /// Keeps the answer, which takes `bytes`. One that does not fit is forgotten: the next request is done anew.
    pub fn finish(&mut self, now: Duration, scope: &Scope, ticket: Ticket, answer: A, bytes: usize) {
        self.expire(now);
        let Some(entry) = self.entries.get_mut(scope).filter(|entry| entry.serial == ticket.0) else { return };
        entry.answer = Some(answer);
        entry.bytes += bytes;
        self.bytes += bytes;
        self.finished.push_back((now + self.limits.lifetime, ticket.0, scope.clone()));
        while self.bytes > self.limits.bytes && self.drop_oldest() {}
    }

    /// The request came to nothing; the key is free again.
    pub fn abandon(&mut self, scope: &Scope, ticket: Ticket) {
        if self.entries.get(scope).is_some_and(|entry| entry.serial == ticket.0 && entry.answer.is_none()) {
            self.remove(scope);
        }
    }

    /// How many keys are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no key is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn expire(&mut self, now: Duration) {
        while self.finished.front().is_some_and(|(until, ..)| *until <= now) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) -> bool {
        let Some((_, serial, scope)) = self.finished.pop_front() else { return false };
        if self.entries.get(&scope).is_some_and(|entry| entry.serial == serial) {
            self.remove(&scope);
        }
        true
    }

    fn remove(&mut self, scope: &Scope) {
        if let Some(entry) = self.entries.remove(scope) {
            self.bytes -= entry.bytes;
        }
    }
}

/// The key of a field value: a structured-field string (RFC 9651 §3.3.3) or, as most clients send it, bare.
#[must_use]
pub fn key(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let key = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let fits = !key.is_empty() && key.len() <= KEY_BYTES_MAX && key.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    (fits && !key.contains('"')).then_some(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope(key: &str) -> Scope {
        Scope { principal: "p".into(), key: key.into() }
    }

    const NOW: Duration = Duration::from_secs(1);

    #[test]
    fn a_second_request_gets_the_first_answer() {
        let mut store = Store::new(Limits::default());
        let Verdict::Perform(ticket) = store.begin(NOW, &scope("k"), 7) else { panic!() };
        assert_eq!(store.begin(NOW, &scope("k"), 7), Verdict::Conflict);
        store.finish(NOW, &scope("k"), ticket, 202, 3);
        assert_eq!(store.begin(NOW, &scope("k"), 7), Verdict::Replay(202));
        assert_eq!(store.begin(NOW, &scope("k"), 8), Verdict::Mismatch);
        assert!(matches!(store.begin(NOW + Duration::from_secs(601), &scope("k"), 8), Verdict::Perform(_)));
    }

    #[test]
    fn an_abandoned_key_is_free() {
        let mut store: Store<u16> = Store::new(Limits::default());
        let Verdict::Perform(ticket) = store.begin(NOW, &scope("k"), 7) else { panic!() };
        store.abandon(&scope("k"), ticket);
        assert!(store.is_empty());
        assert!(matches!(store.begin(NOW, &scope("k"), 9), Verdict::Perform(_)));
    }

    #[test]
    fn unfinished_requests_are_never_evicted() {
        let mut store: Store<u16> = Store::new(Limits { entries: 1, ..Limits::default() });
        assert!(matches!(store.begin(NOW, &scope("a"), 1), Verdict::Perform(_)));
        assert_eq!(store.begin(NOW, &scope("b"), 1), Verdict::Full);
    }

    #[test]
    fn keys_are_quoted_or_bare() {
        assert_eq!(key(b"\"8e03978e-40d5\""), Some("8e03978e-40d5"));
        assert_eq!(key(b"abc"), Some("abc"));
        assert_eq!(key(b"\"\""), None);
        assert_eq!(key(&[b'a'; 256]), None);
        assert_eq!(key(b"a b"), None);
    }

    proptest! {
        #[test]
        fn the_bounds_hold(steps in prop::collection::vec((0_u8..20, 0_u64..3, 0_usize..40, any::<bool>()), 0..200)) {
            let limits = Limits { entries: 8, bytes: 100, lifetime: Duration::from_secs(5) };
            let mut store = Store::new(limits);
            for (second, (key, fingerprint, bytes, finish)) in steps.into_iter().enumerate() {
                let now = Duration::from_secs(second as u64);
                let scope = scope(&key.to_string());
                if let Verdict::Perform(ticket) = store.begin(now, &scope, fingerprint) {
                    if finish { store.finish(now, &scope, ticket, (), bytes) } else { store.abandon(&scope, ticket) }
                }
                prop_assert!(store.len() <= 8);
                prop_assert!(store.bytes <= 100);
                prop_assert_eq!(store.bytes, store.entries.values().map(|entry| entry.bytes).sum::<usize>());
            }
        }
    }
}
