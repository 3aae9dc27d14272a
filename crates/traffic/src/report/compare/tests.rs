//! Comparisons of synthetic reports, and what they find in a thousand of them.

mod simulation;

use super::*;
use crate::experiment::{Door, Experiment};
use crate::measure::environment::Environment;
use crate::outcome::{Outcome, ProcessUse};

fn of_runs(runs: Vec<Run>) -> Report {
    Report {
        version: 1,
        command: String::new(),
        began_unix_s: 0,
        environment: Environment::default(),
        resumed_unix_s: Vec::new(),
        gateway_environment: None,
        runs,
        paper: None,
    }
}

fn outcome(delivered: u64) -> Outcome {
    Outcome {
        delivered,
        expected: delivered,
        seconds: 1.0,
        gateway: Some(ProcessUse { cpu_us: 1e6, ..ProcessUse::default() }),
        ..Outcome::default()
    }
}

fn run(door: Door, outcomes: Vec<Outcome>) -> Run {
    Run { outcomes, ..Run::of(Experiment { door, ..Experiment::default() }, "fogmux".to_owned()) }
}

fn report(runs: &[(Door, &[u64])]) -> Report {
    of_runs(runs.iter().map(|(door, rates)| run(*door, rates.iter().map(|rate| outcome(*rate)).collect())).collect())
}

fn of_outcomes(outcomes: Vec<Outcome>) -> Report {
    of_runs(vec![run(Door::Mqtt, outcomes)])
}

fn compared(before: &[u64], after: &[u64]) -> Comparison {
    compare(&report(&[(Door::Mqtt, before)]), &report(&[(Door::Mqtt, after)]), SESSION)
}

fn verdict_of(comparison: &Comparison, figure: Figure) -> Option<Verdict> {
    comparison.changes.iter().find(|change| change.figure == figure).map(|change| change.verdict)
}

fn verdict(before: &[u64], after: &[u64]) -> Verdict {
    verdict_of(&compared(before, after), Figure::Rate).unwrap()
}

const USUAL: [u64; 5] = [1000, 1010, 990, 1005, 995];

#[test]
fn a_fall_beyond_the_noise_is_a_regression_and_a_rise_is_none() {
    assert_eq!(verdict(&USUAL, &[800, 805, 810, 795, 790]), Verdict::Regression);
    assert_eq!(verdict(&USUAL, &[1200, 1205, 1210, 1195, 1190]), Verdict::Improvement);
    assert_eq!(verdict(&USUAL, &[1000, 1011, 991, 1004, 996]), Verdict::Noise);
    assert_eq!(compared(&USUAL, &[800, 805, 810, 795, 790]).conclusion(), Conclusion::Regression);
    assert_eq!(compared(&USUAL, &[1000, 1011, 991, 1004, 996]).conclusion(), Conclusion::Fine);
}

#[test]
fn the_effect_says_how_well_two_sides_can_be_told_apart() {
    let effect = |after: &[u64]| {
        let change = compared(&USUAL, after).changes.into_iter().find(|change| change.figure == Figure::Rate);
        change.and_then(|change| change.effect)
    };
    assert_eq!(effect(&[800, 805, 810, 795, 790]), Some(-1.0));
    assert_eq!(effect(&USUAL), Some(0.0));
    // Of rounds of 1000 and 1010, 2000 and 2010, …: against each other as a whole they hardly differ.
    let side = |more: u64| (1..=8).flat_map(|round| [1_000 * round + more; 2].map(outcome)).collect::<Vec<_>>();
    let (a, b) = (run(Door::Mqtt, side(0)), run(Door::Mqtt, side(10)));
    let comparison = paired(&a, &b).unwrap();
    let change = comparison.changes.iter().find(|change| change.figure == Figure::Rate).unwrap();
    assert_eq!(change.effect, Some(1.0));
    let (before, after) = (of_runs(vec![a]), of_runs(vec![b]));
    let apart = compare(&before, &after, SESSION);
    let change = apart.changes.iter().find(|change| change.figure == Figure::Rate).unwrap();
    assert!(change.effect.is_some_and(|effect| effect < 0.2), "{:?}", change.effect);
}

#[test]
fn what_is_significant_and_small_is_noise() {
    assert_eq!(verdict(&[1000, 1001, 1002, 1003, 1004], &[980, 981, 982, 983, 984]), Verdict::Noise);
}

#[test]
fn what_is_large_and_scattered_is_unclear() {
    let comparison = compared(&[1000, 500, 1500, 700, 1300], &[900, 400, 1400, 600, 1250]);
    assert_eq!(verdict_of(&comparison, Figure::Rate), Some(Verdict::Unclear));
    assert_eq!(comparison.conclusion(), Conclusion::Inconclusive);
}

/// Three repetitions of `matrix --quick`, and five of which one was left out.
#[test]
fn three_repetitions_and_four_show_a_loss_by_half() {
    assert_eq!(verdict(&[1000, 1050, 960], &[500, 520, 470]), Verdict::Regression);
    assert_eq!(verdict(&USUAL, &[500, 520, 470, 510]), Verdict::Regression);
}

#[test]
fn two_repetitions_prove_nothing_and_that_is_inconclusive() {
    assert_eq!(verdict(&[1000, 1001], &[500, 501]), Verdict::TooFew);
    assert_eq!(compared(&[1000, 1001], &[1000, 1001]).conclusion(), Conclusion::Inconclusive);
}

#[test]
fn more_processor_time_is_worse() {
    let comparison = compared(&USUAL, &[500, 505, 510, 495, 490]);
    assert_eq!(verdict_of(&comparison, Figure::GatewayCpu), Some(Verdict::Regression));
    let text = comparison.terminal(Shown::Changes, None);
    assert!(text.contains("2 worse") && text.contains("before"), "{text}");
    assert!(comparison.markdown(Shown::Changes).contains("| regression |"));
}

/// 40 % lost, 9 999 duplicates and 500 errors in two of five repetitions.
#[test]
fn failures_of_two_repetitions_of_five_are_regressions() {
    let before = vec![Outcome { sent: 1000, ..outcome(1000) }; 5];
    let mut after = before.clone();
    for outcome in after.iter_mut().skip(3) {
        *outcome = Outcome { delivered: 600, duplicates: 9_999, errors: 500, ..outcome.clone() };
    }
    let comparison = compare(&of_outcomes(before), &of_outcomes(after), SESSION);
    for (figure, sum) in [(Figure::Lost, 800.0), (Figure::Duplicates, 19_998.0), (Figure::Errors, 1_000.0)] {
        let change = comparison.changes.iter().find(|change| change.figure == figure).unwrap();
        assert_eq!((change.verdict, change.after), (Verdict::Regression, sum), "{figure:?}");
    }
    assert_eq!(comparison.conclusion(), Conclusion::Regression);
}

/// Those of a repetition that the figures leave out count as well.
#[test]
fn failures_are_counted_in_every_repetition() {
    let before = of_outcomes(vec![outcome(1000); 5]);
    let mut after = before.clone();
    let last = after.runs[0].outcomes.last_mut().unwrap();
    *last = Outcome { delivered: 999, limited_by_generator: Some("busy".to_owned()), ..last.clone() };
    assert_eq!(verdict_of(&compare(&before, &after, SESSION), Figure::Lost), Some(Verdict::Regression));
}

#[test]
fn losses_of_a_lossy_link_are_compared_by_their_share() {
    let lossy = |lost: [u64; 5]| {
        let outcome = |lost: &u64| Outcome { delivered: 20_000 - lost, expected: 20_000, sent: 20_000, ..outcome(0) };
        of_outcomes(lost.iter().map(outcome).collect())
    };
    let before = lossy([1010, 980, 1000, 1025, 990]);
    let verdict = |after| verdict_of(&compare(&before, &lossy(after), SESSION), Figure::Lost).unwrap();
    assert_eq!(verdict([1000, 1020, 1030, 985, 1005]), Verdict::Noise);
    assert_eq!(verdict([1500, 1480, 1520, 1490, 1510]), Verdict::Regression);
    assert_eq!(verdict([1000, 1020, 9_000, 985, 1005]), Verdict::Regression);
    assert_eq!(verdict([0; 5]), Verdict::Improvement);
}

#[test]
fn repetitions_that_failed_are_a_regression_if_none_did_before() {
    let before = report(&[(Door::Mqtt, &USUAL)]);
    let mut after = before.clone();
    after.runs[0].failed = vec!["the gateway did not start".to_owned()];
    let comparison = compare(&before, &after, SESSION);
    assert_eq!(comparison.conclusion(), Conclusion::Regression);
    let text = comparison.terminal(Shown::Changes, None);
    assert!(text.contains("after: the gateway did not start") && text.contains("1 worse"), "{text}");
    assert_eq!(compare(&after, &after, SESSION).conclusion(), Conclusion::Fine);
    // Reports of earlier versions have the reason of the last one only.
    let mut earlier = before.clone();
    earlier.runs[0].problem = Some("it did not end".to_owned());
    assert_eq!(compare(&before, &earlier, SESSION).conclusion(), Conclusion::Regression);
}

#[test]
fn each_way_of_having_nothing_to_compare_has_a_conclusion() {
    let usual = report(&[(Door::Mqtt, &USUAL)]);
    let mut crashed = report(&[(Door::Mqtt, &[])]);
    crashed.runs[0].problem = Some("the gateway died".to_owned());
    let other = report(&[(Door::Coap, &USUAL)]);
    let more = report(&[(Door::Mqtt, &USUAL), (Door::Coap, &USUAL)]);
    let conclusion = |before: &Report, after: &Report| compare(before, after, SESSION).conclusion();
    assert_eq!(conclusion(&usual, &crashed), Conclusion::Crashed);
    assert_eq!(conclusion(&crashed, &crashed), Conclusion::Incomparable);
    assert_eq!(conclusion(&crashed, &usual), Conclusion::Incomparable);
    assert_eq!(conclusion(&usual, &other), Conclusion::Different);
    assert_eq!(conclusion(&more, &usual), Conclusion::Different);
    assert_eq!(conclusion(&usual, &usual), Conclusion::Fine);
    let mut half = report(&[(Door::Mqtt, &USUAL), (Door::Coap, &[])]);
    half.runs[1].problem = Some("the gateway died".to_owned());
    assert_eq!(conclusion(&more, &half), Conclusion::Crashed);
    assert_eq!(conclusion(&half, &more), Conclusion::Inconclusive);
}

#[test]
fn what_a_gateway_was_set_to_is_compared_where_both_say_it() {
    let with = |settings: &[&str]| {
        let mut report = report(&[(Door::Mqtt, &[10])]);
        report.runs[0].outcomes[0].settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        report
    };
    let before = with(&["log.filter=warn", "a=1"]);
    let circumstances = |after| compare(&before, &after, SESSION).circumstances;
    assert_eq!(circumstances(with(&["log.filter=warn", "a=2"])), ["a=1: no longer set", "a=2: set now"]);
    assert_eq!(circumstances(with(&["a=1", "log.filter=warn"])), [""; 0]);
    assert_eq!(circumstances(with(&[])), [""; 0]);
}

#[test]
fn only_the_same_experiments_are_compared_and_others_are_named() {
    let before = report(&[(Door::Mqtt, &[10]), (Door::Coap, &[10])]);
    let mut after = report(&[(Door::Mqtt, &[10]), (Door::Http2, &[10])]);
    after.environment.kernel = "Linux 7".to_owned();
    let comparison = compare(&before, &after, SESSION);
    assert_eq!(comparison.only_before, ["coap none q0 64 B"]);
    assert_eq!(comparison.only_after, ["http2 none q0 64 B"]);
    assert_eq!(comparison.circumstances, ["kernel: – → Linux 7"]);
    assert!(comparison.changes.iter().all(|change| change.experiment == "mqtt none q0 64 B"));
}

#[test]
fn runs_that_are_no_rounds_are_refused() {
    let usual = run(Door::Mqtt, vec![outcome(1000); 12]);
    assert!(paired(&usual, &run(Door::Coap, vec![outcome(1000); 12])).is_err());
    assert!(paired(&usual, &run(Door::Mqtt, vec![outcome(1000); 10])).is_err());
    let odd = run(Door::Mqtt, vec![outcome(1000); 5]);
    assert!(paired(&odd, &odd).is_err());
    assert_eq!(paired(&usual, &usual).unwrap().conclusion(), Conclusion::Fine);
}

/// A machine that changes between the first and the second half of each round changes both sides.
#[test]
fn a_side_that_differs_from_itself_has_no_verdict() {
    let sides = |second: u64| {
        let rates = (0..12).flat_map(|round| [1000 + round, second + round]);
        run(Door::Mqtt, rates.map(outcome).collect())
    };
    // A falls from its first to its second repetition, B rises: no drift does that to A B B A and B A A B alike.
    let comparison = paired(&sides(800), &sides(1250)).unwrap();
    assert_eq!(verdict_of(&comparison, Figure::Rate), Some(Verdict::Unclear));
    assert_eq!(comparison.conclusion(), Conclusion::Inconclusive);
}
