//! Orders certificates when they are due, one attempt at a time, and notes what became of it. Nothing here keeps a
//! gateway from starting or a listener from serving.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fogmux_gateway::metrics::Acme as Metrics;
use fogmux_net::{Named, TlsConfig, pki};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::failed::Failed;
use super::order::{Orders, covers};
use super::schedule::{self, Due, Held, Window};
use super::state::{Failure, State};
use super::{Files, files};
use crate::config::Config;
use crate::config::acme::Acme;
use crate::home::Home;
use fogmux_net::validity::Days;

/// The longest that an attempt may take, all waiting included.
const ATTEMPT_MAX: Duration = Duration::from_secs(600);

/// The attempts of a gateway.
pub(crate) struct Engine {
    config: Acme,
    files: Files,
    state: State,
    attempt: Option<Attempt>,
    /// Whether it was said that the clock is not believed.
    has_said: bool,
}

/// An attempt under way.
struct Attempt {
    result: oneshot::Receiver<Result<Done, Failed>>,
    orders: Orders,
}

/// The result of an attempt.
enum Done {
    Issued(Box<Named>, Option<Window>),
    Told(Option<Window>),
}

impl Engine {
    /// Begins where the gateway before this one ended; `None` if no certificate is wanted.
    pub(crate) fn new(config: &Config, home: &Home) -> Option<Self> {
        let (config, files) = (config.acme.clone(), files(&home.directory));
        if config.domains.is_empty() {
            return None;
        }
        let state = State::read(&files.state).unwrap_or_else(|error| {
            tracing::warn!("{}: {error}; what ACME has tried before is forgotten", files.state.display());
            State::default()
        });
        let subject = format!("{} {} {}", config.directory, config.challenge.name(), config.domains.join(" "));
        let is_same = state.subject == subject;
        let state = if is_same { state } else { State { subject, ..State::default() } };
        Some(Self { config, files, state, attempt: None, has_said: false })
    }

    /// Has the next attempt made at once.
    pub(crate) fn retry(&mut self) {
        schedule::retry(&mut self.state);
    }

    /// Begins what is due, and notes what has ended. To be called in a runtime, every second.
    pub(crate) fn look(&mut self, metrics: &Metrics, tls: &TlsConfig) {
        match self.attempt.as_mut().map(|attempt| attempt.result.try_recv()) {
            Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(result)) => self.end(result, metrics, tls),
            Some(Err(TryRecvError::Closed)) => self.end(Err(Failed::new("the attempt has ended")), metrics, tls),
            None => {}
        }
        let now = SystemTime::now();
        if !pki::is_believable(now) {
            if !self.has_said {
                tracing::info!("ACME: the clock is not set; no certificate is asked for before it is");
                self.has_said = true;
            }
            return;
        }
        let named = tls.named();
        match schedule::due(&self.state, named.as_ref().and_then(|named| self.held(named)), unix_s(now)) {
            Due::Nothing => {}
            Due::Order => self.order(metrics, tls, unix_s(now)),
            Due::RenewalInfo => self.begin(named, tls),
        }
    }

    /// Begins an order, which is on the disk before the server hears of it.
    fn order(&mut self, metrics: &Metrics, tls: &TlsConfig, now: u64) {
        schedule::begin(&mut self.state, now, random());
        match self.state.write(&self.files.state) {
            Ok(()) => self.begin(None, tls),
            Err(error) => {
                let reason = format!("{} cannot be written: {error}", self.files.state.display());
                self.note_failed(Failed::new(reason), None, metrics, now);
            }
        }
    }

    /// Begins an order, or only asks for the time of the renewal of `named`.
    fn begin(&mut self, named: Option<Named>, tls: &TlsConfig) {
        let orders = Orders::new(self.config.clone(), self.files.clone(), tls.challenges().clone());
        if named.is_none() {
            let Acme { domains, directory, challenge, .. } = &self.config;
            tracing::info!(
                "ACME: {directory} is asked for a certificate for {} by {}",
                domains.join(", "),
                challenge.name()
            );
        }
        let (told, result) = oneshot::channel();
        let ordering = orders.clone();
        tokio::spawn(async move {
            let done = async {
                match named {
                    Some(named) => Ok(Done::Told(ordering.window(&named).await)),
                    None => ordering.order().await.map(|(named, window)| Done::Issued(Box::new(named), window)),
                }
            };
            let done = tokio::time::timeout(ATTEMPT_MAX, done).await;
            // Nobody waits for it when the gateway ends.
            let _ = told.send(done.unwrap_or_else(|_| Err(Failed::new(format!("not done within {ATTEMPT_MAX:?}")))));
        });
        self.attempt = Some(Attempt { result, orders });
    }

    fn end(&mut self, result: Result<Done, Failed>, metrics: &Metrics, tls: &TlsConfig) {
        let Some(attempt) = self.attempt.take() else { return };
        let now = unix_s(SystemTime::now());
        match result {
            Ok(Done::Issued(named, _)) if self.held(&named).is_none_or(|held| held.not_after_unix_s <= now) => {
                let failed = Failed::new("the certificate that the server has issued has expired, by the clock here");
                self.note_failed(failed, attempt.orders.client.asked_unix_s(), metrics, now);
            }
            Ok(Done::Issued(named, window)) => self.note_issued(&named, window, metrics, tls, now),
            Ok(Done::Told(window)) => {
                if let Some(held) = tls.named().as_ref().and_then(|named| self.held(named)) {
                    schedule::plan(&mut self.state, held, window, now, random());
                }
            }
            Err(failed) => self.note_failed(failed, attempt.orders.client.asked_unix_s(), metrics, now),
        }
        if let Err(error) = self.state.write(&self.files.state) {
            tracing::warn!("{}: {error}; the next start does not know what ACME has tried", self.files.state.display());
        }
    }

    fn note_failed(&mut self, failed: Failed, asked_unix_s: Option<u64>, metrics: &Metrics, now: u64) {
        metrics.failures.increment();
        let Failed { reason, problem } = failed;
        let failure = Failure { unix_s: now, reason, problem };
        schedule::fail(&mut self.state, failure, asked_unix_s, now, random());
        self.say_failure(now);
    }

    fn note_issued(&mut self, named: &Named, window: Option<Window>, metrics: &Metrics, tls: &TlsConfig, now: u64) {
        metrics.issued.increment();
        if let Err(error) = tls.reload_named() {
            tracing::error!("ACME: the certificate that was issued cannot be read: {error}");
        }
        let Some(held) = self.held(named) else { return };
        schedule::succeed(&mut self.state, held, window, now, random());
        tracing::info!(
            "ACME: a certificate for {} was issued, which is valid for {}; it is renewed in {}",
            self.config.domains.join(", "),
            Days(held.not_after_unix_s.saturating_sub(now)),
            Days(schedule::renewal(&self.state, held).saturating_sub(now)),
        );
    }

    fn say_failure(&self, now: u64) {
        let Some(Failure { reason, .. }) = &self.state.last_failure else { return };
        let wait = Duration::from_secs(self.state.next_unix_s.saturating_sub(now));
        tracing::error!(
            failures = self.state.failures,
            "ACME: no certificate was issued: {reason}; the next attempt is in {wait:?}, or at SIGHUP; `fogmux doctor` \
             says what to do"
        );
    }

    fn held(&self, named: &Named) -> Option<Held> {
        let dates = named.dates()?;
        Some(Held {
            not_before_unix_s: dates.not_before_unix_s,
            not_after_unix_s: dates.not_after_unix_s,
            covers_all: self.config.domains.iter().all(|domain| covers(named, domain)),
        })
    }
}

fn unix_s(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Spreads attempts; without random numbers they are at the first of their moments.
fn random() -> u64 {
    getrandom::u64().unwrap_or_default()
}
