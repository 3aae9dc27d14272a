//! The rate of log lines about refused logins. Pure: the time is an argument.
//!
//! Each address has a share of the lines of a minute, so that a flood of guesses from one address hides nobody else's
//! refusals. Lines that are not written are counted, and the next line that is written carries the count.

use std::{collections::HashMap, net::IpAddr};

use crate::backoff::network;

pub(super) const WINDOW_MS: u64 = 60_000;

/// How many lines may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineLimits {
    /// Lines a minute in all.
    pub per_minute: u32,
    /// Lines a minute for one address (IPv6: for one /64).
    pub per_address: u32,
}

impl Default for LineLimits {
    fn default() -> Self {
        Self { per_minute: 600, per_address: 10 }
    }
}

/// The counts of refusals that the previous lines left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Suppressed {
    /// Refusals of the same address.
    pub same: u64,
    /// Refusals of other addresses.
    pub others: u64,
}

/// The lines of the current minute. Only addresses that had a line in this minute or the one before are in the table,
/// so that it is bounded by [`LineLimits::per_minute`].
#[derive(Debug, Default)]
pub(super) struct Lines {
    limits: LineLimits,
    window: u64,
    written: u32,
    addresses: HashMap<IpAddr, OfAddress>,
    others: u64,
    suppressed: u64,
}

#[derive(Debug, Default)]
struct OfAddress {
    window: u64,
    written: u32,
    suppressed: u64,
}

impl Lines {
    pub(super) fn configure(&mut self, limits: LineLimits) {
        self.limits = limits;
    }

    /// Lines that were not written since the start.
    pub(super) fn suppressed(&self) -> u64 {
        self.suppressed
    }

    /// Whether a line may be written now.
    pub(super) fn admit(&mut self, now_ms: u64, address: IpAddr) -> Option<Suppressed> {
        self.turn(now_ms / WINDOW_MS);
        let address = network(address);
        let mut known = self.addresses.get_mut(&address);
        if let Some(known) = known.as_deref_mut().filter(|known| known.window != self.window) {
            (known.window, known.written) = (self.window, 0);
        }
        let of_address = known.as_deref().map_or(0, |known| known.written);
        if self.written >= self.limits.per_minute || of_address >= self.limits.per_address {
            self.suppressed += 1;
            *known.map_or(&mut self.others, |known| &mut known.suppressed) += 1;
            return None;
        }
        self.written += 1;
        let known = self.addresses.entry(address).or_default();
        known.window = self.window;
        known.written += 1;
        Some(Suppressed { same: std::mem::take(&mut known.suppressed), others: std::mem::take(&mut self.others) })
    }

    /// Begins a new minute. An address without a line for a minute is forgotten; its count joins that of others.
    fn turn(&mut self, window: u64) {
        if window == self.window {
            return;
        }
        (self.window, self.written) = (window, 0);
        let others = &mut self.others;
        self.addresses.retain(|_, known| {
            let stays = known.window + 1 >= window;
            *others += if stays { 0 } else { known.suppressed };
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn every_refusal_is_in_a_line_or_in_a_count() {
        for addresses in [1, 2, 3, 97, 1000] {
            let mut lines = Lines::default();
            let (mut written, mut counted, events) = (0, 0, 10_000_u32);
            for event in 0..events {
                if let Some(suppressed) = lines.admit(u64::from(event) * 40, address(event % addresses)) {
                    written += 1;
                    counted += suppressed.same + suppressed.others;
                }
            }
            assert_eq!(written + lines.suppressed(), u64::from(events));
            let last = lines.admit(u64::MAX, address(u32::MAX)).unwrap();
            assert_eq!(last.same, 0);
            assert_eq!(counted + last.others, lines.suppressed(), "{addresses}");
            assert_eq!(lines.addresses.len(), 1);
        }
    }

    #[test]
    fn a_flood_from_one_address_hides_no_other() {
        let mut lines = Lines::default();
        assert_eq!((0..1000).filter(|_| lines.admit(0, address(1)).is_some()).count(), 10);
        assert_eq!(lines.admit(0, address(2)), Some(Suppressed::default()));
        assert_eq!(lines.admit(60_000, address(1)), Some(Suppressed { same: 990, others: 0 }));
        let all = (0..100_000).filter(|number| lines.admit(60_000, address(*number)).is_some()).count();
        assert_eq!(all, 599);
        assert!(lines.addresses.len() <= 601);
        // An IPv6 host has a /64 to itself.
        lines.configure(LineLimits { per_minute: 1000, per_address: 1 });
        assert!(lines.admit(120_000, "2001:db8::1".parse().unwrap()).is_some());
        assert!(lines.admit(120_000, "2001:db8::2".parse().unwrap()).is_none());
    }
}
