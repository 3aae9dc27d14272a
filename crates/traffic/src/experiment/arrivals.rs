//! Arrivals: how the operations of a rate are spread over time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ExperimentError;

/// Operations of one burst at most.
const BURST_MAX: u32 = 1_000_000;

/// How operations that come at a rate are spread over time: `even`, `poisson` or `burst=N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// One after the other, equally far apart.
    #[default]
    Even,
    /// Independently of each other: the times between them are distributed exponentially, as of many clients that know
    /// nothing of each other. They are drawn from the seed.
    Poisson,
    /// So many at once, at least two, and then none until as many are due again; of each publisher for itself.
    Burst(u32),
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Even => f.write_str("even"),
            Self::Poisson => f.write_str("poisson"),
            Self::Burst(size) => write!(f, "burst={size}"),
        }
    }
}

impl FromStr for Arrivals {
    type Err = ExperimentError;

    fn from_str(text: &str) -> Result<Self, ExperimentError> {
        let unknown = || ExperimentError::Unknown("arrivals", text.to_owned());
        match (text, text.strip_prefix("burst=")) {
            ("even", _) => Ok(Self::Even),
            ("poisson", _) => Ok(Self::Poisson),
            (_, Some(size)) => {
                let size = size.parse().ok().filter(|size| (2..=BURST_MAX).contains(size));
                size.map(Self::Burst).ok_or_else(unknown)
            }
            (_, None) => Err(unknown()),
        }
    }
}

impl Serialize for Arrivals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Arrivals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_read_as_they_are_written_and_nothing_else_is() {
        for arrivals in [Arrivals::Even, Arrivals::Poisson, Arrivals::Burst(10)] {
            assert_eq!(arrivals.to_string().parse(), Ok(arrivals));
        }
        for text in ["", "evenly", "burst", "burst=1", "burst=-3", "burst=1000001"] {
            assert!(text.parse::<Arrivals>().is_err(), "{text}");
        }
    }
}
