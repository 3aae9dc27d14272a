//! How much a client has sent recently: one that has sent much may have more in its send queue than the socket here
//! shows.

use fogmux_bus::Timestamp;

/// Milliseconds of a period. Bytes count for one at least, for two at most.
const PERIOD_MS: u64 = 500;
/// The bytes that a host sends before it waits for an acknowledgement, at least (RFC 3390 §1, rounded down).
const MUCH: u16 = 4 << 10;

/// The bytes of the latest period with some, and of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    period: u32,
    latest: u16,
    before: u16,
}

impl Recent {
    /// Notes bytes that were read.
    #[inline]
    pub(super) fn add(&mut self, bytes: usize, now: Timestamp) {
        *self = self.at(now);
        self.latest = self.latest.saturating_add(u16::try_from(bytes).unwrap_or(u16::MAX));
    }

    /// Whether it was so much that the client's host may hold more.
    pub(super) fn is_much(self, now: Timestamp) -> bool {
        let Self { latest, before, .. } = self.at(now);
        latest.saturating_add(before) >= MUCH
    }

    fn at(self, now: Timestamp) -> Self {
        let period = u32::try_from(now.as_millis() / PERIOD_MS).unwrap_or(u32::MAX);
        match period.saturating_sub(self.period) {
            0 => self,
            1 => Self { period, latest: 0, before: self.latest },
            _ => Self { period, latest: 0, before: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Everything of the last half second counts, and nothing of more than a second ago, whatever the pace.
    #[test]
    fn bytes_count_for_a_while() {
        for pace in [1_usize, 7, 100, 499, 500, 501, 999, 1000, 1001] {
            for step in [1, 100, 4095, 4096, 9000, 1 << 20] {
                let (mut recent, mut at) = (Recent::default(), Timestamp::ZERO + Duration::from_millis(7));
                for count in 1..50_usize {
                    recent.add(step, at);
                    let within = |millis: usize| count.min(1 + (millis - 1) / pace) * step;
                    let context = || format!("{step} bytes every {pace} ms, {count} times");
                    assert!(recent.is_much(at) || within(500) < 4096, "{}", context());
                    assert!(!recent.is_much(at) || within(1000) >= 4096, "{}", context());
                    assert!(!recent.is_much(at + Duration::from_secs(1)), "{}", context());
                    at = at + Duration::from_millis(u64::try_from(pace).unwrap());
                }
            }
        }
    }
}
