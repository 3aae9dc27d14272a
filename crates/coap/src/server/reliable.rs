//! Peers on reliable transports (RFC 8323): they live as long as their connections, announce how large a message may
//! be, and are waited for while they do not read.

use crate::Timestamp;
use crate::block::BlockSize;
use crate::code::Class;
use crate::message::Message;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::server::peers::Limits;
use crate::server::{GoneReason, Incoming, Room, Server};

/// Bytes that options and protection may add to a payload.
const OPTIONS_BYTES: usize = 256;

/// The limits that a peer announces (RFC 8323 §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Max-Message-Size.
    pub message_bytes_max: usize,
    /// Whether it takes several blocks in one message (RFC 8323 §5.3.2, §6).
    pub bert: bool,
}

impl StreamLimits {
    /// The size of the blocks for such a peer, and how many bytes of a payload a message may carry, `most` at most.
    #[must_use]
    pub fn blocks(self, most: usize) -> (BlockSize, usize) {
        let limits = self.to_limits(most);
        (limits.size, limits.chunk)
    }

    fn to_limits(self, chunk_max: usize) -> Limits {
        let room = self.message_bytes_max.saturating_sub(OPTIONS_BYTES);
        let size =
            if self.bert && room >= BlockSize::BERT.bytes() { BlockSize::BERT } else { BlockSize::at_most(room) };
        let chunk = size.chunk(room.min(chunk_max));
        Limits { whole: room.min(chunk_max).max(chunk), size, chunk, message: self.message_bytes_max }
    }
}

impl<P: Peer> Server<P> {
    /// Notes that a connection is open, or that its peer has announced other limits. Payloads are cut at `chunk_max`
    /// even if the peer accepts more.
    pub fn connect(&mut self, now: Timestamp, peer: P, limits: StreamLimits, chunk_max: usize) {
        let Some(key) = self.peers.enter(now, peer, 0) else { return };
        if let Some(state) = self.peers.get_mut(key) {
            state.limits = limits.to_limits(chunk_max);
        }
    }

    /// Removes the state of a connection or association that has ended (RFC 8323 §7.4).
    pub fn forget(&mut self, peer: &P) {
        self.owners.remove(&peer.association());
        // A demand to peers without an association never ends.
        if peer.association() != 0 {
            self.demanding.remove(&peer.association());
        }
        self.peers.widen(peer);
        let Some(key) = self.peers.find(peer) else { return };
        let Some(state) = self.peers.get(key) else { return };
        for relation in state.relations.clone() {
            self.remove_relation(relation, GoneReason::Disconnected);
        }
        let Some(state) = self.peers.get_mut(key) else { return };
        let confirmables: Vec<_> = state.in_flight.drain(..).collect();
        let waiting = std::mem::take(&mut state.waiting);
        for confirmable in confirmables {
            self.confirmables.remove(confirmable);
        }
        for waiting in waiting {
            if let super::peers::Waiting::Response(confirmable) = waiting {
                self.confirmables.remove(confirmable);
            }
        }
        self.uploads.forget(key);
        self.downloads.forget(key);
        self.peers.remove(key);
    }

    /// Takes a request from a connection.
    pub fn handle_stream<'a>(
        &mut self,
        now: Timestamp,
        from: P,
        message: Message<'a>,
        room: &'a Room,
        out: &mut Outbox<P>,
    ) -> Option<Incoming<'a, P>> {
        if message.code.class() != Class::Request {
            // RFC 8323 §4.3: an Empty message is ignored; so is a response to no request of ours.
            return None;
        }
        let peer = self.peers.find(&from)?;
        let bytes = message.payload().len();
        self.take(now, from, peer, message, bytes, Some(room), out)
    }

    /// Notes whether a peer reads its connection. While it does not, its observers are not notified.
    pub fn set_congested(&mut self, now: Timestamp, peer: &P, congested: bool, out: &mut Outbox<P>) {
        let Some(state) = self.peers.find(peer).and_then(|key| self.peers.get_mut(key)) else { return };
        if state.congested == congested {
            return;
        }
        state.congested = congested;
        for relation in state.relations.clone() {
            if let Some(relation) = self.relations.get_mut(relation) {
                relation.congested = congested;
            }
            if !congested {
                self.pump(now, relation, out);
            }
        }
    }
}
