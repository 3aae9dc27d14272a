//! One back-off for all doors: whoever fails at one door waits at every other. See [`Backoff`].

use std::{
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::backoff::{Backoff, BackoffConfig, Wait};

/// Failed logins of late, by address and by user. One for the whole gateway.
#[derive(Debug, Default)]
pub struct LoginGuard(Mutex<Backoff>);

impl LoginGuard {
    /// Nobody has failed yet.
    #[must_use]
    pub fn new(config: BackoffConfig) -> Self {
        Self(Mutex::new(Backoff::new(config)))
    }

    /// Whether somebody from there may try to log in as that user; `user` is `""` where no name is known yet. Loopback
    /// addresses wait for no address, only for names.
    ///
    /// # Errors
    /// How long to wait.
    pub fn may_try(&self, address: IpAddr, user: &str, now_ms: u64) -> Result<(), Wait> {
        self.lock().wait(now_ms, address, user).map_or(Ok(()), Err)
    }

    /// Begins an attempt, which counts as a failure until it is known how it ended.
    ///
    /// # Errors
    /// How long to wait.
    pub fn begin(&self, address: IpAddr, user: &str, now_ms: u64) -> Result<Attempt<'_>, Wait> {
        self.lock().begin(now_ms, address, user)?;
        Ok(Attempt { guard: self, address, user: user.into(), failed_ms: Some(now_ms) })
    }

    /// The same for a key in a handshake, see [`Backoff::begin_handshake`]. To be ended by [`Self::ended_apart`].
    ///
    /// # Errors
    /// How long to wait.
    pub fn begin_apart(&self, address: IpAddr, user: &str, now_ms: u64) -> Result<(), Wait> {
        self.lock().begin_handshake(now_ms, address, user)
    }

    /// Ends an attempt of [`Self::begin_apart`]; its outcome is noted beside this.
    pub fn ended_apart(&self, address: IpAddr, user: &str) {
        self.lock().ended_handshake(address, user);
    }

    /// Notes a failed login.
    pub fn failed(&self, address: IpAddr, user: &str, now_ms: u64) {
        self.lock().failed(now_ms, address, user);
    }

    /// Takes a failure of [`Self::failed`] back: it was not the client's.
    pub fn failure_taken_back(&self, address: IpAddr, user: &str) {
        self.lock().failure_taken_back(address, user);
    }

    /// Notes a login that succeeded: the name is forgiven, the address only by time.
    pub fn succeeded(&self, address: IpAddr, user: &str, now_ms: u64) {
        self.lock().succeeded(now_ms, address, user);
    }

    /// Another patience from now on.
    pub fn configure(&self, config: BackoffConfig) {
        self.lock().configure(config);
    }

    fn lock(&self) -> MutexGuard<'_, Backoff> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A login that is being tried. One that is dropped has failed: whoever goes away before the answer may have guessed.
#[derive(Debug)]
#[must_use]
pub struct Attempt<'a> {
    guard: &'a LoginGuard,
    address: IpAddr,
    user: Box<str>,
    failed_ms: Option<u64>,
}

impl Attempt<'_> {
    /// It failed by a wrong secret.
    pub fn failed(mut self, now_ms: u64) {
        self.failed_ms = Some(now_ms);
    }

    /// It succeeded.
    pub fn succeeded(mut self, now_ms: u64) {
        self.failed_ms = None;
        self.guard.succeeded(self.address, &self.user, now_ms);
    }

    /// It could not be tried, or was no guess.
    pub fn taken_back(mut self) {
        self.failed_ms = None;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut guard = self.guard.lock();
        guard.ended(self.address, &self.user);
        if let Some(now_ms) = self.failed_ms {
            guard.failed(now_ms, self.address, &self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_counts_unless_it_is_taken_back() {
        let guard = LoginGuard::new(BackoffConfig { free_failures: 0, ..BackoffConfig::default() });
        let far = IpAddr::from([192, 0, 2, 1]);
        guard.begin(far, "alice", 0).unwrap().taken_back();
        guard.begin(far, "alice", 0).unwrap().succeeded(0);
        assert_eq!(guard.may_try(far, "alice", 0), Ok(()));
        drop(guard.begin(far, "bob", 0).unwrap());
        assert!(guard.may_try(far, "", 0).is_err());
        guard.begin(far, "bob", 1000).unwrap().failed(2000);
        assert!(guard.may_try(far, "", 2900).is_err());
    }

    #[test]
    fn who_failed_at_one_door_waits_at_all() {
        let guard = LoginGuard::new(BackoffConfig { free_failures: 1, ..BackoffConfig::default() });
        let far = IpAddr::from([192, 0, 2, 1]);
        guard.failed(far, "alice", 0);
        assert_eq!(guard.may_try(far, "alice", 0), Ok(()));
        guard.failed(far, "bob", 0);
        assert!(guard.may_try(far, "", 0).is_err() && guard.may_try(far, "carol", 0).is_err());
        assert_eq!(guard.may_try([192, 0, 2, 2].into(), "bob", 0), Ok(()));
        assert_eq!(guard.may_try(far, "carol", 600), Ok(()));
    }
}
