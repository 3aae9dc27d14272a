//! Sizes of a journal.

use crate::{
    blocks::{BLOCK, ROOM},
    entry::PUT,
    frame::HEADER_CONTENT,
    record::PARTS_MAX,
};

/// Free segments that are kept for cleaning and for forgets, so that both go on when the disk is full. Cleaning a
/// segment fills less than two.
pub(crate) const RESERVE: usize = 2;

/// Sizes of a journal. They may differ from one start to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a segment: a multiple of 4 KiB, and at least four frames. An idle journal takes four segments.
    pub segment_bytes: u32,
    /// Bytes of the largest frame: a multiple of 4 KiB. A record that does not fit into a frame is written in parts, at
    /// most 256.
    pub frame_bytes: u32,
    /// Bytes that may wait for a commit. Batches beyond are refused, but for one when nothing waits.
    pub pending_bytes_max: usize,
    /// Bytes that go into a commit, while more waits; a single batch may be larger. Cleaning may add four times as
    /// many.
    pub commit_bytes_max: usize,
}

impl Default for Config {
    /// Segments of 512 KiB (live data of a few kilobytes take 2.5 MiB of disk), frames of 128 KiB (records up to
    /// 33 MB), 16 MiB that wait, all of which go into the next commit.
    fn default() -> Self {
        Self {
            segment_bytes: 512 << 10,
            frame_bytes: 128 << 10,
            pending_bytes_max: 16 << 20,
            commit_bytes_max: usize::MAX,
        }
    }
}

/// A configuration that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// `frame_bytes` is not a multiple of 4 KiB, or is 0.
    #[error("frame_bytes is a multiple of 4096, not {0}")]
    Frame(u32),
    /// `segment_bytes` is not a multiple of 4 KiB, is less than four frames, or more than 1 GiB.
    #[error("segment_bytes is a multiple of 4096 from four frames to 1 GiB, not {0}")]
    Segment(u32),
}

impl Config {
    /// Bytes of the largest record.
    #[must_use]
    pub const fn record_bytes_max(&self) -> u32 {
        self.part_bytes().saturating_mul(PARTS_MAX)
    }

    pub(crate) const fn check(&self) -> Result<(), ConfigError> {
        if self.frame_bytes == 0 || !self.frame_bytes.is_multiple_of(BLOCK) {
            return Err(ConfigError::Frame(self.frame_bytes));
        }
        let segment = self.segment_bytes;
        if !segment.is_multiple_of(BLOCK) || segment / 4 < self.frame_bytes || segment > 1 << 30 {
            return Err(ConfigError::Segment(segment));
        }
        Ok(())
    }

    pub(crate) const fn frame_blocks(&self) -> u32 {
        self.frame_bytes / BLOCK
    }

    /// Bytes of a part of a record: what an empty frame has room for.
    pub(crate) const fn part_bytes(&self) -> u32 {
        self.frame_blocks() * ROOM - HEADER_CONTENT - PUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_16_mib_fit() {
        assert_eq!(Config::default().check(), Ok(()));
        assert!(Config::default().record_bytes_max() > 33_000_000);
    }

    #[test]
    fn sizes_are_checked() {
        let with = |segment_bytes, frame_bytes| Config { segment_bytes, frame_bytes, ..Config::default() }.check();
        assert_eq!(with(16 << 10, 4096), Ok(()));
        assert_eq!(with(12 << 10, 4096), Err(ConfigError::Segment(12 << 10)));
        assert_eq!(with(16 << 10, 0), Err(ConfigError::Frame(0)));
        assert_eq!(with(16 << 10, 4095), Err(ConfigError::Frame(4095)));
        assert_eq!(with((16 << 10) + 1, 4096), Err(ConfigError::Segment((16 << 10) + 1)));
    }
}
