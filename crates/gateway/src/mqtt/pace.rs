//! The pace at which a client takes its queue, and the pauses that it asks of its publishers (ADR 0018).
//!
//! A subscriber that keeps reading must not be disconnected because publishers are faster; one that hardly reads must
//! not slow them. So publishers pause only for subscribers that take a fair share of their queue.
//!
//! From half of the queue on the pause is the time that the subscriber needs for what was published, at the pace at
//! which it reads; if others publish as well, so many times longer that all together keep to that pace. The publisher's
//! next turn is as short as the subscriber can take within a tenth of a second. So publishers go on at the pace of the
//! slowest reader, instead of stopping and starting.
//!
//! When the queue is nearly full, a publisher stops until the subscriber has taken as much as its queue was above that
//! mark, which is when all that was published before has left again. So each publisher has one turn above the mark at
//! most, however many there are.

use std::{sync::Arc, time::Duration};

use fogmux_bus::{Progress, SlowDown, Timestamp, Until};

use crate::pause::READS;

/// The fraction of its queue that a client must take within [`READS`] for publishers to wait for it.
const FAIR: usize = 32;
/// The pause for subscribers that are behind. A turn is 64 KiB at most, so this still allows some ten megabytes a
/// second.
const PAUSE: Duration = Duration::from_millis(4);
/// The pause for subscribers that are far behind and whose pace is not known or not fair.
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause after one turn for a pace: after a single large message.
const PACED_MAX: Duration = Duration::from_secs(1);
/// The longest pause for a subscriber whose queue is nearly full. It ends as soon as the subscriber has taken enough. Not
/// longer, because a publisher's own subscriptions and its PINGREQ wait as well.
const NEARLY_MAX: Duration = Duration::from_secs(2);
/// A publisher waits until the subscriber has taken so many times what it brought itself, at most, unless more publishers
/// than that share the pace: others fill the queue, and perhaps the subscriber itself does.
const OWN: usize = 128;
/// The time in which the pace is measured, twice: long enough for a socket that takes much at a time.
const MEASURED: Duration = Duration::from_secs(1);
/// The most publishers that share a pace evenly.
const SHARES_MAX: u128 = 512;
/// The unit of shares.
const SHARE: u128 = 16;
/// The least share: a little less than the pace, so that the queue becomes shorter.
const SHARES_MIN: u128 = SHARE * 5 / 4;

/// How far a subscriber is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    /// Behind: publishers slow down.
    Behind,
    /// So far that its queue will soon be full.
    Far,
    /// So far above the mark at which its queue, or the memory of all, is nearly full: publishers stop.
    Nearly(usize),
}

/// The bytes sent to a client, and those it has taken, in some time.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    began: Timestamp,
    came: usize,
    taken: usize,
}

/// Whether the client's connection has run since something was queued.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// It has, and took what it could.
    Had,
    /// It was woken then and has not run.
    Due(Timestamp),
    /// Its socket has no room, which ends its turns until there is some.
    Blocked,
}

/// The pace at which a client takes its queue; exists while the queue is not empty.
#[derive(Debug)]
pub(super) struct Pace {
    progress: Arc<Progress>,
    /// The bytes queued since publishers were last asked to pause, and when.
    came: usize,
    came_at: Timestamp,
    turn: Turn,
    /// For the fairness of its pace.
    fair: Flow,
    is_fair: bool,
    now: Flow,
    before: Option<Flow>,
    /// The part of the pace that a publisher gets, as its reciprocal in units of [`SHARE`].
    shares: u128,
}

impl Pace {
    /// Assumes a fair pace at first.
    pub(super) fn new(now: Timestamp) -> Self {
        let flow = Flow { began: now, ..Flow::default() };
        Self {
            progress: Arc::new(Progress::new(now)),
            came: 0,
            came_at: now,
            turn: Turn::Had,
            fair: flow,
            is_fair: true,
            now: flow,
            before: None,
            shares: SHARE,
        }
    }

    /// Whether it has taken something recently, and publishers wait for it if it is far behind.
    pub(super) fn is_fair(&self, now: Timestamp) -> bool {
        self.is_fair && self.reads(now)
    }

    /// Whether it has taken something recently. While its connection waits for a turn on a busy worker, that is the time
    /// before: the client may have taken everything meanwhile.
    pub(super) fn reads(&self, now: Timestamp) -> bool {
        let as_of = match self.turn {
            Turn::Due(since) => since,
            Turn::Had | Turn::Blocked => now,
        };
        as_of.since(self.progress.read_at()) < READS
    }

    /// Notes that the connection's socket has no room.
    pub(super) const fn blocked(&mut self) {
        self.turn = Turn::Blocked;
    }

    /// Notes a turn of the connection, in which it took this many bytes, and whether it is still far behind.
    pub(super) fn took(&mut self, bytes: usize, is_far: bool, now: Timestamp) {
        self.turn = Turn::Had;
        if bytes > 0 {
            self.progress.took(bytes, now);
            self.fair.taken = self.fair.taken.saturating_add(bytes);
            self.now.taken = self.now.taken.saturating_add(bytes);
        }
        if !is_far {
            self.progress.set_far(false);
        }
    }

    /// Notes that the client read this many bytes of what it had taken.
    pub(super) fn read(&mut self, bytes: usize, now: Timestamp) {
        self.progress.read(bytes, now);
        self.fair.taken = self.fair.taken.saturating_add(bytes);
    }

    /// Notes that this many bytes were queued.
    pub(super) const fn came(&mut self, bytes: usize, now: Timestamp) {
        self.came = self.came.saturating_add(bytes);
        self.came_at = now;
        if matches!(self.turn, Turn::Had) {
            self.turn = Turn::Due(now);
        }
    }

    /// The pause for the publisher of what came since the last call; `queue_bytes_max` is the bound of the queue.
    pub(super) fn slow_down(&mut self, distance: Distance, queue_bytes_max: usize) -> Option<SlowDown> {
        let (bytes, now) = (std::mem::take(&mut self.came), self.came_at);
        if bytes == 0 {
            return None;
        }
        self.now.came = self.now.came.saturating_add(bytes);
        if now.since(self.fair.began) >= READS {
            self.is_fair = self.fair.taken >= queue_bytes_max / FAIR;
            self.fair = Flow { began: now, ..Flow::default() };
        }
        if now.since(self.now.began) >= MEASURED {
            self.measure(now);
        }
        if !self.reads(now) {
            return None;
        }
        let for_a_time = |longest, unfair| Some(SlowDown { longest, unfair, ..SlowDown::default() });
        let excess = match distance {
            Distance::Behind => return for_a_time(PAUSE, false),
            Distance::Far | Distance::Nearly(_) if !self.is_fair => return for_a_time(LONG_PAUSE, true),
            Distance::Far => None,
            Distance::Nearly(excess) => Some(excess),
        };
        // What was there before, unless this publisher brought next to nothing of it.
        let others = usize::try_from(self.shares * 2 / SHARE).unwrap_or(OWN).max(OWN);
        let excess = excess.map(|excess| excess.min(bytes.saturating_mul(others)));
        self.progress.set_far(true);
        let per_byte = self.per_byte(now);
        let nanos = per_byte.unwrap_or_default();
        // For a stop it is the time until what was there before has left.
        let paced = match excess {
            Some(excess) => nanos.saturating_mul(excess as u64),
            None => {
                u64::try_from(u128::from(nanos).saturating_mul(bytes as u128 * self.shares) / SHARE).unwrap_or(u64::MAX)
            }
        };
        let paced = Duration::from_nanos(paced);
        let longest = match (excess, per_byte) {
            (Some(_), _) => NEARLY_MAX,
            (None, Some(_)) => paced.clamp(PAUSE, PACED_MAX),
            (None, None) => LONG_PAUSE,
        };
        let fair = (queue_bytes_max / FAIR) as u64;
        let taken = excess.map_or(u64::MAX, |excess| self.progress.taken().saturating_add(excess as u64));
        let until = Until { progress: Arc::clone(&self.progress), taken, excess: excess.unwrap_or_default(), fair };
        Some(SlowDown { paced, longest, unfair: false, until: Some(until) })
    }

    /// Begins the next measurement. If more came than was taken, publishers get a smaller part of the pace each.
    fn measure(&mut self, now: Timestamp) {
        let before = self.before.unwrap_or_default();
        let (came, taken) = (before.came.saturating_add(self.now.came), before.taken.saturating_add(self.now.taken));
        if taken > 0 {
            let shares = self.shares.saturating_mul(came as u128) / taken as u128;
            // A socket takes much at a time, which must not count for much.
            self.shares = shares.clamp(self.shares * 3 / 4, self.shares * 2).clamp(SHARES_MIN, SHARE * SHARES_MAX);
        }
        self.before = Some(std::mem::replace(&mut self.now, Flow { began: now, ..Flow::default() }));
    }

    /// Nanoseconds that the client takes for a byte, if that is known.
    fn per_byte(&self, now: Timestamp) -> Option<u64> {
        let before = self.before?;
        let taken = before.taken.saturating_add(self.now.taken);
        let elapsed = now.since(before.began);
        let nanos = elapsed.as_nanos();
        (taken > 0).then(|| u64::try_from(nanos / taken as u128).unwrap_or(u64::MAX))
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.progress.set_far(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pause::{Plan, TURN};

    const QUEUE: usize = 16 << 20;
    const NEARLY: usize = QUEUE / 8 * 7;
    /// The bytes that a publisher is read at most in a turn, unless a single message is larger.
    const BUFFER: usize = 64 << 10;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1000 + ms)
    }

    /// A publisher that publishes as fast as it may.
    struct Publisher {
        plan: Option<Plan>,
        looks_at: u64,
        began: u64,
        turn: Option<usize>,
    }

    /// What came of a run.
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
        let mut pace = Pace::new(at(0));
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
                    && plan.goes_on(at(ms))
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
                let asked = pace.slow_down(distance(queue), QUEUE);
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
                    assert!(seen.longest <= 2100, "{context}");
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
        let mut pace = Pace::new(at(0));
        pace.came(5000, at(0));
        let asked = pace.slow_down(Distance::Nearly(7000), QUEUE).expect("a pause");
        let until = asked.until.expect("a subscriber");
        pace.took(6999, true, at(10));
        assert!(until.is_waiting(READS, at(10)));
        pace.took(1, true, at(11));
        assert!(!until.is_waiting(READS, at(11)));
    }

    #[test]
    fn a_publisher_of_little_waits_for_little_of_a_queue_that_others_filled() {
        for (bytes, excess, left) in [(300, 4 << 20, 300 * OWN), (BUFFER, 4 << 20, 4 << 20), (1, 1, 1)] {
            let mut pace = Pace::new(at(0));
            pace.came(bytes, at(0));
            let asked = pace.slow_down(Distance::Nearly(excess), QUEUE).expect("a pause");
            let until = asked.until.expect("a subscriber");
            pace.took(left - 1, true, at(10));
            assert!(until.is_waiting(READS, at(10)));
            pace.took(1, true, at(11));
            assert!(!until.is_waiting(READS, at(11)), "{bytes} bytes of {excess}");
        }
    }

    #[test]
    fn the_time_in_which_a_connection_waits_for_its_turn_is_not_the_readers() {
        for (blocked, reads) in [(false, true), (true, false)] {
            let mut pace = Pace::new(at(0));
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
            let mut pace = Pace::new(at(0));
            pace.came(BUFFER, at(1999));
            let asked = pace.slow_down(distance, QUEUE).expect("a pause");
            assert!(!asked.until.expect("a subscriber").is_waiting(READS, at(2000)));
            pace.came(BUFFER, at(2000));
            assert!(pace.slow_down(distance, QUEUE).is_none());
        }
    }

    #[test]
    fn a_reader_that_takes_unfairly_little_does_not_stop_publishers() {
        let mut pace = Pace::new(at(0));
        for ms in (0..10_000).step_by(10) {
            pace.took(QUEUE / FAIR / 250, true, at(ms));
            pace.came(BUFFER, at(ms));
            let asked = pace.slow_down(Distance::Nearly(1), QUEUE).expect("a pause");
            assert!(ms < 2000 || asked.until.is_none() && asked.longest == LONG_PAUSE, "{ms}: {asked:?}");
        }
    }

    #[test]
    fn a_publisher_of_little_pauses_for_a_little() {
        let mut pace = Pace::new(at(0));
        for ms in (0..3000).step_by(10) {
            pace.took(4000, true, at(ms));
            pace.came(100, at(ms));
            let pause = pace.slow_down(Distance::Far, QUEUE).expect("a pause").longest;
            assert!(ms < 1500 || pause == PAUSE, "{pause:?}");
        }
    }
}
