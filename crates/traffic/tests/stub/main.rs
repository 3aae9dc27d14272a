//! Brokers with known faults, and what the generator says of them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod broker;
mod comings;
mod nothing;
mod ramp;
mod threads;

use std::process::{Command, Stdio};
use std::time::Duration;

use broker::{Broker, Fault};
use fogmux_traffic::conductor::{Conductor, Peer, Target};
use fogmux_traffic::experiment::{Arrivals, Clock, Operation, Qos, Visit};
use fogmux_traffic::outcome::Run;
use fogmux_traffic::report::figure::Figure;
use fogmux_traffic::report::{self, warning};
use fogmux_traffic::target::Access;
use fogmux_traffic::{Experiment, Outcome};
use tokio::runtime::{Builder, LocalOptions};

/// One repetition with a broker that has this fault.
fn measured(fault: Fault, experiment: &Experiment) -> Result<Outcome, String> {
    of_process(fault, experiment, Vec::new())
}

/// The same; these processes are the broker's.
fn of_process(fault: Fault, experiment: &Experiment, pids: Vec<u32>) -> Result<Outcome, String> {
    repeated(fault, experiment, pids, 0)
}

/// The same, which is repetition `number`.
fn repeated(fault: Fault, experiment: &Experiment, pids: Vec<u32>, number: u32) -> Result<Outcome, String> {
    let broker = Broker::start(fault);
    let (host, port) = (broker.address.ip().to_string(), broker.address.port());
    let access = Access { host, port, name: "localhost".to_owned(), ..Access::default() };
    let peer = Peer { name: "stub".to_owned(), access, reader_access: None, pids };
    let mut conductor = Conductor::new(Target::Peer(Box::new(peer)), None);
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(conductor.repeat(experiment, number)).map_err(|error| error.to_string())
}

fn experiment() -> Experiment {
    Experiment { qos: Qos::AtLeastOnce, warm_up_seconds: 0.0, ..Experiment::default() }
}

/// The label and the warnings of the report.
fn warned(experiment: &Experiment, outcome: Outcome) -> (String, String) {
    let run = Run { outcomes: vec![outcome; 5], ..Run::of(experiment.clone(), "stub".to_owned()) };
    let runs = [run];
    let summaries = report::summaries(&runs);
    let warnings = warning::warnings(&summaries).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    (summaries[0].label.clone(), warnings)
}

#[test]
fn messages_that_a_stall_delays_past_the_end_are_sent_and_counted() {
    let experiment = Experiment { rate: Some(1_000.0), seconds: 0.9, ..experiment() };
    let stall = Fault::Stalls(Duration::from_millis(700), Duration::from_millis(400));
    let outcome = measured(stall, &experiment).unwrap();
    assert_eq!((outcome.offered, outcome.sent, outcome.unsent), (Some(900), 900, Some(0)));
    assert_eq!((outcome.expected, outcome.delivered), (900, 900));
    // Of the last 200 the window lets 100 go.
    assert!(outcome.behind.is_some_and(|behind| (50..=200).contains(&behind)), "{:?}", outcome.behind);
    let late: u64 = outcome.delivery.counts().filter(|(ns, _)| *ns > 150_000_000).map(|(_, count)| count).sum();
    assert!(late >= 190, "{late} of 200 waited");
    let (label, warnings) = warned(&experiment, outcome);
    assert!(label.contains("(behind: "), "{label}");
    assert!(warnings.contains("fell behind the schedule: 1000/s were offered"), "{warnings}");
}

#[test]
fn a_broker_that_hangs_is_measured_to_the_end_of_the_time() {
    for (rate, window) in [(None, 1), (None, 100), (Some(200.0), 100)] {
        let experiment = Experiment { rate, window, seconds: 0.8, drain_seconds: 0.2, ..experiment() };
        let hang = Fault::Stalls(Duration::from_millis(200), Duration::from_secs(60));
        let outcome = measured(hang, &experiment).unwrap();
        assert!(outcome.delivered > 0 && outcome.delivered < outcome.sent, "{} of {}", outcome.delivered, outcome.sent);
        assert!(outcome.seconds >= 0.8, "{} s of 0.8 for rate {rate:?} and window {window}", outcome.seconds);
    }
}

#[test]
fn a_broker_that_is_slower_than_the_rate_is_said_to_be() {
    let experiment = Experiment { rate: Some(2_000.0), seconds: 1.0, drain_seconds: 0.5, ..experiment() };
    let outcome = measured(Fault::Takes(Duration::from_micros(1_111)), &experiment).unwrap();
    let unsent = outcome.unsent.unwrap();
    assert_eq!(outcome.offered, Some(2_000));
    assert_eq!(outcome.sent + unsent, 2_000, "each is either sent or counted as never sent");
    assert!(unsent > 500, "at most 900/s for a second and a half, and a window: {unsent}");
    assert_eq!(outcome.unsent_latency.count(), unsent);
    let figure = |figure: Figure| figure.of(&experiment, &outcome).unwrap();
    assert_eq!(figure(Figure::Offered), 2_000.0);
    assert!(figure(Figure::Achieved) < 1_000.0, "{}", figure(Figure::Achieved));
    // The last that was never sent was due when the time ended.
    assert!(figure(Figure::LatencyP99) > 500_000.0, "{}", figure(Figure::LatencyP99));
    let (_, warnings) = warned(&experiment, outcome);
    assert!(warnings.contains(&format!("{} of these never", unsent * 5)), "{warnings}");
}

#[test]
fn a_broker_that_keeps_up_is_not_behind() {
    let experiment =
        Experiment { rate: Some(500.0), seconds: 0.6, publishers: 3, topics: 3, subscribers: 3, ..experiment() };
    let outcome = measured(Fault::None, &experiment).unwrap();
    assert_eq!((outcome.offered, outcome.sent, outcome.unsent), (Some(300), 300, Some(0)));
    assert_eq!(outcome.delivered, 300);
    assert!(outcome.unsent_latency.is_empty());
}

#[test]
fn faults_are_counted_to_the_message() {
    let counted = Experiment { count: Some(1_000), ..experiment() };
    let outcome = |fault| measured(fault, &Experiment { drain_seconds: 0.3, ..counted.clone() }).unwrap();
    let none = outcome(Fault::None);
    assert_eq!((none.delivered, none.duplicates, none.reordered), (1_000, 0, 0));
    let dropped = outcome(Fault::Drops(100));
    assert_eq!((dropped.expected, dropped.delivered, dropped.duplicates), (1_000, 990, 0));
    let doubled = outcome(Fault::Doubles(50));
    assert_eq!((doubled.delivered, doubled.duplicates, doubled.reordered), (1_000, 20, 0));
    // The last one waits for a next that does not come.
    let swapped = outcome(Fault::Swaps(10));
    assert_eq!((swapped.delivered, swapped.reordered), (999, 99));
}

#[test]
fn payloads_are_compared_from_the_first_byte_to_the_last() {
    for (fault, payload_bytes) in [(Fault::Alters(100), 64), (Fault::Cuts(100), 64), (Fault::Alters(100), 3)] {
        let counted = Experiment { count: Some(1_000), payload_bytes, window: 1, drain_seconds: 0.3, ..experiment() };
        let outcome = measured(fault, &counted).unwrap();
        assert_eq!((outcome.expected, outcome.errors), (1_000, 10), "{fault:?}, {payload_bytes} bytes");
        assert_eq!(outcome.delivered, 990, "{fault:?}, {payload_bytes} bytes");
        assert_eq!(outcome.first_error.as_deref(), Some("a payload that differs from the one that was sent"));
        let (_, warnings) = warned(&counted, outcome);
        assert!(warnings.contains("50 operations failed"), "{warnings}");
    }
}

#[test]
fn an_answer_with_another_value_of_the_same_length_is_an_error() {
    let asked = Experiment { operation: Operation::Get, count: Some(100), retain: true, window: 1, ..experiment() };
    assert_eq!(measured(Fault::None, &asked).map(|outcome| (outcome.acknowledged, outcome.errors)), Ok((100, 0)));
    let outcome = measured(Fault::Alters(1), &asked).unwrap();
    assert_eq!((outcome.sent, outcome.acknowledged, outcome.errors), (100, 0, 100));
    let visits = Experiment { operation: Operation::Connect, messages: 1, visit: Visit::Get, count: Some(5), ..asked };
    assert_eq!(measured(Fault::None, &visits).map(|outcome| (outcome.acknowledged, outcome.errors)), Ok((5, 0)));
    let outcome = measured(Fault::Alters(1), &visits).unwrap();
    assert_eq!((outcome.sent, outcome.acknowledged, outcome.errors), (5, 0, 5));
}

#[test]
fn a_delay_is_in_the_latency() {
    let experiment = Experiment { count: Some(10), window: 1, ..experiment() };
    let outcome = measured(Fault::Takes(Duration::from_millis(20)), &experiment).unwrap();
    assert!(outcome.delivery.min_us().is_some_and(|least| least >= 20_000.0), "{:?}", outcome.delivery.min_us());
}

#[test]
fn a_gap_is_a_pause_after_each_answer_and_no_schedule() {
    let slow = Fault::Takes(Duration::from_millis(20));
    let experiment = Experiment { count: Some(10), gap_seconds: Some(0.01), ..experiment() };
    let outcome = measured(slow, &experiment).unwrap();
    assert_eq!((outcome.delivered, outcome.offered), (10, None));
    // Ten answers and the nine pauses between them; by a schedule it would be the answers alone.
    assert!(outcome.seconds >= 0.29, "{} s", outcome.seconds);
    // Nothing waits in a window of a hundred.
    assert!(outcome.delivery.min_us().is_some_and(|least| least >= 20_000.0));
    assert!(outcome.delivery.percentile_us(50.0).is_some_and(|median| median < 60_000.0), "{:?}", outcome.delivery);
}

#[test]
fn bursts_wait_for_one_another_and_even_arrivals_do_not() {
    let takes = Fault::Takes(Duration::from_millis(2));
    let longest = |arrivals| {
        let experiment = Experiment { rate: Some(100.0), count: Some(100), arrivals, ..experiment() };
        let outcome = measured(takes, &experiment).unwrap();
        assert_eq!((outcome.offered, outcome.delivered), (Some(100), 100), "{arrivals}");
        outcome.delivery.percentile_us(90.0).unwrap()
    };
    // The last of twenty waits for nineteen others, two milliseconds each.
    let (burst, even) = (longest(Arrivals::Burst(20)), longest(Arrivals::Even));
    assert!(burst >= 34_000.0 && burst > 1.5 * even, "{burst} and {even} µs");
    // Of a hundred Poisson arrivals some come together.
    assert!(longest(Arrivals::Poisson) >= 2_000.0);
}

#[test]
fn repetitions_have_poisson_arrivals_of_their_own_and_the_same_again() {
    let arrivals = Arrivals::Poisson;
    let experiment = Experiment { rate: Some(2_000.0), arrivals, seconds: 0.2, publishers: 3, ..experiment() };
    // How many are due in this time is a matter of the draw alone.
    let due = |number| repeated(Fault::None, &experiment, Vec::new(), number).unwrap().offered;
    let first = due(0);
    assert_eq!(due(0), first);
    assert!((1..4).any(|number| due(number) != first), "{first:?}");
}

#[test]
fn a_clock_that_counts_from_connecting_has_connecting_in_its_latencies() {
    let late = Duration::from_millis(300);
    let experiment = Experiment { rate: Some(100.0), count: Some(10), clock: Clock::Connecting, ..experiment() };
    let outcome = measured(Fault::Greets(late), &experiment).unwrap();
    assert_eq!((outcome.offered, outcome.delivered), (Some(10), 10));
    // Subscriber and publisher connect one after the other; the first message was due when they began.
    assert!(outcome.delivery.max_us().is_some_and(|longest| longest >= 600_000.0), "{:?}", outcome.delivery.max_us());
    assert!(outcome.seconds >= 0.6, "{} s", outcome.seconds);
    // The generator was not late: it had no connection.
    let late = outcome.limited_by_generator.as_deref().filter(|why| why.contains(" ms or more"));
    assert!(late.is_none_or(|why| seconds_before(why, " ms or more") < 300.0), "{late:?}");
}

/// The number before this word.
fn seconds_before(text: &str, word: &str) -> f64 {
    let (before, _) = text.split_once(word).unwrap_or_else(|| panic!("no {word:?} in {text:?}"));
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

const AFTER: &str = " s after the measurement began";

#[test]
fn a_broker_that_dies_voids_the_repetition_and_it_is_said_when() {
    let rate = Experiment { rate: Some(500.0), seconds: 1.5, ..experiment() };
    let closed_loop = Experiment { seconds: 1.5, ..experiment() };
    for experiment in [rate, closed_loop] {
        let why = measured(Fault::Dies(Duration::from_millis(855)), &experiment).unwrap_err();
        assert!(why.starts_with("the connection of "), "{why}");
        // It connects before it measures.
        assert!((0.3..1.5).contains(&seconds_before(&why, AFTER)), "{why}");
    }
}

#[test]
fn a_broker_that_closes_one_of_many_connections_voids_the_repetition_too() {
    let many = Experiment { publishers: 4, subscribers: 4, topics: 4, rate: Some(100.0), seconds: 1.5, ..experiment() };
    let why = measured(Fault::ClosesOne(Duration::from_millis(400)), &many).unwrap_err();
    assert!(why.contains("subscriber 0") && seconds_before(&why, AFTER) < 1.5, "{why}");
}

#[test]
fn a_connection_that_is_held_is_looked_at() {
    let held = Experiment { operation: Operation::Hold, publishers: 20, seconds: 1.0, ..experiment() };
    assert_eq!(measured(Fault::None, &held).unwrap().acknowledged, 20);
    let why = measured(Fault::ClosesOne(Duration::from_millis(500)), &held).unwrap_err();
    assert!(why.contains("client 0") && seconds_before(&why, AFTER) < 1.0, "{why}");
    assert!(measured(Fault::Dies(Duration::from_millis(500)), &held).is_err());
}

#[test]
fn a_process_that_ends_is_noticed_whatever_the_connections_say() {
    let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let experiment = Experiment { seconds: 20.0, ..experiment() };
    let (input, pid) = (process.stdin.take().unwrap(), process.id());
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        drop(input);
    });
    let why = of_process(Fault::None, &experiment, vec![pid]).unwrap_err();
    ending.join().unwrap();
    process.wait().unwrap();
    assert!(why.starts_with(&format!("process {pid} ended, ")) && seconds_before(&why, AFTER) < 20.0, "{why}");
    assert!(of_process(Fault::None, &experiment, vec![pid]).unwrap_err().starts_with("the processes to be measured"));
}
