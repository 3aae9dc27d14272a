//! Files of an external meter: a line of `unix_ms,watts` for each sample, integrated over an interval.
//!
//! An interval whose samples do not say what was drawn in it has no energy, rather than a wrong one.

use std::fs;
use std::path::Path;

/// The first line of a file.
const HEAD: &str = "unix_ms,watts";
/// Fewer samples within an interval say little of its energy.
const SAMPLES_MIN: usize = 10;
/// A time between two samples that is so many times the median one is a gap.
const GAP_FACTOR: f64 = 3.0;

/// The samples of a meter.
#[derive(Clone, Debug, PartialEq)]
pub struct Meter {
    /// Milliseconds since 1970, ascending, and watts.
    samples: Vec<(f64, f64)>,
}

/// Why a file is none of a meter.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// It cannot be read.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// It does not begin as it should.
    #[error("{0}: the first line is not {HEAD:?}")]
    Head(String),
    /// A line is no sample.
    #[error("{file}: line {line}: {why}")]
    Line {
        /// The file.
        file: String,
        /// Its number, from 1.
        line: usize,
        /// The fault.
        why: String,
    },
}

impl Meter {
    /// Reads a file, which a meter may still append to: a last line without its end is left out.
    ///
    /// # Errors
    /// It cannot be read, lacks its head, or has a line that is no sample or not later than the one before.
    pub fn read(path: &Path) -> Result<Self, MeterError> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| MeterError::File(name.clone(), error))?;
        Self::parse(&name, &text)
    }

    fn parse(file: &str, text: &str) -> Result<Self, MeterError> {
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).enumerate();
        if lines.next().is_none_or(|(_, head)| head.trim_end() != HEAD) {
            return Err(MeterError::Head(file.to_owned()));
        }
        let mut samples: Vec<(f64, f64)> = Vec::new();
        for (at, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let before = samples.last().map_or(f64::NEG_INFINITY, |(time, _)| *time);
            let wrong = |why| MeterError::Line { file: file.to_owned(), line: at + 1, why };
            samples.push(sample(line.trim(), before).map_err(wrong)?);
        }
        Ok(Self { samples })
    }

    /// The joules from one time to another, in milliseconds since 1970: trapezia between samples, interpolated at both
    /// ends.
    ///
    /// # Errors
    /// The samples begin later, end earlier, are too few or have a gap; which is said.
    pub fn joules(&self, from_ms: f64, to_ms: f64) -> Result<f64, String> {
        let begins = self.samples.partition_point(|(time, _)| *time <= from_ms);
        let ends = self.samples.partition_point(|(time, _)| *time < to_ms);
        let Some(first) = begins.checked_sub(1) else {
            return Err("the meter's file begins after the repetition did".to_owned());
        };
        let Some(used) = self.samples.get(first..=ends) else {
            return Err("the meter's file ends before the repetition did".to_owned());
        };
        let within = ends.saturating_sub(begins);
        if within < SAMPLES_MIN {
            return Err(format!("the meter has {within} samples of the repetition, fewer than {SAMPLES_MIN}"));
        }
        let pairs = || used.iter().zip(used.iter().skip(1));
        let mut steps: Vec<f64> = pairs().map(|((one, _), (other, _))| other - one).collect();
        steps.sort_by(f64::total_cmp);
        let median = steps.get(steps.len() / 2).copied().unwrap_or_default();
        let longest = steps.last().copied().unwrap_or_default();
        if longest > GAP_FACTOR * median {
            return Err(format!("the meter's file has a gap of {longest:.0} ms in the repetition"));
        }
        let millijoules: f64 = pairs().map(|(one, other)| trapezium(*one, *other, from_ms, to_ms)).sum();
        Ok(millijoules / 1e3)
    }
}

/// A sample that is later than the one before.
fn sample(line: &str, before: f64) -> Result<(f64, f64), String> {
    let parsed = line.split_once(',').map(|(time, watts)| (time.trim().parse::<f64>(), watts.trim().parse::<f64>()));
    let Some((Ok(time), Ok(watts))) = parsed else { return Err(format!("{line:?} is not {HEAD}")) };
    if !(time.is_finite() && time >= 0.0) {
        return Err(format!("{time} is no time in milliseconds since 1970"));
    }
    if time <= before {
        return Err(format!("{time} is not after {before}"));
    }
    if !(watts.is_finite() && watts >= 0.0) {
        return Err(format!("{watts} W: a finite number from 0 on is accepted"));
    }
    Ok((time, watts))
}

/// The millijoules between two samples, as far as they are between two times.
fn trapezium(one: (f64, f64), other: (f64, f64), from_ms: f64, to_ms: f64) -> f64 {
    let at = |time: f64| one.1 + (other.1 - one.1) * (time - one.0) / (other.0 - one.0);
    let (from, to) = (from_ms.max(one.0), to_ms.min(other.0));
    (to - from).max(0.0) * (at(from) + at(to)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(samples: impl IntoIterator<Item = (u32, f64)>) -> Meter {
        let lines: String = samples.into_iter().map(|(time, watts)| format!("{time},{watts}\n")).collect();
        Meter::parse("m.csv", &format!("{HEAD}\n{lines}")).unwrap()
    }

    fn refused(text: &str) -> String {
        Meter::parse("m.csv", text).unwrap_err().to_string()
    }

    #[test]
    fn joules_are_those_of_a_sum_by_hand() {
        // 2 W for 2 s are 4 J, wherever the samples are.
        let even = made((0..40).map(|at| (at * 100, 2.0)));
        assert!((even.joules(1_000.0, 3_000.0).unwrap() - 4.0).abs() < 1e-9);
        assert!((even.joules(1_030.0, 3_030.0).unwrap() - 4.0).abs() < 1e-9);
        // From 1 W to 3 W in 2 s: a mean of 2 W.
        let rising = made((0..=40).map(|at| (at * 100, f64::from(at) * 0.1)));
        assert!((rising.joules(1_000.0, 3_000.0).unwrap() - 4.0).abs() < 1e-9);
        assert!((rising.joules(1_050.0, 2_950.0).unwrap() - 3.8).abs() < 1e-9);
    }

    #[test]
    fn a_constant_power_is_watts_times_seconds_and_parts_add_up_to_the_whole() {
        // Samples are not evenly spaced: 60 to 140 ms apart.
        let times = || (0..200u32).map(|at| at * 100 + at * 37 % 41);
        for watts in [0.0, 0.3, 2.7, 6.4, 230.0] {
            let meter = made(times().map(|time| (time, watts)));
            for (from, to) in [(100.0, 19_000.0), (1_234.5, 8_765.25), (150.0, 2_000.0)] {
                let joules = meter.joules(from, to).unwrap();
                assert!((joules - watts * (to - from) / 1e3).abs() < 1e-6, "{watts} W: {joules} J");
            }
        }
        let meter = made(times().map(|time| (time, 2.0 + f64::from(time % 7) + f64::from(time % 1_000) / 250.0)));
        let (from, to) = (333.0, 18_111.0);
        let whole = meter.joules(from, to).unwrap();
        for split in (2_000..17_000).step_by(77).map(f64::from) {
            let halves = meter.joules(from, split).unwrap() + meter.joules(split, to).unwrap();
            assert!((whole - halves).abs() < 1e-6, "{whole} J, and {halves} J split at {split}");
        }
    }

    #[test]
    fn an_interval_that_is_not_covered_has_no_energy() {
        let meter = made((10..30).map(|at| (at * 100, 2.0)));
        assert!(meter.joules(900.0, 2_500.0).unwrap_err().contains("begins after"));
        assert!(meter.joules(1_500.0, 2_901.0).unwrap_err().contains("ends before"));
        assert!(meter.joules(1_000.0, 2_900.0).is_ok());
        assert!(made([]).joules(0.0, 1.0).is_err());
        assert!(meter.joules(1_500.0, 2_000.0).unwrap_err().contains("fewer than 10"));
    }

    #[test]
    fn a_gap_within_an_interval_leaves_it_without_energy() {
        let with_gap = made((0..60).filter(|at| !(20..24).contains(at)).map(|at| (at * 100, 2.0)));
        assert!(with_gap.joules(1_000.0, 4_000.0).unwrap_err().contains("gap of 500 ms"));
        assert!(with_gap.joules(2_400.0, 5_000.0).is_ok(), "before the interval");
    }

    #[test]
    fn a_file_that_is_none_of_a_meter_is_refused_with_its_line() {
        assert!(refused("").contains("first line"));
        assert!(refused("0,1\n").contains("first line"));
        for (line, why) in [
            ("1", "is not unix_ms,watts"),
            ("1,2,3", "is not unix_ms,watts"),
            ("1,much", "is not unix_ms,watts"),
            ("nan,1", "is no time"),
            ("-1,1", "is no time"),
            ("100,1", "is not after"),
            ("101,nan", "a finite number"),
            ("101,-1", "a finite number"),
            ("101,inf", "a finite number"),
        ] {
            let found = refused(&format!("{HEAD}\n100,1\n{line}\n"));
            assert!(found.starts_with("m.csv: line 3: ") && found.contains(why), "{line}: {found}");
        }
        // The meter is writing it.
        assert_eq!(made([(100, 1.0)]), Meter::parse("m.csv", &format!("{HEAD}\r\n100,1\n200,")).unwrap());
    }
}
