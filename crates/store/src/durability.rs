//! How much a power cut may take: the operator's `durability` knob.

use std::{fmt, str::FromStr, time::Duration};

use fogmux_journal::Mode;

/// When what is to be kept is on the disk, and whether its acknowledgement waits for that. It is the same for all kinds
/// of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Written behind but not synchronised before the gateway stops: survives the end of the process, and of the
    /// machine only as far as the kernel got. Acknowledgements do not wait.
    None,
    /// Written and synchronised once in an interval. Acknowledgements do not wait: a power cut takes up to an interval
    /// of them.
    Interval,
    /// Acknowledgements wait for the disk. Commits are no more frequent than one in the delay, and at once after a
    /// pause.
    #[default]
    Group,
    /// Acknowledgements wait for the disk, and what waits is committed at once.
    Always,
}

impl Durability {
    /// The same for the journal.
    pub(crate) const fn mode(self, interval: Duration, delay: Duration) -> Mode {
        match self {
            Self::None => Mode::None(interval),
            Self::Interval => Mode::Interval(interval),
            Self::Group => Mode::Group(delay),
            Self::Always => Mode::Always,
        }
    }

    /// How long something is held that need not be written if clients acknowledge it in time: half of the time that it
    /// may wait for a commit anyway.
    pub(crate) fn hold_delay(self, delay: Duration) -> Option<Duration> {
        (self == Self::Group && !delay.is_zero()).then(|| delay / 2)
    }

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Interval => "interval",
            Self::Group => "group",
            Self::Always => "always",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not one of `none`, `interval`, `group`, `always`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("durability is one of none, interval, group, always")]
pub struct UnknownDurability;

impl FromStr for Durability {
    type Err = UnknownDurability;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::None, Self::Interval, Self::Group, Self::Always]
            .into_iter()
            .find(|durability| durability.name() == text)
            .ok_or(UnknownDurability)
    }
}
