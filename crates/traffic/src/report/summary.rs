//! The figures of a run, computed once for all formats: medians over its repetitions with 95 % intervals.

use super::figure::{self, Figure};
use crate::measure::latency::Latency;
use crate::measure::statistics::{Interval, median_interval};
use crate::outcome::{Outcome, Run};

/// One run in numbers.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its label among the runs of its report.
    pub label: String,
    /// The repetitions that the figures are computed from.
    pub used: Vec<&'a Outcome>,
    /// The repetitions that are left out, numbered from 1, with the reason.
    pub left_out: Vec<(usize, &'a str)>,
    /// Whether the generator set the pace in every repetition. They are used all the same, but the rate is only a
    /// lower bound then, and times are the generator's as much as the gateway's.
    pub is_bound: bool,
    figures: Vec<(Figure, Interval)>,
}

impl<'a> Summary<'a> {
    /// Of a run, by the name that the report gives it.
    #[must_use]
    pub fn of(run: &'a Run, label: String) -> Self {
        let limits = run.outcomes.iter().enumerate();
        let left_out: Vec<(usize, &str)> =
            limits.filter_map(|(index, outcome)| Some((index + 1, outcome.limited_by_generator.as_deref()?))).collect();
        let is_bound = !left_out.is_empty() && left_out.len() == run.outcomes.len();
        let is_used = |outcome: &&Outcome| is_bound || outcome.limited_by_generator.is_none();
        let used: Vec<&Outcome> = run.outcomes.iter().filter(is_used).collect();
        let figures = Figure::ALL
            .into_iter()
            .filter_map(|figure| Some((figure, median_interval(&values(figure, run, &used))?)))
            .collect();
        Self { run, label, used, left_out, is_bound, figures }
    }

    /// The median of a figure and its interval, if any repetition knows it.
    #[must_use]
    pub fn get(&self, figure: Figure) -> Option<&Interval> {
        self.figures.iter().find(|(of, _)| *of == figure).map(|(_, interval)| interval)
    }

    /// A figure of every used repetition.
    #[must_use]
    pub fn values(&self, figure: Figure) -> Vec<f64> {
        values(figure, self.run, &self.used)
    }

    /// Latencies of all used repetitions together.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let mut all = Latency::default();
        self.used.iter().for_each(|outcome| all.add(&figure::latency(&self.run.experiment, outcome)));
        all
    }
}

fn values(figure: Figure, run: &Run, used: &[&Outcome]) -> Vec<f64> {
    used.iter().filter_map(|outcome| figure.of(&run.experiment, outcome)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    fn run(outcomes: Vec<Outcome>) -> Run {
        Run { outcomes, ..Run::of(Experiment::default(), "fogmux".to_owned()) }
    }

    fn at(delivered: u64, limit: Option<&str>) -> Outcome {
        Outcome { delivered, seconds: 1.0, limited_by_generator: limit.map(str::to_owned), ..Outcome::default() }
    }

    #[test]
    fn repetitions_that_the_generator_limits_are_left_out_and_named() {
        let run = run(vec![at(100, None), at(3, Some("no core was idle")), at(102, None)]);
        let summary = Summary::of(&run, "a".to_owned());
        assert_eq!(summary.left_out, [(2, "no core was idle")]);
        assert_eq!(summary.values(Figure::Rate), [100.0, 102.0]);
        assert!(!summary.is_bound);
    }

    #[test]
    fn when_all_are_limited_the_rate_is_a_bound() {
        let run = run(vec![at(100, Some("x")), at(102, Some("x")), at(101, Some("x"))]);
        let summary = Summary::of(&run, "a".to_owned());
        assert!(summary.is_bound);
        assert_eq!(summary.get(Figure::Rate).unwrap().median, 101.0);
    }

    #[test]
    fn a_run_without_repetitions_has_no_figures() {
        let run = run(Vec::new());
        let summary = Summary::of(&run, "a".to_owned());
        assert_eq!(summary.get(Figure::Rate), None);
        assert!(!summary.is_bound);
    }
}
