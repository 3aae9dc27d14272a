//! Renewal of the gateway's own certificate while it runs.
//!
//! A start renews it if it expires within 30 days. A gateway that is left alone may not be started again before that,
//! and one whose clock was wrong at the start may have a certificate with wrong dates.

use std::path::Path;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fogmux_net::{Role, TlsConfig};

use crate::clock;
use crate::config::Config;
use crate::home::{self, Home};
use fogmux_net::validity::{DAY_S, Stage, Validity};

/// The time between two attempts, of which the first fails on a full disk.
const TRIED_EVERY: Duration = Duration::from_secs(DAY_S);

/// The attempts so far.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    tried: Option<SystemTime>,
    /// Makes an RSA key, which takes a small board many seconds.
    thread: Option<JoinHandle<()>>,
}

impl Renewal {
    /// Returns whether a renewal is under way: the files may not belong together then.
    pub(super) fn is_under_way(&mut self) -> bool {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            self.finish();
        }
        self.thread.is_some()
    }

    /// Begins a renewal if it is time; returns whether it did.
    pub(super) fn begin_in_time(&mut self, config: &Config, home: &Home, tls: &TlsConfig) -> bool {
        let now = SystemTime::now();
        // An operator's certificate is renewed by its operator.
        if config.tls.certificate_file.is_some()
            || !self.is_time(now)
            || !is_due(tls, now, &home::store(config, &home.directory))
        {
            return false;
        }
        self.tried = Some(now);
        self.begin(config.clone(), home);
        self.thread.is_some()
    }

    /// Waits for a renewal that is under way.
    pub(super) fn finish(&mut self) {
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the renewal of the gateway's own certificate has failed");
        }
    }

    fn is_time(&self, now: SystemTime) -> bool {
        // A clock that is set back must not delay it for years.
        let since = self.tried.map(|tried| now.duration_since(tried).unwrap_or_else(|back| back.duration()));
        since.is_none_or(|since| since >= TRIED_EVERY)
    }

    fn begin(&mut self, config: Config, home: &Home) {
        let directory = home.directory.clone();
        let renew = move || match home::certificate(&config, &directory) {
            // It has logged what it did; the watch reads the files.
            Ok(_) => {}
            Err(failure) => {
                let why = failure.message().unwrap_or_default();
                tracing::error!("the gateway's own certificate cannot be renewed: {why}");
            }
        };
        match Builder::new().name("renewal".to_owned()).spawn(renew) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => tracing::error!(%error, "the gateway's own certificate cannot be renewed"),
        }
    }
}

/// Whether a certificate of the server expires soon, or was made by a clock that was ahead and has been set right.
/// One that is valid only later because the clock is in the past is left alone.
fn is_due(tls: &TlsConfig, now: SystemTime, store: &Path) -> bool {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut servers = tls.in_use().into_iter().filter(|certificate| certificate.role == Role::Server);
    servers.any(|certificate| match Validity::at(now.as_secs(), &certificate.dates).stage {
        Stage::Good => false,
        Stage::Month | Stage::Week | Stage::Expired => true,
        Stage::Early => {
            let valid_from = Duration::from_secs(certificate.dates.not_before_unix_s);
            !clock::is_behind(now, valid_from, store)
        }
    })
}

#[cfg(test)]
mod tests {
    use fogmux_net::pki;

    use super::*;

    #[test]
    fn a_certificate_of_a_clock_that_was_ahead_is_made_anew_and_one_of_a_clock_in_the_past_is_kept() {
        const MADE: u64 = 1_900_000_000;
        let data = tempfile::tempdir().unwrap();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let made = pki::ensure(data.path(), &["localhost".to_owned()], at(MADE)).unwrap();
        let tls = TlsConfig::load(&made.certificate, &made.key).unwrap();
        let due = |now| is_due(&tls, at(now), &data.path().join("store"));
        assert!(!due(MADE + DAY_S), "it is valid");
        assert!(due(MADE - 10 * DAY_S), "the clock was ahead, and is right now");
        assert!(!due(600), "the clock is in 1970");
        assert!(due(MADE + 100_000 * DAY_S), "it has expired");
    }
}
