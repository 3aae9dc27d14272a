//! SIGHUP: everything is read and checked before anything is put in place, and on any problem all stays as it was.

use std::time::Duration;

use fogmux_auth::Rules;

use super::configuration;
use super::logging::Log;
use crate::cli::Serve;
use crate::compose::Running;
use crate::config::Config;
use crate::exit::Failure;
use crate::home::{self, Home};

/// What is needed to read everything again.
pub(crate) struct Reloader {
    arguments: Serve,
    config: Config,
    home: Home,
    log: Log,
}

/// Read, checked, and not yet in place.
struct Fresh {
    config: Config,
    rules: Rules,
}

impl Reloader {
    pub(crate) fn new(arguments: Serve, config: Config, home: Home, log: Log) -> Self {
        Self { arguments, config, home, log }
    }

    /// How long connections get to end, by the newest configuration.
    pub(crate) fn drain(&self) -> Duration {
        self.config.workers.drain
    }

    /// Reads everything again; logs what came of it.
    pub(crate) fn reload(&mut self, running: &Running) {
        let done = self.read().and_then(|fresh| self.put_in_place(fresh, running).map_err(|failure| vec![failure]));
        match done {
            Ok(()) => tracing::info!("configuration, users, rules and certificates are read again"),
            Err(failures) => {
                for line in failures.iter().filter_map(Failure::message).flat_map(lines) {
                    tracing::error!("{line}");
                }
                tracing::error!("nothing was reloaded; everything stays as it was");
            }
        }
    }

    fn read(&self) -> Result<Fresh, Vec<Failure>> {
        let config = configuration(&self.arguments).map_err(|failure| vec![failure])?;
        let mut failures = Vec::new();
        let mut note = |failure| failures.push(failure);
        let rules = home::rules(&config, &self.home.directory).map_err(&mut note).ok();
        // Checks the files; the one in use reads them again below.
        let certificate = home::certificate(&config, &self.home.directory).map_err(&mut note).ok();
        match (rules, certificate) {
            (Some(rules), Some(_)) => Ok(Fresh { config, rules }),
            (None, _) | (_, None) => Err(failures),
        }
    }

    fn put_in_place(&mut self, fresh: Fresh, running: &Running) -> Result<(), Failure> {
        // What can fail comes first.
        if let Some(tls) = running.gateway.tls() {
            tls.reload().map_err(|error| Failure::new(crate::exit::Status::IoErr, error))?;
        }
        self.log.replace(&fresh.config.log.filter)?;
        running.authority.replace(fresh.rules);
        running.gateway.shared.bus.invalidate();
        for section in self.config.sections_that_need_a_restart(&fresh.config) {
            tracing::warn!("[{section}] has changed; that takes effect when the gateway is restarted");
        }
        self.config.take_over(fresh.config);
        Ok(())
    }
}

fn lines(text: String) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
