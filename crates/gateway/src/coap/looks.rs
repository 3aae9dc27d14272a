//! How much work the retained messages may make that requests look through without finding much.
//!
//! A request for a list is a few bytes, and its filter may match none of a hundred thousand topics. Looking at those takes
//! a worker some ten milliseconds, for which all its other clients wait. So lists have an allowance, which comes back by
//! time; a request that looks at little needs none of it.

use fogmux_bus::Timestamp;

/// Retained messages that a worker looks at for observers in one turn, whether they match or not.
pub(super) const LOOKS_PER_TURN: usize = 1024;

/// Looks that a request has for nothing.
const FREE: usize = 1024;
/// The allowance when nobody has asked for a while: a whole list of as many topics as there may be by default.
const MOST: usize = 256 << 10;
/// Looks that come back in a millisecond: about a twentieth of a worker's time.
const PER_MS: usize = 1024;
/// The cost of a link, in looks: it is written and compared with the queries.
const LINK: usize = 16;

/// The allowance of a worker's socket, or of its connections.
#[derive(Debug)]
pub(super) struct Allowance {
    left: usize,
    at: Timestamp,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: MOST, at: Timestamp::ZERO }
    }
}

/// The looks of one request.
#[derive(Debug)]
pub(super) struct Looks {
    free: usize,
    /// It began with all there is: asking again would bring no more.
    had_all: bool,
}

impl Allowance {
    /// A request begins.
    pub(super) fn begin(&mut self, now: Timestamp) -> Looks {
        let ms = usize::try_from(now.since(self.at).as_millis()).unwrap_or(usize::MAX);
        self.left = self.left.saturating_add(ms.saturating_mul(PER_MS)).min(MOST);
        self.at = now;
        Looks { free: FREE, had_all: self.left == MOST }
    }

    /// A request has looked at so many retained messages, of which so many may become links. Says whether it may go on.
    pub(super) fn spend(&mut self, looks: &mut Looks, scanned: usize, found: usize) -> bool {
        let cost = scanned + found * LINK;
        let free = cost.min(looks.free);
        looks.free -= free;
        self.left = self.left.saturating_sub(cost - free);
        self.left > 0 || looks.free > 0
    }
}

impl Looks {
    /// Whether a list that was not finished is shown all the same.
    pub(super) const fn is_all_there_is(&self) -> bool {
        self.had_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lists_gets_a_bounded_share_and_small_ones_always_go_through() {
        let mut allowance = Allowance::default();
        let at = Timestamp::from_millis;
        let mut spent = 0;
        for request in 0..1000 {
            let mut looks = allowance.begin(at(1 + request / 10));
            while spent < usize::MAX && allowance.spend(&mut looks, 1024, 0) && spent < 10_000_000 {
                spent += 1024;
            }
        }
        assert!(spent <= MOST + 100 * PER_MS + 2 * 1000 * FREE, "{spent}");
        let mut looks = allowance.begin(at(101));
        assert!(allowance.spend(&mut looks, 100, 10), "a small list");
        let mut looks = allowance.begin(at(10_000));
        assert!(looks.is_all_there_is() && allowance.spend(&mut looks, MOST, 0));
    }
}
