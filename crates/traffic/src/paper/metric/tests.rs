//! Metrics on outcomes that are known.

use super::*;
use crate::outcome::Bytes;

fn read(name: &str, experiment: &Experiment, outcome: &Outcome) -> Option<f64> {
    named(name).unwrap().read(experiment, outcome)
}

fn wire(bytes_up: u64, packets_up: u64) -> Option<Wire> {
    Some(Wire { bytes_up, packets_up, bytes_down: 10, packets_down: 1 })
}

#[test]
fn names_are_unique() {
    for (at, metric) in METRICS.iter().enumerate() {
        assert!(METRICS.iter().skip(at + 1).all(|other| other.name != metric.name), "{}", metric.name);
    }
}

#[test]
fn an_outcome_of_nothing_has_no_number_that_divides() {
    for metric in METRICS {
        let number = metric.read(&Experiment::default(), &Outcome::default());
        let sums = ["seconds_total", "seconds_with_connect", "generator_memory_mib", "generator_memory_virtual_mib"];
        assert_eq!(number.is_some(), sums.contains(&metric.name), "{}", metric.name);
    }
}

#[test]
fn a_message_costs_what_passes_while_messages_pass_unless_connecting_is_part_of_it() {
    let outcome = Outcome {
        sent: 2,
        bytes: Bytes { wire: wire(90, 3), ..Bytes::default() },
        connect_bytes: Bytes { wire: wire(190, 7), ..Bytes::default() },
        ..Outcome::default()
    };
    let steady = Experiment::default();
    assert_eq!(read("bytes_per_message", &steady, &outcome), Some(50.0));
    assert_eq!(read("packets_per_message", &steady, &outcome), Some(2.0));
    assert_eq!(read("packets_total", &steady, &outcome), Some(12.0));
    let visits = Experiment { operation: Operation::Connect, messages: 1, ..Experiment::default() };
    assert_eq!(read("bytes_per_message", &visits, &outcome), Some(150.0));
}

#[test]
fn connecting_is_spread_over_the_messages_of_a_short_life() {
    let mut outcome = Outcome::default();
    outcome.connect.record_ns(20_000_000);
    outcome.connect.record_ns(10_000_000);
    (0..10).for_each(|_| outcome.delivery.record_ns(5_000_000));
    let mean = read("delivery_mean_with_connect_ms", &Experiment::default(), &outcome).unwrap();
    assert!((6.99..7.02).contains(&mean), "{mean}");
}

#[test]
fn a_hundred_messages_and_their_connection_compare_however_many_were_sent() {
    let mut outcome = Outcome {
        sent: 20,
        bytes: Bytes { wire: wire(990, 40), ..Bytes::default() },
        connect_bytes: Bytes { wire: wire(190, 7), ..Bytes::default() },
        ..Outcome::default()
    };
    outcome.note_closing(Wire { bytes_up: 60, packets_up: 1, ..Wire::default() });
    assert_eq!(read("bytes_of_100_with_connect", &Experiment::default(), &outcome), Some(200.0 + 60.0 + 5_000.0));
    let unconnected = Outcome { sent: 0, bytes: Bytes::default(), more: std::collections::BTreeMap::new(), ..outcome };
    assert_eq!(read("bytes_of_100_with_connect", &Experiment::default(), &unconnected), Some(200.0));
}

#[test]
fn the_course_of_speed_is_of_whole_tenths_and_their_mean() {
    let outcome = Outcome { per_tenth: vec![150, 100, 100, 100, 50, 3], ..Outcome::default() };
    let of = |name| read(name, &Experiment::default(), &outcome);
    assert_eq!((of("first_fifth_percent"), of("last_fifth_percent")), (Some(150.0), Some(50.0)));
    assert_eq!((of("least_tenth_percent"), of("greatest_tenth_percent")), (Some(50.0), Some(150.0)));
    assert_eq!(of("drops_percent"), Some(20.0));
    let short = Outcome { per_tenth: vec![150, 100, 100, 100, 3], ..Outcome::default() };
    assert_eq!(read("drops_percent", &Experiment::default(), &short), None);
}

#[test]
fn what_a_protocol_may_leave_out_is_not_lost() {
    let outcome = Outcome { expected: 10, conflated: 2, delivered: 6, ..Outcome::default() };
    assert_eq!(read("lost_percent", &Experiment::default(), &outcome), Some(25.0));
    let mut unconnected = Outcome { unsent: Some(100), errors: 1, ..Outcome::default() };
    unconnected.unsent_latency.record_many_ns(90_000_000_000, 100);
    assert_eq!(read("delivery_percent", &Experiment::default(), &unconnected), Some(0.0));
    let unheard = Outcome { sent: 4, acknowledged: 3, ..Outcome::default() };
    assert_eq!(read("delivery_percent", &Experiment::default(), &unheard), Some(75.0));
}
