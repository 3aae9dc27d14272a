//! The log, on standard error. It holds names, counts and reasons, never payloads or secrets.

use std::io::IsTerminal as _;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt};

use crate::exit::{Failure, Status};

/// The environment variable that wins over `log.filter`.
const VARIABLE: &str = "FOGMUX_LOG";

/// The log of the process, whose filter can be replaced.
pub(crate) struct Log(Handle<Targets, Registry>);

impl Log {
    /// Starts logging.
    pub(crate) fn start(filter: &str) -> Result<Self, Failure> {
        let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
        let (filter, handle) = reload::Layer::new(self::filter(filter)?);
        let log = tracing_subscriber::registry().with(filter).with(lines);
        log.try_init().map_err(|error| Failure::new(Status::IoErr, error.to_string()))?;
        Ok(Self(handle))
    }

    /// Another filter.
    pub(crate) fn replace(&self, filter: &str) -> Result<(), Failure> {
        let filter = self::filter(filter)?;
        self.0.reload(filter).map_err(|error| Failure::new(Status::IoErr, error.to_string()))
    }
}

/// Whether there is such a filter.
pub(super) fn check(configured: &str) -> Result<(), Failure> {
    filter(configured).map(|_| ())
}

fn filter(configured: &str) -> Result<Targets, Failure> {
    let text = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let (text, name) = match &text {
        Some(text) => (text.as_str(), VARIABLE),
        None => (configured, "log.filter"),
    };
    text.parse::<Targets>().map_err(|error| Failure::new(Status::Config, format!("{name}: {error}")))
}
