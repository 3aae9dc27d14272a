//! The flags of `fogmux bench compare` and `pair`, and how often experiments are repeated.

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use fogmux_traffic::repetition::Repetitions;
use fogmux_traffic::report::compare::SESSION;

use super::{Output, Shape};

/// Fewer rounds show nothing; the test of more takes long.
const ROUNDS: std::ops::RangeInclusive<i64> = 6..=200;

const EXIT_CODES: &str = "\
Exit codes:
   0  nothing became worse
   1  something became worse: a figure, a failure that was not there before, a repetition that failed
  64  the command line is wrong
  65  a file is no report of `fogmux bench`
  66  nothing to compare: no experiment has repetitions in both reports
  70  every repetition of an experiment failed that worked before
  75  inconclusive: too few repetitions, or they scatter too much
  78  the experiments differ; compare: --common compares those in both";

/// Fewer repetitions than intervals are looked at after would be no bound of theirs.
fn most_repetitions() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(6..=100_000)
}

/// More repetitions, until intervals are narrow.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Until {
    /// Repeat until the intervals of rate, median latency and processor time are within ±PERCENT, such as 2%
    #[arg(long, value_name = "PERCENT", value_parser = positive_percent)]
    pub(crate) until: Option<f64>,
    /// Most repetitions with --until
    #[arg(long, value_name = "N", default_value_t = 50, requires = "until", value_parser = most_repetitions())]
    pub(crate) repeat_max: u32,
}

impl Until {
    /// Returns the number of repetitions, at least `repeat`.
    pub(crate) fn repetitions(&self, repeat: u32) -> Repetitions {
        match self.until {
            Some(share) => Repetitions::until(share, repeat, self.repeat_max),
            None => Repetitions::exactly(repeat),
        }
    }
}

/// Compares two reports.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Compare {
    /// JSON file of the earlier run, or of `bench pair`
    pub(crate) before: PathBuf,
    /// JSON file of the later run; none with the file of `bench pair`
    pub(crate) after: Option<PathBuf>,
    /// Show differences within the noise, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Print as Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Print as JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,
    /// Write compare.html, with ratios and effect sizes, compare.md and the plots into DIR
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Compare the experiments that are in both, whatever else is in one of them
    #[arg(long)]
    pub(crate) common: bool,
    /// Standard deviation of the same program's figures from one run to another
    #[arg(long, value_name = "PERCENT", default_value_t = SESSION * 100.0, value_parser = percent_number)]
    pub(crate) session: f64,
}

/// Measures two programs in turn.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Pair {
    /// The program before: path of a fogmux binary, or URL of a running broker as for `peer`
    pub(crate) before: String,
    /// The program after, in the same way; the same again shows the noise
    pub(crate) after: String,
    #[command(flatten)]
    pub(crate) shape: Shape,
    /// Processes of the broker before on this machine, for processor time and memory
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid_before: Vec<u32>,
    /// Processes of the broker after
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid_after: Vec<u32>,
    /// PEM file of the brokers' authority; without it certificates are not verified
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Rounds, each with two repetitions of both
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(ROUNDS))]
    pub(crate) rounds: u32,
    /// More rounds until the ratios of rate, median latency and processor time are known to ±PERCENT, such as 2%
    #[arg(long, value_name = "PERCENT", value_parser = positive_percent)]
    pub(crate) until: Option<f64>,
    /// Most rounds with --until
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(ROUNDS))]
    pub(crate) rounds_max: u32,
    /// Show differences within the noise, too
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A share, from `2%` or `2`.
fn positive_percent(text: &str) -> Result<f64, String> {
    let percent = percent_number(text)?;
    if percent > 0.0 { Ok(percent / 100.0) } else { Err(format!("{text:?} is not above 0 %")) }
}

/// A share a second, which may be more than all: `10%`, `250%`.
pub(super) fn share_a_second(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').ok_or_else(|| format!("{text:?} is no percentage, such as 10%"))?;
    let percent: f64 = number.trim().parse().map_err(|_| format!("{text:?} is no percentage, such as 10%"))?;
    Ok(percent / 100.0)
}

fn percent_number(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent: f64 = number.parse().map_err(|_| format!("{text:?} is no percentage, such as 2%"))?;
    if (0.0..=100.0).contains(&percent) { Ok(percent) } else { Err(format!("{text:?} is not within 0 and 100 %")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_shares_between_nothing_and_all() {
        assert_eq!(positive_percent("2%"), Ok(0.02));
        assert_eq!(positive_percent("0.5"), Ok(0.005));
        assert_eq!(share_a_second("250%"), Ok(2.5));
        assert!(share_a_second("0.1").is_err() && share_a_second("x%").is_err());
        assert_eq!(percent_number("0%"), Ok(0.0));
        for wrong in ["", "%", "0", "-1%", "101%", "nan", "inf%", "2 percent"] {
            assert!(positive_percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn six_repetitions_are_the_least_that_are_waited_for() {
        let until = Until { until: Some(0.02), repeat_max: 4 };
        assert_eq!(until.repetitions(3), Repetitions { wanted: 6, until: Some(0.02), most: 6 });
        assert_eq!(Until { until: None, repeat_max: 50 }.repetitions(3), Repetitions::exactly(3));
    }
}
