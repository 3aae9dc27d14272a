//! Observer relations (RFC 7641): the list of observers and the state of each.
//!
//! No payload is queued here. A relation that may not be notified now is marked, and [`Event::Ready`] asks the
//! application for the newest state as soon as it may be: memory is bounded by the number of relations.

mod notify;
mod pace;
mod part;
mod plan;
mod room;
mod table;

use std::rc::Rc;

pub use self::notify::{Notification, Notified};
pub(crate) use self::pace::Allowance;
pub(crate) use self::table::Relations;

use self::pace::{Proof, RECENT};
use self::room::Place;
use crate::Timestamp;
use crate::code::Code;
use crate::content_format;
use crate::peer::Peer;
use crate::response::Response;
use crate::server::peers::Limits;
use crate::server::timers::Timer;
use crate::server::{Event, Exchange, GoneReason, Server, Ticket};
use crate::slab::Key;
use crate::token::Token;

/// Sequence numbers have 24 bits (RFC 7641 §3.4).
const SEQUENCE_MASK: u32 = 0x00ff_ffff;
/// The numbers of a new relation begin at the time, in these parts of a millisecond: above those of any relation that
/// the client had before with the same token, in this process or the one before, and slower than 2^23 in 256 seconds
/// (RFC 7641 §4.4).
const SEQUENCE_PER_MS: u64 = 16;

/// An observation. Its number is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelationId(Key);

impl RelationId {
    /// As a number, for tags.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0.to_u64()
    }

    /// The observation of such a number; other numbers belong to none.
    #[must_use]
    pub fn from_u64(number: u64) -> Self {
        Self(Key::from_u64(number))
    }

    /// Its index for a table of the caller; the indices of ended observations are reused.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.index()
    }
}

/// The resource or resources that a relation observes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observed {
    /// One resource: a newer state takes the place of an older one, also in a retransmission (RFC 7641 §4.5.2).
    #[default]
    One,
    /// Many resources behind one request: each notification is about one of them, and does not replace another. A lost
    /// notification is not made up for by the next, so they are sent in chunks that are acknowledged.
    Many,
}

/// The error response that ends an observation, while it may not be sent yet.
#[derive(Clone, Copy, Debug)]
struct Last {
    code: Code,
    max_age: Option<u32>,
}

/// The Content-Format that notifications must have (RFC 7641 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// No representation has been sent yet; the first must match the Accept option, if there was one.
    Open(Option<u16>),
    /// Any: each of many resources has its own.
    Any,
    /// The Content-Format of the first representation.
    Fixed(Option<u16>),
}

/// One entry of the list of observers (RFC 7641 §4.1).
#[derive(Debug)]
pub(crate) struct Relation {
    peer: Key,
    token: Token,
    cache_key: u64,
    observed: Observed,
    format: Format,
    /// The security context of the newest registration, if that was protected.
    exchange: Option<Rc<dyn Exchange>>,
    limits: Limits,
    /// Its peer does not read, or is not known to receive at its address.
    pub(crate) congested: bool,
    sequence: u32,
    /// The Confirmable that is not acknowledged yet; at most one (RFC 7641 §4.5.1).
    pub(crate) in_flight: Option<Key>,
    /// That Confirmable was retransmitted: nothing else is sent until it is acknowledged.
    pub(crate) stalled: bool,
    /// That Confirmable is due again, and a newer state may replace it.
    replacing: bool,
    /// Waiting for NSTART at its peer.
    pub(crate) queued: bool,
    /// The application has a state that it was not allowed to send; [`Event::Ready`] follows.
    dirty: bool,
    /// The error response that ends it as soon as that may be sent.
    last: Option<Last>,
    recent: [u16; RECENT],
    unconfirmed: u16,
    proof: Proof,
    confirmed_at: Timestamp,
    sent_at: Option<Timestamp>,
    not_before: Timestamp,
    alarm: Option<Timestamp>,
    /// Its place among those that wait for room.
    place: Option<Box<Place>>,
}

impl Relation {
    /// The sequence number of the last notification.
    pub(crate) const fn sequence(&self) -> u32 {
        self.sequence
    }

    /// When a timer is set for it.
    pub(crate) const fn alarm(&self) -> Option<Timestamp> {
        self.alarm
    }

    /// Notes that its newest notification may be lost.
    pub(crate) fn doubt(&mut self) {
        self.dirty |= self.sent_at.is_some() && self.proof != Proof::Given;
    }

    /// Whether it has something to send that it may not send now.
    pub(crate) const fn waits(&self) -> bool {
        self.dirty || self.last.is_some()
    }

    /// The identifier of the security context; 0 for none.
    fn scope(&self) -> u64 {
        self.exchange.as_ref().map_or(0, |exchange| exchange.scope())
    }

    fn is_blocked(&self, now: Timestamp) -> bool {
        // The next chunk of many resources waits for the acknowledgement of the one before.
        let chunk = self.observed == Observed::Many && self.in_flight.is_some();
        self.congested
            || (!self.replacing
                && (self.stalled || self.queued || chunk || now < self.not_before || self.awaits_room()))
    }

    /// Whether a representation has the Content-Format of the earlier ones; the first one fixes it. An empty answer
    /// without a tag is none.
    fn admits(&mut self, response: &Response<'_>) -> bool {
        let format = response.content_format;
        let is_value = response.etag.is_some() || format.is_some() || !response.payload.as_slice().is_empty();
        if !response.code.is_success() || response.code == Code::VALID || !is_value {
            return true;
        }
        let admitted = match self.format {
            Format::Any => return true,
            Format::Open(accept) => {
                accept.is_none_or(|accept| format.unwrap_or(content_format::OCTET_STREAM) == accept)
            }
            Format::Fixed(fixed) => format == fixed,
        };
        if admitted {
            self.format = Format::Fixed(format);
        }
        admitted
    }
}

/// The result of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// A new observation: the application begins to watch the resource.
    New(RelationId),
    /// The same observation again: the application watches the resource already.
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

/// Why a client was not added: the request is answered as if it had no Observe option (RFC 7641 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObserveRefused {
    /// The request has no Observe option that registers.
    #[error("the request does not register")]
    NotAsked,
    /// The limit on observations is reached.
    #[error("{0} observations are the limit")]
    Limit(usize),
}

impl<P: Peer> Server<P> {
    /// Adds the client to the list (RFC 7641 §4.1) as an observer of one resource. To be called before
    /// [`Server::respond`], which sets the Observe option.
    ///
    /// # Errors
    /// [`ObserveRefused`]; the response then carries no Observe option.
    pub fn observe(&mut self, now: Timestamp, ticket: &mut Ticket<P>) -> Result<Registered, ObserveRefused> {
        self.observe_as(now, ticket, Observed::One)
    }

    /// As [`Server::observe`], for one resource or many.
    ///
    /// # Errors
    /// [`ObserveRefused`]; the response then carries no Observe option.
    pub fn observe_as(
        &mut self,
        now: Timestamp,
        ticket: &mut Ticket<P>,
        observed: Observed,
    ) -> Result<Registered, ObserveRefused> {
        if !ticket.register {
            return Err(ObserveRefused::NotAsked);
        }
        if let Some(key) = self.find_relation(ticket) {
            if let Some(relation) = self.relations.get_mut(key)
                && relation.cache_key == ticket.cache_key
                && relation.last.is_none()
            {
                relation.sequence = (relation.sequence + 1) & SEQUENCE_MASK;
                relation.format = open_format(ticket, observed);
                relation.confirmed_at = now;
                relation.exchange.clone_from(&ticket.exchange);
                ticket.relation = Some(key);
                return Ok(Registered::Refreshed(RelationId(key)));
            }
            self.remove_relation(key, GoneReason::Replaced);
        }
        let added = self.add_relation(now, ticket, observed);
        match added {
            Ok(key) => ticket.relation = Some(key),
            Err(_) => self.counters.observers_refused += 1,
        }
        added.map(|key| Registered::New(RelationId(key)))
    }

    /// Ends an observation without a message to the client.
    pub fn end_observation(&mut self, relation: RelationId) {
        self.remove_relation(relation.0, GoneReason::Ended);
    }

    /// Whether a notification would be sent at once, as far as that can be known.
    #[must_use]
    pub fn is_ready(&self, now: Timestamp, relation: RelationId) -> bool {
        self.relations.get(relation.0).is_some_and(|entry| !entry.is_blocked(now) && entry.last.is_none())
    }

    /// Whether [`Event::Ready`] would never come for an observer for which the application has a newer state. Tests and
    /// debug builds assert before they sleep, with all events handled, that it is false.
    #[must_use]
    pub fn is_forgotten(&self, now: Timestamp, relation: RelationId) -> bool {
        let due = self.next_timeout().is_some_and(|at| at <= now);
        let forgotten = |entry: &Relation| !entry.dirty || (!entry.is_blocked(now) && entry.in_flight.is_none());
        !due && self.relations.get(relation.0).is_some_and(|entry| entry.last.is_none() && forgotten(entry))
    }

    /// The peer that observes.
    #[must_use]
    pub fn observer(&self, relation: RelationId) -> Option<P> {
        let relation = self.relations.get(relation.0)?;
        self.peers.get(relation.peer).map(|peer| peer.address)
    }

    fn add_relation(&mut self, now: Timestamp, ticket: &Ticket<P>, observed: Observed) -> Result<Key, ObserveRefused> {
        let limits = self.limits(ticket);
        let peer = self.peers.get_mut(ticket.peer).ok_or(ObserveRefused::Limit(self.config.peers_max))?;
        let relation = Relation {
            peer: ticket.peer,
            token: ticket.token,
            cache_key: ticket.cache_key,
            observed,
            format: open_format(ticket, observed),
            exchange: ticket.exchange.clone(),
            limits,
            congested: peer.congested,
            sequence: first_sequence(self.origin_ms, now),
            in_flight: None,
            stalled: false,
            replacing: false,
            queued: false,
            dirty: false,
            last: None,
            recent: [0; RECENT],
            unconfirmed: 0,
            proof: Proof::Given,
            confirmed_at: now,
            sent_at: None,
            not_before: now,
            alarm: None,
            place: None,
        };
        self.relations.add(&self.config, peer, relation)
    }

    /// The entry of this endpoint, security context and token (RFC 7641 §4.1).
    pub(crate) fn find_relation(&self, ticket: &Ticket<P>) -> Option<Key> {
        let of_peer = &self.peers.get(ticket.peer)?.relations;
        let is_it = |relation: &Relation| relation.token == ticket.token && relation.scope() == ticket.scope();
        of_peer.iter().copied().find(|key| self.relations.get(*key).is_some_and(is_it))
    }

    /// The entry of a recent notification with this message identifier.
    pub(crate) fn find_notified(&self, from: &P, message_id: u16) -> Option<Key> {
        let of_peer = &self.peers.get(self.peers.find(from)?)?.relations;
        let is_it = |key: &Key| {
            let relation = self.relations.get(*key);
            relation.is_some_and(|relation| relation.sent_at.is_some() && relation.recent.contains(&message_id))
        };
        of_peer.iter().copied().find(is_it)
    }

    /// Removes an entry from the list.
    pub(crate) fn remove_relation(&mut self, key: Key, reason: GoneReason) {
        let Some(relation) = self.relations.remove(&mut self.peers, key) else { return };
        if let Some(confirmable) = relation.in_flight {
            self.take_confirmable(confirmable);
            // The next message that waits for the place has it as soon as something may be sent: the timer is due.
            if self.peers.get(relation.peer).is_some_and(|peer| !peer.waiting.is_empty()) {
                self.timers.add(Timestamp::default(), Timer::Place(relation.peer));
            }
        }
        self.events.push_back(Event::ObserverGone { relation: RelationId(key), reason });
    }

    /// Fixes the Content-Format of the notifications by the first response to the observer (RFC 7641 §4.2).
    pub(crate) fn begin_notifications(&mut self, key: Key, answer: &Response<'_>) {
        if let Some(relation) = self.relations.get_mut(key) {
            relation.admits(answer);
            // It is under way together with the notifications that follow at once.
            if let Some(peer) = self.peers.get_mut(relation.peer) {
                peer.allowance.spend(answer.payload.as_slice().len());
            }
        }
    }
}

const fn open_format<P>(ticket: &Ticket<P>, observed: Observed) -> Format {
    match observed {
        Observed::One => Format::Open(ticket.accept),
        Observed::Many => Format::Any,
    }
}

/// The sequence number of a registration at `now`.
fn first_sequence(origin_ms: u64, now: Timestamp) -> u32 {
    let ticks = origin_ms.wrapping_add(now.as_millis()).wrapping_mul(SEQUENCE_PER_MS).wrapping_add(1);
    u32::try_from(ticks & u64::from(SEQUENCE_MASK)).unwrap_or_default()
}
