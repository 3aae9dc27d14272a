//! Room for one more session or handshake, and the sessions that end for it. A session without a credential ends before
//! any with one, and never takes the place of one with a credential.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
};

use super::{Endpoint, Inbox, Peer, entry::Live, networks::network};
use crate::{Alert, Association, End};

/// Sessions that are compared when one has to end: of these, the one that has rested longest.
const SAMPLE: usize = 16;
/// Places looked at for a session of an address with more than its share. One that has a thirtieth of the table is
/// missed once in six thousand times.
const PLACES: usize = 256;

/// Places in which sessions are reviewed in one turn.
const REVIEWED_AT_ONCE: usize = 256;

/// The sessions without a credential.
#[derive(Debug, Default)]
pub(crate) struct Anonymous {
    count: usize,
    /// By age, with some that are over.
    row: VecDeque<(usize, Association)>,
}

impl<P: Peer> Endpoint<P> {
    /// Makes room for one more session. Returns `false` if there is none for a session without a credential.
    pub(super) fn make_room_for_session(
        &mut self,
        address: IpAddr,
        is_anonymous: bool,
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) -> bool {
        let address = network(address);
        if is_anonymous {
            let crowded = self.share(address).is_some_and(|share| self.networks.of(address).anonymous >= share);
            if crowded {
                self.evict(self.resting_anonymous(Some(address)), inbox, send);
            } else if self.anonymous.count >= self.config.anonymous_sessions_max {
                self.evict(self.resting_anonymous(None), inbox, send);
            }
        }
        if self.sessions < self.config.sessions_max {
            return true;
        }
        let slot = match self.resting_anonymous(None) {
            None if is_anonymous => None,
            None => self.resting(address),
            slot => slot,
        };
        self.evict(slot, inbox, send);
        slot.is_some()
    }

    /// A session has come.
    pub(super) fn count_in(&mut self, slot: usize, peer: SocketAddr, association: Association, is_anonymous: bool) {
        self.sessions += 1;
        self.networks.change(peer.ip(), |taken| {
            taken.sessions += 1;
            taken.anonymous += usize::from(is_anonymous);
        });
        if is_anonymous {
            self.anonymous.count += 1;
            self.anonymous.row.push_back((slot, association));
            if self.anonymous.row.len() > 2 * self.anonymous.count + SAMPLE {
                let mut row = std::mem::take(&mut self.anonymous.row);
                row.retain(|(slot, association)| self.live(*slot, *association).is_some());
                self.anonymous.row = row;
            }
        }
    }

    /// A session has gone.
    pub(super) fn count_out(&mut self, peer: SocketAddr, live: &Live<P>) {
        self.sessions -= 1;
        self.anonymous.count -= usize::from(live.anonymous);
        self.networks.change(peer.ip(), |taken| {
            taken.sessions -= 1;
            taken.anonymous -= usize::from(live.anonymous);
        });
    }

    /// The share of a network; none of loopback.
    fn share(&self, network: IpAddr) -> Option<usize> {
        (!network.is_loopback()).then_some(self.config.sessions_per_address_max)
    }

    fn live(&self, slot: usize, association: Association) -> Option<(P, &Live<P>)> {
        let entry = self.slots.get(slot)?.as_ref()?;
        let live = entry.session.as_deref().filter(|live| live.association == association)?;
        Some((entry.peer, live))
    }

    /// Of the oldest sessions without a credential, of one network or of all, the one that has rested longest.
    fn resting_anonymous(&self, of: Option<IpAddr>) -> Option<usize> {
        let row = if self.anonymous.count == 0 { None } else { Some(&self.anonymous.row) };
        let there = row.into_iter().flatten().filter_map(|(slot, association)| {
            let (peer, live) = self.live(*slot, *association)?;
            of.is_none_or(|of| network(peer.address().ip()) == of).then_some((live.active, *slot))
        });
        there.take(SAMPLE).min().map(|(_, slot)| slot)
    }

    /// Of some sessions the one that has rested longest: of the newcomer's network if that has its share, otherwise of
    /// those that have more than theirs, otherwise of all.
    fn resting(&self, newcomer: IpAddr) -> Option<usize> {
        // The places looked at need not be hard to guess: each session there has a credential.
        let random = |nth: u64| {
            let count = u64::try_from(self.slots.len()).unwrap_or(u64::MAX).max(1);
            usize::try_from((self.next.wrapping_add(nth).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % count)
        };
        let look = |slot: usize| {
            let entry = self.slots.get(slot)?.as_ref()?;
            Some((entry.session.as_ref()?.active, network(entry.peer.address().ip()), slot))
        };
        let start = random(0).unwrap_or_default();
        let there = || (start..self.slots.len()).chain(0..start).filter_map(look);
        let oldest = |some: &mut dyn Iterator<Item = (_, IpAddr, usize)>| {
            some.take(SAMPLE).min_by_key(|(active, _, _)| *active).map(|(_, _, slot)| slot)
        };
        if self.share(newcomer).is_some_and(|share| self.networks.of(newcomer).sessions >= share) {
            return oldest(&mut there().filter(|(_, of, _)| *of == newcomer));
        }
        let crowded = |of| self.share(of).is_some_and(|share| self.networks.of(of).sessions > share);
        let places = (1..=PLACES as u64).filter_map(|nth| random(nth).ok()).filter_map(look);
        oldest(&mut places.filter(|(_, of, _)| crowded(*of))).or_else(|| oldest(&mut there()))
    }

    /// Ends sessions whose credential does not hold any more, among those in the places from `from` on, and tells their
    /// peers. Returns where to go on, `None` at the end.
    pub fn review(
        &mut self,
        from: usize,
        holds: &mut dyn FnMut(Association) -> bool,
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) -> Option<usize> {
        let end = self.slots.len().min(from.saturating_add(REVIEWED_AT_ONCE));
        for slot in from..end {
            let entry = self.slots.get(slot).and_then(Option::as_ref);
            let live = entry.and_then(|entry| entry.session.as_ref());
            if live.is_some_and(|live| live.is_revoked() || !holds(live.association)) {
                self.end(slot, End::Revoked, inbox, send);
                self.tidy(slot);
            }
        }
        (end < self.slots.len()).then_some(end)
    }

    fn evict(&mut self, slot: Option<usize>, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        if let Some(slot) = slot {
            self.end(slot, End::Evicted, inbox, send);
            self.tidy(slot);
        }
    }

    pub(super) fn make_room_for_handshake(&mut self, inbox: &mut Inbox<P>) {
        while self.handshakes >= self.config.handshakes_max {
            // The oldest of the network that has most: one host must not crowd out the others.
            let most = self.networks.handshakes_at_most();
            let of_most = |(slot, serial): &(usize, u64)| {
                let entry = self.slots.get(*slot).and_then(Option::as_ref);
                self.is_half_open(*slot, *serial)
                    && entry.is_some_and(|entry| self.networks.of(entry.peer.address().ip()).handshakes == most)
            };
            let at = self.half_open.iter().position(of_most);
            let Some((slot, _)) = at.and_then(|at| self.half_open.remove(at)) else { return };
            self.counters.crowded += 1;
            self.abandon(slot, inbox);
            self.tidy(slot);
        }
        // Those that are over are not kept in the row for long.
        if self.half_open.len() > 2 * self.config.handshakes_max {
            let mut row = std::mem::take(&mut self.half_open);
            row.retain(|(slot, serial)| self.is_half_open(*slot, *serial));
            self.half_open = row;
        }
    }

    fn is_half_open(&self, slot: usize, serial: u64) -> bool {
        let entry = self.slots.get(slot).and_then(Option::as_ref);
        entry.and_then(|entry| entry.handshake.as_ref()).is_some_and(|begun| begun.serial == serial)
    }

    /// Drops a handshake that is not finished. A key that it has shown and that did not hold is told of: nobody may try
    /// one, and begin anew before that counts.
    pub(super) fn abandon(&mut self, slot: usize, inbox: &mut Inbox<P>) {
        if let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut)
            && let Some(begun) = entry.handshake.as_mut().filter(|begun| begun.handshake.is_doubted())
        {
            self.counters.failed += 1;
            inbox.failed(entry.peer, Alert::DecryptError, begun.handshake.take_identity());
        }
        self.drop_handshake(slot);
    }

    pub(super) fn drop_handshake(&mut self, slot: usize) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(begun) = entry.handshake.take() else { return };
        self.names.remove(begun.handshake.identifier());
        self.handshakes -= 1;
        self.networks.change(entry.peer.address().ip(), |taken| taken.handshakes -= 1);
    }
}
