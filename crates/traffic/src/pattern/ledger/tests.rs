//! Tests of the ledger.

use super::*;
use crate::experiment::Experiment;
use crate::pattern::stamp;

/// Messages of so many bytes.
fn content(payload_bytes: usize) -> (Content, Vec<u8>) {
    let experiment = Experiment { payload_bytes, ..Experiment::default() };
    (Content::of(&experiment), stamp::filler(payload_bytes, experiment.seed))
}

fn stamped(lane: u32, number: u32) -> Vec<u8> {
    let (_, mut payload) = content(10);
    stamp::Stamp::default().write(&mut payload, lane, number);
    payload
}

fn sent(conflates: bool) -> Ledger {
    let mut ledger = Ledger::new(2, content(10).0);
    ledger.add_reader(&[0, 1], true, conflates);
    ledger.begin(1_000);
    for number in 0..6 {
        assert_eq!(ledger.send(0, 1_000 * u64::from(number / 2 + 1)), number);
    }
    ledger
}

#[test]
fn loss_duplicates_and_order_are_told_apart() {
    let mut ledger = sent(false);
    for number in [0, 2, 1, 1, 4] {
        assert!(ledger.arrived(0, &stamped(0, number), 5_000));
    }
    assert_eq!(ledger.outstanding(0), 2);
    let outcome = ledger.finish();
    assert_eq!((outcome.expected, outcome.delivered, outcome.duplicates, outcome.reordered), (6, 4, 1, 1));
    assert_eq!(outcome.conflated, 0);
}

#[test]
fn superseded_values_are_not_lost_and_do_not_hold_up() {
    let mut ledger = sent(true);
    for number in [0, 5] {
        assert!(ledger.arrived(0, &stamped(0, number), 5_000));
    }
    assert_eq!(ledger.outstanding(0), 0);
    let outcome = ledger.finish();
    assert_eq!((outcome.delivered, outcome.conflated), (2, 4));
}

#[test]
fn latency_counts_from_when_a_message_was_due() {
    let mut ledger = sent(false);
    for number in 0..6 {
        ledger.arrived(0, &stamped(0, number), 11_000);
    }
    let outcome = ledger.finish();
    assert_eq!(outcome.delivery.min_us().map(f64::round), Some(8.0));
    assert_eq!(outcome.delivery.max_us().map(f64::round), Some(10.0));
}

#[test]
fn what_was_sent_before_the_measurement_does_not_count() {
    let mut ledger = sent(false);
    ledger.begin(7_000);
    ledger.send(0, 7_000);
    for number in 0..7 {
        ledger.arrived(0, &stamped(0, number), 8_000);
    }
    let outcome = ledger.finish();
    assert_eq!((outcome.sent, outcome.expected, outcome.delivered), (1, 1, 1));
}

#[test]
fn short_payloads_are_matched_in_order() {
    let (content, payload) = content(1);
    let mut ledger = Ledger::new(1, content);
    ledger.add_reader(&[0], false, false);
    ledger.begin(0);
    ledger.send(0, 0);
    ledger.send(0, 10);
    assert!(ledger.arrived(0, &payload, 20));
    assert!(ledger.arrived(0, &payload, 20));
    assert!(!ledger.arrived(0, &payload, 20));
    assert_eq!(ledger.finish().delivered, 2);
}

#[test]
fn a_loop_of_requests_leaves_nothing_behind() {
    let mut ledger = Ledger::new(1, content(10).0);
    ledger.begin(0);
    for round in 1..=1_000 {
        let (first, second) = (ledger.send(0, 10 * round), ledger.send(0, 10 * round + 1));
        for number in [second, first] {
            ledger.answered(0, number, Answer::Success(&[]), 10 * round + 5, true);
        }
    }
    assert!(ledger.lanes[0].batches.len() <= 2);
    let outcome = ledger.finish();
    assert_eq!((outcome.sent, outcome.acknowledged), (2_000, 2_000));
    assert_eq!((outcome.answer.percentile_us(25.0), outcome.answer.max_us()), (Some(0.004), Some(0.005)));
}

#[test]
fn what_nobody_sent_is_not_ours() {
    let mut ledger = sent(false);
    assert!(!ledger.arrived(0, b"something else", 1));
    assert!(!ledger.arrived(0, &stamped(0, 6), 1));
    assert!(!ledger.arrived(0, &stamped(7, 0), 1));
}

#[test]
fn another_payload_is_an_error_and_is_not_delivered() {
    let mut ledger = sent(false);
    let mut altered = stamped(0, 0);
    altered[9] ^= 1;
    assert!(ledger.arrived(0, &altered, 5_000));
    assert!(ledger.arrived(0, &stamped(0, 1)[..9], 5_000));
    assert!(ledger.arrived(0, &stamped(0, 0), 5_000), "the right one may still come");
    let outcome = ledger.finish();
    assert_eq!((outcome.delivered, outcome.errors, outcome.duplicates), (1, 2, 0));
}

#[test]
fn messages_of_more_publishers_than_twelve_bits_tell_apart_are_told_apart() {
    let (of, publishers) = (stamp::Stamp::of(100_000), [3, 4_099, 70_000, 99_999]);
    let mut ledger = Ledger::new(100_000, content(10).0);
    ledger.stamped(of);
    ledger.add_reader(&publishers, true, false);
    ledger.begin(0);
    for publisher in publishers {
        for number in 0..3 {
            assert_eq!(ledger.send(publisher, 1), number);
            let (_, mut payload) = content(10);
            of.write(&mut payload, publisher, number);
            assert!(ledger.arrived(0, &payload, 5));
            // Of those that send to somebody else none is counted, and none is taken for one of these.
            of.write(&mut payload, publisher + 1, number);
            assert!(!ledger.arrived(0, &payload, 5));
        }
    }
    let outcome = ledger.finish();
    assert_eq!((outcome.expected, outcome.delivered, outcome.duplicates, outcome.reordered), (12, 12, 0, 0));
}
