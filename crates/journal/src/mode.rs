//! When commits happen, and what an acknowledgement means.

use std::time::{Duration, Instant};

/// How much a power cut may take, against the wear of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A commit begins whenever something waits; what comes while one is under way shares the next.
    Always,
    /// A commit begins at once if the last one began at least this long ago, and otherwise when that time has passed: a
    /// single change is as fast as with [`Mode::Always`], and there are never more commits than one in this time.
    Group(Duration),
    /// Batches are acknowledged at once and committed this long after the first of them: a power cut takes so much.
    Interval(Duration),
    /// As [`Mode::Interval`], but nothing waits for the disk. The kernel writes when it likes, and a power cut takes
    /// what it had not written. Only the release of old segments synchronises.
    None(Duration),
}

impl Mode {
    /// Whether an acknowledgement waits for the commit.
    #[must_use]
    pub const fn waits(self) -> bool {
        match self {
            Self::Always | Self::Group(_) => true,
            Self::Interval(_) | Self::None(_) => false,
        }
    }

    /// Whether a commit ends when the disk has it.
    pub(crate) const fn syncs(self) -> bool {
        match self {
            Self::Always | Self::Group(_) | Self::Interval(_) => true,
            Self::None(_) => false,
        }
    }

    /// When the next commit begins, if something has waited `since` and the last commit began at `last`.
    pub(crate) fn due(self, since: Instant, last: Option<Instant>) -> Instant {
        match self {
            Self::Always => since,
            Self::Group(delay) => last.map_or(since, |last| since.max(last + delay)),
            Self::Interval(delay) | Self::None(delay) => since + delay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(20);

    #[test]
    fn a_group_is_committed_at_once_after_a_pause_and_never_sooner_than_the_delay() {
        let start = Instant::now();
        let later = |ms| start + Duration::from_millis(ms);
        let mode = Mode::Group(DELAY);
        assert_eq!(mode.due(start, None), start);
        assert_eq!(mode.due(later(5), Some(start)), later(20));
        assert_eq!(mode.due(later(20), Some(start)), later(20));
        assert_eq!(mode.due(later(50), Some(start)), later(50));
    }

    #[test]
    fn an_interval_begins_with_the_first_change() {
        let start = Instant::now();
        assert_eq!(Mode::Interval(DELAY).due(start, Some(start)), start + DELAY);
        assert_eq!(Mode::Always.due(start, Some(start)), start);
    }
}
