//! Which of two notifications is newer (RFC 7641 §3.4).

use std::{collections::VecDeque, time::Duration};

use crate::Timestamp;

/// The number and the time of the newest notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Freshness {
    sequence: u32,
    at: Timestamp,
}

/// Longer than a datagram is under way; after that any number is newer.
const WINDOW: Duration = Duration::from_secs(128);

/// Half of the 24 bits.
const HALF: u32 = 1 << 23;

impl Freshness {
    /// Of a first answer.
    pub(super) const fn new(sequence: u32, at: Timestamp) -> Self {
        Self { sequence: sequence & 0x00ff_ffff, at }
    }

    /// Takes a notification in; says whether it is newer than all before.
    pub(super) fn admit(&mut self, sequence: u32, now: Timestamp) -> bool {
        let (v1, v2) = (self.sequence, sequence & 0x00ff_ffff);
        let newer = (v1 < v2 && v2 - v1 < HALF) || (v1 > v2 && v1 - v2 > HALF) || now.since(self.at) > WINDOW;
        if newer {
            *self = Self::new(v2, now);
        }
        newer
    }
}

/// The newest notifications of each of the resources that one observation tells of. A Confirmable that had to be sent
/// again comes after younger ones of other resources, and is their news all the same.
#[derive(Debug, Default)]
pub(super) struct Named(VecDeque<(Vec<String>, Freshness)>);

/// Resources that are remembered: more than have notifications under way at a time.
const NAMED_MAX: usize = 64;

impl Named {
    /// Takes a notification of the resource with this path in; says whether it is newer than all before of the same.
    pub(super) fn admit(&mut self, path: &[String], sequence: u32, now: Timestamp) -> bool {
        let known = self.0.iter().position(|(known, _)| known == path).and_then(|at| self.0.remove(at));
        let (newest, newer) = match known {
            Some((_, mut newest)) => {
                let newer = newest.admit(sequence, now);
                (newest, newer)
            }
            None => (Freshness::new(sequence, now), true),
        };
        if self.0.len() == NAMED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((path.to_vec(), newest));
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

    #[test]
    fn resources_of_one_observation_have_an_age_each() {
        let now = Timestamp::from_millis(1000);
        let path = |name: &str| vec!["ps".to_owned(), name.to_owned()];
        let mut named = Named::default();
        assert!(named.admit(&path("a"), 11, now));
        // Sent again, it comes behind the one of another resource.
        assert!(named.admit(&path("b"), 10, now));
        assert!(!named.admit(&path("b"), 9, now));
        assert!(!named.admit(&path("a"), 11, now));
        for number in 0..2 * NAMED_MAX {
            assert!(named.admit(&path(&number.to_string()), 12, now));
        }
        assert_eq!(named.0.len(), NAMED_MAX);
    }
}
