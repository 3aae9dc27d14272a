//! Names and passwords against the users file. An unknown name costs as much as a wrong password.

use super::{Credential, Source, SourceKind, Verified};
use crate::{
    password::{PasswordError, Scratch, StoredPassword},
    prepare::prepare_text,
    principal::Principal,
    random::random,
    refused::Refused,
    users::{User, Users},
};
use std::sync::Arc;

pub(crate) struct PasswordSource {
    /// Verified for unknown users, so that the answer takes as long.
    decoy: StoredPassword,
}

impl Default for PasswordSource {
    fn default() -> Self {
        Self { decoy: StoredPassword::of_today(random(), random()) }
    }
}

impl PasswordSource {
    /// Verifies a password. Blocks for about a tenth of a second on a small machine.
    ///
    /// # Errors
    /// [`Refused::Credentials`], or [`Refused::Busy`] when there is no memory for it.
    pub(crate) fn verify(
        &self,
        user: &str,
        password: &[u8],
        users: &Users,
        scratch: &mut Scratch,
    ) -> Result<Verified, Refused> {
        let known = enabled(users, user);
        let stored = known.and_then(|user| user.password.as_ref());
        let matches = match stored {
            // Imported hashes are cheap to verify, which would reveal that the user exists.
            Some(stored) if !stored.is_argon2id() => {
                self.decoy.matches(password, scratch).and_then(|_| stored.matches(password, scratch))
            }
            Some(stored) => stored.matches(password, scratch),
            None => self.decoy.matches(password, scratch).map(|_| false),
        };
        match (known, matches) {
            (Some(user), Ok(true)) => Ok(user.principal.clone().into()),
            (_, Err(PasswordError::NoMemory)) => Err(Refused::Busy),
            (_, Ok(_) | Err(_)) => Err(Refused::Credentials),
        }
    }
}

impl Source for PasswordSource {
    fn kind(&self) -> SourceKind {
        SourceKind::Password
    }

    /// Passwords are not judged here, because that takes memory and time: see [`PasswordSource::verify`].
    fn judge(&self, _: &Credential<'_>, _: &Users) -> Option<Result<Verified, Refused>> {
        None
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
