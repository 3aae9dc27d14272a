//! Failures: lost and repeated messages, errors, repetitions that failed.
//!
//! These are counted over all repetitions, those included that the figures leave out: two that lose everything do not
//! move the median of five.

use super::verdict::{Finding, Test, Verdict};
use super::{Figure, Problem};
use crate::measure::statistics::{FailureDifference, Failures};
use crate::outcome::{Outcome, Run};
use crate::report::figure::lost;
use crate::report::summary::Summary;

/// Below it, repetitions that failed are more than before.
const SIGNIFICANT: f64 = 0.05;

/// A figure and how often it happened in a repetition.
type Count = (Figure, fn(&Outcome) -> u64);

/// The counts that are compared.
const COUNTS: [Count; 4] = [
    (Figure::Lost, lost),
    (Figure::Duplicates, |outcome| outcome.duplicates),
    (Figure::Errors, |outcome| outcome.errors + outcome.disconnects),
    // Where nothing is delivered, operations without an answer are lost, and counted there.
    (Figure::Unanswered, |outcome| if outcome.expected > 0 { outcome.unanswered } else { 0 }),
];

/// Returns the counts of two runs of an experiment that are not zero in both.
pub(super) fn findings(old: &Summary<'_>, new: &Summary<'_>) -> Vec<Finding> {
    if old.run.outcomes.is_empty() || new.run.outcomes.is_empty() {
        return Vec::new();
    }
    let finding = |(figure, failed): Count| {
        let of = |run: &Run| run.outcomes.iter().map(|outcome| counted(outcome, failed)).collect::<Vec<_>>();
        let difference = FailureDifference::between(&of(old.run), &of(new.run));
        let (before, after) = (difference.before as f64, difference.after as f64);
        let experiment = old.label.clone();
        (difference.before + difference.after > 0).then_some(Finding {
            experiment,
            figure,
            before,
            after,
            effect: None,
            test: Test::Failures(difference),
        })
    };
    COUNTS.into_iter().filter_map(finding).collect()
}

fn counted(outcome: &Outcome, failed: fn(&Outcome) -> u64) -> Failures {
    Failures { failed: failed(outcome), attempts: outcome.expected.max(outcome.sent) }
}

/// Returns what failed as a whole, if anything did.
pub(super) fn problem(old: &Summary<'_>, new: &Summary<'_>) -> Option<Problem> {
    let [before, after] = [old.run, new.run]
        .map(|run| Failures { failed: failed(run), attempts: failed(run) + run.outcomes.len() as u64 });
    let is_empty = [old.run, new.run].map(|run| run.outcomes.is_empty());
    let verdict = match is_empty {
        [false, true] => Verdict::Crashed,
        [true, true] | [true, false] => Verdict::Incomparable,
        [false, false] if before.failed + after.failed == 0 => return None,
        [false, false] => {
            let FailureDifference { ratio, p_alone, .. } = FailureDifference::between(&[before], &[after]);
            match ratio {
                None => Verdict::Regression,
                Some(ratio) if ratio > 1.0 && p_alone < SIGNIFICANT => Verdict::Regression,
                Some(0.0) => Verdict::Improvement,
                Some(_) => Verdict::Noise,
            }
        }
    };
    let experiment = old.label.clone();
    Some(Problem { experiment, before: reason(old.run), after: reason(new.run), verdict })
}

/// Reports of earlier versions count no repetitions that failed; they have the reason why the last one did.
fn failed(run: &Run) -> u64 {
    (run.failed.len() as u64).max(u64::from(run.problem.is_some()))
}

fn reason(run: &Run) -> Option<String> {
    let first = run.failed.first().or(run.problem.as_ref());
    first.map(|first| match run.failed.len() {
        0 | 1 => first.clone(),
        many => format!("{many} repetitions failed; the first: {first}"),
    })
}
