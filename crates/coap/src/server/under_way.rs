//! Confirmable requests under way: handed to the application and not answered yet.
//!
//! One that has an Empty acknowledgement is not sent again by its client, so its answer has to be sent, and one that is
//! sent again must not be done twice. So an exchange under way is never overwritten, and its answer waits for NSTART
//! (RFC 7252 §4.7), however long. An endpoint that keeps to NSTART has one; of one that does not, the application
//! refuses those beyond a bound before it has done anything about them.

use crate::peer::Peer;
use crate::server::{Server, Ticket};

impl<P: Peer> Server<P> {
    /// Whether its endpoint has so many Confirmable requests under way, this one among them, that the application has
    /// to refuse it at once: it may not [`Server::defer`] the answer.
    #[must_use]
    pub fn has_too_many_under_way(&self, ticket: &Ticket<P>) -> bool {
        if !self.is_followed(ticket) {
            return false;
        }
        let peer = self.peers.get(ticket.peer);
        peer.is_some_and(|peer| peer.exchanges.under_way() + peer.responses_waiting > self.under_way_max())
    }

    /// Sixteen times the exchanges that are remembered. Clients that do not keep to NSTART send hundreds of requests at
    /// once, and each of these takes only some bytes until it is answered.
    pub(crate) const fn under_way_max(&self) -> usize {
        self.config.exchanges_per_peer_max.saturating_mul(16)
    }

    /// A request goes to the application.
    pub(crate) fn hand_out(&mut self, ticket: &Ticket<P>) {
        if self.is_followed(ticket)
            && let Some(peer) = self.peers.get_mut(ticket.peer)
        {
            peer.exchanges.hand_out(ticket.message_id);
        }
    }

    /// A request is answered, if the application had it.
    pub(crate) fn take_back(&mut self, ticket: &Ticket<P>) {
        if self.is_followed(ticket)
            && let Some(peer) = self.peers.get_mut(ticket.peer)
        {
            peer.exchanges.take_back(ticket.message_id);
        }
    }

    const fn is_followed(&self, ticket: &Ticket<P>) -> bool {
        ticket.confirmable && !self.config.reliable
    }
}
