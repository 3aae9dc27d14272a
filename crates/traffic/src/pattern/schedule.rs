//! The times at which the operations of one publisher are due, whatever became of those before.

use std::cell::RefCell;
use std::rc::Rc;

use super::course::Course;
use crate::experiment::{Arrivals, Experiment};

/// Tells draws of the same seed apart. Without it every repetition would have the same times, and so would all groups
/// of a fleet, whose publishers would send at the same moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// Which repetition it is, from 0.
    pub repetition: u32,
    /// Which of the experiments that are done at the same time, from 0.
    pub group: u32,
}

impl Draw {
    /// The seed of one publisher. Each word is mixed into those before it by a bijection, so that no two publishers of
    /// a group have the same.
    fn seed(self, seed: u64, number: u32) -> u64 {
        [self.repetition, self.group, number]
            .into_iter()
            .fold(mixed(seed), |state, word| mixed(state ^ u64::from(word)))
    }
}

/// A step of SplitMix64 (Steele et al. 2014).
fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A schedule, in nanoseconds since the first operation of all publishers was due.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    interval_ns: f64,
    offset_ns: f64,
    /// Operations that are due at once.
    burst: u64,
    /// How the rate changes; the times above are those at its highest.
    course: Course,
    /// Times that chance decides, where it does.
    drawn: Option<Rc<RefCell<Drawn>>>,
}

/// Times of a Poisson process, drawn as far as they are needed.
#[derive(Debug)]
struct Drawn {
    state: u64,
    last_ns: f64,
    times_ns: Vec<u64>,
}

impl Schedule {
    /// Publisher `number` of an experiment with this rate: together, publishers send one after the other.
    pub(crate) fn new(experiment: &Experiment, draw: Draw, rate: f64, number: u32) -> Self {
        let course = Course::of(experiment, rate);
        let publishers = f64::from(experiment.publishers.max(1));
        let interval_ns = 1e9 / course.highest() * publishers;
        let offset_ns = interval_ns * f64::from(number) / publishers;
        let (burst, drawn) = match experiment.arrivals {
            Arrivals::Even => (1, None),
            Arrivals::Burst(size) => (u64::from(size.max(1)), None),
            Arrivals::Poisson => (1, Some(Rc::new(RefCell::new(Drawn::new(draw.seed(experiment.seed, number)))))),
        };
        Self { interval_ns, offset_ns, burst, course, drawn }
    }

    /// How many are due before that time.
    pub(crate) fn due_before(&self, elapsed_ns: u64) -> u64 {
        if let Some(drawn) = &self.drawn {
            return drawn.borrow_mut().due_before(elapsed_ns, self.interval_ns, &self.course);
        }
        #[expect(clippy::cast_precision_loss, reason = "2^53 nanoseconds are 104 days")]
        let intervals = (self.course.even(elapsed_ns as f64) - self.offset_ns) / self.interval_ns;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least 0, and below 2^53")]
        let mut due = (intervals.ceil().max(0.0) as u64).next_multiple_of(self.burst);
        // The division rounds; only what `at` says counts.
        while self.at(due) < elapsed_ns {
            due += self.burst;
        }
        while due > 0 && self.at(due - 1) >= elapsed_ns {
            due -= self.burst.min(due);
        }
        due
    }

    /// When the operation at this place is due.
    pub(crate) fn at(&self, place: u64) -> u64 {
        if let Some(drawn) = &self.drawn {
            return drawn.borrow_mut().at(place, self.interval_ns, &self.course);
        }
        let first_of_burst = place - place % self.burst;
        #[expect(clippy::cast_precision_loss, reason = "2^53 operations are more than a run has")]
        let due = self.course.real(self.offset_ns + self.interval_ns * first_of_burst as f64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and below 2^53")]
        let due = due as u64;
        due
    }
}

impl Drawn {
    /// The same times for the same seed.
    fn new(seed: u64) -> Self {
        // xorshift never leaves zero.
        Self { state: seed.max(1), last_ns: 0.0, times_ns: Vec::new() }
    }

    fn due_before(&mut self, elapsed_ns: u64, mean_ns: f64, course: &Course) -> u64 {
        while self.times_ns.last().is_none_or(|last| *last < elapsed_ns) {
            self.draw(mean_ns, course);
        }
        u64::try_from(self.times_ns.partition_point(|time| *time < elapsed_ns)).unwrap_or(u64::MAX)
    }

    fn at(&mut self, place: u64, mean_ns: f64, course: &Course) -> u64 {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        while self.times_ns.len() <= place {
            self.draw(mean_ns, course);
        }
        self.times_ns.get(place).copied().unwrap_or(u64::MAX)
    }

    /// One more, an exponentially distributed time after the last.
    fn draw(&mut self, mean_ns: f64, course: &Course) {
        self.last_ns -= mean_ns * self.share().ln();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and below 2^53")]
        self.times_ns.push(course.real(self.last_ns) as u64);
    }

    /// Above 0, up to 1: xorshift64* (Vigna 2016).
    fn share(&mut self) -> f64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let bits = u32::try_from(self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32).unwrap_or(0);
        (f64::from(bits) + 1.0) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn schedule(rate: f64, number: u32, publishers: u32, arrivals: Arrivals) -> Schedule {
        Schedule::new(&Experiment { publishers, arrivals, ..Experiment::default() }, Draw::default(), rate, number)
    }

    #[test]
    fn a_schedule_has_as_many_as_its_rate_says() {
        for (rate, due) in [(1_000.0, 5_000), (300.0, 1_500), (7.0, 35), (0.1, 1), (999_999.0, 4_999_995)] {
            assert_eq!(schedule(rate, 0, 1, Arrivals::Even).due_before(5 * SECOND), due, "{rate}");
            let each = (0..4).map(|number| schedule(rate, number, 4, Arrivals::Even).due_before(5 * SECOND));
            assert_eq!(each.sum::<u64>(), due, "{rate} by four");
        }
        assert_eq!(schedule(10.0, 0, 1, Arrivals::Even).due_before(0), 0);
    }

    #[test]
    fn bursts_come_together_and_keep_the_rate() {
        let bursts = schedule(1_000.0, 0, 1, Arrivals::Burst(10));
        assert_eq!([0, 9, 10, 19, 20].map(|place| bursts.at(place)), [0, 0, 10_000_000, 10_000_000, 20_000_000]);
        assert_eq!([0, 1, 10_000_000, 10_000_001].map(|time| bursts.due_before(time)), [0, 10, 10, 20]);
        assert_eq!(bursts.due_before(5 * SECOND), 5_000);
    }

    /// From a hundred to nine hundred a second in five seconds, after one at a hundred.
    fn ramp(number: u32, publishers: u32, arrivals: Arrivals) -> Schedule {
        let (rate, rate_to, warm_up_seconds) = (Some(100.0), Some(900.0), 1.0);
        let experiment =
            Experiment { rate, rate_to, warm_up_seconds, publishers, arrivals, seconds: 5.0, ..Experiment::default() };
        Schedule::new(&experiment, Draw::default(), 100.0, number)
    }

    #[test]
    fn a_ramp_has_in_each_part_as_many_as_its_rate_there_says() {
        for arrivals in [Arrivals::Even, Arrivals::Burst(5), Arrivals::Poisson] {
            let schedules: Vec<Schedule> = (0..4).map(|number| ramp(number, 4, arrivals)).collect();
            let before = |second: u64| schedules.iter().map(|one| one.due_before(second * SECOND)).sum::<u64>();
            let parts: Vec<u64> = (0..7).map(|second| before(second + 1) - before(second)).collect();
            // The warm-up, then 100 to 260, …, 740 to 900, and then it stays.
            for (part, expected) in parts.iter().zip([100u64, 180, 340, 500, 660, 820, 900]) {
                let off = match arrivals {
                    Arrivals::Even => 0.0,
                    Arrivals::Burst(_) => 20.0,
                    Arrivals::Poisson => 4.5 * (expected as f64).sqrt(),
                };
                assert!(part.abs_diff(expected) as f64 <= off, "{arrivals}: {parts:?}");
            }
            for schedule in &schedules {
                let times: Vec<u64> = (0..800).map(|place| schedule.at(place)).collect();
                assert!(times.is_sorted(), "{arrivals}");
                for (place, time) in (0..).zip(&times) {
                    assert!(schedule.due_before(*time) <= place, "{arrivals}");
                    assert!(schedule.due_before(*time + 1) > place, "{arrivals}");
                }
            }
        }
    }

    #[test]
    fn times_between_poisson_arrivals_are_exponential_and_those_of_the_seed() {
        let drawn = schedule(1_000.0, 0, 1, Arrivals::Poisson);
        let times: Vec<u64> = (0..20_000).map(|place| drawn.at(place)).collect();
        assert!(times.is_sorted());
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        // Both are a millisecond; of 20 000 they are right to five times a hundred-and-fortieth.
        assert!((mean - 1.0).abs() < 0.035 && (deviation - 1.0).abs() < 0.07, "{mean} ± {deviation} ms");
        let longer = gaps.iter().filter(|gap| **gap > 1.0).count() as f64 / gaps.len() as f64;
        assert!((longer - (-1.0f64).exp()).abs() < 0.02, "{longer} of them are longer than the mean");
        // Looked at in another order they are the same, and those of another publisher are not.
        let again = schedule(1_000.0, 0, 1, Arrivals::Poisson);
        let (before, places) = (again.due_before(times[777]), 777);
        assert_eq!((before, again.at(3)), (places, times[3]));
        assert_ne!(schedule(1_000.0, 1, 1, Arrivals::Poisson).at(0), times[0]);
    }

    /// Ten a second of each of these publishers.
    fn poisson(seed: u64, draw: Draw, publishers: u32) -> Vec<Schedule> {
        let experiment = Experiment { publishers, seed, arrivals: Arrivals::Poisson, ..Experiment::default() };
        (0..publishers).map(|number| Schedule::new(&experiment, draw, 10.0 * f64::from(publishers), number)).collect()
    }

    fn first_of(schedule: &Schedule) -> [u64; 4] {
        [0, 1, 2, 3].map(|place| schedule.at(place))
    }

    #[test]
    fn no_publisher_repetition_or_group_has_the_times_of_another_and_each_has_its_own_again() {
        let draws = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(repetition, group)| Draw { repetition, group });
        let all = |seed| draws.into_iter().flat_map(move |draw| poisson(seed, draw, 64));
        let times: Vec<[u64; 4]> = [1, 2, 3].into_iter().flat_map(all).map(|one| first_of(&one)).collect();
        let mut apart = times.clone();
        apart.sort_unstable();
        apart.dedup_by(|one, other| one.iter().any(|time| other.contains(time)));
        assert_eq!(apart.len(), 3 * 4 * 64);
        assert_eq!(times, [1, 2, 3].into_iter().flat_map(all).map(|one| first_of(&one)).collect::<Vec<_>>());
    }

    #[test]
    fn publishers_together_are_a_poisson_process_too() {
        for publishers in [2, 4, 16] {
            let all = poisson(1, Draw::default(), publishers);
            let before = |tenth: u64| all.iter().map(|one| one.due_before(tenth * SECOND / 10)).sum::<u64>();
            let counts: Vec<f64> = (0..4_000).map(|tenth| (before(tenth + 1) - before(tenth)) as f64).collect();
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
            assert!((mean / f64::from(publishers) - 1.0).abs() < 0.1, "{mean} in a tenth of a second");
            // The index of dispersion of counts is 1; of 4 000 it is right to five times the root of a two-thousandth.
            // Of publishers in pairs it is 2.
            assert!((variance / mean - 1.0).abs() < 0.112, "{publishers}: {variance} of {mean}");
        }
    }
}
