//! The search for the highest rate that a target keeps up with, one short repetition at a time.
//!
//! The rate is doubled until it is not kept, and then the interval between the highest that was and the lowest that was
//! not is halved, by the geometric mean, until both are near each other.

use crate::experiment::Experiment;
use crate::outcome::Outcome;
use crate::report::figure::lost;

/// How near both ends of the interval are in the end: their ratio.
const NEAR: f64 = 1.1;
/// Repetitions at most. From one a second to ten million it takes 24 doublings, and 4 halvings of the last.
const TRIES_MAX: u32 = 40;
/// The bounds of rates, as an experiment has them.
const RATE_MAX: f64 = 10_000_000.0;
const RATE_MIN: f64 = 0.01;
/// The share of the schedule's time, and the seconds, by which the last delivery may come after its end.
const LATE_SHARE: f64 = 0.1;
const LATE_SECONDS: f64 = 0.1;

/// The outcome of one rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// Everything was sent when it was due, and arrived in time.
    Kept,
    /// It was not: the target is slower.
    Behind,
    /// The generator was the limit, for this reason.
    Limited(String),
}

impl Load {
    /// Of one repetition at a rate.
    #[must_use]
    pub fn of(experiment: &Experiment, outcome: &Outcome) -> Self {
        if let Some(why) = &outcome.limited_by_generator {
            return Self::Limited(why.clone());
        }
        let schedule = outcome.sending_seconds.unwrap_or(experiment.seconds);
        let is_late = outcome.seconds > schedule * (1.0 + LATE_SHARE) + LATE_SECONDS;
        let is_lost = lost(outcome) + outcome.unanswered > 0;
        let is_failed = outcome.errors > 0 || outcome.disconnects > 0;
        if outcome.fell_behind() || is_late || is_lost || is_failed { Self::Behind } else { Self::Kept }
    }
}

/// A search.
#[derive(Clone, Debug)]
pub struct Search {
    /// The highest rate that was kept.
    kept: Option<f64>,
    /// The lowest that was not, and what it came to.
    missed: Option<(f64, Load)>,
    first: f64,
    tries: u32,
}

impl Search {
    /// Beginning at this rate, in operations a second.
    #[must_use]
    pub fn from(rate: f64) -> Self {
        Self { kept: None, missed: None, first: rate, tries: 0 }
    }

    /// The rate to try next; nothing when the search is over.
    #[must_use]
    pub fn next(&self) -> Option<f64> {
        let next = match (self.kept, &self.missed) {
            (None, None) => self.first,
            (Some(kept), None) => kept * 2.0,
            (None, Some((missed, _))) => missed / 2.0,
            (Some(kept), Some((missed, _))) if missed / kept <= NEAR => return None,
            (Some(kept), Some((missed, _))) => (kept * missed).sqrt(),
        };
        (self.tries < TRIES_MAX && (RATE_MIN..=RATE_MAX).contains(&next)).then_some(next)
    }

    /// Takes the outcome of a rate.
    pub fn tried(&mut self, rate: f64, load: Load) {
        self.tries += 1;
        match load {
            Load::Kept => self.kept = Some(self.kept.map_or(rate, |kept| kept.max(rate))),
            Load::Behind | Load::Limited(_) => {
                if self.missed.as_ref().is_none_or(|(missed, _)| rate < *missed) {
                    self.missed = Some((rate, load));
                }
            }
        }
    }

    /// The highest rate that was kept.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.kept
    }

    /// Why the generator and not the target was the limit, if it was.
    #[must_use]
    pub fn limited_by_generator(&self) -> Option<&str> {
        match &self.missed {
            Some((_, Load::Limited(why))) => Some(why),
            Some((_, Load::Behind | Load::Kept)) | None => None,
        }
    }
}

/// The rates of a curve up to the highest one that is kept, ascending: most of them where latency begins to rise.
#[must_use]
pub fn curve(highest: f64) -> Vec<f64> {
    [0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0].into_iter().map(|share| rounded(highest * share)).collect()
}

/// A rate with three digits, for it is no more exact than that.
fn rounded(rate: f64) -> f64 {
    let unit = 10f64.powf(rate.log10().floor() - 2.0);
    let digits = (rate / unit).round();
    // A division by a power of ten is exact where a multiplication by its inverse is not.
    if unit < 1.0 { digits / (1.0 / unit).round() } else { digits * unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that keeps up to this rate, and a generator that does.
    fn found(target: f64, generator: f64, from: f64) -> (Search, u32) {
        let mut search = Search::from(from);
        let mut tries = 0;
        while let Some(rate) = search.next() {
            tries += 1;
            let load = match rate {
                rate if rate > generator => Load::Limited("its core was busy".to_owned()),
                rate if rate > target => Load::Behind,
                _ => Load::Kept,
            };
            search.tried(rate, load);
        }
        (search, tries)
    }

    #[test]
    fn the_rate_is_found_to_a_tenth_from_below_and_from_above() {
        for target in [3.0, 900.0, 45_000.0, 2_000_000.0] {
            for from in [1.0, 100.0, 1_000_000.0] {
                let (search, tries) = found(target, f64::INFINITY, from);
                let rate = search.rate().unwrap();
                assert!(rate <= target && rate * NEAR >= target, "{rate} of {target} from {from}");
                assert!(tries <= 30 && search.limited_by_generator().is_none(), "{tries} tries");
            }
        }
    }

    #[test]
    fn a_generator_that_is_the_limit_is_named() {
        let (search, _) = found(f64::INFINITY, 30_000.0, 100.0);
        assert!(search.rate().is_some_and(|rate| (27_000.0..=30_000.0).contains(&rate)));
        assert_eq!(search.limited_by_generator(), Some("its core was busy"));
    }

    #[test]
    fn a_target_that_keeps_nothing_ends_the_search() {
        let (search, tries) = found(0.0, f64::INFINITY, 100.0);
        assert_eq!(search.rate(), None);
        assert!(tries <= TRIES_MAX);
    }

    #[test]
    fn a_rate_is_kept_if_everything_was_sent_and_arrived_in_time() {
        let experiment = Experiment { seconds: 1.0, rate: Some(100.0), ..Experiment::default() };
        let good = Outcome {
            offered: Some(100),
            behind: Some(0),
            unsent: Some(0),
            sending_seconds: Some(1.0),
            expected: 100,
            delivered: 100,
            seconds: 1.01,
            ..Outcome::default()
        };
        let load = |change: fn(&mut Outcome)| {
            let mut outcome = good.clone();
            change(&mut outcome);
            Load::of(&experiment, &outcome)
        };
        assert_eq!(load(|_| {}), Load::Kept);
        assert_eq!(load(|outcome| outcome.behind = Some(2)), Load::Behind);
        assert_eq!(load(|outcome| outcome.delivered = 99), Load::Behind);
        assert_eq!(load(|outcome| outcome.seconds = 1.3), Load::Behind);
        assert_eq!(load(|outcome| outcome.errors = 1), Load::Behind);
        assert_eq!(load(|outcome| outcome.limited_by_generator = Some("x".to_owned())), Load::Limited("x".to_owned()));
    }

    #[test]
    fn a_curve_ends_at_the_highest_rate_and_has_round_ones() {
        assert_eq!(curve(45_678.0), [4_570.0, 11_400.0, 22_800.0, 32_000.0, 36_500.0, 41_100.0, 45_700.0]);
        assert_eq!(curve(1.234).last(), Some(&1.23));
    }
}
