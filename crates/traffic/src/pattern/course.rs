//! The course of a rate over time: it stays, or rises or falls in a straight line through the measured time.
//!
//! A schedule is made for the highest rate, in even time, and even time passes more slowly than real time where the
//! rate is lower: by so much that as many operations are due in it.

use crate::experiment::Experiment;

/// A map between real time and the even time of the highest rate, in nanoseconds since the first operation was due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Course {
    highest: f64,
    ramp: Option<Ramp>,
}

/// Rates are shares of the highest.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ramp {
    first: f64,
    last: f64,
    /// When it begins: before that is the warm-up, at the first rate.
    begins_ns: f64,
    lasts_ns: f64,
}

impl Course {
    /// Of an experiment with this rate.
    pub(crate) fn of(experiment: &Experiment, rate: f64) -> Self {
        let Some(to) = experiment.rate_to else { return Self { highest: rate, ramp: None } };
        let highest = rate.max(to);
        let warm_up = if experiment.has_warm_up() { experiment.warm_up_seconds } else { 0.0 };
        let (first, last) = (rate / highest, to / highest);
        let ramp = Ramp { first, last, begins_ns: warm_up * 1e9, lasts_ns: experiment.seconds * 1e9 };
        Self { highest, ramp: Some(ramp) }
    }

    /// The highest rate, in operations a second.
    pub(crate) fn highest(&self) -> f64 {
        self.highest
    }

    /// The even time at this real time.
    pub(crate) fn even(&self, real_ns: f64) -> f64 {
        let Some(Ramp { first, last, begins_ns, lasts_ns }) = self.ramp else { return real_ns };
        let since = real_ns - begins_ns;
        if since <= 0.0 {
            return first * real_ns;
        }
        let within = since.min(lasts_ns);
        let rising = first * within + (last - first) * within * within / (2.0 * lasts_ns);
        first * begins_ns + rising + last * (since - within)
    }

    /// The real time at this even time, to the nanosecond: what is due when the ramp ends is no longer part of it.
    pub(crate) fn real(&self, even_ns: f64) -> f64 {
        let Some(Ramp { first, last, begins_ns, lasts_ns }) = self.ramp else { return even_ns };
        let since = even_ns - first * begins_ns;
        if since <= 0.0 {
            return (even_ns / first).round();
        }
        let whole = f64::midpoint(first, last) * lasts_ns;
        if since >= whole {
            return (begins_ns + lasts_ns + (since - whole) / last).round();
        }
        // The root of the quadratic equation in the form that needs no division by a slope, which may be none.
        let root = (first * first + 2.0 * (last - first) * since / lasts_ns).max(0.0).sqrt();
        (begins_ns + 2.0 * since / (first + root)).round()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(rate: f64, to: f64) -> Course {
        let (rate_to, warm_up_seconds) = (Some(to), 2.0);
        let experiment =
            Experiment { rate: Some(rate), rate_to, warm_up_seconds, seconds: 10.0, ..Experiment::default() };
        Course::of(&experiment, rate)
    }

    #[test]
    fn each_time_is_found_again() {
        for (rate, to) in [(100.0, 5_000.0), (5_000.0, 100.0), (300.0, 300.0), (0.000_001, 1e7)] {
            let course = course(rate, to);
            // The warm-up is the last part in which a millionth of an operation a second can be told.
            for second in [2.5, 3.0, 7.0, 11.9, 12.0, 15.0] {
                let again = course.real(course.even(second * 1e9)) / 1e9;
                assert!((again - second).abs() < 1e-6, "{rate} to {to}: {second} is {again}");
            }
        }
    }

    #[test]
    fn a_rate_that_stays_needs_no_map() {
        let course = Course::of(&Experiment { rate: Some(7.0), ..Experiment::default() }, 7.0);
        assert_eq!((course.even(1.5), course.real(1.5), course.highest()), (1.5, 1.5, 7.0));
    }
}
