//! Export of traces by OTLP over HTTP (OpenTelemetry Protocol 1.x) to the collector of `[telemetry.traces]` (ADR 0071).
//!
//! Spans wait in a queue of the gateway that has a bound. A task takes them from there in batches; what it cannot
//! deliver is tried again, later and later, and never holds up anything else.

mod collector;
mod message;
mod protobuf;

use std::sync::Arc;
use std::time::Duration;

use fogmux_gateway::traces::{Span, Traces, TracesConfig};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use self::collector::{Collector, NotTaken, Taken};
use crate::config::telemetry;

/// The longest time between attempts while the collector takes nothing.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The longest time that a collector may ask for.
const ASKED_MAX: Duration = Duration::from_secs(600);
/// The time between two log lines about the collector, at least: one that fails every other time is no news.
const SAID_AGAIN: Duration = Duration::from_secs(60);

/// The settings of the gateway; `None` if nothing is traced.
pub(crate) fn of_gateway(config: &telemetry::Traces) -> Option<TracesConfig> {
    config.collector().map(|_| TracesConfig {
        one_in: config.sample_one_in,
        follow_parents: config.follow_parents,
        queue_spans_max: config.queue_spans_max,
    })
}

/// The task that exports.
pub(crate) struct Exporter(Option<Running>);

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    timeout: Duration,
}

impl Exporter {
    /// Starts it, if messages are traced.
    pub(crate) fn start(config: &telemetry::Traces, traces: Option<Arc<Traces>>) -> Self {
        let (Some(traces), Some(target)) = (traces, config.collector()) else { return Self(None) };
        let collector = Collector::new(target, config);
        let export = Export {
            traces,
            batch_spans_max: config.batch_spans_max,
            interval: config.interval,
            pending: Vec::new(),
            failures: 0,
            asked: Duration::ZERO,
            said: None,
            told: false,
        };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(export.run(collector, stopped));
        Self(Some(Running { stop, task, timeout: config.timeout }))
    }

    /// Exports what is left, for as long as one request may take.
    pub(crate) async fn finish(self) {
        let Some(Running { stop, mut task, timeout: most }) = self.0 else { return };
        // The task ends by this only.
        let _ = stop.send(());
        if timeout(most, &mut task).await.is_err() {
            task.abort();
            tracing::warn!("the last spans were not exported within {most:?}");
        }
    }
}

/// The state of the task.
struct Export {
    traces: Arc<Traces>,
    batch_spans_max: usize,
    interval: Duration,
    /// A batch that was not taken yet.
    pending: Vec<Span>,
    /// Attempts in a row that failed.
    failures: u32,
    /// The time that the collector has asked for before the next attempt.
    asked: Duration,
    /// When the log last told of the collector.
    said: Option<Instant>,
    /// It has told that spans are not taken, and not yet that they are again.
    told: bool,
}

impl Export {
    async fn run(mut self, collector: Collector, mut stopped: oneshot::Receiver<()>) {
        loop {
            let next = Instant::now() + self.pause();
            let is_failing = self.failures > 0;
            tokio::select! {
                _ = &mut stopped => break,
                () = sleep_until(next) => {}
                () = self.traces.spans.half_full(), if !is_failing => {}
            }
            tokio::select! {
                // A request that is under way then is made again below: the collector may get spans twice, as it may
                // after any request that is not answered.
                _ = &mut stopped => break,
                () = self.export(&collector) => {}
            }
        }
        self.export(&collector).await;
        let left = self.pending.len() + self.traces.spans.take(usize::MAX).len();
        if left > 0 {
            self.traces.spans.dropped_refused.add(count(left));
            tracing::warn!("{left} spans were not exported");
        }
    }

    /// The time until the next attempt.
    fn pause(&self) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.interval.saturating_mul(factor).min(BACKOFF_MAX.max(self.interval)).max(self.asked.min(ASKED_MAX))
    }

    /// Exports until nothing is left or the collector does not take a batch.
    async fn export(&mut self, collector: &Collector) {
        loop {
            if self.pending.is_empty() {
                self.pending = self.traces.spans.take(self.batch_spans_max);
            }
            if self.pending.is_empty() {
                return;
            }
            let spans = &self.traces.spans;
            let length = count(self.pending.len());
            match collector.take(&self.pending).await {
                Ok(Taken { refused, why }) => {
                    spans.exported.add(length.saturating_sub(refused));
                    spans.dropped_refused.add(refused.min(length));
                    let was_told = std::mem::take(&mut self.told);
                    if refused > 0 && self.is_news() {
                        tracing::warn!("the collector of telemetry.traces.endpoint refused {refused} spans: {why:?}");
                    } else if self.failures > 0 && was_told {
                        tracing::info!("the collector takes spans again");
                    }
                    (self.failures, self.asked) = (0, Duration::ZERO);
                }
                Err(NotTaken::Now { why, asked }) => {
                    self.asked = asked.unwrap_or_default();
                    return self.failed(&why, "they are tried again, and dropped when too many");
                }
                Err(NotTaken::Ever(why)) => {
                    spans.dropped_refused.add(length);
                    self.pending.clear();
                    return self.failed(&why, "they are dropped");
                }
            }
            self.pending.clear();
        }
    }

    /// Notes a failure. One of an outage is logged, the first unless something was said of the collector just before.
    fn failed(&mut self, why: &str, then: &str) {
        if !self.told && self.is_news() {
            self.told = true;
            tracing::warn!("the collector of telemetry.traces.endpoint does not take spans: {why}; {then}");
        }
        self.failures = self.failures.saturating_add(1);
    }
}

impl Export {
    /// Whether the log has said nothing of the collector for a while.
    fn is_news(&mut self) -> bool {
        let now = Instant::now();
        let is_news = self.said.is_none_or(|said| now.duration_since(said) >= SAID_AGAIN);
        if is_news {
            self.said = Some(now);
        }
        is_news
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
