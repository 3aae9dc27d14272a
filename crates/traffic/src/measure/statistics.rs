//! Medians, bootstrap intervals, and whether two sets of repetitions differ.
//!
//! Repetitions are few and their distribution is unknown, so nothing here assumes one: intervals are percentile
//! bootstraps, and the test is a permutation test. Both draw from a generator with a fixed seed: the same numbers give
//! the same report.

use serde::{Deserialize, Serialize};

/// How often is drawn.
const RESAMPLES: usize = 10_000;
/// Up to as many arrangements are all looked at, instead of some being drawn: 5 against 5 have 252.
const ARRANGEMENTS_MAX: u64 = 20_000;
/// Up to as many values the distribution is computed instead: n over k does not overflow.
const EXACT_MAX: usize = 501;
/// Of the interval: 2.5 % on both sides lie outside.
const TAIL: f64 = 0.025;
/// Below it a difference is taken to be one.
const SIGNIFICANCE: f64 = 0.05;
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

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

/// How one set of repetitions differs from another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Median after over median before.
    pub ratio: Interval,
    /// How probable a difference as large as this is if there is none.
    pub p: f64,
    /// Whether it is less than 5 %. Three repetitions each can never show that, four can.
    pub significant: bool,
}

impl Difference {
    /// Of two sets; nothing if one is empty or the median before is zero.
    #[must_use]
    pub fn between(before: &[f64], after: &[f64]) -> Option<Self> {
        let ratio = ratio_interval(before, after)?;
        let p = permutation_p(before, after);
        Some(Self { ratio, p, significant: p < SIGNIFICANCE })
    }
}

/// The value in the middle, or the mean of the two there; nothing of nothing.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

/// The median and its interval. One value is its own.
#[must_use]
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    let middle = median(values)?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.first() == sorted.last() {
        return Some(Interval { median: middle, low: middle, high: middle });
    }
    if sorted.len() % 2 == 1 && sorted.len() <= EXACT_MAX {
        return Some(exact_interval(&sorted, middle));
    }
    let mut random = Random(SEED);
    let mut sample = Vec::with_capacity(values.len());
    let medians = (0..RESAMPLES).filter_map(|_| {
        random.resample(values, &mut sample);
        median_of_sorted(&sample)
    });
    Some(Interval::about(middle, medians.collect()))
}

/// Of an odd number of values the bootstrap's distribution is known, and nothing has to be drawn: the median of a
/// resample is at most the k-th value if more than half of its n draws are among the first k.
fn exact_interval(sorted: &[f64], median: f64) -> Interval {
    let n = sorted.len();
    let at = |share: f64| {
        let reached = (1..).zip(sorted).find(|(k, _)| at_least(n.div_ceil(2), n, count(*k) / count(n)) >= share);
        reached.map_or(median, |(_, value)| *value)
    };
    Interval { median, low: at(TAIL), high: at(1.0 - TAIL) }
}

/// How probable at least `hits` of `n` are, each being one with this probability.
fn at_least(hits: usize, n: usize, probability: f64) -> f64 {
    // n over k, each from the one before.
    let mut choices = 1.0;
    let mut sum = 0.0;
    for k in 0..=n {
        if k >= hits {
            let (k, n) = (i32::try_from(k).unwrap_or(i32::MAX), i32::try_from(n).unwrap_or(i32::MAX));
            sum += choices * probability.powi(k) * (1.0 - probability).powi(n - k);
        }
        choices *= count(n - k) / count(k + 1);
    }
    sum
}

/// Median after over median before, and its interval; nothing if one is empty or the median before is zero.
#[must_use]
pub fn ratio_interval(before: &[f64], after: &[f64]) -> Option<Interval> {
    let over = |after: Option<f64>, before: Option<f64>| Some(after? / before.filter(|median| *median != 0.0)?);
    let ratio = over(median(after), median(before))?;
    let mut random = Random(SEED);
    let (mut sample_before, mut sample_after) = (Vec::new(), Vec::new());
    let ratios = (0..RESAMPLES).filter_map(|_| {
        random.resample(before, &mut sample_before);
        random.resample(after, &mut sample_after);
        over(median_of_sorted(&sample_after), median_of_sorted(&sample_before))
    });
    Some(Interval::about(ratio, ratios.collect()))
}

/// Two-sided permutation test of the difference of the means: the share of all arrangements of the values into two such
/// sets that differ at least as much. Exact for few values, drawn for many; 1 if a set is empty.
#[must_use]
pub fn permutation_p(before: &[f64], after: &[f64]) -> f64 {
    if before.is_empty() || after.is_empty() {
        return 1.0;
    }
    let mut all = [before, after].concat();
    let sum: f64 = all.iter().sum();
    let difference = |sum_before: f64| {
        let (before, after) = (count(before.len()), count(after.len()));
        (sum_before / before - (sum - sum_before) / after).abs()
    };
    // Equal differences must not be told apart by the order in which they were added up.
    let tolerance = all.iter().map(|value| value.abs()).fold(0.0, f64::max) * 1e-9;
    let observed = difference(before.iter().sum()) - tolerance;
    let mut tally = Tally::default();
    if arrangements(all.len(), before.len()) <= ARRANGEMENTS_MAX {
        each_sum(&all, before.len(), 0.0, &mut |sum| tally.count(difference(sum) >= observed));
        return tally.share();
    }
    // The arrangement that was observed is one of them.
    tally.count(true);
    let mut random = Random(SEED);
    for _ in 0..RESAMPLES {
        random.shuffle(&mut all);
        tally.count(difference(all.iter().take(before.len()).sum()) >= observed);
    }
    tally.share()
}

impl Interval {
    fn about(median: f64, mut drawn: Vec<f64>) -> Self {
        drawn.sort_by(f64::total_cmp);
        let at = |share: f64| quantile(&drawn, share).unwrap_or(median);
        Self { median, low: at(TAIL), high: at(1.0 - TAIL) }
    }
}

#[derive(Default)]
struct Tally {
    hits: usize,
    all: usize,
}

impl Tally {
    fn count(&mut self, hit: bool) {
        self.hits += usize::from(hit);
        self.all += 1;
    }

    fn share(&self) -> f64 {
        count(self.hits) / count(self.all)
    }
}

/// xorshift64* (Vigna 2016): statistics, not secrets.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Below `bound`; the bias of the multiplication is bound / 2⁶⁴.
    fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next()) * u128::try_from(bound).unwrap_or(0);
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// As many values as there are, with replacement, sorted.
    fn resample(&mut self, values: &[f64], into: &mut Vec<f64>) {
        into.clear();
        into.extend((0..values.len()).filter_map(|_| values.get(self.below(values.len())).copied()));
        into.sort_by(f64::total_cmp);
    }

    /// Fisher and Yates.
    fn shuffle(&mut self, values: &mut [f64]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last + 1));
        }
    }
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*sorted.get(sorted.len() / 2 - 1)?, upper))
}

/// The smallest value that at least `share` of them do not exceed.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = (0..=last).find(|rank| count(rank + 1) >= share * count(sorted.len())).unwrap_or(last);
    sorted.get(rank).copied()
}

/// n over k, or as many as there can be.
fn arrangements(n: usize, k: usize) -> u64 {
    (1..=k.min(n - k))
        .try_fold(1u64, |all, i| Some(all.checked_mul((n - i + 1) as u64)? / i as u64))
        .unwrap_or(u64::MAX)
}

/// Calls with the sum of every choice of `k` values.
fn each_sum(values: &[f64], k: usize, sum: f64, visit: &mut impl FnMut(f64)) {
    if k == 0 {
        return visit(sum);
    }
    if let Some((first, rest)) = values.split_first().filter(|_| k <= values.len()) {
        each_sum(rest, k - 1, sum + first, visit);
        each_sum(rest, k, sum, visit);
    }
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

    /// Of five values the bootstrap's distribution is known: the median is at least the k-th value with the binomial
    /// probability P(X ≤ 2), X of 5 draws below it. P(median = smallest) = 0.0579 > 2.5 %, so the bounds are the
    /// extremes.
    #[test]
    fn of_five_values_the_bounds_are_the_extremes() {
        let interval = median_interval(&[10.0, 12.0, 11.0, 14.0, 13.0]).unwrap();
        assert_eq!(interval, Interval { median: 12.0, low: 10.0, high: 14.0 });
    }

    /// Of 1..=99 the binomial interval of the median's order statistics is (40, 60).
    #[test]
    fn of_many_values_the_bounds_are_those_of_the_binomial_distribution() {
        let values: Vec<f64> = (1..=99u32).map(f64::from).collect();
        let interval = median_interval(&values).unwrap();
        assert_eq!(interval.median, 50.0);
        assert!((39.0..=41.0).contains(&interval.low), "{interval:?}");
        assert!((59.0..=61.0).contains(&interval.high), "{interval:?}");
    }

    /// The same interval whether it is computed, or drawn as for an even number.
    #[test]
    fn computed_and_drawn_intervals_agree() {
        let odd: Vec<f64> = (1..=99u32).map(f64::from).collect();
        let even: Vec<f64> = (1..=100u32).map(f64::from).collect();
        let (odd, even) = (median_interval(&odd).unwrap(), median_interval(&even).unwrap());
        assert!((odd.low - even.low).abs() <= 1.5 && (odd.high - even.high).abs() <= 1.5, "{odd:?} {even:?}");
    }

    #[test]
    fn the_same_numbers_give_the_same_interval() {
        let values = [1.0, 5.0, 2.0, 8.0, 3.0, 9.0];
        assert_eq!(median_interval(&values), median_interval(&values));
    }

    #[test]
    fn a_ratio_of_constants_has_no_width() {
        let ratio = ratio_interval(&[2.0; 5], &[3.0; 4]).unwrap();
        assert_eq!(ratio, Interval { median: 1.5, low: 1.5, high: 1.5 });
        assert_eq!(ratio_interval(&[0.0; 3], &[1.0; 3]), None);
    }

    /// Fisher's classic: of the 252 arrangements of five and five, two are as extreme as complete separation.
    #[test]
    fn complete_separation_of_five_and_five_is_two_in_252() {
        let (low, high) = ([1.0, 2.0, 3.0, 4.0, 5.0], [11.0, 12.0, 13.0, 14.0, 15.0]);
        assert!((permutation_p(&low, &high) - 2.0 / 252.0).abs() < 1e-12);
        assert!((permutation_p(&high, &low) - 2.0 / 252.0).abs() < 1e-12);
        assert!(Difference::between(&low, &high).unwrap().significant);
    }

    #[test]
    fn three_and_three_are_too_few_to_tell() {
        let difference = Difference::between(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0]).unwrap();
        assert!((difference.p - 0.1).abs() < 1e-12);
        assert!(!difference.significant);
    }

    #[test]
    fn what_is_equal_does_not_differ() {
        assert_eq!(permutation_p(&[0.1, 0.2, 0.3, 0.4, 0.5], &[0.5, 0.4, 0.3, 0.2, 0.1]), 1.0);
        assert_eq!(permutation_p(&[], &[1.0]), 1.0);
    }

    #[test]
    fn of_many_values_arrangements_are_drawn() {
        let before: Vec<f64> = (0..40u32).map(f64::from).collect();
        let shifted: Vec<f64> = before.iter().map(|value| value + 30.0).collect();
        let alike: Vec<f64> = before.iter().map(|value| value + 0.1).collect();
        assert!(permutation_p(&before, &shifted) < 0.001);
        assert!(permutation_p(&before, &alike) > 0.9);
    }
}
