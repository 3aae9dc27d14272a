//! Peers that are found by an identifier instead of an address (RFC 9147 §9, RFC 9146), and those that have moved.

use std::collections::HashMap;

use super::{Association, Endpoint, Inbox, Peer, entry::Live, networks::network};
use crate::{
    Platform,
    wire::{Cid, OTHERS_MAX},
};

/// Bytes that may go to a new address for each that came from there, until it is validated. A peer that moves has
/// proved its identity, not that it receives there: a client that forges its address must not make us flood another
/// (RFC 9146 §6). The same factor as CoAP's for unverified addresses (RFC 9175 §2.4) and QUIC's (RFC 9000 §8.1).
const AMPLIFICATION: usize = 3;

/// Bytes of the allowance that larger datagrams leave, so that a message that validates the address fits at any time: a
/// CoAP message without token and payload in a record of DTLS 1.2, with the longest identifier and tag.
const PROBE_BYTES: usize = 13 + OTHERS_MAX + 8 + 4 + 1 + 16;

/// Sessions by identifier and by address, except those at the address where they were established.
pub(crate) struct Names<P> {
    /// The first byte of our identifiers, if any are handed out.
    number: Option<u8>,
    identifiers: HashMap<Cid, usize, foldhash::fast::RandomState>,
    /// Those above go on speaking to where it was made.
    moved: HashMap<(P, Association), usize, foldhash::fast::RandomState>,
}

/// A session that is elsewhere than where it was made.
pub(super) struct Moved<P> {
    pub(super) from: P,
    /// Bytes that may still be sent to the new address; `None` once that is validated.
    allowance: Option<usize>,
}

impl<P> Moved<P> {
    /// Whether a datagram may go, and takes it off the allowance.
    pub(super) fn may_send(&mut self, bytes: usize) -> bool {
        let Some(allowance) = &mut self.allowance else { return true };
        let reserve = if bytes > PROBE_BYTES { PROBE_BYTES } else { 0 };
        if *allowance < bytes.saturating_add(reserve) {
            return false;
        }
        *allowance -= bytes;
        true
    }

    /// Whether the peer is known to receive there.
    pub(super) const fn is_validated(&self) -> bool {
        self.allowance.is_none()
    }

    /// Something genuine came from the new address.
    pub(super) const fn heard(&mut self, bytes: usize) {
        if let Some(allowance) = &mut self.allowance {
            *allowance = allowance.saturating_add(bytes.saturating_mul(AMPLIFICATION));
        }
    }
}

impl<P> Default for Names<P> {
    fn default() -> Self {
        Self { number: None, identifiers: HashMap::default(), moved: HashMap::default() }
    }
}

impl<P: Peer> Names<P> {
    pub(super) const fn number(&mut self, number: u8) {
        self.number = Some(number);
    }

    /// A new identifier, which says nothing to anybody else (RFC 9147 §11).
    pub(super) fn make(&self, platform: &Platform) -> Option<Cid> {
        let number = self.number?;
        let mut cid = [number; _];
        let (_, random) = cid.split_first_mut()?;
        platform.fill(random).ok()?;
        // Once in seventy thousand million million: that client has to do without.
        (!self.identifiers.contains_key(&cid)).then_some(cid)
    }

    pub(super) fn add(&mut self, cid: Option<&Cid>, slot: usize) {
        if let Some(cid) = cid {
            self.identifiers.insert(*cid, slot);
        }
    }

    pub(super) fn remove(&mut self, cid: Option<&Cid>) {
        if let Some(cid) = cid {
            self.identifiers.remove(cid);
        }
    }

    pub(super) fn slot(&self, cid: &[u8]) -> Option<usize> {
        self.identifiers.get(cid).copied()
    }

    /// Of a session that is over.
    pub(super) fn forget(&mut self, known_as: P, live: &Live<P>) {
        self.remove(live.session.identifier());
        if live.moved.is_some() {
            self.moved.remove(&(known_as, live.association));
        }
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.identifiers.is_empty() && self.moved.is_empty()
    }
}

impl<P: Peer> Endpoint<P> {
    /// Where the session is that was made at that address.
    pub(super) fn slot_of_session(&self, peer: P, association: Association) -> Option<usize> {
        let is_there = |slot: &usize| {
            let entry = self.slots.get(*slot).and_then(Option::as_ref);
            entry.and_then(|entry| entry.session.as_ref()).is_some_and(|live| live.association == association)
        };
        let here = self.slot_at(&peer).filter(is_there);
        here.or_else(|| self.names.moved.get(&(peer, association)).copied())
    }

    /// Lifts the limit on what may be sent to the address of a session that has moved. The caller has heard of
    /// something that the peer can only know by receiving there, and no [`Event::Moved`](crate::Event::Moved) has come
    /// since.
    pub fn validate(&mut self, peer: P, association: Association) {
        let slot = self.slot_of_session(peer, association);
        let entry = slot.and_then(|slot| self.slots.get_mut(slot)).and_then(Option::as_mut);
        let Some(entry) = entry else { return };
        let Some(live) = &mut entry.session else { return };
        let (before, anonymous) = (live.home(entry.peer), live.anonymous);
        if let Some(moved) = &mut live.moved {
            moved.allowance = None;
        }
        let after = live.home(entry.peer);
        self.count_elsewhere(before, after, anonymous);
    }

    /// A record that is genuine and newer than all before came from elsewhere: the session goes there, unless somebody
    /// else is there or from there has come too much. It cannot take the place of another, for nobody has proved yet
    /// who receives at that address.
    pub(super) fn relocate(&mut self, slot: usize, to: P, inbox: &mut Inbox<P>) {
        let taken = self.networks.of(to.address().ip()).sessions;
        let is_full = taken >= self.config.sessions_per_address_max && !network(to.address().ip()).is_loopback();
        let is_taken = self.slot_at(&to).is_some();
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let from = entry.peer;
        if from == to {
            return;
        }
        let is_near = network(from.address().ip()) == network(to.address().ip());
        if is_taken || entry.handshake.is_some() || (is_full && !is_near) {
            return;
        }
        let Some(live) = &mut entry.session else { return };
        let (known_as, before, anonymous) = (live.known_as(from), live.home(from), live.anonymous);
        if known_as == to {
            // Back where it was, where it has shown that it receives.
            live.moved = None;
            self.names.moved.remove(&(known_as, live.association));
        } else {
            let mut moved = Moved { from: known_as, allowance: Some(0) };
            moved.heard(std::mem::take(&mut self.arrived));
            live.moved = Some(Box::new(moved));
            self.names.moved.insert((known_as, live.association), slot);
        }
        inbox.moved(known_as, live.association, live.moved.is_none());
        let after = live.home(to);
        entry.peer = to;
        self.places.remove(&from, slot);
        self.places.add(&self.slots, &to, slot);
        self.count_elsewhere(before, after, anonymous);
    }

    /// A session counts where its peer has proved to receive: it could pass for one of any address, and crowd that.
    fn count_elsewhere(&mut self, before: P, after: P, anonymous: bool) {
        let anonymous = usize::from(anonymous);
        self.networks.change(before.address().ip(), |taken| {
            taken.sessions -= 1;
            taken.anonymous -= anonymous;
        });
        self.networks.change(after.address().ip(), |taken| {
            taken.sessions += 1;
            taken.anonymous += anonymous;
        });
    }
}
