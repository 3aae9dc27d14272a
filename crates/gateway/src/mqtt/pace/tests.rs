//! Publishers and readers in simulated time.

use super::*;
use crate::pause::{Plan, TURN};

mod readers;

const QUEUE: usize = 16 << 20;
const NEARLY: usize = QUEUE / 8 * 7;
/// The bytes that a publisher is read at most in a turn, unless a single message is larger.
const BUFFER: usize = 64 << 10;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1000 + ms)
}

fn pace() -> Pace {
    Pace::new(at(0), QUEUE, Arc::default())
}

/// A publisher that publishes as fast as it may.
struct Publisher {
    plan: Option<Plan>,
    looks_at: u64,
    began: u64,
    turn: Option<usize>,
}

/// The result of a run.
#[derive(Debug, Default)]
struct Seen {
    /// The longest wait of a publisher, after the fifth second.
    longest: u64,
    /// The longest queue.
    most: usize,
    /// Whether publishers once did not wait for the reader.
    was_unfair: bool,
}

fn distance(queue: usize) -> Distance {
    match queue {
        0..=0x80_0000 => Distance::Behind,
        0x80_0001..=NEARLY => Distance::Far,
        _ => Distance::Nearly(queue - NEARLY),
    }
}

/// Twenty seconds of publishers and a reader that takes so many bytes a second, some at each tick of so many
/// milliseconds, after a burst of a socket's buffer. A turn has at least one message of `message` bytes.
fn run(per_second: usize, publishers: usize, tick: u64, message: usize) -> Seen {
    let per_tick = per_second / 1000 * usize::try_from(tick).expect("short");
    let mut pace = pace();
    let (mut queue, mut seen) = (QUEUE / 2, Seen::default());
    let fresh = |_| Publisher { plan: None, looks_at: 0, began: 0, turn: None };
    let mut all: Vec<_> = (0..publishers).map(fresh).collect();
    pace.took(1 << 20, true, at(0));
    for ms in 0..20_000 {
        if ms % tick == 0 {
            let taken = per_tick.min(queue);
            queue -= taken;
            pace.took(taken, queue > QUEUE / 4, at(ms));
        }
        for publisher in all.iter_mut().filter(|publisher| publisher.looks_at <= ms) {
            if let Some(plan) = &mut publisher.plan
                && plan.goes_on(at(ms), at(0))
            {
                publisher.looks_at = ms + u64::try_from(plan.look().as_millis()).expect("short");
                continue;
            }
            if ms > 5000 {
                seen.longest = seen.longest.max(ms - publisher.began);
            }
            let bytes = publisher.turn.unwrap_or(BUFFER).min(BUFFER).max(message);
            queue += bytes;
            seen.most = seen.most.max(queue);
            pace.came(bytes, at(ms));
            let asked = pace.slow_down(distance(queue));
            seen.was_unfair |= !pace.is_fair(at(ms));
            let plan = Plan::new(asked.expect("a pause"));
            publisher.turn = plan.next_turn(bytes, publisher.turn);
            publisher.looks_at = ms + u64::try_from(plan.look().as_millis()).expect("short").max(1);
            (publisher.began, publisher.plan) = (ms, Some(plan));
        }
    }
    seen
}

#[test]
fn a_publisher_is_slowed_to_the_pace_of_its_reader_and_not_stopped() {
    // From a pace that is just fair to a hundred megabytes a second.
    for per_second in [QUEUE / 64 * 2, 400_000, 1 << 20, 10 << 20, 100 << 20] {
        for tick in [10, 600] {
            let seen = run(per_second, 1, tick, 100);
            assert!(u128::from(seen.longest) <= TURN.as_millis() * 3, "{per_second} bytes a second: {seen:?}");
            assert!(seen.most <= QUEUE / 4 * 3 + per_second / 2, "{per_second} bytes a second: {seen:?}");
        }
    }
}

#[test]
fn a_reader_holds_no_more_than_a_turn_of_each_publisher_above_the_mark() {
    for per_second in [400_000, 1 << 20, 10 << 20] {
        for (publishers, message) in [
            (3, 100),
            (10, 100),
            (97, 100),
            (300, 100),
            (1, 64 << 10),
            (97, 64 << 10),
            (300, 64 << 10),
            (1, 1 << 20),
            (3, 1 << 20),
        ] {
            for tick in [10, 600] {
                let seen = run(per_second, publishers, tick, message);
                let context = format!("{per_second} bytes a second, {publishers} of {message}: {seen:?}");
                // That of a large message waits as long as the reader may take for it.
                let stop = if message > BUFFER { NEARLY_LARGE_MAX } else { NEARLY_MAX };
                assert!(u128::from(seen.longest) <= stop.as_millis() + 100, "{context}");
                assert!(!seen.was_unfair, "{context}");
                // A pause ends after two seconds: publishers have further turns meanwhile, which are short unless
                // a single message is long.
                let turns = if message > 100 { 10 * publishers } else { publishers * 3 / 2 };
                let most = NEARLY + (turns + 1) * BUFFER.max(message) + per_second / 2;
                assert!(seen.most <= most, "{context}");
            }
        }
    }
}

#[test]
fn a_publisher_goes_on_when_what_was_before_it_has_left() {
    let mut pace = pace();
    pace.came(5000, at(0));
    let asked = pace.slow_down(Distance::Nearly(7000)).expect("a pause");
    let until = asked.until.expect("a subscriber");
    pace.took(6999, true, at(10));
    assert!(until.is_waiting(at(10), at(0)));
    pace.took(1, true, at(11));
    assert!(!until.is_waiting(at(11), at(0)));
}

#[test]
fn a_publisher_of_little_waits_for_little_of_a_queue_that_others_filled() {
    for (bytes, excess, left) in [(300, 4 << 20, 300 * 128), (BUFFER, 4 << 20, 4 << 20), (1, 1, 1)] {
        let mut pace = pace();
        pace.came(bytes, at(0));
        let asked = pace.slow_down(Distance::Nearly(excess)).expect("a pause");
        let until = asked.until.expect("a subscriber");
        pace.took(left - 1, true, at(10));
        assert!(until.is_waiting(at(10), at(0)));
        pace.took(1, true, at(11));
        assert!(!until.is_waiting(at(11), at(0)), "{bytes} bytes of {excess}");
    }
}

#[test]
fn the_time_in_which_a_connection_waits_for_its_turn_is_not_the_readers() {
    for (blocked, reads) in [(false, true), (true, false)] {
        let mut pace = pace();
        if blocked {
            pace.blocked();
        }
        pace.came(BUFFER, at(10));
        assert!(pace.reads(at(1999)));
        assert_eq!(pace.reads(at(5000)), reads);
        // It had its turn, took nothing, and is woken again.
        pace.took(0, true, at(5000));
        assert!(!pace.reads(at(5000)));
        pace.came(BUFFER, at(5001));
        assert!(!pace.reads(at(5001)));
    }
}

#[test]
fn a_reader_that_takes_nothing_stops_nobody() {
    for distance in [Distance::Far, Distance::Nearly(1)] {
        let mut pace = pace();
        pace.came(BUFFER, at(1999));
        let asked = pace.slow_down(distance).expect("a pause");
        assert!(!asked.until.expect("a subscriber").is_waiting(at(2000), at(0)));
        // Its connection has had its turn.
        pace.took(0, true, at(2000));
        pace.came(BUFFER, at(2000));
        assert!(pace.slow_down(distance).is_none());
    }
}

#[test]
fn a_reader_that_takes_unfairly_little_does_not_stop_publishers() {
    let mut pace = pace();
    for ms in (0..10_000).step_by(10) {
        pace.took(QUEUE / FAIR / 250, true, at(ms));
        pace.came(BUFFER, at(ms));
        let asked = pace.slow_down(Distance::Nearly(1)).expect("a pause");
        assert!(ms < 2000 || asked.until.is_none() && asked.longest == LONG_PAUSE, "{ms}: {asked:?}");
    }
}

#[test]
fn a_publisher_of_little_pauses_for_a_little() {
    let mut pace = pace();
    for ms in (0..3000).step_by(10) {
        pace.took(4000, true, at(ms));
        pace.came(100, at(ms));
        let pause = pace.slow_down(Distance::Far).expect("a pause").longest;
        assert!(ms < 1500 || pause == PAUSE, "{pause:?}");
    }
}

#[test]
fn the_time_in_which_the_gateway_did_not_run_is_not_the_readers() {
    let stops = Arc::new(Stops::default());
    let mut pace = Pace::new(at(0), QUEUE, Arc::clone(&stops));
    pace.took(QUEUE / 4, true, at(0));
    pace.blocked();
    pace.came(BUFFER, at(10));
    let asked = pace.slow_down(Distance::Nearly(1 << 20)).expect("a pause");
    let (mut plan, until) = (Plan::new(asked.clone()), asked.until.expect("a subscriber"));
    assert!(!pace.is_fair(at(60_000)) && !until.is_waiting(at(60_000), at(0)));
    stops.ended(at(60_000), Duration::ZERO);
    assert!(pace.is_fair(at(60_000)) && until.is_waiting(at(60_000), stops.last()));
    assert!(plan.goes_on(at(60_000), stops.last()));
    // It has as long as at first, and its pace is judged anew.
    pace.came(BUFFER, at(61_999));
    assert!(pace.slow_down(Distance::Nearly(1 << 20)).is_some_and(|asked| !asked.unfair));
    assert!(pace.is_fair(at(61_999)) && !pace.is_fair(at(62_000)));
    assert!(!plan.goes_on(at(62_000), stops.last()));
}
