//! Medians and their intervals, and whether two sets of repetitions differ.
//!
//! Repetitions are few and their distribution is unknown. Each interval holds what it says, and the simulations beside
//! it show that: 95 of 100 contain the median, from two repetitions on.

mod difference;
mod discovery;
mod distribution;
mod effect;
mod failures;
mod paired;
#[cfg(test)]
pub(crate) mod simulation;

use serde::{Deserialize, Serialize};

pub use self::difference::{Difference, REPETITIONS_MIN};
pub use self::discovery::false_discovery_rates;
pub use self::effect::{dominance, magnitude};
pub use self::failures::{FailureDifference, Failures};
pub use self::paired::{Paired, ROUNDS_MIN, Round};

/// The probability that an interval misses, on both sides together.
const MISSED: f64 = 0.05;

/// A median and the 95 % interval about it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Of the values, or of their ratio.
    pub median: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Interval {
    fn of_logarithms(median: f64, low: f64, high: f64) -> Self {
        Self { median: median.exp(), low: low.exp(), high: high.exp() }
    }

    /// Half of its width, as a share of the median; none of a median that is not positive.
    #[must_use]
    pub fn half_width(&self) -> Option<f64> {
        (self.median > 0.0).then(|| (self.high - self.low) / 2.0 / self.median)
    }
}

/// The value in the middle, or the mean of the two there; nothing of nothing.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

/// The median and an interval that contains the distribution's median in at least 95 of 100 cases. One value has none:
/// both bounds are the value.
///
/// From six values on, the bounds are order statistics, whatever the distribution: the k-th smallest and largest, where
/// fewer than k heads in n tosses have a probability of at most 2.5 %. The extremes of n < 6 values enclose the median
/// too rarely, with 1 − 2^(1−n): the bounds are beyond them by the share c of the range for which
/// 2^(1−n) · (1 + c)^(1−n) = 5 %, which is nine ranges for two values and a seventeenth of it for five.
///
/// This c holds for every distribution whose density falls, or stays, on both sides of its median, and is exact for the
/// uniform one. All n values lie on one side of the median with probability 2^(1−n). Let G be the distribution of their
/// distance from it, which is concave then. The interval misses if all lie between y, the least distance, and y · (1 +
/// c) / c: at most G(y) / c of G is in there, and at most 1 − G(y). The integral of n · min(u / c, 1 − u)^(n−1) over u
/// = G(y) is (1 + c)^(1−n).
#[must_use]
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = median_of_sorted(&sorted)?;
    let (least, greatest) = (*sorted.first()?, *sorted.last()?);
    if sorted.len() == 1 || least == greatest {
        return Some(Interval { median, low: least, high: greatest });
    }
    let beyond = MISSED.recip().powf(1.0 / count(sorted.len() - 1)) / 2.0 - 1.0;
    if beyond > 0.0 {
        let reach = (greatest - least) * beyond;
        // Nothing that is counted or timed is negative.
        let low = if least >= 0.0 { (least - reach).max(0.0) } else { least - reach };
        return Some(Interval { median, low, high: greatest + reach });
    }
    let inside = |k: &usize| distribution::heads_at_most(*k, sorted.len()) * 2.0 <= MISSED;
    let skipped = (0..sorted.len() / 2).take_while(inside).count().saturating_sub(1);
    let low = sorted.get(skipped).copied().unwrap_or(least);
    let high = sorted.iter().rev().nth(skipped).copied().unwrap_or(greatest);
    Some(Interval { median, low, high })
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*sorted.get(sorted.len() / 2 - 1)?, upper))
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn one_value_is_its_own_interval_and_none_has_none() {
        assert_eq!(median_interval(&[7.0]), Some(Interval { median: 7.0, low: 7.0, high: 7.0 }));
        assert_eq!(median_interval(&[]), None);
    }

    #[test]
    fn equal_values_have_an_interval_without_width() {
        assert_eq!(median_interval(&[7.0, 7.0]), Some(Interval { median: 7.0, low: 7.0, high: 7.0 }));
    }

    /// The usual table of distribution-free intervals (Conover 1999, §3.2): the extremes of six to eight, the second
    /// values of nine to eleven, the sixth of twenty, the fortieth of 99.
    #[test]
    fn from_six_values_on_the_bounds_are_order_statistics() {
        for (n, k) in [(6, 1), (7, 1), (8, 1), (9, 2), (11, 2), (12, 3), (20, 6), (99, 40)] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            let interval = median_interval(&values).unwrap();
            assert_eq!((interval.low, interval.high), (f64::from(k), f64::from(n + 1 - k)), "{n}");
        }
    }

    /// Beyond the extremes by 20^(1/(n−1)) / 2 − 1 of the range: 9, 1.236, 0.357 and 0.057.
    #[test]
    fn below_six_values_the_bounds_are_beyond_the_extremes() {
        let interval = median_interval(&[-1.0, 1.0]).unwrap();
        assert!((interval.low + 19.0).abs() < 1e-9 && (interval.high - 19.0).abs() < 1e-9, "{interval:?}");
        let interval = median_interval(&[-1.0, 0.3, 1.0]).unwrap();
        assert!((interval.high - (1.0 + 2.0 * 1.236_068)).abs() < 1e-6, "{interval:?}");
        let interval = median_interval(&[100.0, 102.0, 104.0, 107.0, 110.0]).unwrap();
        assert!((interval.low - 99.426).abs() < 0.01 && (interval.high - 110.574).abs() < 0.01, "{interval:?}");
        assert_eq!(median_interval(&[0.0, 0.0, 4.0]).unwrap().low, 0.0);
    }
}
