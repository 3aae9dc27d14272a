//! How much work the retained messages may make that requests look through without finding much.
//!
//! A request for a list is a few bytes, and its filter may match none of a hundred thousand topics. Looking at those
//! takes a worker some ten milliseconds, for which all its other clients wait. So lists have an allowance for each
//! second; a request that looks at little needs none of it. One client may take half of it, the rest is for clients
//! that have taken less; and clients with a name have one of their own (ADR 0036).

use std::{collections::HashMap, time::Duration};

use fogmux_bus::{Room, Timestamp};
use fogmux_fair::Owner;

/// Retained messages that a worker looks at for observers in one turn, whether they match or not.
pub(super) const LOOKS_PER_TURN: usize = 1024;

/// Looks that a request has for nothing.
const FREE: usize = 1024;
/// The allowance of one client that is alone: a whole list of as many topics as there may be by default. With others
/// there is as much again, and that for clients with a name and for those without. All of it takes about a tenth of a
/// worker's time.
const MOST: usize = 256 << 10;
/// The time for which the allowance is.
const PERIOD: Duration = Duration::from_secs(1);
/// Hosts whose looks are told apart; one more gets none of the allowance in this period.
const OWNERS_MAX: usize = 1024;
/// The cost of a link, in looks: it is written and compared with the queries.
const LINK: usize = 16;

/// The allowance of a worker's socket, or of its connections.
#[derive(Debug)]
pub(super) struct Allowance {
    /// When the period began.
    since: Timestamp,
    /// The looks of this period, by host or user.
    taken: HashMap<Owner, usize>,
    /// Their sum for clients with a name.
    named: usize,
    /// Their sum for clients without.
    nameless: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { since: Timestamp::ZERO, taken: HashMap::new(), named: 0, nameless: 0 }
    }
}

/// The looks of one request.
#[derive(Debug)]
pub(super) struct Looks {
    owner: Owner,
    free: usize,
    /// It began with all there is: asking again would bring no more.
    had_all: bool,
}

impl Allowance {
    /// A request begins.
    pub(super) fn begin(&mut self, now: Timestamp, owner: Owner) -> Looks {
        if now.since(self.since) >= PERIOD {
            *self = Self { since: now, ..Self::default() };
        }
        Looks { owner, free: FREE, had_all: self.taken.is_empty() }
    }

    /// A request has looked at so many retained messages, of which so many may become links. Says whether it may go on.
    pub(super) fn spend(&mut self, looks: &mut Looks, scanned: usize, found: usize) -> bool {
        let cost = scanned + found * LINK;
        let free = cost.min(looks.free);
        looks.free -= free;
        let cost = cost - free;
        if looks.free > 0 {
            return true;
        }
        let used = if looks.owner.is_principal() { &mut self.named } else { &mut self.nameless };
        // Users with a name are bounded anyway.
        let is_known = looks.owner.is_principal() || self.taken.contains_key(&looks.owner);
        if !is_known && self.taken.len() >= OWNERS_MAX {
            return false;
        }
        let own = self.taken.entry(looks.owner.clone()).or_default();
        if Room::new(MOST, 100).admit(*used, *own, cost).is_err() {
            return false;
        }
        *used += cost;
        *own += cost;
        true
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

    fn host(last: u8) -> Owner {
        Owner::nameless([192, 0, 2, last].into())
    }

    /// Looks that a request gets, in chunks, up to `most`.
    fn ask(allowance: &mut Allowance, at_ms: u64, owner: Owner, most: usize) -> usize {
        let mut looks = allowance.begin(Timestamp::from_millis(at_ms), owner);
        let mut spent = 0;
        while spent < most && allowance.spend(&mut looks, 128, 0) {
            spent += 128;
        }
        spent
    }

    #[test]
    fn a_flood_of_lists_gets_a_bounded_share_and_small_ones_always_go_through() {
        let mut allowance = Allowance::default();
        let spent: usize = (0..1000).map(|request| ask(&mut allowance, 1000 + request / 10, host(1), 10 << 20)).sum();
        assert!(spent <= MOST + 1000 * FREE, "{spent}");
        let mut looks = allowance.begin(Timestamp::from_millis(1101), host(1));
        assert!(allowance.spend(&mut looks, 100, 10), "a small list");
        let mut looks = allowance.begin(Timestamp::from_millis(10_000), host(1));
        assert!(looks.is_all_there_is() && allowance.spend(&mut looks, MOST, 0));
    }

    #[test]
    fn a_flood_leaves_others_their_share() {
        let mut allowance = Allowance::default();
        ask(&mut allowance, 1000, host(1), 10 << 20);
        assert_eq!(ask(&mut allowance, 1000, host(2), 100_000), 100_096, "a neighbour");
        for number in 3..100 {
            ask(&mut allowance, 1000, host(number), 10 << 20);
        }
        let ada = || Owner::principal("ada".into());
        assert_eq!(ask(&mut allowance, 1001, ada(), 100_000), 100_096);
        assert_eq!(ask(&mut allowance, 1001, Owner::principal("bob".into()), 50_000), 50_048);
        let everybody =
            (0..200).map(|user| ask(&mut allowance, 1002, Owner::principal(user.to_string().into()), 1 << 20));
        assert!(everybody.sum::<usize>() < 2 * MOST + 200 * (FREE + 128));
        assert!(allowance.named.max(allowance.nameless) <= 2 * MOST);
    }
}
