//! Rates that rise: what is offered, achieved and late in each slice.

use std::time::Duration;

use fogmux_traffic::experiment::{Operation, Qos};
use fogmux_traffic::outcome::{Run, Slice};
use fogmux_traffic::report;
use fogmux_traffic::{Experiment, Outcome};

use super::broker::Fault;
use super::{experiment, measured, warned};

fn ramp(from: f64, to: f64) -> Experiment {
    Experiment { rate: Some(from), rate_to: Some(to), seconds: 1.0, ..experiment() }
}

fn sum(outcome: &Outcome, of: fn(&Slice) -> u64) -> u64 {
    outcome.slices.iter().map(of).sum()
}

#[test]
fn a_ramp_offers_in_each_slice_what_its_rate_there_says() {
    let experiment = Experiment { publishers: 3, topics: 3, subscribers: 3, ..ramp(100.0, 1_100.0) };
    let outcome = measured(Fault::None, &experiment).unwrap();
    // From 100 to 200 a second in the first tenth of a second, and a hundred more in each.
    let offered: Vec<u64> = outcome.slices.iter().map(|slice| slice.offered).collect();
    let expected = (0..10).map(|number| 15 + 10 * number);
    assert!(offered.iter().zip(expected).all(|(is, was)| is.abs_diff(was) <= 1), "{offered:?}");
    assert_eq!((outcome.offered, outcome.unsent, outcome.delivered), (Some(600), Some(0), 600));
    assert_eq!(sum(&outcome, |slice| slice.offered), 600);
    assert_eq!(sum(&outcome, |slice| slice.sent), 600);
    assert_eq!(sum(&outcome, |slice| slice.delivered), 600);
    assert_eq!(sum(&outcome, |slice| slice.expected), 600);
    assert_eq!(sum(&outcome, |slice| slice.acknowledged), 600);
    assert_eq!(sum(&outcome, |slice| slice.latency.count()), 600);
    let mut all = outcome.slices[0].latency.clone();
    outcome.slices.iter().skip(1).for_each(|slice| all.add(&slice.latency));
    assert_eq!(all, outcome.delivery, "each delivery is in one slice");
}

#[test]
fn the_slice_in_which_a_broker_falls_behind_is_found() {
    // It does at most 500 a second, which is reached in the fifth slice or before.
    let experiment = Experiment { drain_seconds: 0.2, ..ramp(100.0, 1_900.0) };
    let outcome = measured(Fault::Takes(Duration::from_millis(2)), &experiment).unwrap();
    assert_eq!(outcome.offered, Some(1_000));
    assert_eq!(sum(&outcome, |slice| slice.offered), 1_000);
    assert_eq!(sum(&outcome, |slice| slice.unsent), outcome.unsent.unwrap());
    // The backlog is read when the conductor sees that the time is over; one may begin between that and the end.
    let begun = sum(&outcome, |slice| slice.begun);
    assert!(begun.abs_diff(1_000 - outcome.behind.unwrap()) <= 3, "{begun} {:?}", outcome.behind);
    let slices = &outcome.slices;
    assert!(slices[0].kept_up() && !slices[9].kept_up(), "{slices:?}");
    assert!(outcome.last_kept().is_some_and(|slice| slice.to_s < 0.75), "{:?}", outcome.last_kept());
    // Those that were due last and never sent have their latency in the last slice, and each of them once.
    let unsent: u64 = slices.iter().map(|slice| slice.latency.count()).sum();
    assert_eq!(unsent, outcome.delivered + outcome.unsent.unwrap());
    let run = Run { outcomes: vec![outcome.clone(); 5], ..Run::of(experiment.clone(), "stub".to_owned()) };
    let runs = [run];
    let summaries = report::summaries(&runs);
    let table = report::slices::terminal(&summaries, None);
    assert!(table.contains("kept up with to ") && table.contains("0.90–1.00"), "{table}");
    let (label, _) = warned(&experiment, outcome);
    assert!(label.contains("of 1000/s)"), "{label}");
}

#[test]
fn visits_rise_too_and_a_rate_that_stays_has_no_slices() {
    let visits =
        Experiment { operation: Operation::Connect, publishers: 20, qos: Qos::AtMostOnce, ..ramp(50.0, 150.0) };
    let outcome = measured(Fault::None, &visits).unwrap();
    assert_eq!((outcome.offered, outcome.acknowledged), (Some(100), 100));
    assert_eq!((sum(&outcome, |slice| slice.offered), sum(&outcome, |slice| slice.acknowledged)), (100, 100));
    assert!(outcome.slices[0].offered < outcome.slices[9].offered);
    let stays = Experiment { rate: Some(100.0), seconds: 0.3, ..experiment() };
    assert!(measured(Fault::None, &stays).unwrap().slices.is_empty());
}
