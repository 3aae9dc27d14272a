//! Rounds in which both sides were measured twice: aligned ranks (Hodges and Lehmann 1962).
//!
//! From each value the median of its round is taken, which removes every change of the machine that lasts longer than a
//! round. What remains is ranked over all rounds, and the ranks of the second side are compared with what they would be
//! if the sides had been exchanged within rounds. A repetition that was disturbed is one extreme rank, however far away
//! it is, and nothing is assumed of the distribution.

use super::distribution::{normal_distance, normal_two_sided};
use super::{Interval, count, median};

/// The probability outside of an interval.
const OUTSIDE: f64 = 0.05;
/// With fewer rounds the sum of ranks is not normal enough.
pub const ROUNDS_MIN: usize = 6;
/// Halvings of the range of all differences, to 1/4096 of it.
const HALVINGS: u32 = 12;

/// Logarithms of a figure in one round: both repetitions of the first side, then both of the second.
pub type Round = [f64; 4];

/// How one side differs from the other, and each from itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// The second side over the first, with its 95 % interval.
    pub ratio: Interval,
    /// How probable a difference at least as consistent is if there is none.
    pub p: f64,
    /// The noise floor, as a share: half the width of the interval of a difference that there cannot be, that of the
    /// sides from themselves.
    pub floor: f64,
    /// How probable a difference of the sides from themselves is that is at least as consistent.
    pub p_itself: f64,
}

impl Paired {
    /// Of all rounds; none if there are fewer than six.
    #[must_use]
    pub fn of(rounds: &[Round]) -> Option<Self> {
        if rounds.len() < ROUNDS_MIN || !rounds.iter().flatten().all(|value| value.is_finite()) {
            return None;
        }
        let ratio = interval(rounds)?;
        // The same repetitions, exchanged between the sides: the first of one with the second of the other.
        let exchanged: Vec<Round> = rounds
            .iter()
            .map(|[a, other_a, b, other_b]| [*a, other_b - ratio.median, *other_a, b - ratio.median])
            .collect();
        let itself = interval(&exchanged)?;
        Some(Self {
            ratio: Interval::of_logarithms(ratio.median, ratio.low, ratio.high),
            p: normal_two_sided(deviation(rounds, 0.0)),
            floor: ((itself.high - itself.low) / 2.0).exp() - 1.0,
            p_itself: normal_two_sided(deviation(&exchanged, 0.0)),
        })
    }
}

/// The difference of the sides: the median of all differences within rounds, between the shifts that the ranks do not
/// refute.
fn interval(rounds: &[Round]) -> Option<Interval> {
    let of_round = |[a, other_a, b, other_b]: &Round| [b - a, b - other_a, other_b - a, other_b - other_a];
    let differences: Vec<f64> = rounds.iter().flat_map(of_round).collect();
    let least = differences.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = differences.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let middle = median(&differences)?;
    if least == greatest {
        return Some(Interval { median: middle, low: least, high: greatest });
    }
    let refuted = normal_distance(OUTSIDE);
    // Outwards, so that nothing is left out by rounding.
    let (low, _) = border(least, middle, |shift| deviation(rounds, shift) > refuted);
    let (_, high) = border(middle, greatest, |shift| deviation(rounds, shift) >= -refuted);
    Some(Interval { median: middle, low, high })
}

/// The two sides of the place up to which this holds.
fn border(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> (f64, f64) {
    for _ in 0..HALVINGS {
        let between = f64::midpoint(low, high);
        if holds(between) { low = between } else { high = between }
    }
    (low, high)
}

/// By how many standard deviations the ranks of the second side, shifted back, are above those of the first.
fn deviation(rounds: &[Round], shift: f64) -> f64 {
    let mut aligned: Vec<(f64, usize, bool)> = Vec::with_capacity(4 * rounds.len());
    for (number, [a, other_a, b, other_b]) in rounds.iter().enumerate() {
        let values = [*a, *other_a, b - shift, other_b - shift];
        let mut sorted = values;
        sorted.sort_by(f64::total_cmp);
        let [_, lower, upper, _] = sorted;
        let middle = f64::midpoint(lower, upper);
        let sides = [false, false, true, true];
        aligned.extend(values.iter().zip(sides).map(|(value, is_second)| (value - middle, number, is_second)));
    }
    aligned.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let mut tallies = vec![Ranks::default(); rounds.len()];
    let mut below = 0;
    for ties in aligned.chunk_by(|(one, ..), (other, ..)| one == other) {
        let rank = count(below) + (count(ties.len()) + 1.0) / 2.0;
        below += ties.len();
        for (_, number, is_second) in ties {
            if let Some(tally) = tallies.get_mut(*number) {
                tally.note(rank, *is_second);
            }
        }
    }
    let above: f64 = tallies.iter().map(|ranks| ranks.second - ranks.sum / 2.0).sum();
    // Of the sum of two out of four without replacement.
    let variance: f64 = tallies.iter().map(|ranks| (ranks.squares - ranks.sum * ranks.sum / 4.0) / 3.0).sum();
    if variance > 0.0 { above / variance.sqrt() } else { 0.0 }
}

/// The ranks of one round.
#[derive(Clone, Copy, Default)]
struct Ranks {
    sum: f64,
    squares: f64,
    second: f64,
}

impl Ranks {
    fn note(&mut self, rank: f64, is_second: bool) {
        self.sum += rank;
        self.squares += rank * rank;
        self.second += if is_second { rank } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulation::Random;
    use super::*;

    /// Of one round: ranks 1, 2 against 3, 4 are 7 − 5 above the mean, with the variance (30 − 25) / 3.
    #[test]
    fn the_deviation_is_that_of_two_ranks_out_of_four() {
        assert!((deviation(&[[1.0, 2.0, 3.0, 4.0]], 0.0) - 2.0 / (5.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert!((deviation(&[[3.0, 4.0, 1.0, 2.0]], 0.0) + 2.0 / (5.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(deviation(&[[1.0, 4.0, 2.0, 3.0]], 0.0), 0.0);
        // A shift of one round changes nothing.
        let rounds = [[1.0, 2.0, 3.5, 4.0], [1.5, 2.5, 2.0, 4.5]];
        let moved = [rounds[0], rounds[1].map(|value| value + 100.0)];
        assert!((deviation(&rounds, 0.0) - deviation(&moved, 0.0)).abs() < 1e-9);
    }

    #[test]
    fn what_is_equal_does_not_differ() {
        let same = Paired::of(&[[1.0; 4]; 6]).unwrap();
        assert_eq!((same.ratio, same.p), (Interval { median: 1.0, low: 1.0, high: 1.0 }, 1.0));
        assert_eq!((same.floor, same.p_itself), (0.0, 1.0));
        assert_eq!(Paired::of(&[[1.0; 4]; 5]), None);
        assert_eq!(Paired::of(&[[f64::NAN; 4]; 6]), None);
    }

    #[test]
    fn sizes_that_differ_by_a_tenth_in_every_round_do() {
        let larger = Paired::of(&[[0.0, 0.0, 0.1, 0.1]; 6]).unwrap();
        assert!(larger.p < 0.001 && larger.floor == 0.0, "{larger:?}");
        assert_eq!(larger.ratio, Interval { median: 0.1f64.exp(), low: 0.1f64.exp(), high: 0.1f64.exp() });
    }

    /// Of noise in which every twentieth repetition takes half as long again, between rounds that differ by much more.
    #[test]
    fn intervals_contain_the_difference_in_95_of_100_cases() {
        for rounds in [6, 12] {
            let mut random = Random::of(11);
            let covered = (0..1_000).filter(|_| {
                let mut value = |level: f64| {
                    let stalled = if random.uniform() < 0.05 { 0.4 } else { 0.0 };
                    level + stalled + 0.08 * random.normal()
                };
                let mut round = |number: usize| {
                    let level = [0.0, 5.0, -3.0][number % 3];
                    [value(level), value(level), value(level + 0.1), value(level + 0.1)]
                };
                let values: Vec<Round> = (0..rounds).map(&mut round).collect();
                let Interval { low, high, .. } = Paired::of(&values).unwrap().ratio;
                (low..=high).contains(&0.1f64.exp())
            });
            let covered = covered.count();
            println!("{rounds} rounds: {covered} of 1000");
            assert!(covered >= 930, "{rounds} rounds: {covered} of 1000");
        }
    }
}
