//! Observers (RFC 7641): the list, and notifications that never pile up: what waits is replaced by what is newer.

mod held;

use std::rc::Rc;
use std::time::Duration;

use self::held::Held;
use crate::block::Block;
use crate::code::Code;
use crate::encode::Encoder;
use crate::message::Type;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::request::location_cache_key;
use crate::response::{Extra, Response};
use crate::server::confirmables::{Backoff, Confirmable};
use crate::server::downloads::Snapshot;
use crate::server::peers::{Limits, PeerState, Waiting};
use crate::server::respond::seal_into;
use crate::server::timers::Timer;
use crate::server::{Event, Exchange, GoneReason, Role, Server, ServerConfig, Ticket, Unsealed};
use crate::slab::Key;
use crate::time::Timestamp;
use crate::token::Token;

/// Sequence numbers have 24 bits (RFC 7641 §3.4).
const SEQUENCE_MASK: u32 = 0x00ff_ffff;

/// Without an estimate of the round trip, no more than one Non-confirmable in this time (RFC 7641 §4.5.1).
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_secs(3);

/// A shorter round trip is one of a local network, and more scheduling than transmission: it sets no pace.
const PACED_ROUND_TRIP_MIN: Duration = Duration::from_millis(10);

/// Who has not acknowledged for this long, or for [`PATIENCE_TRIPS`] round trips if that is longer, is perhaps gone.
const PATIENCE_MIN: Duration = Duration::from_millis(10);

/// A device and its network may for once take so many times as long as they do on average.
const PATIENCE_TRIPS: u32 = 4;

/// The pace of Non-confirmables to somebody who is perhaps gone: one whose acknowledgement was lost still hears the
/// newest several times a second, and many who have vanished cost next to nothing.
const PACE_OF_DOUBT: Duration = Duration::from_millis(200);

/// When a notification could not be protected, it is tried again after this.
const SEAL_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// How many Non-confirmable notifications a Reset may come too late by.
const RECENT: usize = 4;

/// An observation; numbers are not used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelationId(Key);

impl RelationId {
    /// As a number, for tags.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0.to_u64()
    }

    /// From such a number; another number names nobody.
    #[must_use]
    pub fn from_u64(number: u64) -> Self {
        Self(Key::from_u64(number))
    }

    /// Its place in a table of the caller; places of ended observations are used again.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.index()
    }
}

/// One entry of the list of observers (RFC 7641 §4.1).
#[derive(Debug)]
pub(crate) struct Relation {
    peer: Key,
    token: Token,
    cache_key: u64,
    /// The newest registration's, when that was protected: it seals what is sent.
    exchange: Option<Rc<dyn Exchange>>,
    limits: Limits,
    /// Its peer does not read.
    pub(crate) congested: bool,
    sequence: u32,
    /// The Confirmable that is not acknowledged yet; at most one (RFC 7641 §4.5.1).
    pub(crate) in_flight: Option<Key>,
    /// That Confirmable had to be sent again: nothing else goes out until it is acknowledged.
    pub(crate) stalled: bool,
    /// Waiting for NSTART at its peer.
    pub(crate) queued: bool,
    held: Held,
    recent: [u16; RECENT],
    unconfirmed: u16,
    confirmed_at: Timestamp,
    sent_at: Option<Timestamp>,
    not_before: Timestamp,
    timer_set: bool,
}

impl Relation {
    /// The sequence number of the last notification.
    pub(crate) const fn sequence(&self) -> u32 {
        self.sequence
    }

    /// The security context; 0 is none.
    fn scope(&self) -> u64 {
        self.exchange.as_ref().map_or(0, |exchange| exchange.scope())
    }

    /// Notes that a notification went out.
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

    fn is_blocked(&self, now: Timestamp) -> bool {
        self.stalled || self.congested || self.queued || now < self.not_before
    }
}

/// What has happened to an entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// It is new; the application begins to watch.
    New(RelationId),
    /// It was there already, for the same thing; the application watches already.
    Refreshed(RelationId),
}

impl Registered {
    /// The observation.
    #[must_use]
    pub const fn relation(self) -> RelationId {
        match self {
            Self::New(relation) | Self::Refreshed(relation) => relation,
        }
    }
}

/// Why nobody was added: the request is then answered as if it had no Observe option (RFC 7641 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObserveRefused {
    /// The client does not ask for it.
    #[error("the request does not register")]
    NotAsked,
    /// This many are there already.
    #[error("{0} observations are the limit")]
    Limit(usize),
}

/// What observers are to hear.
#[derive(Clone, Copy, Debug)]
pub struct Notification<'a> {
    /// The state, or the error that ends the observation.
    pub response: Response<'a>,
    /// Whether it must be acknowledged; others are, now and then (RFC 7641 §4.5).
    pub confirmable: bool,
    /// Of two that wait with the same number, only the newer is sent.
    pub subject: u64,
}

/// What has become of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notified {
    /// It is on its way out.
    Sent,
    /// It waits for a slow observer; it goes out unless a newer one comes.
    Held,
    /// Nobody is there.
    Gone,
}

impl<P: Peer> Server<P> {
    /// Puts the client on the list (RFC 7641 §4.1). To be called before [`Server::respond`], which then says so.
    ///
    /// # Errors
    /// [`ObserveRefused`]; the answer then just carries no Observe option.
    pub fn observe(&mut self, now: Timestamp, ticket: &mut Ticket<P>) -> Result<Registered, ObserveRefused> {
        if !ticket.register {
            return Err(ObserveRefused::NotAsked);
        }
        if let Some(key) = self.find_relation(ticket) {
            if let Some(relation) = self.relations.get_mut(key)
                && relation.cache_key == ticket.cache_key
            {
                relation.sequence = (relation.sequence + 1) & SEQUENCE_MASK;
                relation.confirmed_at = now;
                relation.exchange.clone_from(&ticket.exchange);
                ticket.relation = Some(key);
                return Ok(Registered::Refreshed(RelationId(key)));
            }
            self.remove_relation(key, GoneReason::Replaced);
        }
        let added = self.add_relation(now, ticket);
        match added {
            Ok(key) => ticket.relation = Some(key),
            Err(_) => self.counters.observers_refused += 1,
        }
        added.map(|key| Registered::New(RelationId(key)))
    }

    /// Tells an observer.
    pub fn notify(
        &mut self,
        now: Timestamp,
        relation: RelationId,
        notification: &Notification<'_>,
        out: &mut Outbox<P>,
    ) -> Notified {
        let RelationId(key) = relation;
        let Some(entry) = self.relations.get(key) else { return Notified::Gone };
        if entry.is_blocked(now) || !entry.held.is_empty() || !self.send_notification(now, key, notification, None, out)
        {
            return self.hold(now, key, notification);
        }
        Notified::Sent
    }

    /// The last word to an observer: an error, and nothing of what waited for it goes out before.
    pub fn dismiss(&mut self, now: Timestamp, relation: RelationId, last: &Notification<'_>, out: &mut Outbox<P>) {
        while let Some(item) = self.relations.get_mut(relation.0).and_then(|entry| entry.held.pop()) {
            self.held_bytes = self.held_bytes.saturating_sub(item.bytes());
        }
        self.notify(now, relation, last, out);
    }

    /// Ends an observation silently; the application has no more to say to it.
    pub fn end_observation(&mut self, relation: RelationId) {
        self.remove_relation(relation.0, GoneReason::Ended);
    }

    /// Whether a notification would go out at once, as far as that can be known.
    #[must_use]
    pub fn is_ready(&self, now: Timestamp, relation: RelationId) -> bool {
        self.relations.get(relation.0).is_some_and(|entry| !entry.is_blocked(now) && entry.held.is_empty())
    }

    /// Who observes.
    #[must_use]
    pub fn observer(&self, relation: RelationId) -> Option<P> {
        let relation = self.relations.get(relation.0)?;
        self.peers.get(relation.peer).map(|peer| peer.address)
    }

    fn add_relation(&mut self, now: Timestamp, ticket: &Ticket<P>) -> Result<Key, ObserveRefused> {
        let limits = self.limits(ticket);
        let (all, per_host, per_peer) =
            (self.config.observers_max, self.config.observers_per_host_max, self.config.observers_per_peer_max);
        if self.relations.len() >= all {
            return Err(ObserveRefused::Limit(all));
        }
        let peer = self.peers.get_mut(ticket.peer).ok_or(ObserveRefused::Limit(self.config.peers_max))?;
        if peer.relations.len() >= per_peer {
            return Err(ObserveRefused::Limit(per_peer));
        }
        let of_host = self.observers_per_host.entry(ticket.address.host()).or_insert(0);
        if *of_host >= per_host {
            return Err(ObserveRefused::Limit(per_host));
        }
        let relation = Relation {
            peer: ticket.peer,
            token: ticket.token,
            cache_key: ticket.cache_key,
            exchange: ticket.exchange.clone(),
            limits,
            congested: peer.congested,
            sequence: 1,
            in_flight: None,
            stalled: false,
            queued: false,
            held: Held::default(),
            recent: [0; RECENT],
            unconfirmed: 0,
            confirmed_at: now,
            sent_at: None,
            not_before: now,
            timer_set: false,
        };
        let key = self.relations.insert(relation).ok_or(ObserveRefused::Limit(all))?;
        if let Some(relation) = self.relations.get_mut(key) {
            // So that the observers of one thing are not all asked to acknowledge the same notification.
            let spread = key.index() % usize::from(self.config.confirm_every.max(1));
            relation.unconfirmed = u16::try_from(spread).unwrap_or(0);
        }
        peer.relations.push(key);
        *of_host += 1;
        Ok(key)
    }

    /// The entry of this endpoint, security context and token (RFC 7641 §4.1).
    pub(crate) fn find_relation(&self, ticket: &Ticket<P>) -> Option<Key> {
        let of_peer = &self.peers.get(ticket.peer)?.relations;
        let is_it = |relation: &Relation| relation.token == ticket.token && relation.scope() == ticket.scope();
        of_peer.iter().copied().find(|key| self.relations.get(*key).is_some_and(is_it))
    }

    /// The entry that was lately notified with this message identifier.
    pub(crate) fn find_notified(&self, from: &P, message_id: u16) -> Option<Key> {
        let of_peer = &self.peers.get(self.peers.find(from)?)?.relations;
        let is_it = |key: &Key| {
            let relation = self.relations.get(*key);
            relation.is_some_and(|relation| relation.sent_at.is_some() && relation.recent.contains(&message_id))
        };
        of_peer.iter().copied().find(is_it)
    }

    /// Takes an entry off the list, whatever waits for it.
    pub(crate) fn remove_relation(&mut self, key: Key, reason: GoneReason) {
        let Some(relation) = self.relations.remove(key) else { return };
        self.held_bytes = self.held_bytes.saturating_sub(relation.held.bytes());
        if let Some(confirmable) = relation.in_flight {
            self.take_confirmable(confirmable);
        }
        if let Some(peer) = self.peers.get_mut(relation.peer) {
            peer.relations.retain(|other| *other != key);
            peer.waiting.retain(|waiting| *waiting != Waiting::Relation(key));
            let host = peer.address.host();
            if let Some(count) = self.observers_per_host.get_mut(&host) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.observers_per_host.remove(&host);
                }
            }
        }
        self.events.push_back(Event::ObserverGone { relation: RelationId(key), reason });
    }

    /// The observer acknowledged: it is there.
    pub(crate) fn relation_confirmed(&mut self, now: Timestamp, key: Key, out: &mut Outbox<P>) {
        if let Some(relation) = self.relations.get_mut(key) {
            relation.confirmed_at = now;
            relation.stalled = false;
            let pace = self.peers.get(relation.peer).map(pace).unwrap_or_default();
            relation.not_before = relation.not_before.min(now + pace);
        }
        self.pump(now, key, out);
    }

    /// Sends what waits, as far as it may go now.
    pub(crate) fn pump(&mut self, now: Timestamp, key: Key, out: &mut Outbox<P>) {
        if let Some(relation) = self.relations.get_mut(key) {
            relation.timer_set = false;
        }
        while self.relations.get(key).is_some_and(|relation| !relation.is_blocked(now) && !relation.held.is_empty()) {
            if !self.send_held(now, key, None, out) {
                return;
            }
        }
        self.wait_for_pace(now, key);
    }

    /// Whether something newer waits.
    pub(crate) fn has_held(&self, key: Key) -> bool {
        self.relations.get(key).is_some_and(|relation| !relation.held.is_empty())
    }

    /// Sends the oldest of what waits, in the place of a Confirmable that was not acknowledged if `backoff` says so.
    pub(crate) fn send_held(
        &mut self,
        now: Timestamp,
        key: Key,
        backoff: Option<Backoff>,
        out: &mut Outbox<P>,
    ) -> bool {
        loop {
            let Some(relation) = self.relations.get_mut(key) else { return false };
            let Some(item) = relation.held.pop() else { return false };
            self.held_bytes = self.held_bytes.saturating_sub(item.bytes());
            let Some(notification) = item.notification(now) else { continue };
            if self.send_notification(now, key, &notification, backoff, out) {
                return true;
            }
            // NSTART: it keeps its place.
            if let Some(relation) = self.relations.get_mut(key) {
                self.held_bytes += item.bytes();
                relation.held.push_front(item);
            }
            return false;
        }
    }

    /// Keeps a notification for later, in the place of an older one on the same subject.
    fn hold(&mut self, now: Timestamp, key: Key, notification: &Notification<'_>) -> Notified {
        let max = self.config.held_per_observer_max;
        let Some(relation) = self.relations.get_mut(key) else { return Notified::Gone };
        let before = relation.held.bytes();
        let kept = relation.held.push(now, notification, max);
        self.held_bytes = (self.held_bytes + relation.held.bytes()).saturating_sub(before);
        match kept {
            held::Kept::Added => {}
            held::Kept::Replaced => self.counters.conflated += 1,
            held::Kept::Dropped => self.counters.held_dropped += 1,
        }
        if self.held_bytes > self.config.held_bytes_max {
            self.remove_relation(key, GoneReason::Overload);
            return Notified::Gone;
        }
        self.wait_for_pace(now, key);
        Notified::Held
    }

    /// Comes back when the round trip is over, if that is all that is waited for.
    fn wait_for_pace(&mut self, now: Timestamp, key: Key) {
        if let Some(relation) = self.relations.get_mut(key)
            && !relation.held.is_empty()
            && now < relation.not_before
            && !relation.timer_set
        {
            relation.timer_set = true;
            self.timers.add(relation.not_before, Timer::Relation(key));
        }
    }

    /// Sends one notification now. `false` when it must be Confirmable and NSTART forbids it; then the relation waits.
    fn send_notification(
        &mut self,
        now: Timestamp,
        key: Key,
        notification: &Notification<'_>,
        backoff: Option<Backoff>,
        out: &mut Outbox<P>,
    ) -> bool {
        let doubt = self.is_doubtful(now, key);
        let Some(relation) = self.relations.get_mut(key) else { return true };
        let Some(peer) = self.peers.get_mut(relation.peer) else { return true };
        let last = !notification.response.code.is_success();
        let confirmable =
            backoff.is_some() || notification.confirmable || last || needs_proof(&self.config, now, relation, peer);
        let confirmable = confirmable && !self.config.reliable;
        if confirmable && relation.in_flight.is_some() && !last {
            // RFC 7641 §4.5.1: one at a time; the acknowledgement lets this one go on.
            return false;
        }
        if confirmable && peer.in_flight.len() >= self.config.transmission.nstart {
            relation.queued = true;
            peer.waiting.push_back(Waiting::Relation(key));
            return false;
        }
        // RFC 8323 §7.1: on a connection the option may be empty and must be ignored. There are clients (aiocoap 0.4)
        // that do not ignore it, so it counts there too.
        let sequence = (relation.sequence + 1) & SEQUENCE_MASK;
        let message_id = peer.message_id();
        let kind = if confirmable { Type::Confirmable } else { Type::NonConfirmable };
        let response = &notification.response;
        let extra = first_block(response, relation.limits, (!last).then_some(sequence));
        let token = relation.token;
        let write = |bytes: &mut Vec<u8>| {
            response.write(Encoder::new(bytes, kind, response.code, message_id, &token), &extra);
        };
        match &relation.exchange {
            None => {
                out.push_with(peer.address, write);
            }
            Some(exchange) => {
                let mut plain = self.spare.pop().unwrap_or_default();
                plain.clear();
                write(&mut plain);
                let sealed = seal_into(now, exchange, &plain, Role::Notification, peer.address, out);
                self.spare.push(plain);
                match sealed {
                    Ok(()) => {}
                    Err(Unsealed::NotNow) => {
                        relation.not_before = now + SEAL_AGAIN_AFTER;
                        if !relation.timer_set {
                            relation.timer_set = true;
                            self.timers.add(relation.not_before, Timer::Relation(key));
                        }
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
        relation.sent(now, message_id, confirmable);
        if !confirmable {
            // RFC 7641 §4.5.1: no more than one in a round trip.
            relation.not_before = now + if doubt { pace(peer).max(PACE_OF_DOUBT) } else { pace(peer) };
        }
        let peer = relation.peer;
        if extra.block2.is_some() {
            self.keep_for_blocks(now, key, response);
        }
        if confirmable {
            self.follow_notification(now, key, peer, message_id, last, backoff, out);
        }
        if last {
            self.remove_relation(key, GoneReason::Refused);
        }
        true
    }

    /// Whether a Confirmable has gone unacknowledged for longer than such a peer takes.
    fn is_doubtful(&self, now: Timestamp, key: Key) -> bool {
        let Some(relation) = self.relations.get(key) else { return false };
        let Some(confirmable) = relation.in_flight.and_then(|key| self.confirmables.get(key)) else { return false };
        let trip = self.peers.get(relation.peer).and_then(|peer| peer.round_trip).unwrap_or_default();
        now.since(confirmable.backoff.sent()) >= (trip * PATIENCE_TRIPS).max(PATIENCE_MIN)
    }

    /// Follows a Confirmable notification. The last one goes on alone, for its relation ends here.
    #[expect(clippy::too_many_arguments, reason = "one message's whole circumstances, used once")]
    fn follow_notification(
        &mut self,
        now: Timestamp,
        key: Key,
        peer: Key,
        message_id: u16,
        last: bool,
        backoff: Option<Backoff>,
        out: &Outbox<P>,
    ) {
        let datagram = self.buffer(out.last());
        let backoff = match backoff {
            Some(backoff) => backoff,
            None => self.fresh_backoff(now),
        };
        let relation = (!last).then_some(key);
        let tracked = self.track(Confirmable { peer, message_id, datagram, relation, backoff });
        if let (Some(relation), false) = (self.relations.get_mut(key), last) {
            relation.in_flight = tracked;
        }
    }

    /// The client fetches the rest of a large notification; it is to find the same state (RFC 7959 §2.6). Of a filter
    /// there may be several at once: each is at its own place, the newest at the filter's, too.
    fn keep_for_blocks(&mut self, now: Timestamp, key: Key, response: &Response<'_>) {
        let Some(relation) = self.relations.get(key) else { return };
        let (peer, scope, cache_key) = (relation.peer, relation.scope(), relation.cache_key);
        let snapshot = Snapshot {
            body: response.payload.to_bytes(),
            etag: response.etag,
            content_format: response.content_format,
            touched: now,
        };
        if let Some(location) = response.location {
            self.downloads.keep((peer, scope, location_cache_key(location, &self.hash)), snapshot.clone());
        }
        self.downloads.keep((peer, scope, cache_key), snapshot);
    }
}

/// The time between two Non-confirmables.
fn pace<P: Peer>(peer: &PeerState<P>) -> Duration {
    let trip = peer.round_trip.filter(|trip| !peer.address.is_local() && *trip >= PACED_ROUND_TRIP_MIN);
    trip.unwrap_or_default()
}

/// Whether the observer has to acknowledge this one, to show that it is there or how far away it is.
fn needs_proof<P: Peer>(config: &ServerConfig, now: Timestamp, relation: &Relation, peer: &PeerState<P>) -> bool {
    let paced = peer.address.is_local() || relation.sent_at.is_none_or(|sent| now.since(sent) >= UNKNOWN_ROUND_TRIP);
    // A Confirmable that is under way is proof enough to wait for.
    let due = relation.in_flight.is_none()
        && (relation.unconfirmed >= config.confirm_every
            || now.since(relation.confirmed_at) >= config.confirm_interval);
    // RFC 7641 §4.5.1: who does not know the round trip must not send fast; an acknowledgement tells it.
    due || (peer.round_trip.is_none() && !paced)
}

/// The part of a notification that fits, and the options that say so (RFC 7959 §2.6).
fn first_block<'a>(response: &Response<'a>, limits: Limits, observe: Option<u32>) -> Extra<'a> {
    let payload = response.payload.as_slice();
    // RFC 7641 §4.2: an error carries no Observe option, and here none.
    let extra = Extra { observe, payload, ..Extra::default() };
    if payload.len() <= limits.whole {
        return extra;
    }
    let first = Block { number: 0, more: false, size: limits.size };
    match first.slice_of(payload, limits.chunk) {
        Some((block, part)) if block.more && response.code == Code::CONTENT => {
            Extra { payload: part, block2: Some(block), size2: u32::try_from(payload.len()).ok(), ..extra }
        }
        Some(_) | None => extra,
    }
}
