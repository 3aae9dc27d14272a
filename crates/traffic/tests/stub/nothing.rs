//! Brokers of which nothing comes, or what nobody has sent: no rate, latency or success is made of that.

use std::time::Duration;

use fogmux_traffic::experiment::{Operation, Qos};
use fogmux_traffic::outcome::Run;
use fogmux_traffic::report;
use fogmux_traffic::report::figure::Figure;
use fogmux_traffic::report::threshold::{Crossing, Threshold};
use fogmux_traffic::{Experiment, Outcome};

use super::broker::Fault;
use super::{experiment, measured, warned};

fn counted(count: u64) -> Experiment {
    Experiment { count: Some(count), drain_seconds: 0.3, ..experiment() }
}

/// Of a run of five such repetitions.
fn crossed(condition: &str, experiment: &Experiment, outcome: &Outcome) -> bool {
    let run = Run { outcomes: vec![outcome.clone(); 5], ..Run::of(experiment.clone(), "stub".to_owned()) };
    let runs = [run];
    let crossing = condition.parse::<Threshold>().unwrap().on(&report::summaries(&runs)[0]);
    assert!(!matches!(crossing, Crossing::Unknown(_)), "{crossing:?}");
    crossing != Crossing::Within
}

#[test]
fn acknowledgements_are_no_deliveries() {
    let rate = Experiment { rate: Some(200.0), seconds: 0.5, drain_seconds: 0.2, ..experiment() };
    for experiment in [rate, counted(100)] {
        let outcome = measured(Fault::Swallows(1), &experiment).unwrap();
        assert_eq!((outcome.acknowledged, outcome.expected, outcome.delivered), (100, 100, 0));
        assert_eq!(Figure::Rate.of(&experiment, &outcome), Some(0.0));
        for figure in [Figure::LatencyP50, Figure::LatencyMax, Figure::TotalBytes, Figure::GeneratorCpu] {
            assert_eq!(figure.of(&experiment, &outcome), None, "{figure:?}");
        }
        assert!(crossed("rate<150/s", &experiment, &outcome));
        assert!(!outcome.is_fruitless(), "it acknowledged");
    }
}

#[test]
fn answers_that_are_all_wrong_are_errors_and_no_success() {
    let asked = Experiment { operation: Operation::Get, retain: true, window: 1, ..counted(50) };
    let outcome = measured(Fault::Alters(1), &asked).unwrap();
    assert_eq!((outcome.sent, outcome.errors, outcome.unanswered), (50, 50, 0));
    assert_eq!(Figure::Rate.of(&asked, &outcome), Some(0.0));
    assert_eq!((Figure::Lost.of(&asked, &outcome), Figure::LatencyP50.of(&asked, &outcome)), (Some(0.0), None));
    assert!(outcome.is_fruitless());
    let (_, warnings) = warned(&asked, outcome);
    assert!(warnings.contains("no operation succeeded in any repetition: nothing was measured"), "{warnings}");
}

#[test]
fn messages_that_go_to_others_do_not_arrive() {
    let two = Experiment { publishers: 2, subscribers: 2, topics: 2, ..counted(200) };
    let outcome = measured(Fault::Misroutes, &two).unwrap();
    assert_eq!((outcome.acknowledged, outcome.expected, outcome.delivered), (200, 200, 0));
    assert_eq!((outcome.foreign, outcome.errors, outcome.duplicates), (200, 200, 0));
    let first = outcome.first_error.as_deref();
    assert_eq!(first, Some("a message that was sent to another topic than its subscriber follows"));
    assert_eq!(Figure::Rate.of(&two, &outcome), Some(0.0));
    assert!(crossed("foreign>0", &two, &outcome) && crossed("errors>0", &two, &outcome));
    let (_, warnings) = warned(&two, outcome);
    assert!(warnings.contains("1000 messages came that nobody had sent to their subscriber"), "{warnings}");
    // Of several threads each knows its own lanes.
    let outcome = measured(Fault::Misroutes, &Experiment { threads: 2, ..two }).unwrap();
    assert_eq!((outcome.delivered, outcome.foreign), (0, 200));
}

#[test]
fn a_message_under_another_name_is_an_error() {
    let outcome = measured(Fault::Misnames(10), &counted(200)).unwrap();
    assert_eq!((outcome.delivered, outcome.foreign, outcome.errors), (180, 20, 20));
    assert_eq!(outcome.first_error.as_deref(), Some("a message under another topic than it was sent to"));
}

#[test]
fn what_nobody_sent_and_what_is_damaged_is_counted() {
    for (fault, payload_bytes, delivered, foreign, errors) in [
        (Fault::Invents(10), 64, 200, 20, 20),
        (Fault::Damages(10), 64, 180, 0, 20),
        (Fault::Empties(10), 64, 180, 0, 20),
        (Fault::Empties(10), 3, 180, 0, 20),
    ] {
        let experiment = Experiment { payload_bytes, window: 1, ..counted(200) };
        let outcome = measured(fault, &experiment).unwrap();
        assert_eq!((outcome.delivered, outcome.foreign, outcome.errors), (delivered, foreign, errors), "{fault:?}");
    }
}

#[test]
fn messages_that_are_never_acknowledged_are_counted_however_well_they_arrive() {
    let few = Experiment { window: 0, ..counted(100) };
    let outcome = measured(Fault::Unacknowledged(41), &few).unwrap();
    assert_eq!((outcome.delivered, outcome.acknowledged, outcome.unanswered), (100, 40, 60));
    assert_eq!((outcome.errors, outcome.foreign), (0, 0));
    assert!(crossed("unanswered>0", &few, &outcome));
    let (_, warnings) = warned(&few, outcome);
    assert!(warnings.contains("of 500 operations 300 were never answered"), "{warnings}");
}

#[test]
fn a_time_that_ends_in_the_middle_of_windows_leaves_nothing_unanswered() {
    let slow = Fault::Takes(Duration::from_millis(2));
    let closed = Experiment { publishers: 3, topics: 3, subscribers: 3, window: 20, seconds: 0.3, ..experiment() };
    let open = Experiment { rate: Some(2_000.0), ..closed.clone() };
    // At QoS 0 nothing but a rate holds messages back.
    let forgotten = Experiment { qos: Qos::AtMostOnce, rate: Some(300.0), ..closed.clone() };
    let asked = Experiment { operation: Operation::Put, ..closed.clone() };
    for experiment in [closed, open, forgotten, asked] {
        let outcome = measured(slow, &experiment).unwrap();
        assert!(outcome.sent > 0 && outcome.unanswered == 0, "{} of {}", outcome.unanswered, outcome.sent);
        assert_eq!(outcome.acknowledged, outcome.sent);
    }
}

#[test]
fn an_acknowledgement_of_nothing_is_an_error() {
    let outcome = measured(Fault::Reacknowledges(10), &counted(200)).unwrap();
    assert_eq!((outcome.acknowledged, outcome.unanswered, outcome.errors, outcome.foreign), (200, 0, 20, 0));
    let first = outcome.first_error.as_deref();
    assert_eq!(first, Some("an acknowledgement of a packet identifier that no message has"));
}

#[test]
fn the_rate_of_few_operations_is_the_one_that_was_asked_for() {
    for rate in [20.0, 40.0] {
        let few = Experiment { rate: Some(rate), ..counted(3) };
        let outcome = measured(Fault::None, &few).unwrap();
        let found = Figure::Rate.of(&few, &outcome).unwrap();
        assert!(found <= rate * 1.001 && found >= rate * 0.5, "{found} of {rate}");
    }
}
