//! The form of a line: text for readers, or one JSON object for programs. Under systemd's journal, which keeps time and
//! priority itself, a line begins with its priority (sd-daemon(3)) in place of the time.

use std::fmt;
use std::io::Stderr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::text::{cut, unquoted};
use crate::terminal::is_hidden;

/// Writes events in one form or the other.
#[derive(Debug)]
pub(super) struct Form {
    /// Whether lines are JSON objects, which a reload may change.
    pub(super) json: Arc<AtomicBool>,
    pub(super) journal: bool,
}

impl<S, N> FormatEvent<S, N> for Form
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if self.journal {
            write!(to, "<{}>", priority(*event.metadata().level()))?;
        }
        if self.json.load(Relaxed) {
            return json(to, event, self.journal);
        }
        let text = Format::<Full>::default();
        if self.journal { text.without_time().format_event(ctx, to, event) } else { text.format_event(ctx, to, event) }
    }
}

/// The priority of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

fn json(mut to: Writer<'_>, event: &Event<'_>, journal: bool) -> fmt::Result {
    let mut object = Map::new();
    if !journal {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        object.insert("time".to_owned(), time.into());
    }
    let metadata = event.metadata();
    object.insert("level".to_owned(), metadata.level().as_str().to_lowercase().into());
    object.insert("target".to_owned(), metadata.target().into());
    event.record(&mut Fields(&mut object));
    // JSON need not escape DEL and what else a terminal may take for a command.
    for char in Value::Object(object).to_string().chars() {
        if is_hidden(char) {
            char.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(to, "\\u{unit:04x}"))?;
        } else {
            to.write_char(char)?;
        }
    }
    to.write_char('\n')
}

/// Collects the fields of an event.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, &*cut(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        // A text that lines of the other form quote.
        self.put(field, &*cut(&unquoted(&text).unwrap_or(text)));
    }
}

/// Returns whether standard error is connected to the journal (systemd.exec(5), `JOURNAL_STREAM`).
pub(super) fn is_journal(stderr: &Stderr) -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(found) = rustix::fs::fstat(stderr.as_fd()) else { return false };
    stream == format!("{}:{}", found.st_dev, found.st_ino)
}
