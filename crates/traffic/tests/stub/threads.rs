//! Several threads of the generator: what they count together, and what happens if one of them fails.

use std::time::Duration;

use fogmux_traffic::experiment::Operation;
use fogmux_traffic::{Experiment, Outcome};

use super::broker::Fault;
use super::{experiment, measured};

fn divided(count: u64) -> Experiment {
    let drain_seconds = 0.3;
    Experiment {
        threads: 3,
        publishers: 7,
        subscribers: 5,
        topics: 5,
        count: Some(count),
        drain_seconds,
        ..experiment()
    }
}

/// In each part of it, as much as in the whole.
fn is_whole(outcome: &Outcome) {
    assert_eq!(outcome.delivery.count(), outcome.delivered);
    assert_eq!(outcome.answer.count(), outcome.acknowledged);
    assert_eq!(outcome.per_tenth.iter().sum::<u64>(), outcome.delivered);
}

#[test]
fn faults_are_counted_to_the_message_by_threads_as_by_one() {
    for threads in [1, 3] {
        let counted = Experiment { threads, ..divided(1_001) };
        let outcome = |fault| measured(fault, &counted).unwrap();
        let none = outcome(Fault::None);
        assert_eq!((none.sent, none.expected, none.delivered), (1_001, 1_001, 1_001), "{threads}");
        assert_eq!((none.acknowledged, none.duplicates, none.reordered, none.errors), (1_001, 0, 0, 0));
        assert_eq!(none.connect.count(), 12);
        is_whole(&none);
        let dropped = outcome(Fault::Drops(100));
        assert_eq!((dropped.expected, dropped.delivered, dropped.duplicates), (1_001, 991, 0), "{threads}");
        let doubled = outcome(Fault::Doubles(50));
        assert_eq!((doubled.delivered, doubled.duplicates), (1_001, 20), "{threads}");
        let altered = outcome(Fault::Alters(100));
        assert_eq!((altered.delivered, altered.errors), (991, 10), "{threads}");
        is_whole(&altered);
    }
}

#[test]
fn a_rate_is_that_of_all_threads_and_so_is_what_they_never_sent() {
    let rate = Experiment { rate: Some(600.0), count: None, seconds: 0.5, ..divided(1) };
    let outcome = measured(Fault::None, &rate).unwrap();
    assert_eq!((outcome.offered, outcome.sent, outcome.unsent, outcome.delivered), (Some(300), 300, Some(0), 300));
    let ramp = Experiment { rate: Some(200.0), rate_to: Some(1_000.0), ..rate };
    let outcome = measured(Fault::None, &ramp).unwrap();
    assert_eq!((outcome.offered, outcome.delivered), (Some(300), 300));
    assert_eq!(outcome.slices.iter().map(|slice| slice.offered).sum::<u64>(), 300);
    let slow = Experiment { rate: Some(4_000.0), rate_to: None, window: 5, drain_seconds: 0.1, ..ramp };
    let outcome = measured(Fault::Takes(Duration::from_millis(2)), &slow).unwrap();
    let unsent = outcome.unsent.unwrap();
    assert_eq!((outcome.offered, outcome.sent + unsent), (Some(2_000), 2_000));
    assert!(unsent > 500 && outcome.unsent_latency.count() == unsent, "{unsent}");
}

#[test]
fn a_thread_whose_connection_closes_voids_the_repetition_of_all() {
    let long = Experiment { count: None, seconds: 60.0, rate: Some(100.0), ..divided(1) };
    let why = measured(Fault::ClosesOne(Duration::from_millis(400)), &long).unwrap_err();
    assert!(why.starts_with("the connection of subscriber "), "{why}");
    let why = measured(Fault::AcceptsOnly(10), &long).unwrap_err();
    assert!(!why.contains("did not end"), "{why}");
}

#[test]
fn threads_divide_connections_that_are_held_and_their_storms() {
    let (operation, storm_seconds) = (Operation::Hold, Some(0.2));
    let held = Experiment { operation, publishers: 20, count: None, seconds: 0.6, storm_seconds, ..divided(1) };
    let outcome = measured(Fault::Greets(Duration::from_millis(50)), &held).unwrap();
    assert_eq!((outcome.sent, outcome.acknowledged, outcome.connect.count()), (20, 20, 20));
    let comings = outcome.comings.unwrap();
    assert_eq!((comings.left, comings.returned), (20, 20));
    assert!(comings.storm.and_then(|storm| storm.all_back_s).is_some_and(|back| back >= 0.05));
}
