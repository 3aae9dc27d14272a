//! The log on standard error. It contains names, counts and reasons, never payloads or secrets.

use std::io::{self, Stderr, Write};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt};

use crate::exit::{Failure, Status};
use crate::terminal::has_colours;

/// The environment variable that overrides `log.filter`.
const VARIABLE: &str = "FOGMUX_LOG";

/// The log of the process, whose filter can be replaced.
pub(crate) struct Log(Handle<Targets, Registry>);

impl Log {
    /// Starts logging.
    pub(crate) fn start(filter: &str) -> Result<Self, Failure> {
        let colors = has_colours(&std::io::stderr());
        let lines = fmt::layer().with_writer(move || OneLine { stderr: std::io::stderr(), colors }).with_ansi(colors);
        let (filter, handle) = reload::Layer::new(self::filter(filter)?);
        let log = tracing_subscriber::registry().with(filter).with(lines);
        log.try_init().map_err(|error| Failure::new(Status::IoErr, error.to_string()))?;
        Ok(Self(handle))
    }

    /// Replaces the filter.
    pub(crate) fn replace(&self, filter: &str) -> Result<(), Failure> {
        let filter = self::filter(filter)?;
        self.0.reload(filter).map_err(|error| Failure::new(Status::IoErr, error.to_string()))
    }
}

/// Writes an event as one line, whatever control characters its text has: text chosen by a peer must not create a line
/// that fail2ban would attribute to the gateway.
struct OneLine {
    stderr: Stderr,
    /// Whether escape sequences of colours are part of the text.
    colors: bool,
}

impl Write for OneLine {
    /// Takes a whole event, which is what the formatter writes.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let breaks = |byte: &u8| byte.is_ascii_control() && !(self.colors && *byte == 0x1b);
        if !text.iter().any(breaks) {
            self.stderr.write_all(event)?;
            return Ok(event.len());
        }
        let mut line = Vec::with_capacity(event.len() * 2);
        for byte in text {
            if breaks(byte) {
                line.extend(byte.escape_ascii());
            } else {
                line.push(*byte);
            }
        }
        line.push(b'\n');
        self.stderr.write_all(&line)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stderr.flush()
    }
}

/// Checks that the filter is valid.
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
