//! Durations in a histogram of fixed relative precision, which is kept whole in every report.

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Three digits: every value is right to a thousandth.
const DIGITS: u8 = 3;
/// The longest that is told apart: one hour, in nanoseconds. Longer ones count as this.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A histogram of durations.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "both bounds and the precision are constants that fit")]
        Self(Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("bounds that fit"))
    }
}

impl Latency {
    /// Counts one duration, in nanoseconds.
    pub fn record_ns(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Counts the same duration several times.
    pub fn record_many_ns(&mut self, ns: u64, times: u64) {
        self.0.saturating_record_n(ns, times);
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        // Same bounds: nothing that does not fit.
        let _ = self.0.add(&other.0);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The `percent`th percentile in microseconds, if there is any value.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> Option<f64> {
        (self.count() > 0).then(|| us(self.0.value_at_percentile(percent)))
    }

    /// The mean in microseconds.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.mean() / 1_000.0)
    }

    /// The shortest, in microseconds.
    #[must_use]
    pub fn min_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| us(self.0.min()))
    }

    /// The longest, in microseconds.
    #[must_use]
    pub fn max_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| us(self.0.max()))
    }

    /// Value in nanoseconds and count, of every value that occurred, rising.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "three digits are kept")]
fn us(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}

impl Serialize for Latency {
    /// Pairs of nanoseconds and count.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.counts())
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut latency = Self::default();
        for (ns, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            latency.0.saturating_record_n(ns, count);
        }
        Ok(latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut latency = Latency::default();
        (1..2_000u64).for_each(|n| latency.record_ns(n * n * 1_000));
        let text = serde_json::to_string(&latency).unwrap();
        let read: Latency = serde_json::from_str(&text).unwrap();
        assert_eq!(read.count(), latency.count());
        for percent in [0.0, 50.0, 99.0, 99.9, 100.0] {
            assert_eq!(read.percentile_us(percent), latency.percentile_us(percent));
        }
    }

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(Latency::default().percentile_us(50.0), None);
    }
}
