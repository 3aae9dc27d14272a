//! Confirmable messages that we sent: back-off, acknowledgement, reset, giving up (RFC 7252 §4.2, RFC 7641 §4.5.2).

use std::time::Duration;

use crate::Timestamp;
use crate::message::Type;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::server::peers::Waiting;
use crate::server::relations::Allowance;
use crate::server::timers::Timer;
use crate::server::{GoneReason, Server};
use crate::slab::Key;

/// One Confirmable on its way.
#[derive(Debug)]
pub(crate) struct Confirmable {
    pub(crate) peer: Key,
    pub(crate) message_id: u16,
    pub(crate) datagram: Vec<u8>,
    /// The relation it notifies; otherwise it is a separate response.
    pub(crate) relation: Option<Key>,
    pub(crate) backoff: Backoff,
}

/// The state of a Confirmable's retransmissions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    retransmitted: u8,
    /// How often it may be sent again.
    max: u8,
    timeout: Duration,
    sent: Timestamp,
}

impl Backoff {
    /// When it was sent last.
    pub(crate) const fn sent(&self) -> Timestamp {
        self.sent
    }

    /// When it is to be sent again, or given up.
    pub(crate) fn due(&self) -> Timestamp {
        self.sent + self.timeout
    }

    /// The same with `max` retransmissions at most: a sender may give up early (RFC 7252 §4.2).
    pub(crate) fn at_most(self, max: u8) -> Self {
        Self { max: self.max.min(max), ..self }
    }

    /// Doubles the time for one more transmission, sent now. `false` when there were as many as there may be.
    pub(crate) fn again(&mut self, now: Timestamp) -> bool {
        if self.retransmitted >= self.max {
            return false;
        }
        self.retransmitted += 1;
        self.timeout *= 2;
        self.sent = now;
        true
    }
}

impl<P: Peer> Server<P> {
    /// A fresh back-off (RFC 7252 §4.2).
    pub(crate) fn fresh_backoff(&mut self, now: Timestamp) -> Backoff {
        let timeout = self.config.transmission.first_timeout(&mut self.jitter);
        Backoff { retransmitted: 0, max: self.config.transmission.max_retransmit, timeout, sent: now }
    }

    /// A buffer for a Confirmable, reused if possible.
    pub(crate) fn buffer(&mut self, datagram: &[u8]) -> Vec<u8> {
        let mut buffer = self.buffers.take();
        buffer.extend_from_slice(datagram);
        buffer
    }

    /// Whether another Confirmable may go to this peer now (RFC 7252 §4.7).
    pub(crate) fn has_room(&self, peer: Key) -> bool {
        self.peers.get(peer).is_some_and(|peer| peer.in_flight.len() < self.config.transmission.nstart)
    }

    /// Tracks a Confirmable that has just been sent.
    pub(crate) fn track(&mut self, confirmable: Confirmable) -> Option<Key> {
        let due = confirmable.backoff.due();
        let peer = confirmable.peer;
        let key = self.confirmables.insert(confirmable)?;
        self.peers.get_mut(peer)?.in_flight.push(key);
        self.timers.add(due, Timer::Confirmable(key));
        Some(key)
    }

    /// Handles an Empty acknowledgement.
    pub(crate) fn acknowledged(&mut self, now: Timestamp, from: &P, message_id: u16, out: &mut Outbox<P>) {
        let Some((key, peer)) = self.find_in_flight(from, message_id) else {
            self.answers_ping(now, from, message_id, out);
            return;
        };
        let Some(confirmable) = self.take_confirmable(key) else { return };
        if confirmable.backoff.retransmitted == 0
            && let Some(peer) = self.peers.get_mut(peer)
        {
            peer.sample_round_trip(now.since(confirmable.backoff.sent));
        }
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.allowance = Allowance::full(now);
        }
        if let Some(relation) = confirmable.relation {
            self.relation_confirmed(now, relation);
        }
        // Messages that have waited go first.
        self.admit_waiting(now, peer, out);
        if let Some(relation) = confirmable.relation {
            self.pump(now, relation, out);
        }
    }

    /// Handles a Reset of a Confirmable, or of a Non-confirmable notification (RFC 7641 §3.6).
    pub(crate) fn reset(&mut self, now: Timestamp, from: &P, message_id: u16, out: &mut Outbox<P>) {
        let Some((key, peer)) = self.find_in_flight(from, message_id) else {
            if self.answers_ping(now, from, message_id, out) {
                return;
            }
            if let Some(relation) = self.find_notified(from, message_id) {
                self.remove_relation(relation, GoneReason::Reset);
            }
            return;
        };
        let confirmable = self.take_confirmable(key);
        if let Some(relation) = confirmable.and_then(|confirmable| confirmable.relation) {
            self.remove_relation(relation, GoneReason::Reset);
        }
        self.admit_waiting(now, peer, out);
    }

    /// Retransmits a Confirmable, or gives it up.
    pub(crate) fn confirmable_due(&mut self, now: Timestamp, key: Key, out: &mut Outbox<P>) {
        let Some(confirmable) = self.confirmables.get_mut(key) else { return };
        if now < confirmable.backoff.due() {
            // It has begun again since this timer was set.
            return;
        }
        let (peer, relation) = (confirmable.peer, confirmable.relation);
        if !confirmable.backoff.again(now) {
            self.counters.timed_out += 1;
            self.take_confirmable(key);
            if let Some(relation) = relation {
                // RFC 7641 §4.5: the client is taken to be no longer interested.
                self.remove_relation(relation, GoneReason::TimedOut);
            }
            self.admit_waiting(now, peer, out);
            return;
        }
        self.transmit_again(now, key, out);
    }

    /// Begins a Confirmable again whose transmissions may have gone to an address that its peer has left.
    pub(crate) fn start_again(&mut self, now: Timestamp, key: Key, out: &mut Outbox<P>) {
        let backoff = self.fresh_backoff(now);
        if let Some(confirmable) = self.confirmables.get_mut(key) {
            confirmable.backoff = backoff;
            self.transmit_again(now, key, out);
        }
    }

    fn transmit_again(&mut self, now: Timestamp, key: Key, out: &mut Outbox<P>) {
        let Some(confirmable) = self.confirmables.get(key) else { return };
        let (peer, relation) = (confirmable.peer, confirmable.relation);
        self.counters.retransmitted += 1;
        self.timers.add(confirmable.backoff.due(), Timer::Confirmable(key));
        if relation.is_some_and(|relation| self.is_replaced(now, relation, out)) {
            // The newer state also takes over the back-off of the older one.
            return;
        }
        let (Some(confirmable), Some(peer)) = (self.confirmables.get(key), self.peers.get(peer)) else { return };
        out.push(peer.address, &confirmable.datagram);
    }

    /// Acknowledges a request whose response takes long (RFC 7252 §5.2.2).
    pub(crate) fn acknowledge_late(&mut self, peer: Key, message_id: u16, out: &mut Outbox<P>) {
        let Some(peer) = self.peers.get_mut(peer) else { return };
        if peer.exchanges.acknowledge(message_id) {
            out.push_with(peer.address, |bytes| crate::encode::empty(bytes, Type::Acknowledgement, message_id));
        }
    }

    /// Takes a Confirmable out of all tables.
    pub(crate) fn take_confirmable(&mut self, key: Key) -> Option<Confirmable> {
        let mut confirmable = self.confirmables.remove(key)?;
        if let Some(peer) = self.peers.get_mut(confirmable.peer) {
            peer.in_flight.retain(|other| *other != key);
        }
        if let Some(relation) = confirmable.relation.and_then(|key| self.relations.get_mut(key)) {
            relation.in_flight = None;
        }
        self.buffers.put_back(std::mem::take(&mut confirmable.datagram));
        Some(confirmable)
    }

    /// Lets messages that waited for NSTART go on.
    pub(crate) fn admit_waiting(&mut self, now: Timestamp, peer: Key, out: &mut Outbox<P>) {
        while self.has_room(peer) {
            let Some(state) = self.peers.get_mut(peer) else { return };
            let Some(next) = state.waiting.pop_front() else { return };
            match next {
                Waiting::Relation(key) => {
                    if let Some(relation) = self.relations.get_mut(key) {
                        relation.queued = false;
                    }
                    self.pump(now, key, out);
                }
                Waiting::Response(key) => {
                    state.responses_waiting = state.responses_waiting.saturating_sub(1);
                    self.start(now, key, out);
                }
            }
        }
    }

    /// Sends a separate response that had to wait.
    fn start(&mut self, now: Timestamp, key: Key, out: &mut Outbox<P>) {
        let backoff = self.fresh_backoff(now);
        let Some(confirmable) = self.confirmables.get_mut(key) else { return };
        confirmable.backoff = backoff.at_most(confirmable.backoff.max);
        let Some(peer) = self.peers.get_mut(confirmable.peer) else { return };
        peer.in_flight.push(key);
        out.push(peer.address, &confirmable.datagram);
        self.timers.add(now + backoff.timeout, Timer::Confirmable(key));
    }

    fn find_in_flight(&self, from: &P, message_id: u16) -> Option<(Key, Key)> {
        let peer = self.peers.find(from)?;
        let in_flight = &self.peers.get(peer)?.in_flight;
        let is_it = |key: &&Key| self.confirmables.get(**key).is_some_and(|c| c.message_id == message_id);
        in_flight.iter().find(is_it).map(|key| (*key, peer))
    }
}
