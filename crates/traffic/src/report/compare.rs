//! Two reports of the same experiments: what became better or worse, and what is noise.
//!
//! A difference counts when it is *significant* – a permutation test says that it hardly comes of chance – and when it
//! *matters*: the ratio of the medians is beyond a threshold, and its 95 % interval does not reach back to 1. One
//! without the other is noise, or too little to care about.

mod print;

use serde::Serialize;

pub use self::print::Shown;
use super::figure::{Better, Figure};
use super::label;
use super::summary::Summary;
use crate::measure::statistics::{Difference, Interval};
use crate::outcome::{Report, Run};

/// The figures that are compared. Percentiles beyond the 99th and the maximum are left out, since a few repetitions do
/// not determine them reliably.
const COMPARED: [Figure; 15] = [
    Figure::Rate,
    Figure::LatencyP50,
    Figure::LatencyP99,
    Figure::ConnectP50,
    Figure::Lost,
    Figure::Duplicates,
    Figure::Errors,
    Figure::GatewayCpu,
    Figure::Instructions,
    Figure::Cycles,
    Figure::PeakMemory,
    Figure::TotalBytes,
    Figure::Packets,
    Figure::HandshakeBytes,
    Figure::HandshakeCpu,
];

/// The share by which a median must differ to matter.
pub const RELEVANT: f64 = 0.05;

/// The verdict on a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Worse.
    Regression,
    /// Better.
    Improvement,
    /// Chance, or too small to matter.
    Noise,
    /// There are too few repetitions to tell: even the greatest difference would not be significant.
    TooFew,
}

impl Verdict {
    /// In a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Regression => "regression",
            Self::Improvement => "improvement",
            Self::Noise => "noise",
            Self::TooFew => "too few repetitions",
        }
    }
}

/// A figure of an experiment, before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Which experiment.
    pub experiment: String,
    /// Which figure.
    pub figure: Figure,
    /// Its median in the first report.
    pub before: f64,
    /// Its median in the second.
    pub after: f64,
    /// The second over the first; none where the first is zero.
    pub ratio: Option<Interval>,
    /// The probability of a difference at least as great under the null hypothesis.
    pub p: f64,
    /// The verdict on the difference.
    pub verdict: Verdict,
}

/// Two reports, side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Figures of experiments that are in both.
    pub changes: Vec<Change>,
    /// Experiments of the first report only.
    pub only_before: Vec<String>,
    /// Experiments of the second report only.
    pub only_after: Vec<String>,
    /// Other differences: machines, targets, versions. Any of them may have caused a change.
    pub circumstances: Vec<String>,
}

/// Compares two reports; experiments are the same when all their keys are.
#[must_use]
pub fn compare(before: &Report, after: &Report) -> Comparison {
    let (first, second) = (super::summaries(&before.runs), super::summaries(&after.runs));
    let mut circumstances = differing(&label::pairs(&before.environment), &label::pairs(&after.environment));
    let of_gateway = |report: &Report| report.gateway_environment.as_ref().map(label::pairs).unwrap_or_default();
    let of_gateways = differing(&of_gateway(before), &of_gateway(after));
    circumstances.extend(of_gateways.into_iter().map(|difference| format!("gateway's machine: {difference}")));
    let mut changes = Vec::new();
    let mut only_before = Vec::new();
    let mut met = vec![false; second.len()];
    for old in &first {
        let same = |(new, met): &(&Summary<'_>, &mut bool)| !**met && new.run.experiment == old.run.experiment;
        let Some((new, met)) = second.iter().zip(&mut met).find(same) else {
            only_before.push(old.label.clone());
            continue;
        };
        *met = true;
        for difference in settings_that_differ(old.run, new.run) {
            if !circumstances.contains(&difference) {
                circumstances.push(difference);
            }
        }
        if old.run.target != new.run.target {
            let difference = format!("target: {} → {}", old.run.target, new.run.target);
            if !circumstances.contains(&difference) {
                circumstances.push(difference);
            }
        }
        changes.extend(COMPARED.into_iter().filter_map(|figure| change(old, new, figure)));
    }
    let rest = second.iter().zip(&met).filter(|(_, met)| !**met);
    let only_after = rest.map(|(summary, _)| summary.label.clone()).collect();
    Comparison { changes, only_before, only_after, circumstances }
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

fn change(old: &Summary<'_>, new: &Summary<'_>, figure: Figure) -> Option<Change> {
    let (before, after) = (old.values(figure), new.values(figure));
    let (low, high) = (old.get(figure)?.median, new.get(figure)?.median);
    // Nothing went wrong before, nor does it now.
    if low == 0.0 && high == 0.0 {
        return None;
    }
    let difference = Difference::between(&before, &after);
    let p = difference.map_or_else(|| crate::measure::statistics::permutation_p(&before, &after), |found| found.p);
    let ratio = difference.map(|found| found.ratio);
    let is_worse = match figure.meaning().better {
        Better::Higher => high < low,
        Better::Lower => high > low,
    };
    let verdict = if !is_telling(before.len(), after.len()) {
        Verdict::TooFew
    } else if p >= SIGNIFICANT || !matters(ratio.as_ref()) {
        Verdict::Noise
    } else if is_worse {
        Verdict::Regression
    } else {
        Verdict::Improvement
    };
    Some(Change { experiment: old.label.clone(), figure, before: low, after: high, ratio, p, verdict })
}

/// Chance gives a difference this improbable once in a hundred comparisons: with five repetitions each, only if every
/// value of one report is beyond every value of the other.
const SIGNIFICANT: f64 = 0.01;

/// Whether so many repetitions can give a difference that is significant: of all ways to divide them into two such
/// sets, two are the most extreme.
fn is_telling(before: usize, after: usize) -> bool {
    let (few, all) = (before.min(after), before + after);
    let ways = (0..few).fold(1.0, |ways, taken| ways * (all - taken) as f64 / (taken + 1) as f64);
    2.0 / ways < SIGNIFICANT
}

/// Beyond the threshold, and surely not the same. From nothing to something always is.
fn matters(ratio: Option<&Interval>) -> bool {
    ratio.is_none_or(|ratio| (ratio.median - 1.0).abs() >= RELEVANT && !(ratio.low..=ratio.high).contains(&1.0))
}

impl Comparison {
    /// Whether anything became worse: then `fogmux bench compare` exits with 1.
    #[must_use]
    pub fn has_regression(&self) -> bool {
        self.count(Verdict::Regression) > 0
    }

    /// How many changes are this.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.changes.iter().filter(|change| change.verdict == verdict).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Door, Experiment};
    use crate::measure::environment::Environment;
    use crate::outcome::{Outcome, ProcessUse};

    fn report(runs: &[(Door, &[u64])]) -> Report {
        let outcome = |delivered: &u64| Outcome {
            delivered: *delivered,
            expected: *delivered,
            seconds: 1.0,
            gateway: Some(ProcessUse { cpu_us: 1e6, ..ProcessUse::default() }),
            ..Outcome::default()
        };
        let run = |(door, rates): &(Door, &[u64])| Run {
            experiment: Experiment { door: *door, ..Experiment::default() },
            target: "fogmux".to_owned(),
            outcomes: rates.iter().map(outcome).collect(),
            problem: None,
        };
        let environment = Environment::default();
        Report {
            version: 1,
            command: String::new(),
            began_unix_s: 0,
            environment,
            gateway_environment: None,
            runs: runs.iter().map(run).collect(),
            paper: None,
        }
    }

    fn verdict(before: &[u64], after: &[u64]) -> Verdict {
        let comparison = compare(&report(&[(Door::Mqtt, before)]), &report(&[(Door::Mqtt, after)]));
        comparison.changes.iter().find(|change| change.figure == Figure::Rate).unwrap().verdict
    }

    #[test]
    fn a_fall_beyond_the_noise_is_a_regression_and_a_rise_is_none() {
        let usual = [1000, 1010, 990, 1005, 995];
        assert_eq!(verdict(&usual, &[900, 905, 910, 895, 890]), Verdict::Regression);
        assert_eq!(verdict(&usual, &[1100, 1105, 1110, 1095, 1090]), Verdict::Improvement);
        assert_eq!(verdict(&usual, &[1000, 1011, 991, 1004, 996]), Verdict::Noise);
    }

    #[test]
    fn what_is_significant_and_small_is_noise() {
        assert_eq!(verdict(&[1000, 1001, 1002, 1003, 1004], &[980, 981, 982, 983, 984]), Verdict::Noise);
    }

    #[test]
    fn what_is_large_and_scattered_is_noise() {
        assert_eq!(verdict(&[1000, 500, 1500, 700, 1300], &[900, 400, 1400, 600, 1250]), Verdict::Noise);
    }

    #[test]
    fn three_repetitions_prove_nothing() {
        assert_eq!(verdict(&[1000, 1001, 1002], &[500, 501, 502]), Verdict::TooFew);
    }

    #[test]
    fn more_processor_time_is_worse() {
        let comparison = compare(
            &report(&[(Door::Mqtt, &[1000, 1010, 990, 1005, 995])]),
            &report(&[(Door::Mqtt, &[500, 505, 510, 495, 490])]),
        );
        let cpu = comparison.changes.iter().find(|change| change.figure == Figure::GatewayCpu).unwrap();
        assert_eq!(cpu.verdict, Verdict::Regression);
        assert!(comparison.has_regression());
        let text = comparison.terminal(Shown::Changes, None);
        assert!(text.contains("2 worse") && text.contains("before"), "{text}");
        assert!(comparison.markdown(Shown::Changes).contains("| regression |"));
    }

    #[test]
    fn what_a_gateway_was_set_to_is_compared_where_both_say_it() {
        let with = |settings: &[&str]| {
            let mut report = report(&[(Door::Mqtt, &[10])]);
            report.runs[0].outcomes[0].settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
            report
        };
        let before = with(&["log.filter=warn", "a=1"]);
        let circumstances = |after| compare(&before, &after).circumstances;
        assert_eq!(circumstances(with(&["log.filter=warn", "a=2"])), ["a=1: no longer set", "a=2: set now"]);
        assert_eq!(circumstances(with(&["a=1", "log.filter=warn"])), [""; 0]);
        assert_eq!(circumstances(with(&[])), [""; 0]);
    }

    #[test]
    fn only_the_same_experiments_are_compared_and_others_are_named() {
        let before = report(&[(Door::Mqtt, &[10]), (Door::Coap, &[10])]);
        let mut after = report(&[(Door::Mqtt, &[10]), (Door::Http2, &[10])]);
        after.environment.kernel = "Linux 7".to_owned();
        let comparison = compare(&before, &after);
        assert_eq!(comparison.only_before, ["coap none q0 64 B"]);
        assert_eq!(comparison.only_after, ["http2 none q0 64 B"]);
        assert_eq!(comparison.circumstances, ["kernel: – → Linux 7"]);
        assert!(comparison.changes.iter().all(|change| change.experiment == "mqtt none q0 64 B"));
    }
}
