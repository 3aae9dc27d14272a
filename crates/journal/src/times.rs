//! How long commits take: counts by bounds, as a histogram of Prometheus has them.

use std::time::Duration;

/// The upper bounds of the counts.
const BOUNDS: [Duration; 13] = [
    Duration::from_micros(1_000),
    Duration::from_micros(2_500),
    Duration::from_micros(5_000),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_millis(1_000),
    Duration::from_millis(2_500),
    Duration::from_millis(5_000),
    Duration::from_millis(10_000),
];

/// Times since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Those of each bound, without those of the bounds before; the last are above all bounds.
    counts: [u64; BOUNDS.len() + 1],
    sum: Duration,
}

/// Times of commits and of what they consist of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitTimes {
    /// Of whole commits, from the first write to the end of the last synchronisation.
    pub commits: Times,
    /// Of the synchronisations of each commit that has any.
    pub syncs: Times,
}

impl Times {
    pub(crate) fn note(&mut self, time: Duration) {
        let at = BOUNDS.iter().position(|bound| time <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(time);
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// The number of each bound, without those of the bounds before. `None` stands for more than the last.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        BOUNDS.iter().copied().map(Some).chain([None]).zip(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_at_the_first_bound_that_it_does_not_exceed() {
        let mut times = Times::default();
        let samples = [0, 1_000, 1_001, 10_000, 10_000_000, 10_000_001];
        samples.into_iter().for_each(|micros| times.note(Duration::from_micros(micros)));
        let counted: Vec<_> = times.buckets().filter(|(_, count)| *count > 0).collect();
        let bound = |micros| Some(Duration::from_micros(micros));
        assert_eq!(
            counted,
            [(bound(1_000), 2), (bound(2_500), 1), (bound(10_000), 1), (bound(10_000_000), 1), (None, 1)]
        );
        assert_eq!((times.count(), times.sum()), (6, Duration::from_micros(20_012_002)));
    }
}
