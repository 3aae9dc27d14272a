//! `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header-07): a POST that is sent again is not done again.
//!
//! The store is bounded in entries and bytes, and entries expire. It keeps answers of finished requests and the mark of
//! unfinished ones; keys belong to a principal.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use fogmux_fair::{Owner, Room};

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

/// The owner of an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The principal's name.
    pub principal: Box<str>,
    /// The key.
    pub key: Box<str>,
}

/// The handling of a request with an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<A> {
    /// Perform the request, then call [`Store::finish`] or [`Store::abandon`] with this ticket.
    Perform(Ticket),
    /// Repeat this answer.
    Replay(A),
    /// The first request with this key is still in progress: 409 (§2.6).
    Conflict,
    /// The key was used for a different request: 422 (§2.6).
    Mismatch,
    /// No room for another mark: 503.
    Full,
}

/// Names a request under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

#[derive(Debug)]
struct Entry<A> {
    scope: Scope,
    fingerprint: u64,
    bytes: usize,
    /// The answer, and how long it is kept; a request under way has none.
    answer: Option<(A, Duration)>,
}

/// The answers of the last requests with a key. `now` is any clock that only goes forward.
///
/// Each owner has a share: when the store is full, the oldest answer of the owner that has most goes.
#[derive(Debug)]
pub struct Store<A> {
    limits: Limits,
    /// The bytes that an entry counts for at least, so that the bound in bytes is one in number, too.
    least: usize,
    by_scope: HashMap<Scope, u64>,
    room: Room<Entry<A>>,
    /// The numbers of finished entries by their end.
    finished: BTreeSet<(Duration, u64)>,
    gave_way: Option<(u64, Owner)>,
}

impl<A: Clone> Store<A> {
    /// Empty.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            least: limits.bytes.div_ceil(limits.entries.max(1)).max(1),
            by_scope: HashMap::new(),
            room: Room::new(limits.bytes),
            finished: BTreeSet::new(),
            gave_way: None,
        }
    }

    /// Asks about a request. `fingerprint` is a hash of everything that makes it the same request.
    pub fn begin(&mut self, now: Duration, scope: &Scope, owner: &Owner, fingerprint: u64) -> Verdict<A> {
        self.expire(now);
        if let Some(entry) = self.by_scope.get(scope).and_then(|number| self.room.get(*number)) {
            if entry.fingerprint != fingerprint {
                return Verdict::Mismatch;
            }
            return entry.answer.clone().map_or(Verdict::Conflict, |(answer, _)| Verdict::Replay(answer));
        }
        let bytes = scope.principal.len() + scope.key.len();
        let entry = Entry { scope: scope.clone(), fingerprint, bytes, answer: None };
        let number = self.room.enter(owner.clone(), bytes.max(self.least), entry);
        self.make_room();
        // Requests under way do not give way. They are few: those of others may take twice the room.
        let is_full = self.room.is_overfull() && self.room.heaviest().as_ref() == Some(owner);
        if is_full || self.room.len() > self.limits.entries.saturating_mul(2) {
            self.room.leave(number);
            return Verdict::Full;
        }
        self.by_scope.insert(scope.clone(), number);
        Verdict::Perform(Ticket(number))
    }

    /// Keeps the answer, which takes `bytes`. One that does not fit is forgotten: the next request is done anew.
    pub fn finish(&mut self, now: Duration, ticket: Ticket, answer: A, bytes: usize) {
        self.expire(now);
        let Some(entry) = self.room.get_mut(ticket.0) else { return };
        let until = now + self.limits.lifetime;
        entry.answer = Some((answer, until));
        entry.bytes += bytes;
        let weight = entry.bytes.max(self.least);
        self.room.set(ticket.0, weight);
        self.finished.insert((until, ticket.0));
        self.make_room();
    }

    /// The request came to nothing; the key is free again.
    pub fn abandon(&mut self, ticket: Ticket) {
        if self.room.get(ticket.0).is_some_and(|entry| entry.answer.is_none()) {
            self.remove(ticket.0);
        }
    }

    /// How many keys are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_scope.len()
    }

    /// The bytes that all keys and answers count for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.room.weight()
    }

    /// Whether no key is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_scope.is_empty()
    }

    /// How many answers had to go for others since the last call, and whose was the last.
    pub fn take_gave_way(&mut self) -> Option<(u64, Owner)> {
        self.gave_way.take()
    }

    fn expire(&mut self, now: Duration) {
        while let Some((_, number)) = self.finished.first().copied().filter(|(until, _)| *until <= now) {
            self.remove(number);
        }
    }

    fn make_room(&mut self) {
        while self.room.is_overfull() {
            let Some(owner) = self.room.heaviest() else { return };
            let oldest = self.room.of_owner(&owner).find(|(_, entry)| entry.answer.is_some());
            let Some((number, _)) = oldest else { return };
            self.remove(number);
            let before = self.gave_way.take().map_or(0, |(count, _)| count);
            self.gave_way = Some((before + 1, owner));
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(entry) = self.room.leave(number) else { return };
        self.by_scope.remove(&entry.scope);
        if let Some((_, until)) = entry.answer {
            self.finished.remove(&(until, number));
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

    fn ada() -> Owner {
        Owner::principal("ada".into())
    }

    const NOW: Duration = Duration::from_secs(1);

    #[test]
    fn a_second_request_gets_the_first_answer() {
        let mut store = Store::new(Limits::default());
        let Verdict::Perform(ticket) = store.begin(NOW, &scope("k"), &ada(), 7) else { panic!() };
        assert_eq!(store.begin(NOW, &scope("k"), &ada(), 7), Verdict::Conflict);
        store.finish(NOW, ticket, 202, 3);
        assert_eq!(store.begin(NOW, &scope("k"), &ada(), 7), Verdict::Replay(202));
        assert_eq!(store.begin(NOW, &scope("k"), &ada(), 8), Verdict::Mismatch);
        assert!(matches!(store.begin(NOW + Duration::from_secs(601), &scope("k"), &ada(), 8), Verdict::Perform(_)));
    }

    #[test]
    fn an_abandoned_key_is_free() {
        let mut store: Store<u16> = Store::new(Limits::default());
        let Verdict::Perform(ticket) = store.begin(NOW, &scope("k"), &ada(), 7) else { panic!() };
        store.abandon(ticket);
        assert!(store.is_empty());
        assert!(matches!(store.begin(NOW, &scope("k"), &ada(), 9), Verdict::Perform(_)));
    }

    #[test]
    fn unfinished_requests_are_never_evicted() {
        let mut store: Store<u16> = Store::new(Limits { entries: 1, ..Limits::default() });
        assert!(matches!(store.begin(NOW, &scope("a"), &ada(), 1), Verdict::Perform(_)));
        assert_eq!(store.begin(NOW, &scope("b"), &ada(), 1), Verdict::Full);
    }

    #[test]
    fn keys_of_one_principal_push_out_none_of_another() {
        let mut store = Store::new(Limits { entries: 100, ..Limits::default() });
        let eve = Owner::principal("eve".into());
        for key in 0..40 {
            let Verdict::Perform(ticket) = store.begin(NOW, &scope(&format!("a{key}")), &ada(), 1) else { panic!() };
            store.finish(NOW, ticket, key, 3);
        }
        // The last are still under way.
        for key in 0..1000 {
            let Verdict::Perform(ticket) = store.begin(NOW, &scope(&format!("e{key}")), &eve, 1) else { break };
            if key < 900 {
                store.finish(NOW, ticket, 0, 3);
            }
        }
        assert!(store.len() <= 101);
        for key in 0..40 {
            assert_eq!(store.begin(NOW, &scope(&format!("a{key}")), &ada(), 1), Verdict::Replay(key));
        }
        assert_eq!(store.begin(NOW, &scope("more"), &eve, 1), Verdict::Full);
        assert!(matches!(store.begin(NOW, &scope("more"), &ada(), 1), Verdict::Perform(_)));
        assert!(store.take_gave_way().is_some_and(|(count, owner)| count > 800 && owner == eve));
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
                if let Verdict::Perform(ticket) = store.begin(now, &scope, &ada(), fingerprint) {
                    if finish { store.finish(now, ticket, (), bytes) } else { store.abandon(ticket) }
                }
                prop_assert!(store.len() <= 8);
                prop_assert!(store.room.weight() <= 100);
                prop_assert_eq!(store.by_scope.len(), store.room.len());
                prop_assert_eq!(store.finished.len(), store.room.len());
            }
        }
    }
}
