//! How much a power cut may take: the operator's `durability` knob.

use std::{fmt, str::FromStr, time::Duration};

/// Commits of [`Durability::Interval`] and [`Durability::None`] are this far apart: what a power cut may take, against
/// the wear of an SD card.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// How long [`Durability::Group`] waits for company: at 20 ms an always-busy node writes some 30 GB a day, at 5 ms 135.
pub(crate) const GROUP: Duration = Duration::from_millis(20);

/// When a retained message is on disk, and whether its acknowledgement waits for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Written behind but not synchronised before the gateway stops: survives the end of the process, and of the
    /// machine only as far as the kernel got. Acknowledgements do not wait.
    None,
    /// Written and synchronised once a second. Acknowledgements do not wait: a power cut takes up to a second of them.
    #[default]
    Interval,
    /// Acknowledgements wait for an fsync, which is shared by all that came within 20 ms.
    Group,
    /// Acknowledgements wait for an fsync, which starts at once and is shared only by what waited for the last one.
    Always,
}

impl Durability {
    /// How long the committer lets writes gather.
    pub(crate) const fn gather(self) -> Duration {
        match self {
            Self::None | Self::Interval => INTERVAL,
            Self::Group => GROUP,
            Self::Always => Duration::ZERO,
        }
    }

    /// Whether a completion waits for the commit.
    pub(crate) const fn waits(self) -> bool {
        match self {
            Self::None | Self::Interval => false,
            Self::Group | Self::Always => true,
        }
    }

    /// Whether a commit ends with an fsync.
    pub(crate) const fn syncs(self) -> bool {
        !matches!(self, Self::None)
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
