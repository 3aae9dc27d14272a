//! One direction of a link, without clock or socket: of each frame, whether it is lost and when it has arrived.
//!
//! A frame waits until those before it are on the line, takes its length over the rate to be sent, and then travels for
//! its delay. Frames stay in order, but for those that are reordered.

use std::time::{Duration, Instant};

use super::conditions::Direction;
use super::dice::Dice;

/// The queue of the line in bytes: this, or the bytes that the rate carries in [`QUEUE_TIME`] if that is more. Frames
/// beyond it are lost, as in any router. It holds the largest segmented TCP write.
const QUEUE_BYTES: u64 = 65_536;
const QUEUE_TIME: Duration = Duration::from_millis(200);
/// Frames of Ethernet, for bounds that are counted in frames.
const FULL_FRAME_BYTES: u64 = 1_514;
/// Bits of an Ethernet header, which are never inverted: a frame for nobody would be lost, and not corrupt.
const ETHERNET_BITS: usize = 14 * 8;

/// How many frames may wait for a line of this rate and be on their way over it.
pub(super) fn frames_max(rate: u64, delay: Duration) -> u64 {
    let bytes = queue_bytes(rate) + carried(rate, delay);
    bytes.div_ceil(FULL_FRAME_BYTES)
}

/// The fate of a frame that is not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    /// When it is at the other end.
    pub(super) due: Instant,
    /// Whether it is there twice.
    pub(super) is_double: bool,
    /// The bit of it that is inverted.
    pub(super) flipped: Option<usize>,
}

/// One direction of a link.
#[derive(Debug)]
pub(super) struct Lane {
    direction: Direction,
    dice: Dice,
    /// Whether the next frame meets the bad state of the bursts.
    is_bad: bool,
    /// When the last bit of the frame before is sent.
    line_free: Instant,
    last_due: Instant,
}

impl Lane {
    pub(super) fn new(direction: Direction, seed: u64, now: Instant) -> Self {
        Self { direction, dice: Dice::new(seed), is_bad: false, line_free: now, last_due: now }
    }

    /// The passage of a frame that is sent now; nothing if it is lost.
    pub(super) fn pass(&mut self, now: Instant, bytes: usize) -> Option<Passage> {
        let (loss, jitter) = (self.dice.draw(), self.dice.draw());
        if loss < self.direction.loss || self.is_lost_in_burst() {
            return None;
        }
        let sent = self.sent(now, u64::try_from(bytes).unwrap_or(u64::MAX))?;
        let Direction { corrupt, duplicate, reorder, delay, jitter: most, .. } = self.direction;
        let flipped = self.dice.is(corrupt).then(|| self.dice.below(bytes * 8, ETHERNET_BITS)).flatten();
        let is_double = self.dice.is(duplicate);
        if self.dice.is(reorder) {
            return Some(Passage { due: sent, is_double, flipped });
        }
        let due = sent + delay + most - most.mul_f64(2.0 * jitter);
        self.last_due = due.max(self.last_due);
        Some(Passage { due: self.last_due, is_double, flipped })
    }

    fn is_lost_in_burst(&mut self) -> bool {
        let Some(bursts) = self.direction.bursts else { return false };
        self.is_bad = if self.is_bad { !self.dice.is(bursts.to_good) } else { self.dice.is(bursts.to_bad) };
        self.dice.is(if self.is_bad { bursts.loss_bad } else { bursts.loss_good })
    }

    /// When its last bit is sent; nothing if too much waits.
    fn sent(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let Some(rate) = self.direction.rate else { return Some(now) };
        let waiting = self.line_free.saturating_duration_since(now);
        if carried(rate, waiting) + bytes > queue_bytes(rate) + FULL_FRAME_BYTES {
            return None;
        }
        let takes = Duration::from_nanos(bytes.saturating_mul(8).saturating_mul(1_000_000_000) / rate.max(1));
        self.line_free = self.line_free.max(now) + takes;
        Some(self.line_free)
    }
}

fn queue_bytes(rate: u64) -> u64 {
    carried(rate, QUEUE_TIME).max(QUEUE_BYTES)
}

/// Bytes that a rate carries in a time.
fn carried(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / 8_000_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::conditions::Conditions;
    use super::*;

    impl Lane {
        fn arrival(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
            self.pass(now, bytes).map(|passage| passage.due)
        }
    }

    fn lane(conditions: &str, seed: u64, now: Instant) -> Lane {
        Lane::new(conditions.parse::<Conditions>().unwrap().up, seed, now)
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn as_many_frames_are_lost_as_asked_for_and_the_same_ones_again() {
        let now = Instant::now();
        let lost = |seed| {
            let mut lane = lane("loss=15%", seed, now);
            (0..20_000).filter(|_| lane.arrival(now, 100).is_none()).collect::<Vec<u32>>()
        };
        let (first, again, other) = (lost(1), lost(1), lost(2));
        assert_eq!(first, again);
        assert_ne!(first, other);
        // Binomial: 3000 ± 50.5; five of them.
        assert!((2_750..3_250).contains(&first.len()) && (2_750..3_250).contains(&other.len()), "{}", first.len());
        // Independent: pairs of neighbours are lost at 15 % of 15 %.
        let pairs = first.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        assert!((350..550).contains(&pairs), "{pairs}");
    }

    #[test]
    fn a_frame_takes_its_length_over_the_rate_and_then_its_delay() {
        let now = Instant::now();
        let mut lane = lane("rate=1mbit,delay=20ms", 1, now);
        // 125 bytes are 1 ms of a megabit.
        assert_eq!(lane.arrival(now, 125), Some(now + 21 * MS));
        assert_eq!(lane.arrival(now, 250), Some(now + 23 * MS), "it waits for the one before");
        assert_eq!(lane.arrival(now + 10 * MS, 125), Some(now + 31 * MS), "the line was free again");
    }

    #[test]
    fn jitter_keeps_its_bounds_and_the_order() {
        let mut now = Instant::now();
        let mut lane = lane("delay=10ms,jitter=4ms", 1, now);
        let (mut earliest, mut latest, mut before) = (u128::MAX, 0, now);
        for _ in 0..10_000 {
            now += 10 * MS;
            let due = lane.arrival(now, 100).unwrap();
            let took = (due - now).as_micros();
            (earliest, latest) = (earliest.min(took), latest.max(took));
            assert!(due >= before);
            before = due;
        }
        assert!((6_000..6_010).contains(&earliest) && (13_990..=14_000).contains(&latest), "{earliest} {latest}");
        let burst: Vec<Instant> = (0..100).filter_map(|_| lane.arrival(now, 100)).collect();
        assert!(burst.is_sorted());
    }

    #[test]
    fn what_waits_for_the_line_has_a_bound() {
        let now = Instant::now();
        let mut lane = lane("rate=250kbit", 1, now);
        let taken = (0..1_000).filter(|_| lane.arrival(now, 1_514).is_some()).count();
        assert_eq!(taken, 44, "64 KiB and the frame on the line");
        assert!(lane.arrival(now + 100 * MS, 1_514).is_some(), "there is room again");
    }

    #[test]
    fn bounds_count_the_way_too() {
        assert_eq!(frames_max(250_000, Duration::ZERO), 44);
        assert_eq!(frames_max(10_000_000, 279 * MS), (250_000u64 + 348_750).div_ceil(1_514));
    }

    /// Which of many frames, one a millisecond, become what is looked for.
    fn passages(conditions: &str, count: u32) -> Vec<Option<Passage>> {
        let start = Instant::now();
        let mut lane = lane(conditions, 7, start);
        (0..count).map(|at| lane.pass(start + at * MS, 100)).collect()
    }

    #[test]
    fn bursts_lose_their_share_in_runs_of_their_length() {
        // Bad for 1 % / (1 % + 25 %) of the time = 3.846 %, in runs of 4 frames.
        let passages = passages("ge=1%:25%", 200_000);
        let lost: Vec<bool> = passages.iter().map(Option::is_none).collect();
        let count = lost.iter().filter(|lost| **lost).count();
        let runs = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let share = count as f64 / 200_000.0;
        assert!((0.034..0.043).contains(&share), "{share}");
        let length = count as f64 / runs as f64;
        assert!((3.7..4.3).contains(&length), "{length}: independent losses would give 1.04");
    }

    #[test]
    fn good_and_bad_states_lose_what_is_said() {
        // 10 % / (10 % + 30 %) = a quarter of the time bad, which loses 40 %, and 2 % of the rest.
        let lost = passages("ge=10%:30%:40%:2%", 100_000).iter().filter(|passage| passage.is_none()).count();
        assert!((11_000..12_000).contains(&lost), "{lost}, of 11 500");
    }

    #[test]
    fn bits_are_inverted_behind_the_ethernet_header_and_frames_doubled() {
        let all = passages("corrupt=10%,duplicate=20%", 20_000);
        let passed: Vec<Passage> = all.into_iter().flatten().collect();
        assert_eq!(passed.len(), 20_000);
        let flipped: Vec<usize> = passed.iter().filter_map(|passage| passage.flipped).collect();
        assert!((1_800..2_200).contains(&flipped.len()), "{}", flipped.len());
        assert!(flipped.iter().all(|bit| (112..800).contains(bit)));
        assert!(flipped.iter().any(|bit| *bit < 120) && flipped.iter().any(|bit| *bit >= 792));
        let doubles = passed.iter().filter(|passage| passage.is_double).count();
        assert!((3_750..4_250).contains(&doubles), "{doubles}");
    }

    #[test]
    fn a_reordered_frame_skips_the_delay_and_holds_up_no_other() {
        let start = Instant::now();
        let mut lane = lane("delay=10ms,reorder=25%", 3, start);
        let late: Vec<Duration> =
            (0..4_000).map(|at| lane.arrival(start + at * MS, 100).unwrap() - (start + at * MS)).collect();
        let early = late.iter().filter(|late| late.is_zero()).count();
        assert!((850..1_150).contains(&early), "{early}");
        assert!(late.iter().all(|late| late.is_zero() || *late == 10 * MS));
    }
}
