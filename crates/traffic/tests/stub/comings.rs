//! Clients that leave and come back: how long that takes, and what they miss meanwhile.

use std::time::Duration;

use fogmux_traffic::experiment::Operation;
use fogmux_traffic::report::figure::Figure;
use fogmux_traffic::{Experiment, Outcome};

use super::broker::Fault;
use super::{experiment, measured, warned};

fn delivered() -> Experiment {
    let rate = Some(1_000.0);
    Experiment { publishers: 4, subscribers: 4, topics: 4, rate, seconds: 1.0, drain_seconds: 0.3, ..experiment() }
}

fn figure(figure: Figure, experiment: &Experiment, outcome: &Outcome) -> f64 {
    figure.of(experiment, outcome).unwrap_or_else(|| panic!("{figure:?}"))
}

#[test]
fn a_storm_is_timed_from_leaving_to_the_last_that_is_back_and_what_it_costs_is_counted() {
    // Of twelve connections each is greeted 20 ms later than the one before.
    let experiment = Experiment { storm_seconds: Some(0.4), ..delivered() };
    let outcome = measured(Fault::GreetsInTurn(Duration::from_millis(20)), &experiment).unwrap();
    let comings = outcome.comings.clone().unwrap();
    assert_eq!((comings.left, comings.returned, comings.failed), (4, 4, 0));
    assert_eq!((comings.away.count(), comings.connect.count()), (4, 4));
    let storm = comings.storm.unwrap();
    assert!(storm.at_s >= 0.4, "{storm:?}");
    // Not before the last, whose time away is right to a thousandth.
    let longest = comings.away.max_us().unwrap() / 1e6;
    assert!(storm.all_back_s.is_some_and(|back| back >= 0.24 && back >= longest * 0.998), "{storm:?}, {longest} s");
    assert!(comings.connect_bytes.socket_up > 0);
    // Of a thousand a second, those of a fifth of a second at the least; and nothing else is lost.
    assert!(storm.expected >= 190, "{storm:?}");
    assert_eq!((outcome.sent, outcome.expected), (1_000, 1_000));
    assert!(storm.lost() >= 150, "{storm:?}");
    let lost = outcome.expected - outcome.delivered;
    // Messages that were under way when they left were sent before that.
    assert!((storm.lost()..=storm.lost() + 20).contains(&lost), "{lost} lost, {storm:?}");
    assert_eq!(figure(Figure::StormLost, &experiment, &outcome), f64::from(u32::try_from(storm.lost()).unwrap()));
    assert!(figure(Figure::AllBack, &experiment, &outcome) >= 240_000.0);
    assert!(figure(Figure::Away, &experiment, &outcome) >= 180_000.0);
    assert!(!warned(&experiment, outcome).1.contains("clients that left"));
}

#[test]
fn clients_that_leave_in_turn_come_back_and_miss_little() {
    let experiment = Experiment { churn: Some(2.5), ..delivered() };
    let outcome = measured(Fault::None, &experiment).unwrap();
    let comings = outcome.comings.clone().unwrap();
    // Two and a half times four in a second, the last of them when it ends; those that are away cannot leave.
    assert!((6..=10).contains(&comings.left), "{}", comings.left);
    assert_eq!((comings.returned, comings.storm), (comings.left, None));
    assert_eq!((outcome.sent, outcome.expected, outcome.disconnects), (1_000, 1_000, 0));
    assert!(outcome.delivered >= 700, "{}", outcome.delivered);
    // The steady state is that of whoever is connected: five bytes about a payload, its topic and an acknowledgement.
    let each = outcome.bytes.protocol_down / outcome.delivered;
    assert!((70..=110).contains(&each), "{each} bytes for a message");
}

#[test]
fn a_broker_that_is_gone_when_they_come_back_is_no_success() {
    let experiment = Experiment { storm_seconds: Some(0.2), ..delivered() };
    let outcome = measured(Fault::AcceptsOnly(8), &experiment).unwrap();
    let comings = outcome.comings.clone().unwrap();
    assert_eq!((comings.left, comings.returned), (4, 0));
    assert!(comings.failed >= 4, "{comings:?}");
    assert_eq!(comings.storm.as_ref().map(|storm| storm.all_back_s), Some(None));
    assert_eq!(Figure::AllBack.of(&experiment, &outcome), None);
    let (_, warnings) = warned(&experiment, outcome);
    assert!(warnings.contains("of 20 clients that left, 20 were not back"), "{warnings}");
}

#[test]
fn connections_that_are_held_storm_as_well() {
    let held = Experiment {
        operation: Operation::Hold,
        publishers: 20,
        seconds: 0.8,
        storm_seconds: Some(0.2),
        ..experiment()
    };
    let outcome = measured(Fault::Greets(Duration::from_millis(50)), &held).unwrap();
    let comings = outcome.comings.clone().unwrap();
    assert_eq!((comings.left, comings.returned, outcome.acknowledged), (20, 20, 20));
    assert!(comings.storm.unwrap().all_back_s.is_some_and(|back| back >= 0.05));
    assert_eq!(Figure::StormLost.of(&held, &outcome), None);
}
