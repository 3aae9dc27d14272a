//! Two reports of the same experiments: what became better or worse, and what is noise.
//!
//! A difference counts when it is *significant* – among all figures of all experiments together at most one finding in
//! fifty is chance – and when it *matters*: it is beyond a threshold. One without the other is noise, or too little to
//! care about. Failures are compared by their sum over all repetitions, and a new kind of failure is a regression.

mod failures;
mod page;
mod paired;
mod print;
mod verdict;

use serde::Serialize;

pub use self::paired::{NotPaired, is_narrow, paired};
pub use self::print::Shown;
pub use self::verdict::{Conclusion, Verdict};
use self::verdict::{Finding, Rule, Test};
use super::figure::{Figure, Meaning};
use super::label;
use super::number::Unit;
use super::summary::Summary;
use crate::measure::statistics::{Difference, Interval, dominance};
use crate::outcome::{Report, Run};

/// The figures that are compared. Percentiles beyond the 99th and the maximum are left out, since a few repetitions do
/// not determine them reliably.
const COMPARED: [Figure; 12] = [
    Figure::Rate,
    Figure::LatencyP50,
    Figure::LatencyP99,
    Figure::ConnectP50,
    Figure::GatewayCpu,
    Figure::Instructions,
    Figure::Cycles,
    Figure::PeakMemory,
    Figure::TotalBytes,
    Figure::Packets,
    Figure::HandshakeBytes,
    Figure::HandshakeCpu,
];

/// The share by which a figure must differ to matter.
pub const RELEVANT: f64 = 0.05;

/// How much a figure of the same program differs between two runs of the generator, beyond the scatter of repetitions:
/// the standard deviation of its logarithm. Of 92 comparisons of the same program minutes apart 19 were called
/// different at a threshold of 5 %, which is what 2.8 % in each run do.
pub const SESSION: f64 = 0.03;

/// With reports of two sessions, a loss that could hide in the interval of a figure that has no verdict.
const HIDDEN: f64 = 0.25;

/// A figure of an experiment, before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Which experiment.
    pub experiment: String,
    /// Which figure.
    pub figure: Figure,
    /// Its median in the first report; of failures the sum.
    pub before: f64,
    /// The same in the second.
    pub after: f64,
    /// The second over the first with its 95 % interval, of geometric means; of failures, of their shares. None where
    /// the first is zero.
    pub ratio: Option<Interval>,
    /// Cliff's delta: how probable it is that a repetition of the second is above one of the first, less how probable
    /// it is that it is below; in paired runs, when the median of its round is taken from each. None where it was not
    /// tested.
    pub effect: Option<f64>,
    /// The share of chance among the findings at least as significant as this: p, adjusted for the number of figures.
    /// None where nothing was tested, as with failures that were not there before.
    pub chance: Option<f64>,
    /// The difference of a side from itself that noise makes plausible, as a share; only of paired runs.
    pub floor: Option<f64>,
    /// The verdict on the difference.
    pub verdict: Verdict,
}

/// An experiment without repetitions on one side, or with repetitions that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Which experiment.
    pub experiment: String,
    /// The first reason in the first report.
    pub before: Option<String>,
    /// The first reason in the second.
    pub after: Option<String>,
    /// The consequence.
    pub verdict: Verdict,
}

/// Two reports, side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Figures of experiments that are in both.
    pub changes: Vec<Change>,
    /// Experiments that failed, in whole or in part.
    pub problems: Vec<Problem>,
    /// Experiments of the first report only.
    pub only_before: Vec<String>,
    /// Experiments of the second report only.
    pub only_after: Vec<String>,
    /// Other differences: machines, targets, versions. Any of them may have caused a change.
    pub circumstances: Vec<String>,
}

/// Compares two reports; experiments are the same when all their keys are. `session` is [`SESSION`] unless it is known
/// better.
#[must_use]
pub fn compare(before: &Report, after: &Report, session: f64) -> Comparison {
    let (first, second) = (super::summaries(&before.runs), super::summaries(&after.runs));
    let mut circumstances = differing(&label::pairs(&before.environment), &label::pairs(&after.environment));
    let of_gateway = |report: &Report| report.gateway_environment.as_ref().map(label::pairs).unwrap_or_default();
    let of_gateways = differing(&of_gateway(before), &of_gateway(after));
    circumstances.extend(of_gateways.into_iter().map(|difference| format!("gateway's machine: {difference}")));
    let mut findings = Vec::new();
    let mut problems = Vec::new();
    let mut only_before = Vec::new();
    let mut met = vec![false; second.len()];
    for old in &first {
        let same = |(new, met): &(&Summary<'_>, &mut bool)| !**met && is_same(old.run, new.run);
        let Some((new, met)) = second.iter().zip(&mut met).find(same) else {
            only_before.push(old.label.clone());
            continue;
        };
        *met = true;
        for difference in circumstances_of(old.run, new.run) {
            if !circumstances.contains(&difference) {
                circumstances.push(difference);
            }
        }
        problems.extend(failures::problem(old, new));
        findings.extend(COMPARED.into_iter().filter_map(|figure| finding(old, new, figure, session)));
        findings.extend(failures::findings(old, new));
    }
    let rest = second.iter().zip(&met).filter(|(_, met)| !**met);
    let only_after = rest.map(|(summary, _)| summary.label.clone()).collect();
    let changes = Rule { hidden: HIDDEN }.judge(findings);
    Comparison { changes, problems, only_before, only_after, circumstances }
}

/// Whether two runs are of the same experiment, and in fleets of the same group.
fn is_same(old: &Run, new: &Run) -> bool {
    old.experiment == new.experiment && old.name == new.name
}

/// Everything else that differs between two runs of an experiment.
fn circumstances_of(old: &Run, new: &Run) -> Vec<String> {
    let target = (old.target != new.target).then(|| format!("target: {} → {}", old.target, new.target));
    settings_that_differ(old, new).into_iter().chain(target).collect()
}

/// Returns the settings of fogmux gateways that differ between the reports. Reports without settings are not compared.
fn settings_that_differ(before: &Run, after: &Run) -> Vec<String> {
    let settings = |run: &Run| run.outcomes.first().map(|outcome| outcome.settings.clone()).unwrap_or_default();
    let (before, after) = (settings(before), settings(after));
    if before.is_empty() || after.is_empty() {
        return Vec::new();
    }
    let only = |these: &[String], others: &[String], how: &str| {
        let missing = these.iter().filter(|setting| !others.contains(setting));
        missing.map(|setting| format!("{setting}: {how}")).collect::<Vec<_>>()
    };
    let gone = only(&before, &after, "no longer set");
    gone.into_iter().chain(only(&after, &before, "set now")).collect()
}

fn differing(before: &label::Keys, after: &label::Keys) -> Vec<String> {
    /// Keys that always differ and explain little.
    const FLEETING: [&str; 2] = ["load", "temperature_c"];
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = |name: &&String| before.get(*name) != after.get(*name) && !FLEETING.contains(&name.as_str());
    let text = |keys: &label::Keys, name: &str| keys.get(name).map_or("–", String::as_str).to_owned();
    let line = |name: &String| format!("{name}: {} → {}", text(before, name), text(after, name));
    names.into_iter().filter(differs).map(line).collect()
}

fn finding(old: &Summary<'_>, new: &Summary<'_>, figure: Figure, session: f64) -> Option<Finding> {
    let Meaning { unit, .. } = figure.meaning();
    // Sizes of messages do not depend on how fast the machine is today.
    let session = if unit == Unit::ExactBytes || figure == Figure::Packets { 0.0 } else { session };
    let test = match Difference::between(&old.values(figure), &new.values(figure), session) {
        Some(Difference { ratio, p }) => Test::Ratio { ratio, p, floor: None },
        None => Test::TooFew,
    };
    let (before, after) = (old.get(figure)?.median, new.get(figure)?.median);
    let effect = dominance(&old.values(figure), &new.values(figure));
    Some(Finding { experiment: old.label.clone(), figure, before, after, effect, test })
}

#[cfg(test)]
mod tests;
