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

fn unnamed(payload: &[u8]) -> Arrival<'_> {
    Arrival::unnamed(payload)
}

fn sent(conflates: bool) -> Ledger {
    let mut ledger = Ledger::new(2, content(10).0);
    ledger.add_reader(Followed::every(0, 1), true, conflates);
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
        assert!(ledger.arrived(0, unnamed(&stamped(0, number)), 5_000));
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
        assert!(ledger.arrived(0, unnamed(&stamped(0, number)), 5_000));
    }
    assert_eq!(ledger.outstanding(0), 0);
    let outcome = ledger.finish();
    assert_eq!((outcome.delivered, outcome.conflated), (2, 4));
}

#[test]
fn latency_counts_from_when_a_message_was_due() {
    let mut ledger = sent(false);
    for number in 0..6 {
        ledger.arrived(0, unnamed(&stamped(0, number)), 11_000);
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
        ledger.arrived(0, unnamed(&stamped(0, number)), 8_000);
    }
    let outcome = ledger.finish();
    assert_eq!((outcome.sent, outcome.expected, outcome.delivered), (1, 1, 1));
}

#[test]
fn short_payloads_are_matched_in_order() {
    let (content, payload) = content(1);
    let mut ledger = Ledger::new(1, content);
    ledger.add_reader(Followed::one(0), false, false);
    ledger.begin(0);
    ledger.send(0, 0);
    ledger.send(0, 10);
    assert!(ledger.arrived(0, unnamed(&payload), 20));
    assert!(ledger.arrived(0, unnamed(&payload), 20));
    assert!(!ledger.arrived(0, unnamed(&payload), 20));
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
    assert!(!ledger.arrived(0, unnamed(b"something else"), 1));
    assert!(!ledger.arrived(0, unnamed(&stamped(0, 6)), 1));
    assert!(!ledger.arrived(0, unnamed(&stamped(7, 0)), 1));
}

#[test]
fn another_payload_is_an_error_and_is_not_delivered() {
    let mut ledger = sent(false);
    let mut altered = stamped(0, 0);
    altered[9] ^= 1;
    assert!(ledger.arrived(0, unnamed(&altered), 5_000));
    assert!(ledger.arrived(0, unnamed(&stamped(0, 1)[..9]), 5_000));
    assert!(ledger.arrived(0, unnamed(&stamped(0, 0)), 5_000), "the right one may still come");
    let outcome = ledger.finish();
    assert_eq!((outcome.delivered, outcome.errors, outcome.duplicates), (1, 2, 0));
}

#[test]
fn messages_of_more_publishers_than_twelve_bits_tell_apart_are_told_apart() {
    // Their lower twelve bits are the same.
    let (of, publishers) = (stamp::Stamp::of(100_000), [3, 4_099, 69_635, 98_307]);
    let mut ledger = Ledger::new(100_000, content(10).0);
    ledger.stamped(of);
    ledger.add_reader(Followed::every(3, 4_096), true, false);
    ledger.begin(0);
    for publisher in publishers {
        for number in 0..3 {
            assert_eq!(ledger.send(publisher, 1), number);
            let (_, mut payload) = content(10);
            of.write(&mut payload, publisher, number);
            assert!(ledger.arrived(0, unnamed(&payload), 5));
            // Of those that send to somebody else none is counted, and none is taken for one of these.
            of.write(&mut payload, publisher + 1, number);
            assert!(!ledger.arrived(0, unnamed(&payload), 5));
        }
    }
    let outcome = ledger.finish();
    assert_eq!((outcome.expected, outcome.delivered, outcome.duplicates, outcome.reordered), (12, 12, 0, 0));
    assert_eq!((outcome.foreign, outcome.errors), (12, 12));
}

#[test]
fn a_message_for_others_is_an_error_and_is_not_delivered() {
    let mut ledger = Ledger::new(4, content(10).0);
    ledger.named(Topics::of(&Experiment { topics: 2, ..Experiment::default() }));
    ledger.add_reader(Followed::every(0, 2), true, false);
    ledger.add_reader(Followed::every(1, 2), true, false);
    ledger.begin(0);
    (0..4).for_each(|lane| assert_eq!(ledger.send(lane, 1), 0));
    let on = |topic, lane| (Some(topic), stamped(lane, 0));
    for (reader, (topic, payload), is_delivered) in [
        (0, on("bench/0", 0), true),
        (0, on("bench/0", 1), false),
        (1, on("bench/1", 1), true),
        (1, on("bench/0", 3), false),
        (1, (None, stamped(3, 0)), true),
        (0, on("bench/1", 3), false),
    ] {
        let arrival = Arrival { topic, is_kept: false, payload: &payload };
        assert_eq!(ledger.arrived(reader, arrival, 5), is_delivered, "{reader} {topic:?}");
    }
    let outcome = ledger.finish();
    assert_eq!((outcome.expected, outcome.delivered, outcome.duplicates), (4, 3, 0));
    assert_eq!((outcome.foreign, outcome.errors), (3, 3));
    assert_eq!(outcome.first_error.as_deref(), Some(MISROUTED));
}

#[test]
fn what_nobody_sent_is_counted_and_what_is_left_of_a_message_is_an_error() {
    let damaged = |at: usize| {
        let mut payload = stamped(0, 0);
        payload[at] ^= 0x80;
        payload
    };
    for (payload, is_foreign) in [
        (b"something else".to_vec(), true),
        (vec![0xff; 10], true),
        (stamped(0, 6), true),
        (stamped(7, 0), true),
        (damaged(0), false),
        (damaged(6), false),
        (damaged(9), false),
        (Vec::new(), false),
        (stamped(0, 0)[..3].to_vec(), false),
    ] {
        let mut ledger = sent(false);
        ledger.arrived(0, unnamed(&payload), 1);
        let outcome = ledger.finish();
        assert_eq!((outcome.foreign, outcome.errors), (u64::from(is_foreign), 1), "{payload:?}");
        assert_eq!((outcome.delivered, outcome.duplicates), (0, 0), "{payload:?}");
    }
}

#[test]
fn what_was_kept_before_is_nobodys_fault() {
    let mut ledger = sent(false);
    let (_, kept) = content(10);
    assert!(!ledger.arrived(0, unnamed(&kept), 1));
    assert!(!ledger.arrived(0, Arrival { is_kept: true, ..unnamed(&stamped(0, 99)) }, 1));
    let outcome = ledger.finish();
    assert_eq!((outcome.foreign, outcome.errors), (0, 0));
    // Before the measurement nothing counts.
    let mut ledger = Ledger::new(2, content(10).0);
    ledger.add_reader(Followed::every(0, 1), true, false);
    assert!(!ledger.arrived(0, unnamed(b"something else"), 1));
    ledger.begin(2);
    assert_eq!(ledger.finish(), Outcome::default());
}

#[test]
fn of_measured_operations_those_without_an_answer_are_counted() {
    let mut ledger = Ledger::new(1, content(10).0);
    assert_eq!([0, 1].map(|_| ledger.send(0, 1)), [0, 1]);
    ledger.begin(2);
    assert_eq!([0, 1, 2].map(|_| ledger.send(0, 3)), [2, 3, 4]);
    // One of the warm-up is none of them, and a refusal is an answer.
    for (number, answer) in [(1, Answer::Success(&[])), (2, Answer::Success(&[])), (3, Answer::Refused("no"))] {
        ledger.answered(0, number, answer, 5, true);
    }
    let outcome = ledger.finish();
    assert_eq!((outcome.sent, outcome.acknowledged, outcome.errors, outcome.unanswered), (3, 1, 1, 1));
}
