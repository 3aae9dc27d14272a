//! Pauses of publishers whose QoS 1 and 2 messages a subscriber reads more slowly than they are published.
//!
//! A subscriber that keeps reading must not be disconnected because publishers are faster; one that hardly reads must
//! not slow them. So a publisher pauses after a turn only for subscribers that take a fair share of their queue. The
//! pause is the time that the subscriber needs for what the publisher sent, at the pace at which it reads; if others
//! publish as well, so many times longer that all together keep to that pace. The publisher's next turn is as short as
//! the subscriber can take within [`TURN`]. So publishers go on at the pace of the slowest reader, instead of stopping
//! and starting.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use fogmux_bus::Timestamp;

/// A client reads if it took something within this time: long enough for one that waits for a busy processor.
const READS: Duration = Duration::from_secs(2);
/// The fraction of its queue that a client must take within [`READS`] for publishers to wait for it.
const FAIR: usize = 32;
/// The pause for subscribers that are behind. A turn is 64 KiB at most, so this still allows some ten megabytes a
/// second.
const PAUSE: Duration = Duration::from_millis(4);
/// The pause for subscribers that are far behind and whose pace is not known or not fair; and the part of a longer pause
/// after which the publisher looks again.
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// The least pause for subscribers whose queue is nearly full. It ends as soon as they have caught up.
const NEARLY_PAUSE: Duration = Duration::from_millis(500);
/// The time that a subscriber takes for a turn of a publisher that keeps to its pace.
const TURN: Duration = Duration::from_millis(100);
/// The least that a publisher is read in a turn.
const TURN_BYTES_MIN: usize = 2 << 10;
/// The longest pause after one turn, for a single large message.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The time in which the pace is measured, twice: long enough for a socket that takes much at a time.
const MEASURED: Duration = Duration::from_secs(1);
/// The most publishers that share a pace evenly.
const SHARES_MAX: u128 = 64;
/// The unit of shares.
const SHARE: u128 = 16;
/// The least share: a little less than the pace, so that the queue becomes shorter.
const SHARES_MIN: u128 = SHARE * 5 / 4;

thread_local! {
    /// The pause asked for by a delivery on this thread, to a client that reads but is behind. Deliveries happen within
    /// the publication that causes them, on its thread.
    static FALLING_BEHIND: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// A pause that a subscriber asks a publisher for.
struct Asked {
    /// For each byte that was published, in nanoseconds.
    per_byte: u64,
    least: Duration,
    /// One of the subscribers is far behind and its pace not fair.
    unfair: bool,
    far: Option<Arc<AtomicBool>>,
}

/// Takes the pause that the publisher on this thread should make for the bytes that it published since the last call.
pub(super) fn take_falling_behind(bytes: impl FnOnce() -> usize) -> Option<Pause> {
    let Asked { per_byte, least, unfair, far } = FALLING_BEHIND.take()?;
    let paced = Duration::from_nanos(per_byte.saturating_mul(bytes() as u64));
    Some(Pause { left: paced.max(least).min(PAUSE_MAX), paced, unfair, far })
}

/// A pause and when it ends.
#[derive(Debug)]
pub(super) struct Pause {
    left: Duration,
    /// The time that the subscriber takes for the turn; zero if its pace is not known or does not count.
    paced: Duration,
    unfair: bool,
    /// Set while the subscriber is far behind.
    far: Option<Arc<AtomicBool>>,
}

impl Pause {
    /// The time until the publisher looks again.
    pub(super) fn duration(&self) -> Duration {
        self.left.min(LONG_PAUSE)
    }

    /// The bytes to be read at most in each of the publisher's next turns, if there is a limit. The last turn had
    /// `bytes`, and `limit` was the limit.
    pub(super) fn next_turn(&self, bytes: usize, limit: Option<usize>) -> Option<usize> {
        if self.paced.is_zero() {
            // A subscriber that hardly reads does not make the turns of others short.
            return limit.filter(|_| !self.unfair);
        }
        let next = bytes as u128 * TURN.as_nanos() / self.paced.as_nanos();
        Some(usize::try_from(next).unwrap_or(usize::MAX).max(TURN_BYTES_MIN))
    }

    /// Makes this the last pause.
    pub(super) fn wait_no_longer(&mut self) {
        self.far = None;
    }

    /// Whether to pause again.
    pub(super) fn goes_on(&mut self) -> bool {
        self.left = self.left.saturating_sub(self.duration());
        !self.left.is_zero() && self.far.as_ref().is_some_and(|far| far.load(Relaxed))
    }
}

/// How far a subscriber is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    /// Behind: publishers slow down.
    Behind,
    /// So far that its queue, or the memory of all, will soon be full.
    Far,
    /// So far that one publisher more may make it lose messages.
    Nearly,
}

/// The bytes sent to a client, and those it has taken, in some time.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    began: Timestamp,
    came: usize,
    taken: usize,
}

/// The pace at which a client takes its queue; exists while the queue is not empty.
#[derive(Debug)]
pub(super) struct Pace {
    far: Arc<AtomicBool>,
    /// For the fairness of its pace.
    fair: Flow,
    is_fair: bool,
    taken_at: Timestamp,
    now: Flow,
    before: Option<Flow>,
    /// The part of the pace that a publisher gets, as its reciprocal in units of [`SHARE`].
    shares: u128,
}

impl Pace {
    /// Assumes a fair pace at first.
    pub(super) fn new(now: Timestamp) -> Self {
        let flow = Flow { began: now, ..Flow::default() };
        Self { far: Arc::default(), fair: flow, is_fair: true, taken_at: now, now: flow, before: None, shares: SHARE }
    }

    /// Whether it has taken something recently.
    pub(super) fn reads(&self, now: Timestamp) -> bool {
        now.since(self.taken_at) < READS
    }

    /// Notes that the client took this many bytes, and whether it is still far behind.
    pub(super) fn took(&mut self, bytes: usize, is_far: bool, now: Timestamp) {
        if bytes > 0 {
            self.taken_at = now;
            self.fair.taken = self.fair.taken.saturating_add(bytes);
            self.now.taken = self.now.taken.saturating_add(bytes);
        }
        if !is_far {
            self.far.store(false, Relaxed);
        }
    }

    /// Asks the publisher on this thread to pause for a message of so many bytes; `queue_bytes_max` is the bound of the
    /// queue.
    pub(super) fn slow_down(&mut self, distance: Distance, bytes: usize, queue_bytes_max: usize, now: Timestamp) {
        self.now.came = self.now.came.saturating_add(bytes);
        if now.since(self.fair.began) >= READS {
            self.is_fair = self.fair.taken >= queue_bytes_max / FAIR;
            self.fair = Flow { began: now, ..Flow::default() };
        }
        if now.since(self.now.began) >= MEASURED {
            self.measure(now);
        }
        if !self.reads(now) {
            return;
        }
        let is_far = distance != Distance::Behind && self.is_fair;
        let is_unfair = distance != Distance::Behind && !self.is_fair;
        let (per_byte, least) = match distance {
            Distance::Behind => (0, PAUSE),
            Distance::Far | Distance::Nearly if !self.is_fair => (0, LONG_PAUSE),
            Distance::Far => self.per_byte(now).map_or((0, LONG_PAUSE), |per_byte| (per_byte, PAUSE)),
            Distance::Nearly => (self.per_byte(now).unwrap_or_default(), NEARLY_PAUSE),
        };
        FALLING_BEHIND.with_borrow_mut(|asked| {
            let asked = asked.get_or_insert(Asked { per_byte: 0, least: Duration::ZERO, unfair: false, far: None });
            asked.unfair |= is_unfair;
            if is_far && (asked.far.is_none() || per_byte > asked.per_byte) {
                self.far.store(true, Relaxed);
                asked.far = Some(Arc::clone(&self.far));
            }
            (asked.per_byte, asked.least) = (asked.per_byte.max(per_byte), asked.least.max(least));
        });
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

    /// Nanoseconds that the client takes for a byte of one publisher, if that is known.
    fn per_byte(&self, now: Timestamp) -> Option<u64> {
        let before = self.before?;
        let taken = before.taken.saturating_add(self.now.taken);
        let elapsed = now.since(before.began);
        let nanos = elapsed.as_nanos().saturating_mul(self.shares) / SHARE;
        (taken > 0).then(|| u64::try_from(nanos / taken as u128).unwrap_or(u64::MAX))
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.far.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: usize = 16 << 20;
    /// The bytes that a publisher is read at most in a turn.
    const BUFFER: usize = 64 << 10;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1000 + ms)
    }

    /// Twenty seconds of publishers and a reader that takes so many bytes a second, some at each tick of so many
    /// milliseconds, after a burst of a socket's buffer. Returns the longest pause after the fifth second, and the longest
    /// queue.
    fn run(per_second: usize, publishers: usize, tick: u64) -> (Duration, usize) {
        let per_tick = per_second / 1000 * usize::try_from(tick).expect("short");
        let mut pace = Pace::new(at(0));
        let (mut queue, mut longest, mut most) = (QUEUE / 2, Duration::ZERO, 0);
        let mut resumes = vec![(0_u64, None); publishers];
        pace.took(1 << 20, true, at(0));
        for ms in 0..20_000 {
            if ms % tick == 0 {
                let taken = per_tick.min(queue);
                queue -= taken;
                pace.took(taken, queue > QUEUE / 4, at(ms));
            }
            for (resume, turn) in resumes.iter_mut().filter(|(resume, _)| *resume <= ms) {
                let bytes = turn.unwrap_or(BUFFER).min(BUFFER);
                queue += bytes;
                let distance = match queue {
                    0..0x80_0000 => Distance::Behind,
                    0x80_0000..0xe0_0000 => Distance::Far,
                    _ => Distance::Nearly,
                };
                pace.slow_down(distance, bytes, QUEUE, at(ms));
                let pause = take_falling_behind(|| bytes).expect("a pause");
                *resume = ms + u64::try_from(pause.left.as_millis()).expect("short");
                *turn = pause.next_turn(bytes, *turn);
                most = most.max(queue);
                if ms > 5000 {
                    longest = longest.max(pause.left);
                }
            }
        }
        (longest, most)
    }

    #[test]
    fn a_publisher_is_slowed_to_the_pace_of_its_reader_and_not_stopped() {
        // From a pace that is just fair to a hundred megabytes a second.
        for per_second in [QUEUE / 64 * 2, 400_000, 1 << 20, 10 << 20, 100 << 20] {
            for tick in [10, 600] {
                let (longest, most) = run(per_second, 1, tick);
                assert!(longest <= TURN * 3, "{per_second} bytes a second: {longest:?}");
                assert!(most <= QUEUE / 4 * 3 + per_second / 2, "{per_second} bytes a second: {most}");
            }
        }
    }

    #[test]
    fn a_reader_whose_pace_is_not_fair_slows_nobody_for_long() {
        for per_second in [2_000, 30_000, QUEUE / 128] {
            let (longest, most) = run(per_second, 1, 10);
            assert!(longest <= LONG_PAUSE && most > QUEUE, "{per_second}: {longest:?}, {most}");
        }
    }

    #[test]
    fn ten_publishers_together_do_not_overrun_a_reader() {
        for per_second in [400_000, 1 << 20, 10 << 20] {
            for tick in [10, 600] {
                let (longest, most) = run(per_second, 10, tick);
                assert!(longest <= PAUSE_MAX && most < QUEUE, "{per_second}: {longest:?}, {most}");
            }
        }
    }

    #[test]
    fn a_reader_that_takes_nothing_stops_nobody() {
        let mut pace = Pace::new(at(0));
        pace.slow_down(Distance::Far, BUFFER, QUEUE, at(1999));
        assert!(take_falling_behind(|| BUFFER).is_some_and(|pause| pause.left <= LONG_PAUSE));
        pace.slow_down(Distance::Far, BUFFER, QUEUE, at(2000));
        assert!(take_falling_behind(|| BUFFER).is_none());
    }

    #[test]
    fn a_publisher_of_little_pauses_for_a_little() {
        let mut pace = Pace::new(at(0));
        for ms in (0..3000).step_by(10) {
            pace.took(4000, true, at(ms));
            pace.slow_down(Distance::Far, 100, QUEUE, at(ms));
            let pause = take_falling_behind(|| 100).expect("a pause").left;
            assert!(ms < 1500 || pause == PAUSE, "{pause:?}");
        }
    }
}
