//! Conditions on figures under which a measurement fails, such as `p99>5ms`: for scripts that watch a gateway.

use std::fmt;
use std::str::FromStr;

use super::figure::Figure;
use super::number::{Unit, with_unit};
use super::summary::Summary;

/// Which side of a bound is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// The signs of the sides; longer ones first, for one begins with another.
const SIGNS: [(&str, Side); 4] = [(">=", Side::AtLeast), ("<=", Side::AtMost), (">", Side::Above), ("<", Side::Below)];

/// A condition under which a measurement fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    figure: Figure,
    side: Side,
    /// In the unit of the figure.
    bound: f64,
    /// As it was written.
    text: String,
}

/// The result of a condition in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// The figure is within the bound.
    Within,
    /// It is not; this says by which value.
    Crossed(String),
    /// Nobody knows: it was not measured, or the generator was the limit.
    Unknown(String),
}

impl Threshold {
    /// Tries the condition on the median of a run.
    #[must_use]
    pub fn on(&self, summary: &Summary<'_>) -> Crossing {
        let label = &summary.label;
        let Meaning { title, unit } = Meaning::of(self.figure);
        let Some(interval) = summary.get(self.figure) else {
            return Crossing::Unknown(format!("{label}: {self} cannot be told, there is no {title}"));
        };
        if !self.holds(interval.median) {
            return Crossing::Within;
        }
        // No pace of the generator makes nothing of something.
        if summary.is_bound && is_of_pace(unit) && interval.median > 0.0 {
            return Crossing::Unknown(format!("{label}: {self} cannot be told, the generator set the pace"));
        }
        Crossing::Crossed(format!("{label}: {title} is {}, and {self} fails", with_unit(unit, interval.median)))
    }

    fn holds(&self, value: f64) -> bool {
        match self.side {
            Side::Above => value > self.bound,
            Side::AtLeast => value >= self.bound,
            Side::Below => value < self.bound,
            Side::AtMost => value <= self.bound,
        }
    }
}

/// Whether a figure of this unit says as much of the generator as of the target where the generator set the pace.
fn is_of_pace(unit: Unit) -> bool {
    matches!(unit, Unit::PerSecond | Unit::BytesPerSecond | Unit::Microseconds | Unit::Millijoules)
}

struct Meaning {
    title: &'static str,
    unit: Unit,
}

impl Meaning {
    fn of(figure: Figure) -> Self {
        let meaning = figure.meaning();
        Self { title: meaning.title, unit: meaning.unit }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = SIGNS.iter().filter_map(|(sign, side)| Some((text.split_once(sign)?, *side))).next();
        let ((name, value), side) = found.ok_or_else(|| format!("{text:?} has none of > >= < <=, as in p99>5ms"))?;
        let figure = figure(name.trim())?;
        let bound = number(value.trim(), figure.meaning().unit)?;
        Ok(Self { figure, side, bound, text: text.to_owned() })
    }
}

/// A figure by its name in JSON, or by its title: `latency_p99` or `p99`.
fn figure(name: &str) -> Result<Figure, String> {
    let is_named = |figure: &Figure| figure.name() == name || figure.meaning().title == name;
    Figure::ALL.into_iter().find(is_named).ok_or_else(|| {
        let names: Vec<String> = Figure::ALL.iter().map(|figure| figure.name()).collect();
        format!("there is no figure {name:?}, but {}", names.join(", "))
    })
}

/// A number with its unit: `5ms`, `1000/s`, `20MiB`, `0`.
fn number(text: &str, unit: Unit) -> Result<f64, String> {
    let units: &[(&str, f64)] = match unit {
        Unit::Microseconds => &[("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)],
        Unit::PerSecond => &[("k/s", 1e3), ("M/s", 1e6), ("/s", 1.0), ("", 1.0)],
        Unit::BytesPerSecond => &[("KiB/s", 1024.0), ("MiB/s", 1_048_576.0), ("B/s", 1.0)],
        Unit::Bytes | Unit::ExactBytes => {
            &[("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0), ("B", 1.0)]
        }
        Unit::Millijoules => &[("uJ", 1e-3), ("µJ", 1e-3), ("mJ", 1.0), ("J", 1e3)],
        Unit::Count => &[("", 1.0)],
    };
    let parsed = units.iter().find_map(|(name, factor)| {
        let number: f64 = text.strip_suffix(name)?.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number * factor)
    });
    parsed.ok_or_else(|| {
        let names: Vec<&str> = units.iter().map(|(name, _)| if name.is_empty() { "none" } else { name }).collect();
        format!("{text:?} is no number with a unit of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::outcome::{Outcome, Run};

    fn run(delivered: u64, limit: Option<&str>) -> Run {
        let mut outcome = Outcome { expected: 1_000, delivered, seconds: 1.0, ..Outcome::default() };
        outcome.limited_by_generator = limit.map(str::to_owned);
        outcome.delivery.record_many_ns(7_000_000, delivered);
        Run { outcomes: vec![outcome; 5], ..Run::of(Experiment::default(), "a test".to_owned()) }
    }

    fn on(text: &str, run: &Run) -> Crossing {
        text.parse::<Threshold>().unwrap().on(&Summary::of(run, "run".to_owned()))
    }

    #[test]
    fn a_figure_is_refused_on_the_side_that_the_sign_says() {
        let run = run(900, None);
        for text in ["p99>5ms", "latency_p99 > 5 ms", "p99>=5ms", "rate<1000/s", "rate<=1k/s", "lost>99", "max>6999us"]
        {
            assert!(matches!(on(text, &run), Crossing::Crossed(_)), "{text}: {:?}", on(text, &run));
        }
        for text in ["p99>8ms", "p99<5ms", "rate<900", "rate>0.01M/s", "lost>100", "lost<100"] {
            assert_eq!(on(text, &run), Crossing::Within, "{text}");
        }
        let Crossing::Crossed(said) = on("p99>5ms", &run) else { panic!("it is above") };
        assert!(said.starts_with("run: p99 is 7.0") && said.ends_with("and p99>5ms fails"), "{said}");
    }

    #[test]
    fn what_nobody_knows_is_not_within() {
        assert!(matches!(on("gateway_cpu>3us", &run(900, None)), Crossing::Unknown(_)));
        let bound = run(900, Some("its core was busy"));
        assert!(matches!(on("rate<1000/s", &bound), Crossing::Unknown(_)));
        assert!(matches!(on("rate<1000/s", &run(0, Some("its core was busy"))), Crossing::Crossed(_)));
        // However fast the generator was, what is lost is lost; and more than enough is enough.
        assert!(matches!(on("lost>0", &bound), Crossing::Crossed(_)));
        assert_eq!(on("rate<800/s", &bound), Crossing::Within);
    }

    #[test]
    fn nonsense_is_refused_with_what_would_be_accepted() {
        for (text, expected) in [
            ("p99", "none of"),
            ("p98>5ms", "latency_p99"),
            ("p99>5", "us, µs, ms, s"),
            ("p99>fastms", "no number"),
            ("lost>1%", "no number"),
            ("rate<-1/s", "no number"),
            ("memory>5", "KiB"),
        ] {
            let error = text.parse::<Threshold>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
