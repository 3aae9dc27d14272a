//! Sending notifications: when one may be sent, whether it is Confirmable, and what follows from it.

use super::pace::{PACE_OF_DOUBT, Proof, QUIET, SEAL_AGAIN_AFTER, pace};
use super::part::{first_block, limits_for, size_of_content};
use super::plan::{Plan, plan};
use super::{Last, Observed, Relation, RelationId, SEQUENCE_MASK};
use crate::Timestamp;
use crate::code::Code;
use crate::encode::Encoder;
use crate::message::Type;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::response::{Encoded, Response};
use crate::server::confirmables::Confirmable;
use crate::server::peers::{Limits, PeerState};
use crate::server::respond::seal_into;
use crate::server::timers::Timer;
use crate::server::{Event, GoneReason, Role, Server, ServerConfig, Unsealed};
use crate::slab::Key;

/// A notification.
#[derive(Clone, Copy, Debug)]
pub struct Notification<'a> {
    /// The state, or the error that ends the observation.
    pub response: Response<'a>,
    /// Whether it must be Confirmable. Others are now and then (RFC 7641 §4.5).
    pub confirmable: bool,
    /// The same response, if it is encoded already.
    pub encoded: Option<&'a Encoded>,
    /// Whether it is of an event: nothing retains it, so that its rest can be fetched only while the server keeps it.
    pub event: bool,
}

/// The outcome of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notified {
    /// It is sent, or it ends the observation and is sent as soon as possible; or its location fits no message for this
    /// observer, which is counted ([`Counters::too_long`](crate::server::Counters::too_long)).
    Sent,
    /// It may not be sent now and is not kept: [`Event::Ready`] asks for the newest state.
    Later,
    /// The observation has ended.
    Gone,
}

impl Relation {
    /// Notes that a notification was sent.
    fn sent(&mut self, now: Timestamp, message_id: u16, confirmable: bool) {
        self.sent_at = Some(now);
        if confirmable {
            self.unconfirmed = 0;
            return;
        }
        self.unconfirmed = self.unconfirmed.saturating_add(1);
        self.recent.rotate_right(1);
        if let Some(newest) = self.recent.first_mut() {
            *newest = message_id;
        }
    }
}

impl<P: Peer> Server<P> {
    /// Notifies an observer.
    pub fn notify(
        &mut self,
        now: Timestamp,
        relation: RelationId,
        notification: &Notification<'_>,
        out: &mut Outbox<P>,
    ) -> Notified {
        let RelationId(key) = relation;
        let Some(entry) = self.relations.get_mut(key).filter(|entry| entry.last.is_none()) else {
            return Notified::Gone;
        };
        if !notification.response.code.is_success() {
            self.dismiss(now, relation, &notification.response, out);
            return Notified::Sent;
        }
        let Some(limits) = limits_for(entry, &notification.response) else {
            // Nothing that the observer could do would let it take this.
            self.counters.too_long += 1;
            return Notified::Sent;
        };
        if entry.is_blocked(now) {
            let peer = entry.peer;
            let postponed = self.postpone(now, key);
            self.ping_if_awaited(now, peer, out);
            return postponed;
        }
        if !entry.admits(&notification.response) {
            // RFC 7641 §4.2: the Content-Format cannot change, so the observation ends.
            self.dismiss(now, relation, &Response::new(Code::NOT_ACCEPTABLE), out);
            return Notified::Sent;
        }
        if self.send_notification(now, (key, limits), notification, out) {
            return Notified::Sent;
        }
        self.postpone(now, key)
    }

    /// Ends an observation with an error response (RFC 7641 §4.2), sent as soon as possible and before any
    /// notification.
    pub fn dismiss(&mut self, now: Timestamp, relation: RelationId, error: &Response<'_>, out: &mut Outbox<P>) {
        let RelationId(key) = relation;
        self.relations.leave_room_queue(key);
        if let Some(entry) = self.relations.get_mut(key) {
            entry.dirty = false;
            entry.last = Some(Last { code: error.code, max_age: error.max_age });
            let peer = entry.peer;
            self.send_last(now, key, out);
            self.ping_if_awaited(now, peer, out);
        }
    }

    fn send_last(&mut self, now: Timestamp, key: Key, out: &mut Outbox<P>) {
        let Some((entry, last)) = self.relations.get(key).and_then(|entry| Some((entry, entry.last?))) else { return };
        let waits_for_chunk = entry.observed == Observed::Many && entry.in_flight.is_some();
        if !entry.is_blocked(now) || (waits_for_chunk && !entry.queued && !entry.stalled) {
            let response = Response { max_age: last.max_age, ..Response::new(last.code) };
            let limits = limits_for(entry, &response).unwrap_or(entry.limits);
            let notification = Notification { response, confirmable: true, encoded: None, event: false };
            self.send_notification(now, (key, limits), &notification, out);
        }
        self.set_alarm(now, key);
    }

    /// Notes that the application has a newer state for an observer that may not be notified now.
    fn postpone(&mut self, now: Timestamp, key: Key) -> Notified {
        let Some(entry) = self.relations.get_mut(key) else { return Notified::Gone };
        if std::mem::replace(&mut entry.dirty, true) {
            self.counters.conflated += 1;
        }
        self.set_alarm(now, key);
        Notified::Later
    }

    /// Handles the acknowledgement of a notification.
    pub(crate) fn relation_confirmed(&mut self, now: Timestamp, key: Key) {
        if let Some(relation) = self.relations.get_mut(key) {
            relation.confirmed_at = now;
            (relation.stalled, relation.replacing) = (false, false);
            let pace = self.peers.get(relation.peer).map(pace).unwrap_or_default();
            relation.not_before = relation.not_before.min(now + pace);
        }
    }

    /// Continues a relation that may have been blocked.
    pub(crate) fn pump(&mut self, now: Timestamp, key: Key, out: &mut Outbox<P>) {
        let Some(entry) = self.relations.get_mut(key) else { return };
        if entry.alarm.is_some_and(|at| at <= now) {
            entry.alarm = None;
        }
        if entry.last.is_some() {
            self.send_last(now, key, out);
            return;
        }
        let open = !entry.is_blocked(now);
        let unproven = open && entry.in_flight.is_none() && entry.proof_due(self.config.confirm_interval) <= Some(now);
        if unproven && matches!(entry.proof, Proof::Open | Proof::Due) {
            entry.proof = Proof::Demanded;
            self.announce(key);
        } else if open && entry.dirty {
            self.announce(key);
        }
        self.set_alarm(now, key);
    }

    /// Asks the application for the newest state.
    pub(super) fn announce(&mut self, key: Key) {
        if let Some(entry) = self.relations.get_mut(key) {
            entry.dirty = false;
            self.events.push_back(Event::Ready { relation: RelationId(key) });
        }
    }

    /// Whether a newer state replaces a Confirmable that is due again (RFC 7641 §4.5.2). If it does not come in time,
    /// the Confirmable is retransmitted unchanged the next time.
    pub(crate) fn is_replaced(&mut self, now: Timestamp, key: Key, out: &mut Outbox<P>) -> bool {
        let Some(entry) = self.relations.get_mut(key) else { return false };
        entry.stalled = true;
        entry.replacing = entry.last.is_some() || (entry.observed == Observed::One && entry.dirty);
        if !entry.replacing {
            return false;
        }
        if entry.last.is_some() {
            self.send_last(now, key, out)
        } else {
            self.announce(key)
        }
        true
    }

    /// Sets the timer of a relation that waits for time only.
    pub(super) fn set_alarm(&mut self, now: Timestamp, key: Key) {
        if let Some(at) = self.relations.get_mut(key).and_then(|relation| relation.new_alarm(&self.config, now)) {
            self.timers.add(at, Timer::Relation(key));
        }
    }

    /// Sends one notification now. `false` when it may not be sent and the relation waits.
    fn send_notification(
        &mut self,
        now: Timestamp,
        (key, limits): (Key, Limits),
        notification: &Notification<'_>,
        out: &mut Outbox<P>,
    ) -> bool {
        let Some(relation) = self.relations.get_mut(key) else { return true };
        let Some(peer) = self.peers.get_mut(relation.peer) else { return true };
        let in_flight = relation.in_flight.and_then(|key| self.confirmables.get(key));
        let Some(plan) = plan(&self.config, now, (key, &mut *relation), peer, in_flight, notification) else {
            return false;
        };
        let of = relation.peer;
        if !self.keep_rest(now, (key, limits), notification) {
            return false;
        }
        let (Some(relation), Some(peer)) = (self.relations.get_mut(key), self.peers.get_mut(of)) else { return true };
        // RFC 8323 §7.1: over a connection the option may be empty and must be ignored. Some clients (aiocoap 0.4) do
        // not ignore it, so it counts there too.
        let sequence = (relation.sequence + 1) & SEQUENCE_MASK;
        let message_id = peer.message_id();
        let kind = if plan.confirmable { Type::Confirmable } else { Type::NonConfirmable };
        let response = &notification.response;
        let extra = first_block(response, limits, (!plan.last).then_some(sequence));
        let encoded = notification.encoded.filter(|_| !plan.last && extra.block2.is_none());
        let token = relation.token;
        let write = |bytes: &mut Vec<u8>| {
            let encoder = Encoder::new(bytes, kind, response.code, message_id, &token);
            match encoded {
                Some(encoded) => encoded.write(encoder, sequence),
                None => response.write(encoder, &extra),
            }
        };
        match &relation.exchange {
            None => {
                out.push_with(peer.address, write);
            }
            Some(exchange) => {
                let mut plain = self.buffers.take();
                write(&mut plain);
                let sealed = seal_into(now, exchange, &plain, Role::Notification, peer.address, out);
                self.buffers.put_back(plain);
                match sealed {
                    Ok(()) => {}
                    Err(Unsealed::NotNow) => {
                        relation.not_before = now + SEAL_AGAIN_AFTER;
                        relation.replacing = false;
                        return false;
                    }
                    Err(Unsealed::Never) => {
                        self.remove_relation(key, GoneReason::Unprotected);
                        return true;
                    }
                }
            }
        }
        relation.sequence = sequence;
        self.counters.notified += 1;
        relation.sent(now, message_id, plan.confirmable);
        peer.allowance.spend(size_of_content(response));
        if plan.confirmable {
            relation.proof = Proof::Given;
            self.follow_confirmable(now, key, message_id, &plan, out);
        } else if let Some(at) = relation.follow(&self.config, now, peer, &plan) {
            self.timers.add(at, Timer::Relation(key));
        }
        if plan.last {
            self.remove_relation(key, GoneReason::Refused);
        }
        true
    }

    /// Tracks a Confirmable notification. The last one is tracked alone, because its relation ends here.
    fn follow_confirmable(&mut self, now: Timestamp, key: Key, message_id: u16, plan: &Plan, out: &Outbox<P>) {
        let Some(relation) = self.relations.get_mut(key) else { return };
        let peer = relation.peer;
        relation.replacing = false;
        if plan.backoff.is_some()
            && let Some(replaced) = relation.in_flight
        {
            self.take_confirmable(replaced);
        }
        let datagram = self.buffer(out.last());
        let backoff = match plan.backoff {
            Some(backoff) => backoff,
            None => self.fresh_backoff(now),
        };
        let relation = (!plan.last).then_some(key);
        let tracked = self.track(Confirmable { peer, message_id, datagram, relation, backoff });
        if let (Some(relation), false) = (self.relations.get_mut(key), plan.last) {
            relation.in_flight = tracked;
        }
    }
}

impl Relation {
    /// Updates it after a Non-confirmable notification. Returns the time of a new alarm.
    fn follow<P: Peer>(
        &mut self,
        config: &ServerConfig,
        now: Timestamp,
        peer: &PeerState<P>,
        plan: &Plan,
    ) -> Option<Timestamp> {
        if self.observed == Observed::Many {
            // The acknowledgement of its chunk sets the pace.
            return None;
        }
        // RFC 7641 §4.5.1: no more than one in a round-trip time.
        self.not_before = now + if plan.doubt { pace(peer).max(PACE_OF_DOUBT) } else { pace(peer) };
        if config.reliable {
            return None;
        }
        self.proof = if plan.risky || self.proof == Proof::Due { Proof::Due } else { Proof::Open };
        self.new_alarm(config, now)
    }

    /// The time of its alarm, if it waits for time only and none is set that is as early.
    fn new_alarm(&mut self, config: &ServerConfig, now: Timestamp) -> Option<Timestamp> {
        if self.congested {
            // The end of that continues the relation.
            return None;
        }
        let at = if self.dirty || self.last.is_some() {
            (now < self.not_before).then_some(self.not_before)
        } else if config.reliable || self.in_flight.is_some() {
            None
        } else {
            self.proof_due(config.confirm_interval)
        }?;
        let is_new = self.alarm.is_none_or(|alarm| at < alarm);
        is_new.then(|| *self.alarm.insert(at))
    }

    /// When the newest notification is to be confirmed although no other follows.
    fn proof_due(&self, interval: std::time::Duration) -> Option<Timestamp> {
        match self.proof {
            Proof::Given | Proof::Demanded => None,
            Proof::Due => self.sent_at.map(|sent| sent + QUIET),
            Proof::Open => self.sent_at.map(|sent| (sent + QUIET).max(self.confirmed_at + interval)),
        }
    }
}
