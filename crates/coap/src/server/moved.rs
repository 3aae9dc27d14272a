//! Peers that have moved to an address at which they are not known to receive (RFC 9146 §6, RFC 9147 §9).
//!
//! The layer below sends little to such an address. Until it is validated, observers there are not notified, so that no
//! notification is lost: the newest state follows afterwards. It is validated by a ping (RFC 7252 §4.3), as soon as
//! something waits: a peer that returns its message identifier, which cannot be guessed, has received it. A ping is
//! small enough for any allowance, and every endpoint answers it.

use crate::Timestamp;
use crate::encode;
use crate::message::Type;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::server::Server;
use crate::server::confirmables::Backoff;
use crate::server::timers::Timer;
use crate::slab::Key;

/// Wrong answers after which a ping counts for nothing: a peer that only pretends to receive may try all 65536
/// identifiers. A few are answers to earlier messages, late or repeated.
const WRONG_MAX: u8 = 8;

/// The state of an address that is not validated.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    ping: Option<Ping>,
}

/// A ping that is not answered yet.
#[derive(Debug)]
struct Ping {
    message_id: u16,
    backoff: Backoff,
    wrong: u8,
}

impl<P: Peer> Server<P> {
    /// Notes that a peer has moved. If `validated`, it is known to receive where it is now.
    pub fn moved(&mut self, now: Timestamp, peer: &P, validated: bool, out: &mut Outbox<P>) {
        if validated {
            self.settle_at(now, peer, out);
            return;
        }
        let first_message_id = self.jitter.next_u16();
        let Some(key) = self.peers.enter(now, *peer, first_message_id) else { return };
        let Some(state) = self.peers.get_mut(key) else { return };
        // A ping to the address before validates that one only.
        state.moved = Some(Box::default());
        self.set_congested(now, peer, true, out);
        self.doubt_notifications(key);
        self.ping_if_awaited(now, key, out);
    }

    /// Notes that the layer below has withheld a message to a peer, because too little has come from its new address.
    pub fn withheld(&mut self, now: Timestamp, peer: &P, out: &mut Outbox<P>) {
        let Some(key) = self.peers.find(peer) else { return };
        if self.peers.get(key).is_some_and(|state| state.moved.is_none()) {
            self.moved(now, peer, false, out);
        }
        self.ping(now, key, out);
    }

    /// The next peer that has shown that it receives at its new address.
    pub fn poll_validated(&mut self) -> Option<P> {
        self.validated.pop_front()
    }

    /// The newest notification may have gone to the address before: it is repeated unless it is known to have arrived.
    fn doubt_notifications(&mut self, key: Key) {
        let Some(state) = self.peers.get(key) else { return };
        for relation in &state.relations {
            if let Some(relation) = self.relations.get_mut(*relation) {
                relation.doubt();
            }
        }
    }

    /// Pings a peer that has moved if one of its observers waits for that.
    pub(crate) fn ping_if_awaited(&mut self, now: Timestamp, key: Key, out: &mut Outbox<P>) {
        let Some(state) = self.peers.get(key).filter(|state| state.moved.is_some()) else { return };
        let awaited = |relation: &Key| self.relations.get(*relation).is_some_and(super::relations::Relation::waits);
        if state.relations.iter().any(awaited) {
            self.ping(now, key, out);
        }
    }

    /// Pings a peer that has moved, unless a ping is on its way.
    fn ping(&mut self, now: Timestamp, key: Key, out: &mut Outbox<P>) {
        let backoff = self.fresh_backoff(now);
        let number = self.jitter.next();
        let Some(state) = self.peers.get_mut(key) else { return };
        let Some(moved) = state.moved.as_mut().filter(|moved| moved.ping.is_none()) else { return };
        let input = [&state.address.identity()[..], &now.as_millis().to_be_bytes(), &number.to_be_bytes()].concat();
        let [high, low, ..] = self.echo_key.code(&input);
        let message_id = u16::from_be_bytes([high, low]);
        moved.ping = Some(Ping { message_id, backoff, wrong: 0 });
        self.timers.add(backoff.due(), Timer::Ping(key, message_id));
        out.push_with(state.address, |bytes| encode::empty(bytes, Type::Confirmable, message_id));
    }

    /// Sends a ping again (RFC 7252 §4.2), or gives it up: the next follows when something waits or is heard.
    pub(crate) fn ping_due(&mut self, now: Timestamp, key: Key, message_id: u16, out: &mut Outbox<P>) {
        let Some(state) = self.peers.get_mut(key) else { return };
        let Some(moved) = &mut state.moved else { return };
        let Some(ping) = moved.ping.as_mut().filter(|ping| ping.message_id == message_id) else { return };
        if !ping.backoff.again(now) {
            moved.ping = None;
            return;
        }
        self.counters.retransmitted += 1;
        self.timers.add(ping.backoff.due(), Timer::Ping(key, message_id));
        out.push_with(state.address, |bytes| encode::empty(bytes, Type::Confirmable, message_id));
    }

    /// Handles an answer to a ping, a Reset by RFC 7252 §4.3. `false`: it answers something else.
    pub(crate) fn answers_ping(&mut self, now: Timestamp, from: &P, message_id: u16, out: &mut Outbox<P>) -> bool {
        let Some(state) = self.peers.find(from).and_then(|key| self.peers.get_mut(key)) else { return false };
        let Some(ping) = state.moved.as_mut().and_then(|moved| moved.ping.as_mut()) else { return false };
        if ping.message_id != message_id || ping.wrong > WRONG_MAX {
            ping.wrong = ping.wrong.saturating_add(1);
            return false;
        }
        self.validated.push_back(*from);
        self.settle_at(now, from, out);
        true
    }

    /// The address of a peer is good: its observers are notified, and messages that may have gone elsewhere go again.
    fn settle_at(&mut self, now: Timestamp, peer: &P, out: &mut Outbox<P>) {
        let Some(state) = self.peers.find(peer).and_then(|key| self.peers.get_mut(key)) else { return };
        if state.moved.take().is_none() {
            return;
        }
        for confirmable in state.in_flight.clone() {
            self.start_again(now, confirmable, out);
        }
        self.set_congested(now, peer, false, out);
    }
}
