//! Names and passwords against the users file. A name that is not there costs what a wrong password costs.

use super::{Credential, Source, SourceKind, Verified};
use crate::{
    password::{StoredPassword, prepare_text},
    principal::Principal,
    refused::Refused,
    users::{User, Users, random},
};
use std::sync::Arc;

pub(crate) struct PasswordSource {
    /// Verified against when there is no such user, so that the answer takes as long.
    decoy: StoredPassword,
}

impl Default for PasswordSource {
    fn default() -> Self {
        Self { decoy: StoredPassword::decoy(random(), random()) }
    }
}

impl PasswordSource {
    /// Blocks for about a tenth of a second on a small machine.
    fn verify(&self, user: &str, password: &[u8], users: &Users) -> Result<Verified, Refused> {
        let known = enabled(users, user);
        let stored = known.and_then(|user| user.password.as_ref());
        let matches = stored.map_or_else(
            || {
                self.decoy.matches(password);
                false
            },
            |stored| stored.matches(password) & self.spend_the_same(stored, password),
        );
        match known {
            Some(user) if matches => Ok(user.principal.clone().into()),
            Some(_) | None => Err(Refused::Credentials),
        }
    }

    /// Hashes that came from elsewhere are cheap to check, which would tell that the user exists.
    fn spend_the_same(&self, stored: &StoredPassword, password: &[u8]) -> bool {
        if !stored.is_argon2id() {
            self.decoy.matches(password);
        }
        true
    }
}

impl Source for PasswordSource {
    fn kind(&self) -> SourceKind {
        SourceKind::Password
    }

    fn judge(&self, credential: &Credential<'_>, users: &Users) -> Option<Result<Verified, Refused>> {
        match credential {
            Credential::Password { user, password } => Some(self.verify(user, password, users)),
            Credential::Certificate(_) | Credential::Psk(_) | Credential::Oscore(_) | Credential::Token { .. } => None,
        }
    }

    fn admits(&self, principal: &Principal, users: &Users) -> bool {
        users.get(&principal.name).is_some()
    }
}

/// The user of that name, unless disabled.
pub(crate) fn enabled<'a>(users: &'a Users, name: &str) -> Option<&'a Arc<User>> {
    let prepared = prepare_text(name)?;
    users.get(&prepared).filter(|user| !user.disabled)
}
