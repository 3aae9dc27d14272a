//! Who has to go when there is no room.

use std::net::IpAddr;

use super::{Endpoint, Inbox, Peer, networks::network};
use crate::End;

/// Sessions that are looked at for the one that has rested longest, when one has to go.
const EVICTION_SAMPLE: usize = 16;

impl<P: Peer> Endpoint<P> {
    /// So that one more session fits into both limits.
    pub(super) fn make_room_for_session(
        &mut self,
        address: IpAddr,
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        let address = network(address);
        if !address.is_loopback() && self.networks.of(address).sessions >= self.config.sessions_per_address_max {
            // Whoever makes many takes their place from nobody but itself.
            self.evict(Some(address), inbox, send);
        }
        if self.sessions >= self.config.sessions_max {
            self.evict(None, inbox, send);
        }
    }

    /// Of some sessions, of one network or of all, ends the one that has rested longest.
    fn evict(&mut self, of: Option<IpAddr>, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        let count = self.slots.len().max(1);
        // Which are looked at need not be hard to guess: each of them has proved who it is.
        let start = usize::try_from(self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33).unwrap_or_default() % count;
        let oldest = (start..count)
            .chain(0..start)
            .filter_map(|slot| Some((self.slots.get(slot)?.as_ref()?, slot)))
            .filter(|(entry, _)| of.is_none_or(|of| network(entry.peer.address().ip()) == of))
            .filter_map(|(entry, slot)| Some((entry.session.as_ref()?.active, slot)))
            .take(EVICTION_SAMPLE)
            .min();
        if let Some((_, slot)) = oldest {
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
