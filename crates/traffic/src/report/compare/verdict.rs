//! Verdicts on figures, when the tests of all of them are known, and the conclusion for a script.

use serde::Serialize;

use super::{Change, Comparison, RELEVANT};
use crate::measure::statistics::{FailureDifference, Interval, false_discovery_rates};
use crate::report::figure::{Better, DECISIVE, Figure};

/// The share of findings that may be chance. If nothing differs, the probability of any finding: small enough that also
/// a hundred comparisons have hardly more than five.
const CHANCE: f64 = 0.02;
/// Failures that became so much more frequent are worse even if they come in bursts.
const DOUBLED: f64 = 2.0;
/// The level for that, if each had failed by itself.
const DOUBLED_BY_CHANCE: f64 = 0.001;

/// The verdict on a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every repetition failed, and not all did before.
    Crashed,
    /// Worse.
    Regression,
    /// Better.
    Improvement,
    /// Chance, or too small to matter; a large loss would have been seen.
    Noise,
    /// Not significant, but repetitions scatter so much that a large loss may hide in it.
    Unclear,
    /// There are too few repetitions to tell.
    TooFew,
    /// One side has nothing to compare.
    Incomparable,
}

impl Verdict {
    /// In a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Crashed => "crashed",
            Self::Regression => "regression",
            Self::Improvement => "improvement",
            Self::Noise => "noise",
            Self::Unclear => "unclear",
            Self::TooFew => "too few repetitions",
            Self::Incomparable => "not comparable",
        }
    }
}

/// The conclusion from a comparison, the gravest that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// All repetitions of an experiment failed that had some before.
    Crashed,
    /// Something became worse.
    Regression,
    /// The reports have no experiment in common, or one has experiments that the other lacks.
    Different,
    /// No experiment has repetitions in both reports.
    Incomparable,
    /// An experiment cannot be judged: too few repetitions, or they scatter too much.
    Inconclusive,
    /// Nothing became worse.
    Fine,
}

/// A figure before its verdict.
pub(super) struct Finding {
    pub(super) experiment: String,
    pub(super) figure: Figure,
    pub(super) before: f64,
    pub(super) after: f64,
    pub(super) effect: Option<f64>,
    pub(super) test: Test,
}

/// The test of a figure.
pub(super) enum Test {
    Ratio {
        ratio: Interval,
        p: f64,
        floor: Option<f64>,
    },
    /// A figure that differs from itself within one run.
    Unsound {
        ratio: Interval,
        floor: f64,
    },
    Failures(FailureDifference),
    TooFew,
}

impl Test {
    fn p(&self) -> Option<f64> {
        match self {
            Self::Ratio { p, .. } => Some(*p),
            Self::Failures(difference) => difference.ratio.map(|_| difference.p),
            Self::Unsound { .. } | Self::TooFew => None,
        }
    }
}

/// How differences are judged.
pub(super) struct Rule {
    /// A loss by this share that the interval does not exclude makes a figure unclear.
    pub(super) hidden: f64,
}

impl Rule {
    /// Judges all figures together, since their number decides how often chance looks like a finding.
    pub(super) fn judge(&self, findings: Vec<Finding>) -> Vec<Change> {
        let ps: Vec<f64> = findings.iter().filter_map(|finding| finding.test.p()).collect();
        let mut rates = false_discovery_rates(&ps).into_iter();
        let change = |finding: Finding| {
            let chance = finding.test.p().and_then(|_| rates.next());
            self.change(finding, chance)
        };
        findings.into_iter().map(change).collect()
    }

    fn change(&self, finding: Finding, chance: Option<f64>) -> Change {
        let Finding { experiment, figure, before, after, effect, test } = finding;
        let better = figure.meaning().better;
        let is_finding = chance.is_some_and(|chance| chance < CHANCE);
        let (ratio, floor, verdict) = match test {
            Test::TooFew => (None, None, Verdict::TooFew),
            Test::Unsound { ratio, floor } => (Some(ratio), Some(floor), Verdict::Unclear),
            Test::Failures(difference) => {
                let ratio = difference.ratio.map(|ratio| Interval { median: ratio, low: ratio, high: ratio });
                (ratio, None, of_failures(&difference, is_finding))
            }
            Test::Ratio { ratio, floor, .. } => {
                let least = (1.0 + RELEVANT).max(1.0 + floor.unwrap_or_default());
                let is_large = ratio.median.max(ratio.median.recip()) >= least;
                let verdict = match (is_finding && is_large, is_worse(better, ratio.median)) {
                    (true, true) => Verdict::Regression,
                    (true, false) => Verdict::Improvement,
                    (false, _) if self.may_hide(better, &ratio) => Verdict::Unclear,
                    (false, _) => Verdict::Noise,
                };
                (Some(ratio), floor, verdict)
            }
        };
        Change { experiment, figure, before, after, ratio, effect, chance, floor, verdict }
    }

    fn may_hide(&self, better: Better, ratio: &Interval) -> bool {
        match better {
            Better::Higher => ratio.low < 1.0 / (1.0 + self.hidden),
            Better::Lower => ratio.high > 1.0 + self.hidden,
        }
    }
}

fn is_worse(better: Better, ratio: f64) -> bool {
    match better {
        Better::Higher => ratio < 1.0,
        Better::Lower => ratio > 1.0,
    }
}

/// From nothing to something is a regression, and back an improvement. Between, an increase has to be more than the
/// scatter of repetitions, or at least double and hardly chance.
fn of_failures(difference: &FailureDifference, is_finding: bool) -> Verdict {
    let Some(ratio) = difference.ratio else {
        return if difference.after > 0 { Verdict::Regression } else { Verdict::Noise };
    };
    let is_doubled = ratio.max(ratio.recip()) >= DOUBLED && difference.p_alone < DOUBLED_BY_CHANCE;
    let is_large = ratio.max(ratio.recip()) >= 1.0 + RELEVANT;
    match (is_doubled || (is_finding && is_large), ratio > 1.0) {
        (true, true) => Verdict::Regression,
        (true, false) => Verdict::Improvement,
        (false, _) if difference.after == 0 => Verdict::Improvement,
        (false, _) => Verdict::Noise,
    }
}

impl Comparison {
    /// How many changes and problems are this.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        let changes = self.changes.iter().filter(|change| change.verdict == verdict).count();
        changes + self.problems.iter().filter(|problem| problem.verdict == verdict).count()
    }

    /// The gravest conclusion that applies.
    #[must_use]
    pub fn conclusion(&self) -> Conclusion {
        let is_undecided = |change: &Change| {
            DECISIVE.contains(&change.figure) && matches!(change.verdict, Verdict::Unclear | Verdict::TooFew)
        };
        let is_different = !self.only_before.is_empty() || !self.only_after.is_empty();
        if self.count(Verdict::Crashed) > 0 {
            Conclusion::Crashed
        } else if self.count(Verdict::Regression) > 0 {
            Conclusion::Regression
        } else if is_different {
            Conclusion::Different
        } else if self.changes.is_empty() {
            Conclusion::Incomparable
        } else if self.count(Verdict::Incomparable) > 0 || self.changes.iter().any(is_undecided) {
            Conclusion::Inconclusive
        } else {
            Conclusion::Fine
        }
    }
}
