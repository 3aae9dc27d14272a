//! SIGHUP: everything is read and checked before anything is replaced. If a problem is found, nothing changes. A part
//! that cannot be applied then, for example because of the disk, stays as it was; all others are applied.
//!
//! Files are read when they have not changed for a moment: one that is being written may end at any line, and then
//! lack what it refuses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fogmux_auth::Rules;
use fogmux_gateway::administration::Command;
use tokio::sync::mpsc;

use super::clock::Clock;
use super::expiry::Expiry;
use super::logging::{self, Log, Missing};
use super::renewal::Renewal;
use super::watch::Watch;
use super::{banner, configuration};
#[cfg(feature = "acme")]
use crate::acme;
use crate::backup::control::Copies;
#[cfg(feature = "http")]
use crate::benches::Benches;
use crate::cli::Serve;
use crate::compose::{self, Running};
use crate::config::{self, Config};
use crate::data;
use crate::exit::Failure;
use crate::home::{self, Home};
#[cfg(feature = "mqtt")]
use crate::link::Links;
use crate::oscore;
#[cfg(feature = "otlp")]
use crate::otlp;

/// The time for which no file may have changed when it is read.
const QUIET: Duration = Duration::from_millis(250);
/// Attempts to find all files unchanged for that long.
const QUIET_ATTEMPTS: usize = 10;

/// The outcomes of a reload, for the service manager.
const APPLIED: &str = "the last reload was applied";
const PARTIAL: &str = "the last reload was applied in part; the log names the rest";
const REFUSED: &str = "the last reload was refused, nothing has changed; the log names the errors";

/// The sources of everything that a reload rereads.
pub(crate) struct Reloader {
    arguments: Serve,
    pub(super) config: Config,
    pub(super) home: Home,
    pub(super) log: Log,
    pub(super) watch: Watch,
    clock: Clock,
    expiry: Expiry,
    renewal: Renewal,
    #[cfg(feature = "acme")]
    acme: Option<acme::Engine>,
    /// Held while the store is copied.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "backups over HTTP take it"))]
    pub(super) copies: Copies,
    #[cfg(feature = "http")]
    pub(super) benches: Benches,
}

/// Settings that are read and checked, but not applied yet.
struct Fresh {
    config: Config,
    rules: Rules,
    contexts: oscore::Fresh,
    watch: Watch,
}

impl Reloader {
    /// `watch` was started before anything was read.
    pub(crate) fn new(arguments: Serve, config: Config, home: Home, log: Log, watch: Watch, copies: Copies) -> Self {
        let (clock, expiry, renewal) = (Clock::new(), Expiry::default(), Renewal::default());
        #[cfg(feature = "acme")]
        let acme = acme::Engine::new(&config, &home);
        Self {
            arguments,
            config,
            home,
            log,
            watch,
            clock,
            expiry,
            renewal,
            copies,
            #[cfg(feature = "acme")]
            acme,
            #[cfg(feature = "http")]
            benches: Benches::default(),
        }
    }

    /// The configuration file; `None` for the built-in defaults.
    #[cfg(feature = "http")]
    pub(super) fn config_file(&self) -> Option<PathBuf> {
        self.arguments.config.clone()
    }

    /// Begins to take the commands of administrators.
    pub(crate) fn administration(&self, running: &Running) -> mpsc::Receiver<Command> {
        // One that is closed, were they taken already.
        running.gateway.shared.administration.open().unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// Prints the banner.
    pub(crate) fn announce(&self, running: &Running) {
        let (listening, domain) = (&running.gateway.shared.listening, self.config.xmpp_domain());
        banner::print(listening, &self.home, domain, self.arguments.json);
        tracing::info!(data = %self.home.directory.display(), "ready");
    }

    /// Checks whether files or the clock have changed, and whether certificates are about to expire.
    pub(crate) fn look(&mut self, running: &Running) {
        if self.clock.was_set() {
            tracing::info!("the clock was set; credentials that end are looked at again");
            running.authority.look_again();
            running.gateway.shared.bus.invalidate();
        }
        self.watch.look(running, &self.config, &self.home);
        running.gateway.shared.waiting.set(running.contexts.why_waiting());
        let Missing { unlogged, lost } = self.log.look();
        let metrics = &running.gateway.shared.metrics;
        for (counter, count) in [(&metrics.lines_unlogged, unlogged), (&metrics.lines_lost, lost)] {
            counter.add(count.saturating_sub(counter.get()));
        }
        let Some(tls) = running.gateway.tls() else { return };
        #[cfg(feature = "acme")]
        if let Some(engine) = &mut self.acme {
            engine.look(&metrics.acme, tls);
        }
        if self.renewal.is_under_way() {
            return;
        }
        let in_force = self.watch.look_at_certificates(running, &self.config, &self.home);
        // A new certificate that is about to be read makes the end of the present one nobody's concern.
        if !self.renewal.begin_in_time(&self.config, &self.home, tls) && in_force {
            self.expiry.look(tls);
        }
    }

    /// Starts the links to other brokers.
    #[cfg(feature = "mqtt")]
    pub(crate) fn links(&self, running: &Running) -> Links {
        Links::start(&self.config.links, &running.gateway, &self.home.directory)
    }

    /// Begins to export traces, if there are any.
    #[cfg(feature = "otlp")]
    pub(crate) fn exporter(&self, running: &Running) -> otlp::Exporter {
        otlp::Exporter::start(&self.config.telemetry.traces, running.gateway.shared.traces.clone())
    }

    /// Ends what is done beside the gateway.
    pub(crate) async fn stop(&mut self) {
        #[cfg(feature = "http")]
        self.benches.stop().await;
    }

    /// The time limit for connections to end, by the newest configuration.
    pub(crate) fn drain(&self) -> Duration {
        self.config.workers.drain
    }

    /// Rereads everything, logs the result, and returns it in a few words.
    pub(crate) async fn reload(&mut self, running: &Running) -> &'static str {
        self.renewal.finish();
        self.wait_until_quiet().await;
        let reloads = &running.gateway.shared.metrics.reloads;
        let problems = match self.read(running) {
            Ok(fresh) => self.put_in_place(fresh, running),
            Err(failures) => {
                failures.iter().filter_map(Failure::message).flat_map(lines).for_each(|line| tracing::error!("{line}"));
                tracing::error!("nothing was reloaded; everything stays as it was");
                reloads.refused.increment();
                return REFUSED;
            }
        };
        if problems.is_empty() {
            tracing::info!("configuration, users, rules and certificates are read again");
            reloads.applied.increment();
            APPLIED
        } else {
            problems.into_iter().flat_map(lines).for_each(|line| tracing::error!("{line}"));
            tracing::error!("everything else is read again and holds; SIGHUP tries the rest once more");
            reloads.partial.increment();
            PARTIAL
        }
    }

    /// Waits until two looks at all files have found the same, but not for ever: a file that a program keeps appending
    /// to would keep everything else from being applied.
    async fn wait_until_quiet(&self) {
        let texts = || config::sources(self.arguments.config.as_deref().map(Path::new), &[]).ok();
        for _ in 0..QUIET_ATTEMPTS {
            let Ok(config) = configuration(&self.arguments) else { return tokio::time::sleep(QUIET).await };
            let (before, watch) = (texts(), self.watch.anew(&config, &self.home));
            tokio::time::sleep(QUIET).await;
            if before == texts() && watch.is_quiet(&config, &self.home) {
                return;
            }
        }
    }

    fn read(&self, running: &Running) -> Result<Fresh, Vec<Failure>> {
        let config = configuration(&self.arguments).map_err(|failure| vec![failure])?;
        let mut failures = Vec::new();
        let mut note = |failure| failures.push(failure);
        let watch = self.watch.anew(&config, &self.home);
        let rules = self.watch.rules(&config, &self.home).map_err(&mut note).ok();
        // Checks the files; the active configuration reads them again below.
        let made = data::check_authority(&self.home.directory)
            .and_then(|()| home::certificate(&config, &self.home.directory).map(drop));
        let certificate = made.map_err(&mut note).ok();
        let contexts = oscore::read_usable(&running.contexts, &config, &self.home.directory).map_err(&mut note).ok();
        logging::check(&config.log.filter).unwrap_or_else(&mut note);
        watch.unchanged(&config, &self.home).unwrap_or_else(&mut note);
        match (rules, certificate, contexts) {
            (Some(rules), Some(_), Some(contexts)) if failures.is_empty() => {
                Ok(Fresh { config, rules, contexts, watch })
            }
            (_, _, _) => Err(failures),
        }
    }

    /// Applies all that can be applied; returns what could not.
    fn put_in_place(&mut self, fresh: Fresh, running: &Running) -> Vec<String> {
        let mut problems = Vec::new();
        let Fresh { config, rules, contexts, mut watch } = fresh;
        if let Err(error) = watch.put_certificates_in_place(running, &config, &self.home) {
            problems.push(format!("certificates and revocations stay as they were: {error}"));
            watch.fail_certificates(&error);
        }
        if let Err(failure) = oscore::put_in_place(&running.contexts, contexts, &self.home.directory) {
            problems.push(oscore::not_in_use(&failure));
            watch.fail_contexts(&failure);
        }
        if let Err(failure) = self.log.replace(&config.log) {
            problems.extend(failure.message());
        }
        // Before the rules, whose new generation makes every connection check again.
        let mut listeners = self.config.listeners.clone();
        listeners.take_over(&config.listeners);
        let certificate = running.gateway.tls().is_some();
        let listening = compose::listen(&Config { listeners, ..self.config.clone() }, certificate);
        let shared = &running.gateway.shared;
        shared.listening.admit_anonymous(&listening);
        watch.put_in_place(running, rules, &config, &self.home);
        shared.refusals.configure(config.log.refused_logins, config.log.refused_actions);
        shared.administration.allow_changes(config.auth.api_changes);
        shared.logins.configure(config.auth.backoff);
        shared.verifiers.configure(config.auth.verification);
        for section in self.config.sections_that_need_a_restart(&config) {
            tracing::warn!("[{section}] has changed; that takes effect when the gateway is restarted");
        }
        #[cfg(feature = "acme")]
        if let Some(engine) = &mut self.acme {
            engine.retry();
        }
        self.config.take_over(config);
        self.watch = watch;
        problems
    }
}

fn lines(text: String) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
