//! Addresses that have proven themselves by an Echo (RFC 9175 §2.4), and how much may go to the others.

use crate::Timestamp;
use crate::code::Code;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::response::{Extra, Response};
use crate::server::{Amplification, Server, Ticket, echo};
use crate::slab::Key;

/// Before its address is proven, a client gets at most three times the bytes of its request (RFC 9175 §2.4, item 3).
const AMPLIFICATION_MAX: usize = 3;

/// Bytes of an Empty acknowledgement (RFC 7252 §3).
const EMPTY_BYTES: usize = 4;

impl<P: Peer> Server<P> {
    /// RFC 9175 §2.3: a value that came back shows that the address is real.
    pub(crate) fn verify(&mut self, now: Timestamp, ticket: &Ticket<P>, value: &[u8]) {
        let lifetime = self.config.echo_lifetime;
        if echo::is_fresh(&*self.echo_key, now, &ticket.address, value, lifetime)
            && let Some(peer) = self.peers.get_mut(ticket.peer)
        {
            peer.verified_until = now + lifetime;
        }
    }

    /// Whether large answers may go to this peer.
    pub(crate) fn is_verified(&self, now: Timestamp, ticket: &Ticket<P>) -> bool {
        self.is_verified_by_itself(&ticket.address) || self.has_proven_itself(now, ticket.peer)
    }

    pub(crate) fn is_verified_peer(&self, now: Timestamp, peer: Key) -> bool {
        let by_itself = self.peers.get(peer).is_some_and(|peer| self.is_verified_by_itself(&peer.address));
        by_itself || self.has_proven_itself(now, peer)
    }

    fn is_verified_by_itself(&self, address: &P) -> bool {
        match self.config.amplification {
            Amplification::Off => true,
            Amplification::Unverified => address.is_verified(),
            Amplification::All => false,
        }
    }

    fn has_proven_itself(&self, now: Timestamp, peer: Key) -> bool {
        self.peers.get(peer).is_some_and(|peer| now < peer.verified_until)
    }

    /// 4.01 with an Echo to send back (RFC 9175 §2.4).
    pub(crate) fn demand_echo(&mut self, now: Timestamp, ticket: &Ticket<P>, out: &mut Outbox<P>) {
        self.counters.echo_demanded += 1;
        let value = echo::make(&*self.echo_key, now, &ticket.address);
        let (response, extra) = (Response::new(Code::UNAUTHORIZED), Extra { echo: Some(&value), ..Extra::default() });
        // An Echo is longer than three times the shortest requests, which have no path.
        let fits = self.measure(ticket, &response, &extra) <= self.amplified_bytes(ticket);
        self.write(now, ticket, &response, &if fits { extra } else { Extra::default() }, out);
        if let Some(peer) = self.peers.get_mut(ticket.peer) {
            // The request was not carried out; the same identifier again would be a repeat all the same.
            peer.exchanges.forget(ticket.message_id);
        }
    }

    /// The bytes that may still go to the address of a request while that is not proven.
    pub(crate) fn amplified_bytes(&self, ticket: &Ticket<P>) -> usize {
        let acknowledged =
            self.peers.get(ticket.peer).is_some_and(|peer| peer.exchanges.is_acknowledged(ticket.message_id));
        amplified_bytes(ticket.request_bytes).saturating_sub(if acknowledged { EMPTY_BYTES } else { 0 })
    }
}

/// The bytes that may go to an address that is not proven, for so many from there.
pub(crate) const fn amplified_bytes(received: usize) -> usize {
    received.saturating_mul(AMPLIFICATION_MAX)
}
