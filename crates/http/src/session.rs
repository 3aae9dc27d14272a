//! Sessions of people: bounded, and each with an end. Pure: the time is an argument, and so are the keys, which are
//! digests of what the cookies say, so that neither the table nor the time a look-up takes tells a cookie.

use std::collections::HashMap;
use std::time::Duration;

/// A session's name here.
pub type Key = [u8; 32];

/// Sessions that one user may have; a further one ends the oldest.
const PER_USER_MAX: usize = 16;

/// All sessions.
#[derive(Debug)]
pub struct Table<T> {
    sessions: HashMap<Key, Session<T>>,
    max: usize,
}

#[derive(Debug)]
struct Session<T> {
    user: Box<str>,
    begun: Duration,
    ends: Duration,
    value: T,
}

impl<T> Table<T> {
    /// A table of so many sessions at most.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { sessions: HashMap::new(), max }
    }

    /// How many there are, those included that have ended and were not asked for since.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Begins one. Where there is no room, the oldest of the user with most sessions ends.
    pub fn begin(&mut self, now: Duration, key: Key, user: &str, ends: Duration, value: T) {
        if self.max == 0 {
            return;
        }
        self.sessions.retain(|_, session| session.ends > now);
        let own = self.sessions.values().filter(|session| *session.user == *user).count();
        if own >= PER_USER_MAX || self.sessions.len() >= self.max {
            let heaviest = self.heaviest().filter(|_| own < PER_USER_MAX).unwrap_or_else(|| user.into());
            let candidates = self.sessions.iter().filter(|(_, session)| session.user == heaviest);
            let victim = candidates.min_by_key(|(key, session)| (session.begun, **key)).map(|(key, _)| *key);
            victim.and_then(|key| self.sessions.remove(&key));
        }
        self.sessions.insert(key, Session { user: user.into(), begun: now, ends, value });
    }

    /// The user with most sessions.
    fn heaviest(&self) -> Option<Box<str>> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for session in self.sessions.values() {
            *counts.entry(&session.user).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(user, count)| (*count, *user)).map(|(user, _)| user.into())
    }

    /// The session of that key, if it has not ended.
    #[must_use]
    pub fn get(&self, now: Duration, key: &Key) -> Option<&T> {
        self.sessions.get(key).filter(|session| session.ends > now).map(|session| &session.value)
    }

    /// Ends one.
    pub fn end(&mut self, key: &Key) -> bool {
        self.sessions.remove(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_session_ends_and_the_table_is_bounded() {
        let mut table = Table::new(20);
        table.begin(SECOND, [1; 32], "a", SECOND * 10, 'x');
        assert_eq!(table.get(SECOND * 9, &[1; 32]), Some(&'x'));
        assert_eq!(table.get(SECOND * 10, &[1; 32]), None);
        assert!(table.end(&[1; 32]) && !table.end(&[1; 32]));
        for number in 0..40 {
            table.begin(SECOND * u32::from(number), [number; 32], "a", SECOND * 100, 'x');
        }
        assert_eq!(table.len(), PER_USER_MAX);
        assert!(table.get(SECOND * 40, &[23; 32]).is_none() && table.get(SECOND * 40, &[24; 32]).is_some());
        for number in 40..60 {
            table.begin(SECOND * 50, [number; 32], &number.to_string(), SECOND * 100, 'y');
        }
        assert_eq!(table.len(), 20);
        table.begin(SECOND * 100, [99; 32], "z", SECOND * 200, 'z');
        assert_eq!(table.len(), 1, "those that have ended give way");
    }
}
