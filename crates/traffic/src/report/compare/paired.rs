//! Two programs that were measured in turn: each round has two repetitions of both, in the order A B B A or B A A B.
//!
//! A change of the machine that lasts longer than a round shifts both and cancels, whether it is a step between rounds
//! or a drift through them. The same four repetitions, exchanged, give the difference of the sides from themselves: the
//! noise floor. What is not beyond it is no difference.

use super::verdict::{Finding, Rule, Test};
use super::{COMPARED, Comparison, Figure, circumstances_of, failures};
use crate::experiment::Experiment;
use crate::measure::statistics::{self, Paired};
use crate::outcome::{Outcome, Run};
use crate::report::figure::DECISIVE;
use crate::report::summary::Summary;

/// A loss that could hide in the interval of a figure that has no verdict.
const HIDDEN: f64 = 0.10;
/// Sides that differ from themselves so improbably were measured under changing conditions.
const UNSOUND: f64 = 0.001;

/// Why two runs are not rounds of the same experiment.
#[derive(Debug, thiserror::Error)]
#[error("no paired runs: {0}")]
pub struct NotPaired(&'static str);

/// Compares two runs of the same experiment whose repetitions alternated, each with two in every round.
///
/// # Errors
/// They are of different experiments, or the numbers of repetitions do not make rounds.
pub fn paired(first: &Run, second: &Run) -> Result<Comparison, NotPaired> {
    if first.experiment != second.experiment {
        return Err(NotPaired("the experiments differ"));
    }
    if first.outcomes.len() != second.outcomes.len() || !first.outcomes.len().is_multiple_of(2) {
        return Err(NotPaired("each side must have two repetitions in every round"));
    }
    let title = first.experiment.title();
    let [old, new] = [first, second].map(|run| Summary::of(run, title.clone()));
    let rounds = rounds(first, second);
    let mut findings: Vec<Finding> =
        COMPARED.into_iter().filter_map(|figure| finding(&old, &new, &rounds, figure)).collect();
    findings.extend(failures::findings(&old, &new));
    Ok(Comparison {
        changes: Rule { hidden: HIDDEN }.judge(findings),
        problems: failures::problem(&old, &new).into_iter().collect(),
        only_before: Vec::new(),
        only_after: Vec::new(),
        circumstances: circumstances_of(first, second),
    })
}

/// Whether the ratios of the figures that decide are known to this share, to both sides.
#[must_use]
pub fn is_narrow(first: &Run, second: &Run, share: f64) -> bool {
    let rounds = rounds(first, second);
    DECISIVE.into_iter().all(|figure| {
        let paired = logarithms(&rounds, &first.experiment, figure).and_then(|rounds| Paired::of(&rounds));
        paired.and_then(|paired| paired.ratio.half_width()).is_none_or(|half| half <= share)
    })
}

/// Both repetitions of A, then both of B.
type Round<'a> = [&'a Outcome; 4];

/// The rounds in which the generator was nowhere the limit; all if there is none.
fn rounds<'a>(first: &'a Run, second: &'a Run) -> Vec<Round<'a>> {
    let pairs = first.outcomes.chunks_exact(2).zip(second.outcomes.chunks_exact(2));
    let round = |(a, b): (&'a [Outcome], &'a [Outcome])| match (a, b) {
        ([a, other_a], [b, other_b]) => Some([a, other_a, b, other_b]),
        _ => None,
    };
    let all: Vec<Round<'_>> = pairs.filter_map(round).collect();
    let is_free = |round: &&Round<'_>| round.iter().all(|outcome| outcome.limited_by_generator.is_none());
    let free: Vec<Round<'_>> = all.iter().filter(is_free).copied().collect();
    if free.is_empty() { all } else { free }
}

fn finding(old: &Summary<'_>, new: &Summary<'_>, rounds: &[Round<'_>], figure: Figure) -> Option<Finding> {
    let (before, after) = (old.get(figure)?.median, new.get(figure)?.median);
    let logarithms = logarithms(rounds, &old.run.experiment, figure);
    let effect = logarithms.as_deref().and_then(aligned);
    let test = match logarithms.and_then(|rounds| Paired::of(&rounds)) {
        Some(Paired { ratio, floor, p_itself, .. }) if p_itself < UNSOUND => Test::Unsound { ratio, floor },
        Some(Paired { ratio, p, floor, .. }) => Test::Ratio { ratio, p, floor: Some(floor) },
        None => Test::TooFew,
    };
    Some(Finding { experiment: old.label.clone(), figure, before, after, effect, test })
}

/// The size of the difference, of values from which the median of their round is taken.
fn aligned(rounds: &[statistics::Round]) -> Option<f64> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for round in rounds {
        let middle = statistics::median(round)?;
        let [a, other_a, b, other_b] = round.map(|value| value - middle);
        before.extend([a, other_a]);
        after.extend([b, other_b]);
    }
    statistics::dominance(&before, &after)
}

/// A figure in all rounds. If one does not have it, something else is wrong there, and none counts.
fn logarithms(rounds: &[Round<'_>], experiment: &Experiment, figure: Figure) -> Option<Vec<statistics::Round>> {
    let logarithm = |outcome: &Outcome| {
        let value = figure.of(experiment, outcome).filter(|value| value.is_finite() && *value > 0.0);
        value.map(f64::ln)
    };
    let of_round = |round: &Round<'_>| {
        let [a, other_a, b, other_b] = round.map(logarithm);
        Some([a?, other_a?, b?, other_b?])
    };
    rounds.iter().map(of_round).collect()
}
