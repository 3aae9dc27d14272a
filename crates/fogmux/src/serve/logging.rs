//! What happens, on standard error. Never payloads, never secrets: the crates below log names, counts and reasons.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::Formatter;
use tracing_subscriber::fmt::format::{DefaultFields, Format};
use tracing_subscriber::reload::Handle;

use crate::exit::{Failure, Status};

/// The environment variable that wins over `log.filter`.
const VARIABLE: &str = "FOGMUX_LOG";

/// What the subscriber is made of.
type Lines = Formatter<DefaultFields, Format, fn() -> std::io::Stderr>;

/// The log of the process, whose filter can be replaced.
pub(crate) struct Log(Handle<EnvFilter, Lines>);

impl Log {
    /// Starts logging.
    pub(crate) fn start(filter: &str) -> Result<Self, Failure> {
        let stderr: fn() -> std::io::Stderr = std::io::stderr;
        let builder = tracing_subscriber::fmt()
            .with_writer(stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_env_filter(self::filter(filter)?)
            .with_filter_reloading();
        let handle = builder.reload_handle();
        builder.try_init().map_err(|error| Failure::new(Status::IoErr, error.to_string()))?;
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

fn filter(configured: &str) -> Result<EnvFilter, Failure> {
    let text = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let (text, name) = match &text {
        Some(text) => (text.as_str(), VARIABLE),
        None => (configured, "log.filter"),
    };
    EnvFilter::try_new(text).map_err(|error| Failure::new(Status::Config, format!("{name}: {error}")))
}
