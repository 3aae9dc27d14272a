//! Tests of figures.

use super::*;
use crate::experiment::{Operation, Visit};
use crate::outcome::{ProcessUse, Wire};

fn outcome() -> Outcome {
    let wire = Some(Wire { bytes_up: 600, bytes_down: 600, packets_up: 12, packets_down: 8 });
    Outcome {
        sent: 11,
        acknowledged: 11,
        expected: 11,
        delivered: 10,
        seconds: 2.0,
        bytes: Bytes {
            payload_up: 100,
            payload_down: 100,
            protocol_up: 150,
            protocol_down: 150,
            socket_up: 250,
            socket_down: 200,
            wire,
        },
        gateway: Some(ProcessUse { cpu_us: 55.0, ..ProcessUse::default() }),
        ..Outcome::default()
    }
}

fn value(figure: Figure, outcome: &Outcome) -> Option<f64> {
    figure.of(&Experiment::default(), outcome)
}

#[test]
fn layers_add_up_to_the_wire() {
    let outcome = outcome();
    let layers = Figure::LAYERS.map(|layer| value(layer, &outcome).unwrap());
    assert_eq!(layers, [20.0, 10.0, 15.0, 75.0]);
    assert_eq!(value(Figure::TotalBytes, &outcome), Some(120.0));
    assert_eq!(value(Figure::Packets, &outcome), Some(2.0));
}

#[test]
fn figures_are_per_delivery_where_something_is_delivered() {
    let outcome = outcome();
    assert_eq!(value(Figure::Rate, &outcome), Some(5.0));
    assert_eq!(value(Figure::GatewayCpu, &outcome), Some(5.5));
    assert_eq!(value(Figure::Lost, &outcome), Some(1.0));
    let answered = Outcome { delivered: 0, expected: 0, ..outcome };
    let unheard = Experiment { subscribers: 0, ..Experiment::default() };
    assert_eq!(Figure::Rate.of(&unheard, &answered), Some(5.5));
    assert_eq!(Figure::Lost.of(&unheard, &answered), Some(0.0));
}

#[test]
fn where_nothing_came_the_rate_is_0_and_nothing_is_known_of_a_message() {
    let mut nothing = Outcome { delivered: 0, ..outcome() };
    nothing.answer.record_many_ns(1_000, 11);
    nothing.connect.record_many_ns(1_000, 2);
    let unanswered = Outcome { acknowledged: 0, expected: 0, ..nothing.clone() };
    let of = |operation, outcome: &Outcome, figure: Figure| {
        figure.of(&Experiment { operation, ..Experiment::default() }, outcome)
    };
    for (operation, outcome) in [
        (Operation::Deliver, &nothing),
        (Operation::Get, &unanswered),
        (Operation::Connect, &unanswered),
        (Operation::Put, &Outcome { seconds: 0.0, ..unanswered.clone() }),
        (Operation::Post, &Outcome { sent: 0, unsent: Some(3), seconds: 0.0, ..unanswered.clone() }),
    ] {
        assert_eq!(of(operation, outcome, Figure::Rate), Some(0.0), "{operation:?}");
        for figure in [Figure::GatewayCpu, Figure::TotalBytes, Figure::PayloadBytes, Figure::Packets] {
            assert_eq!(of(operation, outcome, figure), None, "{operation:?} {figure:?}");
        }
    }
    // Answers are not deliveries.
    assert_eq!(of(Operation::Deliver, &nothing, Figure::LatencyP50), None);
    assert!(of(Operation::Get, &nothing, Figure::LatencyP50).is_some());
    // Followers of visitors receive what these publish, and nothing if they only ask.
    let visits =
        |visit| Experiment { operation: Operation::Connect, followers: 1, messages: 1, visit, ..Experiment::default() };
    let heard = Outcome { delivered: 4, acknowledged: 6, ..nothing };
    assert_eq!(Figure::Rate.of(&visits(Visit::Publish), &heard), Some(2.0));
    assert_eq!(Figure::Rate.of(&visits(Visit::Get), &heard), Some(3.0));
}

#[test]
fn the_rate_of_few_operations_is_that_of_their_schedule() {
    // The last of three at twenty a second is due after a tenth of a second.
    let few = Outcome { sent: 3, expected: 3, delivered: 3, seconds: 0.1, ..Outcome::default() };
    assert_eq!(value(Figure::Rate, &few).map(f64::round), Some(30.0));
    let scheduled = Outcome { sending_seconds: Some(0.15), ..few.clone() };
    assert_eq!(value(Figure::Rate, &scheduled).map(f64::round), Some(20.0));
    let slow = Outcome { sending_seconds: Some(0.15), seconds: 0.3, ..few };
    assert_eq!(value(Figure::Rate, &slow).map(f64::round), Some(10.0));
}

#[test]
fn what_nobody_counted_is_no_zero() {
    let none = Outcome { seconds: 1.0, ..Outcome::default() };
    for figure in [Figure::LatencyP50, Figure::GatewayCpu, Figure::TotalBytes, Figure::Packets, Figure::Memory] {
        assert_eq!(value(figure, &none), None, "{figure:?}");
    }
    let unlinked = Outcome { bytes: Bytes { wire: None, ..outcome().bytes }, ..outcome() };
    assert_eq!(value(Figure::TransportBytes, &unlinked), None);
    assert_eq!(value(Figure::TotalBytes, &unlinked), Some(45.0));
}

#[test]
fn counters_of_gateway_and_generator_are_told_apart_and_absent_without_any() {
    let counters = [Figure::Instructions, Figure::Cycles, Figure::GeneratorInstructions, Figure::GeneratorCycles];
    let outcome = outcome();
    assert_eq!(counters.map(|figure| value(figure, &outcome)), [None; 4]);
    let used = |instructions, cycles| ProcessUse { instructions, cycles, ..ProcessUse::default() };
    let counted = Outcome { gateway: Some(used(Some(30), None)), generator: used(Some(50), Some(70)), ..outcome };
    assert_eq!(counters.map(|figure| value(figure, &counted)), [Some(3.0), None, Some(5.0), Some(7.0)]);
}

#[test]
fn keys_are_told_apart() {
    let mut keys = Figure::ALL.map(|figure| figure.meaning().key).to_vec();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), Figure::ALL.len());
}

#[test]
fn an_open_loop_has_what_was_offered_and_achieved_and_a_closed_one_has_not() {
    let mut unsent_latency = Latency::default();
    unsent_latency.record_many_ns(900_000_000, 60);
    let slow = Outcome {
        sent: 40,
        offered: Some(100),
        unsent: Some(60),
        sending_seconds: Some(2.0),
        unsent_latency,
        ..Outcome::default()
    };
    let experiment = Experiment { rate: Some(50.0), ..Experiment::default() };
    let of = |figure: Figure, outcome: &Outcome| figure.of(&experiment, outcome);
    let figures = [Figure::Offered, Figure::Achieved, Figure::Unsent];
    assert_eq!(figures.map(|figure| of(figure, &slow)), [Some(50.0), Some(20.0), Some(60.0)]);
    assert_eq!(of(Figure::LatencyP50, &slow).map(|us| (us / 1e4).round()), Some(90.0));
    assert_eq!(figures.map(|figure| value(figure, &outcome())), [None; 3]);
}
