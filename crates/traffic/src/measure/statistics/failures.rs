//! Counts of what should not happen, summed over all repetitions.

use super::count;
use super::distribution::{normal_two_sided, student_two_sided};

/// Failures and attempts of one repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// How many failed.
    pub failed: u64,
    /// Of how many; failures beyond that, such as duplicates, count as attempts.
    pub attempts: u64,
}

/// How failures of one set of repetitions differ from those of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailureDifference {
    /// The sum before.
    pub before: u64,
    /// The sum after.
    pub after: u64,
    /// The share after over the share before; none if nothing failed before.
    pub ratio: Option<f64>,
    /// How probable a difference at least as large is if there is none, given how much repetitions scatter.
    pub p: f64,
    /// The same, if every attempt failed by itself.
    pub p_alone: f64,
}

impl FailureDifference {
    /// Of two sets of repetitions.
    #[must_use]
    pub fn between(before: &[Failures], after: &[Failures]) -> Self {
        let sums = [before, after].map(|set| Failures {
            failed: set.iter().map(|one| one.failed).sum(),
            attempts: set.iter().map(|one| one.attempts.max(one.failed)).sum(),
        });
        let [first, second] = sums;
        let all = first.share_with(second);
        let error = (all * (1.0 - all) * (first.each() + second.each())).sqrt();
        let z = if error > 0.0 { (second.share() - first.share()) / error } else { 0.0 };
        let freedom = count((before.len() + after.len()).saturating_sub(2).max(1));
        // Failures come in bursts: repetitions scatter more than single attempts would (McCullagh and Nelder 1989,
        // §4.5).
        let dispersion = (scatter(before, first.share()) + scatter(after, second.share())) / freedom;
        Self {
            before: first.failed,
            after: second.failed,
            ratio: (first.failed > 0).then(|| second.share() / first.share()),
            p: student_two_sided(z / dispersion.max(1.0).sqrt(), freedom),
            p_alone: normal_two_sided(z),
        }
    }
}

impl Failures {
    fn share(self) -> f64 {
        if self.attempts == 0 { 0.0 } else { self.failed as f64 / self.attempts as f64 }
    }

    fn share_with(self, other: Self) -> f64 {
        let both = Self { failed: self.failed + other.failed, attempts: self.attempts + other.attempts };
        both.share()
    }

    fn each(self) -> f64 {
        1.0 / (self.attempts.max(1)) as f64
    }
}

/// Pearson's sum of squares about a share.
fn scatter(set: &[Failures], share: f64) -> f64 {
    let variance = share * (1.0 - share);
    let of = |one: &Failures| {
        let attempts = one.attempts.max(one.failed).max(1) as f64;
        (one.failed as f64 - attempts * share).powi(2) / (attempts * variance)
    };
    if variance > 0.0 { set.iter().map(of).sum() } else { 0.0 }
}
