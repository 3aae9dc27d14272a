//! A name and a password on their way: known at once, to be verified where blocking is allowed, or asked about
//! elsewhere.

use std::{fmt, sync::Arc};

use crate::{
    authority::Refused,
    rules::Rules,
    sasl::PasswordCheck,
    source::{Verified, callback::Question},
};

/// What [`Authority::log_in`](crate::Authority::log_in) came to.
#[derive(Debug)]
pub enum LogIn {
    /// Known at once.
    Known(Result<Verified, Refused>),
    /// Run this on a blocking thread.
    Check(PasswordCheck),
    /// Ask elsewhere.
    Ask(CallbackCheck),
}

/// A question for the callback.
pub struct CallbackCheck {
    pub(crate) rules: Arc<Rules>,
}

impl CallbackCheck {
    /// Asks. `now_ms` counts from anywhere, `now_unix_s` from 1970.
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
