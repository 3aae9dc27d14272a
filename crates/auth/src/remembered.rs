//! Recently verified logins, so that a thousand devices that reconnect at once do not cost a thousand argon2 runs.
//!
//! Keyed by an HMAC of name and password under a key of this process; neither is kept. An entry is valid only for the
//! credentials it was verified against.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
};

use crate::{random::random, scram::ScramHash, users::User};

/// Logins that are remembered; the oldest is forgotten first.
const ENTRIES_MAX: usize = 4096;

pub(crate) struct Remembered {
    key: [u8; 32],
    logins: HashMap<Login, Weak<User>>,
    order: VecDeque<Login>,
}

type Login = [u8; 32];

impl Remembered {
    pub(crate) fn new() -> Self {
        Self { key: random(), logins: HashMap::new(), order: VecDeque::new() }
    }

    /// Whether exactly these credentials were verified with this password before.
    pub(crate) fn knows(&self, user: &Arc<User>, password: &[u8]) -> bool {
        let login = self.login(&user.principal.name, password);
        self.logins.get(&login).is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(user)))
    }

    pub(crate) fn remember(&mut self, user: &Arc<User>, password: &[u8]) {
        let login = self.login(&user.principal.name, password);
        if self.logins.insert(login, Arc::downgrade(user)).is_some() {
            return;
        }
        self.order.push_back(login);
        if self.order.len() > ENTRIES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.logins.remove(&oldest);
        }
    }

    /// Forgets the logins of users that have changed or are gone.
    pub(crate) fn forget_gone(&mut self) {
        self.logins.retain(|_, user| user.strong_count() > 0);
        self.order.retain(|login| self.logins.contains_key(login));
    }

    fn login(&self, user: &str, password: &[u8]) -> Login {
        let user_bytes = u64::try_from(user.len()).unwrap_or(u64::MAX).to_be_bytes();
        let output = ScramHash::Sha256.hmac(&self.key, &[&user_bytes, user.as_bytes(), password]);
        output.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Principal;

    fn user(name: &str) -> Arc<User> {
        Arc::new(User {
            principal: Principal::user(name, []),
            password: None,
            scram_sha_256: None,
            scram_sha_1: None,
            disabled: false,
        })
    }

    #[test]
    fn only_the_same_credentials_are_known_and_the_table_is_bounded() {
        let mut remembered = Remembered::new();
        let (alice, alice_again) = (user("alice"), user("alice"));
        remembered.remember(&alice, b"x");
        assert!(remembered.knows(&alice, b"x"));
        assert!(!remembered.knows(&alice, b"y"));
        assert!(!remembered.knows(&alice_again, b"x"));
        for number in 0..ENTRIES_MAX {
            remembered.remember(&alice, &number.to_be_bytes());
        }
        assert!(!remembered.knows(&alice, b"x"));
        assert_eq!(remembered.logins.len(), ENTRIES_MAX);
        assert_eq!(remembered.order.len(), ENTRIES_MAX);
        remembered.remember(&alice_again, b"x");
        drop(alice);
        remembered.forget_gone();
        assert!(remembered.knows(&alice_again, b"x"), "who is still there");
        assert_eq!((remembered.logins.len(), remembered.order.len()), (1, 1));
    }
}
