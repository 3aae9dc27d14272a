//! Which of two notifications is newer (RFC 7641 §3.4).

use std::time::Duration;

use crate::time::Timestamp;

/// The number and the time of the newest notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    sequence: u32,
    at: Timestamp,
}

/// Longer than a datagram is under way; after that any number is newer.
const WINDOW: Duration = Duration::from_secs(128);

/// Half of the 24 bits.
const HALF: u32 = 1 << 23;

impl Freshness {
    /// Of a first answer.
    #[must_use]
    pub const fn new(sequence: u32, at: Timestamp) -> Self {
        Self { sequence: sequence & 0x00ff_ffff, at }
    }

    /// Takes a notification in; says whether it is newer than all before.
    pub fn admit(&mut self, sequence: u32, now: Timestamp) -> bool {
        let (v1, v2) = (self.sequence, sequence & 0x00ff_ffff);
        let newer = (v1 < v2 && v2 - v1 < HALF) || (v1 > v2 && v1 - v2 > HALF) || now.since(self.at) > WINDOW;
        if newer {
            *self = Self::new(v2, now);
        }
        newer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_4_newer_by_number_or_by_time() {
        let start = Timestamp::from_millis(1000);
        let mut freshness = Freshness::new(10, start);
        assert!(freshness.admit(11, start));
        assert!(!freshness.admit(11, start));
        assert!(!freshness.admit(9, start));
        assert!(freshness.admit(3, start + Duration::from_secs(129)));
        let mut wrapping = Freshness::new(0x00ff_ffff, start);
        assert!(wrapping.admit(0, start));
        assert!(!wrapping.admit(0x00ff_fffe, start));
    }
}
