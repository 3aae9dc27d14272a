//! The bound on lines that a peer can cause again and again: each place in the program writes a few lines in ten
//! seconds, and then one line counts those that were left out. Places do not share this bound, so a rare line is never
//! lost because of a frequent one.
//!
//! Lines of the program itself (configuration, reload, files of users and keys) have no bound, because an administrator
//! causes them. Lines about refused logins and actions have bounds of their own, which are fair to every address
//! (`fogmux_auth::Refusals`). Nor have lines at `debug` and below, which somebody has asked for.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Long enough that a flood is a few lines a minute, short enough that its end is seen.
const WINDOW: Duration = Duration::from_secs(10);
/// The beginning of a message by which a reader knows it again, in bytes.
const MESSAGE_MAX: usize = 96;
/// Of lines without a bound, or with one of their own.
const EXEMPT: [&str; 2] = ["fogmux", "fogmux_auth"];
/// Where the program itself talks with peers: links to other brokers.
const OF_PEERS: &str = "fogmux::link";

/// Whether a peer can cause a line of this target again and again.
fn is_of_peers(target: &str) -> bool {
    let is_exempt = EXEMPT.contains(&target.split("::").next().unwrap_or_default());
    !is_exempt || target.strip_prefix(OF_PEERS).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Leaves out lines; the clones share their counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    lines_max: AtomicU32,
    left_out: AtomicU64,
    /// By the address of the place's description, so at most as many as the program has places.
    places: Mutex<HashMap<usize, Place>>,
}

/// The lines of one place in the program.
#[derive(Debug)]
struct Place {
    metadata: &'static Metadata<'static>,
    began: Instant,
    lines: u32,
    left_out: u64,
    message: String,
}

/// Lines of one place that were left out.
#[derive(Debug)]
pub(super) struct LeftOut {
    pub(super) place: String,
    pub(super) message: String,
    pub(super) count: u64,
}

impl Limit {
    pub(super) fn new(lines_max: u32) -> Self {
        let limit = Self::default();
        limit.configure(lines_max);
        limit
    }

    /// Sets how many lines of one place are written in a window.
    pub(super) fn configure(&self, lines_max: u32) {
        self.0.lines_max.store(lines_max, Relaxed);
    }

    /// The number of lines that were left out so far.
    pub(super) fn left_out(&self) -> u64 {
        self.0.left_out.load(Relaxed)
    }

    /// Ends windows that have passed, and returns what was left out in them.
    pub(super) fn take(&self, now: Instant) -> Vec<LeftOut> {
        let mut places = self.places();
        let ended = places.values_mut().filter(|place| place.left_out > 0 && now >= place.began + WINDOW);
        let mut all: Vec<_> = ended.map(|place| place.end(now)).collect();
        all.sort_unstable_by(|a, b| a.place.cmp(&b.place));
        all
    }

    fn admit(&self, event: &Event<'_>, now: Instant) -> bool {
        let metadata = event.metadata();
        let lines_max = self.0.lines_max.load(Relaxed);
        let mut places = self.places();
        let place = places.entry(std::ptr::from_ref(metadata).addr()).or_insert_with(|| Place::new(metadata, now));
        // A window in which lines were left out lasts until they are counted.
        if place.left_out == 0 && now >= place.began + WINDOW {
            (place.began, place.lines) = (now, 0);
        }
        if place.lines < lines_max {
            place.lines += 1;
            return true;
        }
        if place.left_out == 0 {
            place.message.clear();
            event.record(&mut Message(&mut place.message));
        }
        place.left_out += 1;
        self.0.left_out.fetch_add(1, Relaxed);
        false
    }

    fn places(&self) -> MutexGuard<'_, HashMap<usize, Place>> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn new(metadata: &'static Metadata<'static>, now: Instant) -> Self {
        Self { metadata, began: now, lines: 0, left_out: 0, message: String::new() }
    }

    fn end(&mut self, now: Instant) -> LeftOut {
        let (file, line) = (self.metadata.file().unwrap_or_default(), self.metadata.line().unwrap_or_default());
        let name = file.rsplit('/').next().unwrap_or_default();
        let count = std::mem::take(&mut self.left_out);
        (self.began, self.lines) = (now, 0);
        let place = format!("{} ({name}:{line})", self.metadata.target());
        LeftOut { place, message: std::mem::take(&mut self.message), count }
    }
}

/// Takes the beginning of an event's message.
struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}");
            self.0.truncate(self.0.floor_char_boundary(MESSAGE_MAX));
        }
    }
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        *metadata.level() > Level::INFO || !is_of_peers(metadata.target()) || self.admit(event, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Counts the events that reach it, by their message.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<HashMap<String, u32>>>);

    impl<S: Subscriber> Layer<S> for Seen {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut message = String::new();
            event.record(&mut Message(&mut message));
            *self.0.lock().unwrap().entry(message).or_default() += 1;
        }
    }

    impl Seen {
        fn count(&self, message: &str) -> u32 {
            self.0.lock().unwrap().get(message).copied().unwrap_or_default()
        }
    }

    #[test]
    fn a_frequent_line_is_counted_and_the_others_are_all_written() {
        let (limit, seen) = (Limit::new(3), Seen::default());
        let log = tracing_subscriber::registry().with(limit.clone()).with(seen.clone());
        tracing::subscriber::with_default(log, || {
            for number in 0..10_000 {
                tracing::warn!(target: "fogmux_net::tls", number, "bad name");
                tracing::error!(target: "fogmux::serve", number, "of the program");
                tracing::debug!(target: "fogmux_net::tls", number, "asked for");
            }
            tracing::warn!(target: "fogmux_net::tls", "rare");
        });
        let counts = ["bad name", "of the program", "asked for", "rare"].map(|message| seen.count(message));
        assert_eq!(counts, [3, 10_000, 10_000, 1]);
        assert_eq!(limit.left_out(), 9_997);
        let now = Instant::now();
        assert!(limit.take(now).is_empty(), "the window has not passed");
        let left_out = limit.take(now + WINDOW);
        let [line] = &left_out[..] else { panic!("{left_out:?}") };
        assert_eq!((line.count, &*line.message), (9_997, "bad name"));
        assert!(line.place.starts_with("fogmux_net::tls (limit.rs:"), "{}", line.place);
        assert!(limit.take(now + 2 * WINDOW).is_empty(), "each is counted once");
    }

    #[test]
    fn lines_of_links_are_caused_by_peers() {
        for (target, expected) in [
            ("fogmux::link", true),
            ("fogmux::link::relay", true),
            ("fogmux_net::tls", true),
            ("fogmux::linked", false),
            ("fogmux::serve", false),
            ("fogmux_auth", false),
        ] {
            assert_eq!(is_of_peers(target), expected, "{target}");
        }
    }

    #[test]
    fn a_new_window_has_lines_again_and_the_number_can_be_changed() {
        let (limit, seen) = (Limit::new(1), Seen::default());
        let log = tracing_subscriber::registry().with(limit.clone()).with(seen.clone());
        tracing::subscriber::with_default(log, || {
            let say = || (0..5).for_each(|_| tracing::info!(target: "fogmux_net::tls", "again"));
            say();
            assert_eq!(seen.count("again"), 1);
            let _ = limit.take(Instant::now() + WINDOW);
            limit.configure(2);
            // The window begins at the time that `take` was told.
            say();
            assert_eq!(seen.count("again"), 3);
        });
    }
}
