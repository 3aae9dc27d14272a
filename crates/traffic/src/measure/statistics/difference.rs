//! The difference between two independent sets of repetitions: Welch's t test of the logarithms (Welch 1947).
//!
//! A permutation test assumes less, and therefore cannot say more than its number of arrangements: five repetitions
//! against five have no p below 2/252, which leaves nothing when hundreds of figures are compared at once. Logarithms
//! make a difference a ratio and a rate the mirror of a time per message. Under the hypothesis that both sets come from
//! one distribution its skewness cancels, and long tails make the test cautious.

use super::distribution::{student_distance, student_two_sided};
use super::{Interval, count};

/// The most that figures are accurate to: histograms and printed values have three digits. Repetitions that agree to
/// more than that are not more certain than that.
const RESOLUTION: f64 = 0.001;
/// The probability outside of an interval.
const OUTSIDE: f64 = 0.05;
/// Fewer repetitions do not show how much they scatter.
pub const REPETITIONS_MIN: usize = 3;

/// How one set of repetitions differs from another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// After over before, of the geometric means, with its 95 % interval.
    pub ratio: Interval,
    /// How probable a difference at least as large is if there is none.
    pub p: f64,
}

impl Difference {
    /// Of two sets that were measured in two sessions, each of which shifts all of its repetitions by a factor whose
    /// logarithm has the standard deviation `session`.
    ///
    /// None if a set has fewer than three values, or one that is not positive.
    #[must_use]
    pub fn between(before: &[f64], after: &[f64], session: f64) -> Option<Self> {
        let (before, after) = (Logarithms::of(before)?, Logarithms::of(after)?);
        let scatter = before.squared_error() + after.squared_error();
        let error = (scatter + 2.0 * session * session).sqrt();
        // Welch and Satterthwaite, of the scatter alone: the sessions' part does not rest on these repetitions, and
        // counting it in would make few repetitions that agree by chance look certain.
        let freedom = scatter * scatter / (before.share_of_freedom() + after.share_of_freedom());
        let shift = after.mean - before.mean;
        let reach = student_distance(OUTSIDE, freedom) * error;
        Some(Self {
            ratio: Interval::of_logarithms(shift, shift - reach, shift + reach),
            p: student_two_sided(shift / error, freedom),
        })
    }
}

/// Mean and variance of logarithms.
struct Logarithms {
    n: f64,
    mean: f64,
    variance: f64,
}

impl Logarithms {
    fn of(values: &[f64]) -> Option<Self> {
        let is_positive = |value: &f64| value.is_finite() && *value > 0.0;
        if values.len() < REPETITIONS_MIN || !values.iter().all(is_positive) {
            return None;
        }
        let n = count(values.len());
        let mean = values.iter().map(|value| value.ln()).sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value.ln() - mean).powi(2)).sum();
        Some(Self { n, mean, variance: (squares / (n - 1.0)).max(RESOLUTION * RESOLUTION) })
    }

    fn squared_error(&self) -> f64 {
        self.variance / self.n
    }

    fn share_of_freedom(&self) -> f64 {
        self.squared_error().powi(2) / (self.n - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// t = −5.1837 at 7.3085 degrees of freedom; p by numerical integration of the density.
    #[test]
    fn welchs_test_is_that_of_the_textbooks() {
        let (slow, usual) = ([88.0, 92.0, 95.0, 90.0, 94.0], [100.0, 104.0, 98.0, 101.0, 99.0]);
        let difference = Difference::between(&usual, &slow, 0.0).unwrap();
        let back = Difference::between(&slow, &usual, 0.0).unwrap();
        assert!((difference.p - 0.001_115_137_333).abs() < 1e-9 && (difference.p - back.p).abs() < 1e-15);
        assert!((difference.ratio.median - 0.914_175_750).abs() < 1e-8, "{difference:?}");
        assert!((difference.ratio.low * back.ratio.high - 1.0).abs() < 1e-12);
    }

    #[test]
    fn sessions_make_a_difference_less_certain() {
        let (usual, slow) = ([100.0, 101.0, 99.0, 100.0, 100.5], [90.0, 91.0, 89.0, 90.0, 90.5]);
        let alone = Difference::between(&usual, &slow, 0.0).unwrap();
        let apart = Difference::between(&usual, &slow, 0.03).unwrap();
        assert!(alone.p < 1e-6 && apart.p > 0.01, "{alone:?} {apart:?}");
        assert!(alone.ratio.high < apart.ratio.high && apart.ratio.low < alone.ratio.low);
    }

    #[test]
    fn values_that_agree_are_as_certain_as_their_digits() {
        let same = Difference::between(&[100.0; 5], &[100.0; 5], 0.0).unwrap();
        assert_eq!((same.ratio.median, same.p), (1.0, 1.0));
        let other = Difference::between(&[100.0; 5], &[110.0; 5], 0.0).unwrap();
        assert!(other.p < 1e-10 && other.ratio.low > 1.09, "{other:?}");
    }

    #[test]
    fn too_few_values_and_zeros_have_no_ratio() {
        assert_eq!(Difference::between(&[1.0, 2.0], &[1.0, 2.0, 3.0], 0.0), None);
        assert_eq!(Difference::between(&[1.0, 2.0, 0.0], &[1.0, 2.0, 3.0], 0.0), None);
        assert_eq!(Difference::between(&[1.0, 2.0, 3.0], &[1.0, 2.0, f64::NAN], 0.0), None);
    }
}
