//! Logins by name and password: decided at once, verified on another thread, or decided by the callback.

use std::{fmt, sync::Arc};

use zeroize::Zeroizing;

use crate::{
    authority::Authority,
    password::{PASSWORD_BYTES_MAX, Scratch},
    prepare::prepare_text,
    principal::Principal,
    refused::Refused,
    rules::Rules,
    source::{SourceKind, SourceSet, Verified, callback::Question, token::looks_like_token},
    users::prepared_name,
};

/// The next step of a login; returned by [`Authority::log_in`](crate::Authority::log_in).
#[derive(Debug)]
pub enum LogIn {
    /// It is decided.
    Known(Result<Verified, Refused>),
    /// Run this on a thread for such work.
    Check(PasswordCheck),
    /// Ask the callback.
    Ask(CallbackCheck),
}

impl Authority {
    /// Begins a login with a name and a password on a listener that takes such credentials. Does not block, so that an
    /// I/O thread can call it. A token in place of the password is judged here, with a name that is empty or the
    /// token's own.
    #[must_use]
    pub fn log_in(self: &Arc<Self>, sources: SourceSet, user: &str, password: &[u8], now_unix_s: u64) -> LogIn {
        let rules = self.rules();
        if sources.contains(SourceKind::Token) && rules.takes_tokens() && looks_like_token(password) {
            let token = std::str::from_utf8(password).map_err(|_| Refused::Credentials);
            let verified = token.and_then(|token| self.token(token, now_unix_s));
            let same = |verified: &Verified| user.is_empty() || is_name(user, &verified.principal.name);
            return LogIn::Known(verified.and_then(|who| if same(&who) { Ok(who) } else { Err(Refused::Identity) }));
        }
        let local = sources.contains(SourceKind::Password);
        if let Some(principal) = self.recall(user, password).filter(|_| local) {
            return LogIn::Known(Ok(principal.into()));
        }
        let elsewhere = rules.callback.is_some() && sources.contains(SourceKind::Callback);
        let here = prepare_text(user).is_some_and(|name| rules.users.contains(&name));
        match (elsewhere && !here, local) {
            (true, _) => LogIn::Ask(CallbackCheck { rules }),
            (false, true) => LogIn::Check(PasswordCheck::new(self, user, password)),
            (false, false) => LogIn::Known(Err(Refused::Mechanism)),
        }
    }
}

/// Whether two names are one user's.
fn is_name(given: &str, name: &str) -> bool {
    given == name || prepare_text(given).is_some_and(|prepared| prepared == name)
}

/// A password to be verified on another thread.
pub struct PasswordCheck {
    authority: Arc<Authority>,
    user: Box<str>,
    password: Zeroizing<Box<[u8]>>,
}

impl PasswordCheck {
    /// Creates a check to be run on another thread. It may wait in a queue, so nothing longer than a user's name or
    /// password can be is kept; such a login is refused.
    #[must_use]
    pub fn new(authority: &Arc<Authority>, user: &str, password: &[u8]) -> Self {
        let user = prepared_name(user).unwrap_or_default().into();
        let password = password.get(..=PASSWORD_BYTES_MAX).unwrap_or(password);
        Self { authority: Arc::clone(authority), user, password: Zeroizing::new(password.into()) }
    }

    /// The user's name in its prepared form; empty if it cannot be one.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Verifies the password. Blocks; see [`Authority::password`].
    ///
    /// # Errors
    /// The login is refused.
    pub fn run(self, scratch: &mut Scratch) -> Result<Principal, Refused> {
        self.authority.password(&self.user, &self.password, scratch)
    }
}

impl fmt::Debug for PasswordCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordCheck").finish_non_exhaustive()
    }
}

/// A question for the callback.
pub struct CallbackCheck {
    pub(crate) rules: Arc<Rules>,
}

impl CallbackCheck {
    /// Asks the callback. `now_ms` counts from any moment, `now_unix_s` from 1970.
    ///
    /// # Errors
    /// The login is refused, or there is no answer ([`Refused::Busy`]).
    pub async fn run(self, question: Question<'_>, now_ms: u64, now_unix_s: u64) -> Result<Verified, Refused> {
        match &self.rules.callback {
            Some(callback) => callback.check(question, &self.rules.users, now_ms, now_unix_s).await,
            None => Err(Refused::Credentials),
        }
    }
}

impl fmt::Debug for CallbackCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackCheck").finish_non_exhaustive()
    }
}
