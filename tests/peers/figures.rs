//! The figures of one repetition, and the median of several.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// One in so many messages takes as long as the 99th percentile, or longer.
const TAIL: u64 = 100;

/// One repetition of a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Processor time of the server a message, in microseconds.
    pub(crate) cost_us: f64,
    /// Messages, requests or connections a second.
    pub(crate) rate: f64,
    /// The 99th percentile of the latency, in microseconds.
    pub(crate) p99_us: f64,
    /// Resident memory of a connection, in KiB.
    pub(crate) connection_kib: f64,
    /// Whether the generator was what ended the rate.
    pub(crate) is_limited: bool,
}

impl Figures {
    /// Of the one outcome of a report.
    ///
    /// # Errors
    /// When the repetition failed, or lost or doubled something.
    pub(crate) fn of(report: &Value) -> Result<Self> {
        let outcome =
            report.pointer("/runs/0/outcomes/0").with_context(|| format!("no outcome: {}", problem(report)))?;
        let number = |at: &str| outcome.pointer(at).and_then(Value::as_f64).unwrap_or_default();
        // An observer is told of a state, which may be the same again (RFC 7641 §3.4).
        let doubled = if number("/conflated") > 0.0 { 0.0 } else { number("/duplicates") };
        let reason = outcome.get("first_error").unwrap_or(&Value::Null);
        for (fault, count) in [("errors", number("/errors")), ("duplicates", doubled), ("ends", number("/disconnects"))]
        {
            ensure!(count == 0.0, "{count} {fault}: {reason}");
        }
        ensure!(number("/delivered") + number("/conflated") >= number("/expected"), "messages were lost");
        let deliveries = histogram(outcome.get("delivery"));
        let latencies = if deliveries.is_empty() { histogram(outcome.get("answer")) } else { deliveries };
        let made = histogram(outcome.get("connect")).iter().map(|(_, count)| count).sum::<u64>();
        // A connection of `connect` carries no message.
        let messages = match number("/delivered").max(number("/acknowledged")) {
            0.0 => count(made),
            messages => messages,
        };
        ensure!(messages > 0.0, "nothing happened");
        Ok(Self {
            cost_us: number("/gateway/cpu_us") / messages,
            rate: messages / number("/seconds").max(f64::MIN_POSITIVE),
            p99_us: percentile(&latencies),
            connection_kib: number("/more/resident_bytes_per_connection") / 1024.0,
            is_limited: !outcome.get("limited_by_generator").unwrap_or(&Value::Null).is_null(),
        })
    }

    /// The median of each figure.
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let middle = |figure: fn(&Self) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(figure).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        Self {
            cost_us: middle(|round| round.cost_us),
            rate: middle(|round| round.rate),
            p99_us: middle(|round| round.p99_us),
            connection_kib: middle(|round| round.connection_kib),
            is_limited: rounds.iter().any(|round| round.is_limited),
        }
    }
}

fn problem(report: &Value) -> &Value {
    report.pointer("/runs/0/problem").unwrap_or(&Value::Null)
}

/// Pairs of nanoseconds and counts, ascending.
fn histogram(value: Option<&Value>) -> Vec<(u64, u64)> {
    let pair = |pair: &Value| Some((pair.get(0)?.as_u64()?, pair.get(1)?.as_u64()?));
    value.and_then(Value::as_array).map(|pairs| pairs.iter().filter_map(pair).collect()).unwrap_or_default()
}

fn percentile(pairs: &[(u64, u64)]) -> f64 {
    let total: u64 = pairs.iter().map(|(_, count)| count).sum();
    let mut above = 0;
    let found = pairs.iter().rev().find(|(_, count)| {
        above += count;
        above * TAIL >= total
    });
    found.map_or(0.0, |(nanoseconds, _)| count(*nanoseconds) / 1000.0)
}

#[expect(clippy::cast_precision_loss, reason = "counts and times of a repetition are far below 2^53")]
fn count(value: u64) -> f64 {
    value as f64
}
