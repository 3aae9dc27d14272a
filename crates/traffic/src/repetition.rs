//! Repetitions: how many there are, in which order, and what replaces those that show nothing.

mod pair;

use crate::experiment::Experiment;
use crate::measure::statistics::median_interval;
use crate::outcome::{Outcome, Run};
use crate::report::figure::DECISIVE;

pub use self::pair::{EACH, Round, Rounds, Side, alternate};

/// So many failures of an experiment one after the other, and it is not tried again: it cannot be done here.
const FAILURES_IN_A_ROW: u32 = 3;
/// Each repetition is replaced at most once, on average over all.
const TRIES_EACH: u32 = 2;
/// From so many repetitions on, an interval is one of order statistics.
const UNTIL_MIN: u32 = 6;

/// Whether intervals are looked at after so many: each time that the number has doubled. Looking after each repetition
/// selects intervals that are narrow by chance, and those that miss the median among them.
fn is_look(usable: u32, wanted: u32) -> bool {
    wanted > 0 && usable.is_multiple_of(wanted) && (usable / wanted).is_power_of_two()
}

/// Leaves whole rounds only in runs that are done together, `each` repetitions of every run in a round: a journal may
/// have a part of the last one.
pub fn keep_whole_rounds(runs: &mut [Run], each: usize) {
    let rounds = runs.iter().map(|run| run.outcomes.len() / each.max(1)).min().unwrap_or_default();
    runs.iter_mut().for_each(|run| run.outcomes.truncate(each * rounds));
}

/// How many repetitions there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repetitions {
    /// At least so many that the generator did not limit.
    pub wanted: u32,
    /// More until the intervals are at most this share of the median to both sides, if asked for.
    pub until: Option<f64>,
    /// But at most so many.
    pub most: u32,
}

impl Repetitions {
    /// A fixed number.
    #[must_use]
    pub fn exactly(wanted: u32) -> Self {
        Self { wanted, until: None, most: wanted }
    }

    /// At least `wanted`, and as many as it takes, up to `most`.
    #[must_use]
    pub fn until(share: f64, wanted: u32, most: u32) -> Self {
        let wanted = wanted.max(UNTIL_MIN);
        Self { wanted, until: Some(share), most: most.max(wanted) }
    }
}

/// Why a repetition has no outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Void {
    /// It failed, and another may replace it.
    Failed(String),
    /// The measurement was ended from outside, and there is no other.
    Stopped(String),
}

/// Does all experiments interleaved: first all of them once, then all again. So whatever changes on the machine
/// meanwhile is spread over all. `execute` is given the place of an experiment, the experiment, and how often it was
/// tried. Runs that have repetitions already, of a measurement that was interrupted, are gone on with where they are.
///
/// A repetition that failed, or that the generator limited, is replaced by another: at most as many as are wanted, none
/// after three failures in a row, and none if the generator limits all. Failures stay in the run. One that was stopped
/// is the last of all: runs that were to go on say why they did not.
pub async fn interleave(
    runs: Vec<Run>,
    repetitions: Repetitions,
    mut execute: impl AsyncFnMut(usize, &Experiment, u32) -> Result<Outcome, Void>,
) -> Vec<Run> {
    let mut all: Vec<Progress> = runs.into_iter().map(|run| Progress::of(run, repetitions)).collect();
    while let Some(round) = all.iter().filter(|one| one.is_open()).map(|one| one.tries).min() {
        for at in 0..all.len() {
            let Some(one) = all.get_mut(at).filter(|one| one.is_open() && one.tries == round) else { continue };
            match execute(at, &one.run.experiment, one.tries).await {
                Ok(outcome) => one.succeeded(outcome),
                Err(Void::Failed(why)) => one.failed(why),
                Err(Void::Stopped(why)) => return all.into_iter().map(|one| one.stop(&why)).collect(),
            }
        }
    }
    all.into_iter().map(Progress::end).collect()
}

/// An experiment and what has been done of it.
struct Progress {
    run: Run,
    repetitions: Repetitions,
    tries: u32,
    failures_in_a_row: u32,
}

impl Progress {
    fn of(run: Run, repetitions: Repetitions) -> Self {
        let tries = amount(run.outcomes.len() + run.failed.len());
        // An experiment that was never measured has failed in a row. The order of others is not known: they go on.
        let failures_in_a_row = if run.outcomes.is_empty() { tries } else { 0 };
        let run = Run { until: repetitions.until, problem: None, ..run };
        Self { run, repetitions, tries, failures_in_a_row }
    }

    fn is_open(&self) -> bool {
        let Repetitions { wanted, until, most } = self.repetitions;
        let limited = self.run.outcomes.iter().filter(|outcome| outcome.limited_by_generator.is_some()).count();
        let done = amount(self.run.outcomes.len());
        let usable = amount(self.run.outcomes.len() - limited);
        let is_bound = usable == 0 && done >= wanted;
        let has_tries = self.failures_in_a_row < FAILURES_IN_A_ROW && self.tries < most.saturating_mul(TRIES_EACH);
        let is_done = |share| usable >= most || (is_look(usable, wanted) && is_narrow(&self.run, share));
        let wants_more = usable < wanted || until.is_some_and(|share| !is_done(share));
        has_tries && !is_bound && wants_more
    }

    fn succeeded(&mut self, outcome: Outcome) {
        self.tries += 1;
        self.failures_in_a_row = 0;
        self.run.outcomes.push(outcome);
    }

    fn failed(&mut self, why: String) {
        self.tries += 1;
        self.failures_in_a_row += 1;
        self.run.failed.push(why);
    }

    fn stop(self, why: &str) -> Run {
        let problem = self.is_open().then(|| why.to_owned());
        let run = self.end();
        Run { problem: problem.or(run.problem), ..run }
    }

    fn end(mut self) -> Run {
        if amount(self.run.outcomes.len()) < self.repetitions.wanted {
            self.run.problem = self.run.failed.last().cloned();
        }
        self.run
    }
}

/// Whether the intervals of all figures that decide are at most this share of the median to both sides.
fn is_narrow(run: &Run, share: f64) -> bool {
    let usable: Vec<&Outcome> = run.outcomes.iter().filter(|outcome| outcome.limited_by_generator.is_none()).collect();
    DECISIVE.into_iter().all(|figure| {
        let values: Vec<f64> = usable.iter().filter_map(|outcome| figure.of(&run.experiment, outcome)).collect();
        let half = median_interval(&values).and_then(|interval| interval.half_width());
        half.is_none_or(|half| half <= share)
    })
}

fn amount(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::measure::statistics::simulation::Random;

    /// Nothing here waits.
    pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it waits"),
        }
    }

    pub(super) fn good(delivered: u64) -> Outcome {
        Outcome { delivered, expected: delivered, seconds: 1.0, ..Outcome::default() }
    }

    pub(super) fn limited() -> Outcome {
        Outcome { limited_by_generator: Some("its core was busy".to_owned()), ..good(50) }
    }

    /// Runs one experiment whose tries end like this; the last goes on.
    fn run(repetitions: Repetitions, tries: &[Result<Outcome, String>]) -> Run {
        let execute = async |_, _: &Experiment, number: u32| {
            let at = usize::try_from(number).unwrap();
            tries.get(at).or(tries.last()).cloned().unwrap().map_err(Void::Failed)
        };
        now(interleave(runs(&[Experiment::default()]), repetitions, execute)).pop().unwrap()
    }

    fn runs(experiments: &[Experiment]) -> Vec<Run> {
        experiments.iter().map(|experiment| Run::of(experiment.clone(), "a test".to_owned())).collect()
    }

    #[test]
    fn all_are_done_once_before_any_is_done_again() {
        let experiments = [1, 2].map(|payload_bytes| Experiment { payload_bytes, ..Experiment::default() });
        let mut order = Vec::new();
        let runs = now(interleave(runs(&experiments), Repetitions::exactly(3), async |_, experiment, number| {
            order.push((number, experiment.payload_bytes));
            Ok(good(1))
        }));
        assert_eq!(order, [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]);
        assert!(runs.iter().all(|run| run.outcomes.len() == 3 && run.problem.is_none() && run.failed.is_empty()));
    }

    #[test]
    fn a_repetition_that_was_dropped_is_replaced() {
        let failed = Err("the gateway did not start".to_owned());
        let run = run(Repetitions::exactly(5), &[Ok(good(1)), failed, Ok(limited()), Ok(good(2))]);
        assert_eq!(run.outcomes.len(), 6);
        let usable = run.outcomes.iter().filter(|outcome| outcome.limited_by_generator.is_none()).count();
        assert_eq!((usable, run.failed.len(), run.problem), (5, 1, None));
    }

    #[test]
    fn tries_are_bounded_and_what_cannot_be_done_is_not_tried_for_long() {
        let failed = || Err("no such door".to_owned());
        let never = run(Repetitions::exactly(5), &[failed()]);
        assert_eq!((never.outcomes.len(), never.failed.len()), (0, 3));
        assert_eq!(never.problem.as_deref(), Some("no such door"));
        let now_and_then: Vec<_> = (0..99).map(|number| if number % 3 == 0 { Ok(good(1)) } else { failed() }).collect();
        let some = run(Repetitions::exactly(5), &now_and_then);
        assert_eq!((some.outcomes.len(), some.failed.len()), (4, 6));
        assert!(some.problem.is_some());
        let one = run(Repetitions::exactly(5), &[Ok(good(1)), Ok(limited())]);
        assert_eq!(one.outcomes.len(), 10);
    }

    #[test]
    fn one_that_is_stopped_is_the_last_of_all() {
        let experiments = [1, 2, 3].map(|payload_bytes| Experiment { payload_bytes, ..Experiment::default() });
        let mut tries = 0;
        let runs = now(interleave(runs(&experiments), Repetitions::exactly(2), async |_, experiment, number| {
            tries += 1;
            match (experiment.payload_bytes, number) {
                (2, 1) => Err(Void::Stopped("ended by SIGTERM".to_owned())),
                _ => Ok(good(1)),
            }
        }));
        assert_eq!(tries, 5);
        let ends: Vec<_> = runs.iter().map(|run| (run.outcomes.len(), run.problem.as_deref())).collect();
        assert_eq!(ends, [(2, None), (1, Some("ended by SIGTERM")), (1, Some("ended by SIGTERM"))]);
        assert!(runs.iter().all(|run| run.failed.is_empty()));
    }

    #[test]
    fn one_that_was_interrupted_goes_on_where_it_was() {
        let experiments = [1, 2, 3].map(|payload_bytes| Experiment { payload_bytes, ..Experiment::default() });
        let mut begun = runs(&experiments);
        begun[0].outcomes = vec![good(1), good(1)];
        (begun[1].outcomes, begun[1].problem) = (vec![good(1)], Some("ended by SIGTERM".to_owned()));
        begun[2].failed = vec!["no such door".to_owned(); 3];
        let mut order = Vec::new();
        let runs = now(interleave(begun, Repetitions::exactly(3), async |at, experiment, number| {
            order.push((at, experiment.payload_bytes, number));
            Ok(good(1))
        }));
        assert_eq!(order, [(1, 2, 1), (0, 1, 2), (1, 2, 2)]);
        let ends: Vec<_> = runs.iter().map(|run| (run.outcomes.len(), run.problem.as_deref())).collect();
        assert_eq!(ends, [(3, None), (3, None), (0, Some("no such door"))]);
    }

    #[test]
    fn what_the_generator_always_limits_is_not_repeated_for_that() {
        let run = run(Repetitions::exactly(5), &[Ok(limited())]);
        assert_eq!((run.outcomes.len(), run.problem), (5, None));
    }

    #[test]
    fn repetitions_go_on_until_the_interval_is_narrow_and_end_at_their_bound() {
        #[expect(clippy::cast_possible_truncation, reason = "about a million")]
        let scattered = |share: f64| {
            let mut random = Random::of(3);
            (0..99).map(|_| Ok(good((1e6 * (1.0 + share * random.normal())) as u64))).collect::<Vec<_>>()
        };
        let quiet = run(Repetitions::until(0.02, 5, 40), &scattered(0.005));
        assert_eq!(quiet.outcomes.len(), 6);
        let usual = run(Repetitions::until(0.02, 5, 40), &scattered(0.02));
        assert!([12, 24].contains(&usual.outcomes.len()), "{}", usual.outcomes.len());
        assert!(is_narrow(&usual, 0.02));
        let wild = run(Repetitions::until(0.02, 5, 40), &scattered(0.30));
        assert_eq!((wild.outcomes.len(), wild.until), (40, Some(0.02)));
    }

    /// Of those that are looked at after each repetition, 91 to 95 of 100 do.
    #[test]
    fn intervals_that_were_waited_for_contain_the_median() {
        for scatter in [0.01, 0.02, 0.04, 0.08] {
            let mut random = Random::of(5);
            let covered = (0..400).filter(|_| {
                let mut values = Vec::new();
                let narrow = loop {
                    values.push(100.0 * (1.0 + scatter * random.normal()));
                    let interval = median_interval(&values).unwrap();
                    let is_narrow = interval.half_width().is_some_and(|half| half <= 0.02);
                    let is_look = is_look(amount(values.len()), 6);
                    if is_look && (is_narrow || values.len() >= 96) {
                        break interval;
                    }
                };
                (narrow.low..=narrow.high).contains(&100.0)
            });
            let covered = covered.count();
            println!("{scatter}: {covered} of 400");
            assert!(covered >= 373, "{scatter}: {covered} of 400");
        }
    }
}
