//! The log on standard error. It contains names, counts and reasons, never payloads or secrets.

mod filter;
mod form;
mod limit;
mod queue;
mod text;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::{Registry, fmt};

use self::filter::Filter;
use self::form::{Form, is_journal};
use self::limit::Limit;
use self::queue::Queue;
use crate::config::{Log as Config, LogFormat};
use crate::exit::{Failure, Status};
use crate::terminal::has_colours;

/// The environment variable that overrides `log.filter`.
const VARIABLE: &str = "FOGMUX_LOG";
/// The crates of the gateway begin with this; all others are libraries.
const OWN: &str = "fogmux";

/// The log of the process, whose settings can be replaced.
pub(crate) struct Log {
    filter: Handle<Filter, Registry>,
    json: Arc<AtomicBool>,
    limit: Limit,
    queue: Queue,
    /// The text of the filter.
    text: String,
}

/// Counts of lines that are not in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    /// Left out because too many were alike.
    pub(crate) unlogged: u64,
    /// Lost because standard error did not take them.
    pub(crate) lost: u64,
}

impl Log {
    /// Starts logging.
    pub(crate) fn start(config: &Config) -> Result<Self, Failure> {
        let stderr = io::stderr();
        let (colors, journal) = (has_colours(&stderr), is_journal(&stderr));
        let json = Arc::new(AtomicBool::new(config.format == LogFormat::Json));
        let limit = Limit::new(config.repeated_lines);
        let queue = Queue::start(&stderr).map_err(|error| Failure::io("the log", &error))?;
        let form = Form { json: json.clone(), journal };
        let lines = fmt::layer()
            .with_writer(Lines { queue: queue.clone(), json: json.clone(), colors })
            .with_ansi(colors)
            .event_format(form);
        let (filter, handle) = reload::Layer::new(self::filter(&config.filter)?);
        let log = tracing_subscriber::registry().with(filter).with(limit.clone()).with(lines);
        // Not `try_init`, which takes records of the crate `log` as well in builds where a dependency wants that.
        let set = tracing::subscriber::set_global_default(log);
        set.map_err(|error| Failure::new(Status::IoErr, error.to_string()))?;
        Ok(Self { filter: handle, json, limit, queue, text: text(&config.filter).0 })
    }

    /// Replaces the settings.
    pub(crate) fn replace(&mut self, config: &Config) -> Result<(), Failure> {
        let filter = self::filter(&config.filter)?;
        self.text = text(&config.filter).0;
        self.json.store(config.format == LogFormat::Json, Relaxed);
        self.limit.configure(config.repeated_lines);
        self.filter.reload(filter).map_err(|error| Failure::new(Status::IoErr, error.to_string()))
    }

    /// The way of lines to standard error.
    pub(crate) fn queue(&self) -> Queue {
        self.queue.clone()
    }

    /// The filter in force, as it was written.
    pub(crate) fn filter(&self) -> &str {
        &self.text
    }

    /// Replaces the filter until the next [`Log::replace`], whatever the environment says.
    pub(crate) fn set_filter(&mut self, given: &str) -> Result<(), Failure> {
        let targets = given.parse().map_err(|error| Failure::new(Status::Config, format!("the filter: {error}")))?;
        self.filter.reload(Filter(quiet(targets))).map_err(|error| Failure::new(Status::IoErr, error.to_string()))?;
        given.clone_into(&mut self.text);
        Ok(())
    }

    /// Logs how many lines were left out in windows that have passed. Returns the counts of all so far.
    pub(crate) fn look(&self) -> Missing {
        for left_out in self.limit.take(Instant::now()) {
            let limit::LeftOut { place, message, count } = left_out;
            tracing::warn!(target: "fogmux::log", %place, ?message, "{count} more of these were not logged");
        }
        Missing { unlogged: self.limit.left_out(), lost: self.queue.lost() }
    }
}

/// Makes a writer for each event.
struct Lines {
    queue: Queue,
    json: Arc<AtomicBool>,
    colors: bool,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = OneLine<'a>;

    fn make_writer(&'a self) -> OneLine<'a> {
        OneLine(self)
    }
}

/// Writes an event as one line, whatever its text has: text chosen by a peer must not create a line that fail2ban would
/// attribute to the gateway, nor move the cursor of a terminal.
struct OneLine<'a>(&'a Lines);

impl Write for OneLine<'_> {
    /// Takes a whole event, which is what the formatter writes.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let Lines { queue, json, colors } = self.0;
        // A line of JSON has been escaped, and would not be one if it were cut.
        queue.push(if json.load(Relaxed) { event.to_vec() } else { text::line(event, *colors) });
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks that the filter is valid.
pub(super) fn check(configured: &str) -> Result<(), Failure> {
    filter(configured).map(|_| ())
}

fn filter(configured: &str) -> Result<Filter, Failure> {
    let (text, name) = text(configured);
    let targets = text.parse().map_err(|error| Failure::new(Status::Config, format!("{name}: {error}")))?;
    Ok(Filter(quiet(targets)))
}

/// The text of the filter, and who named it.
fn text(configured: &str) -> (String, &'static str) {
    let named = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    named.map_or_else(|| (configured.to_owned(), "log.filter"), |named| (named, VARIABLE))
}

/// Has a level without a target hold for the gateway; libraries do not go below `warn` unless they are named.
fn quiet(targets: Targets) -> Targets {
    let Some(level) = targets.default_level().filter(|level| *level > LevelFilter::WARN) else { return targets };
    let is_named = targets.iter().any(|(target, _)| target == OWN);
    let targets = targets.with_default(LevelFilter::WARN);
    if is_named { targets } else { targets.with_target(OWN, level) }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_level_is_the_gateways_and_libraries_are_quiet_unless_they_are_named() {
        let cases = [
            ("info", [true, true, false, true]),
            ("debug", [true, true, false, true]),
            ("error", [false, false, false, false]),
            ("warn,fogmux_net=info", [false, true, false, true]),
            ("info,h2=debug", [true, true, true, true]),
            ("info,fogmux=warn", [false, false, false, true]),
        ];
        for (text, expected) in cases {
            let targets = quiet(text.parse().unwrap());
            let enabled = [
                targets.would_enable("fogmux::serve", &Level::INFO),
                targets.would_enable("fogmux_net::tls", &Level::INFO),
                targets.would_enable("h2::proto", &Level::INFO),
                targets.would_enable("h2::proto", &Level::WARN),
            ];
            assert_eq!(enabled, expected, "{text}");
        }
    }
}
