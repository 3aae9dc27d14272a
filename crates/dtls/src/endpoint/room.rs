//! Room for one more session or handshake, and the sessions that end for it. A session without a credential ends before
//! any with one, and never takes the place of one with a credential. Of those with one the principal that has most
//! makes room; addresses only decide between its sessions (ADR 0062).

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
};

use super::{Endpoint, Inbox, Peer, config::Reason, entry::Live, networks::network, owners::Owner};
use crate::{Alert, Association, End};

/// Sessions that are compared when one has to end: of these, the one that has rested longest.
const SAMPLE: usize = 16;
/// Sessions looked at, evenly among those of who gives way: up to twice as many, and all if there are no more.
const PLACES: usize = 256;
/// Principals with the most sessions that are compared; there are more only where many have the same number.
const HEAVIEST: usize = 4;

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
        owner: Option<Owner>,
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) -> bool {
        let address = network(address);
        if owner.is_none() {
            let crowded = self.share(address).is_some_and(|share| self.networks.of(address).anonymous >= share);
            if crowded {
                self.evict(self.resting_anonymous(Some(address)), Reason::Address, inbox, send);
            } else if self.anonymous.count >= self.config.anonymous_sessions_max {
                self.evict(self.resting_anonymous(None), Reason::Anonymous, inbox, send);
            }
        }
        if self.sessions < self.config.sessions_max {
            return true;
        }
        let anonymous = self.resting_anonymous(None).map(|slot| (slot, Reason::Anonymous));
        let way = anonymous.or_else(|| self.giving_way(address, owner?));
        if let Some((slot, reason)) = way {
            self.evict(Some(slot), reason, inbox, send);
        }
        way.is_some()
    }

    /// A session has come.
    pub(super) fn count_in(&mut self, slot: usize, peer: SocketAddr, association: Association, owner: Option<Owner>) {
        let is_anonymous = owner.is_none();
        self.sessions += 1;
        self.networks.change(peer.ip(), |taken| {
            taken.sessions += 1;
            taken.anonymous += usize::from(is_anonymous);
        });
        if let Some(owner) = owner {
            self.owners.add(slot, owner);
        } else {
            self.anonymous.count += 1;
            self.anonymous.row.push_back((slot, association));
            if self.anonymous.row.len() > 2 * self.anonymous.count + SAMPLE {
                let mut row = std::mem::take(&mut self.anonymous.row);
                row.retain(|(slot, association)| self.live(*slot, *association).is_some());
                self.anonymous.row = row;
            }
        }
    }

    /// A session has gone, which was there last.
    pub(super) fn count_out(&mut self, slot: usize, peer: P, live: &Live<P>) {
        self.sessions -= 1;
        if !live.anonymous {
            self.owners.remove(slot);
        }
        self.anonymous.count -= usize::from(live.anonymous);
        self.networks.change(live.home(peer).address().ip(), |taken| {
            taken.sessions -= 1;
            taken.anonymous -= usize::from(live.anonymous);
        });
    }

    /// The share of a network; none of loopback.
    fn share(&self, network: IpAddr) -> Option<usize> {
        (!network.is_loopback()).then_some(self.config.sessions_per_address_max)
    }

    /// The session, and where it counts.
    fn live(&self, slot: usize, association: Association) -> Option<(P, &Live<P>)> {
        let entry = self.slots.get(slot)?.as_ref()?;
        let live = entry.session.as_deref().filter(|live| live.association == association)?;
        Some((live.home(entry.peer), live))
    }

    /// Of the oldest sessions without a credential, of one network or of all, the one that has rested longest.
    fn resting_anonymous(&self, of: Option<IpAddr>) -> Option<usize> {
        let row = if self.anonymous.count == 0 { None } else { Some(&self.anonymous.row) };
        let there = row.into_iter().flatten().filter_map(|(slot, association)| {
            let (home, live) = self.live(*slot, *association)?;
            of.is_none_or(|of| network(home.address().ip()) == of).then_some((live.active, *slot))
        });
        there.take(SAMPLE).min().map(|(_, slot)| slot)
    }

    /// The session that gives way to one more of `owner`, when all have a credential: of the principal that has most.
    /// Among equals that is the owner itself, so that places do not alternate; only where nobody has a second one and
    /// the owner has none, another that has no more than it would.
    fn giving_way(&self, newcomer: IpAddr, owner: Owner) -> Option<(usize, Reason)> {
        let (own, most) = (self.owners.sessions(owner), self.owners.most());
        if own > 0 && own + 1 >= most {
            let (slot, _) = self.resting(own, Some(newcomer), |of| of == owner)?;
            return Some((slot, Reason::Principal));
        }
        if most > 1 {
            let heaviest: Vec<Owner> = self.owners.heaviest().take(HEAVIEST).collect();
            let (slot, _) = self.resting(most * heaviest.len(), None, |of| heaviest.contains(&of))?;
            return Some((slot, Reason::Principal));
        }
        let (slot, is_crowded) = self.resting(self.sessions, Some(newcomer), |_| true)?;
        Some((slot, if is_crowded { Reason::Address } else { Reason::Rest }))
    }

    /// Of the `count` sessions of some owners the one that has rested longest: of the newcomer's network if that has
    /// its share, otherwise of those that have more than theirs, otherwise of all. And whether an address decided it.
    fn resting(&self, count: usize, newcomer: Option<IpAddr>, of: impl Fn(Owner) -> bool) -> Option<(usize, bool)> {
        // The place to begin at need not be hard to guess: each session there has a credential.
        let places = u64::try_from(self.slots.len()).unwrap_or(u64::MAX).max(1);
        let start = self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let start = usize::try_from(start % places).unwrap_or_default();
        let there = || {
            let slots = (start..self.slots.len()).chain(0..start);
            slots.filter(|slot| self.owners.of_slot(*slot).is_some_and(&of))
        };
        let look = |slot: usize| {
            let entry = self.slots.get(slot)?.as_ref()?;
            let live = entry.session.as_ref()?;
            Some((live.active, network(live.home(entry.peer).address().ip()), slot))
        };
        let is_full = |at| self.share(at).is_some_and(|share| self.networks.of(at).sessions >= share);
        if let Some(newcomer) = newcomer.filter(|newcomer| is_full(*newcomer)) {
            let near = there().filter_map(look).filter(|(_, at, _)| *at == newcomer).take(SAMPLE);
            if let Some((_, _, slot)) = near.min_by_key(|(active, _, _)| *active) {
                return Some((slot, true));
            }
        }
        let crowded = |at| self.share(at).is_some_and(|share| self.networks.of(at).sessions > share);
        let looked = there().step_by((count / PLACES).max(1)).filter_map(look);
        let (is_alone, _, slot) = looked.map(|(active, at, slot)| (!crowded(at), active, slot)).min()?;
        Some((slot, !is_alone))
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

    fn evict(&mut self, slot: Option<usize>, reason: Reason, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        if let Some(slot) = slot {
            self.counters.evicted.count(reason);
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
            inbox.failed(entry.peer, Alert::DecryptError, begun.handshake.take_refused());
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
