//! Observer relations (RFC 7641): the list of observers and what is known of each.
//!
//! No payload waits here. A relation that may not be notified now is marked, and [`Event::Ready`] asks the application
//! for the newest state as soon as it may: memory is bounded by the number of relations.

mod notify;
mod pace;

use std::rc::Rc;

pub use self::notify::{Notification, Notified};
pub(crate) use self::pace::Allowance;

use self::pace::{Proof, RECENT};
use crate::code::Code;
use crate::content_format;
use crate::peer::Peer;
use crate::response::Response;
use crate::server::peers::{Limits, Waiting};
use crate::server::{Event, Exchange, GoneReason, Server, Ticket};
use crate::slab::Key;
use crate::time::Timestamp;
use crate::token::Token;

/// Sequence numbers have 24 bits (RFC 7641 §3.4).
const SEQUENCE_MASK: u32 = 0x00ff_ffff;

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

/// The resource or resources that a relation observes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observed {
    /// One resource: a newer state takes the place of an older one, also in a retransmission (RFC 7641 §4.5.2).
    #[default]
    One,
    /// Many resources behind one request: each notification names its own, and none stands for another. A notification
    /// that is lost is not made good by the next, so they go in chunks that are acknowledged.
    Many,
}

/// The error that ends an observation, when it may not go out yet.
#[derive(Clone, Copy, Debug)]
struct Last {
    code: Code,
    max_age: Option<u32>,
}

/// The Content-Format that the first answer fixed for all notifications (RFC 7641 §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    /// No representation has been sent; this Accept holds.
    Open(Option<u16>),
    #[default]
    /// Nothing is fixed: each of many resources has its own.
    Any,
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
    /// It is due again, and a newer state may take its place.
    replacing: bool,
    /// Waiting for NSTART at its peer.
    pub(crate) queued: bool,
    /// The application has something that it was not allowed to send; it is told when it is.
    dirty: bool,
    /// What ends it as soon as that may go out.
    last: Option<Last>,
    recent: [u16; RECENT],
    unconfirmed: u16,
    proof: Proof,
    confirmed_at: Timestamp,
    sent_at: Option<Timestamp>,
    not_before: Timestamp,
    alarm: Option<Timestamp>,
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

    /// The security context; 0 is none.
    fn scope(&self) -> u64 {
        self.exchange.as_ref().map_or(0, |exchange| exchange.scope())
    }

    fn is_blocked(&self, now: Timestamp) -> bool {
        // Of many resources, the next chunk waits for the acknowledgement of the one before.
        let chunk = self.observed == Observed::Many && self.in_flight.is_some();
        self.congested || (!self.replacing && (self.stalled || self.queued || chunk || now < self.not_before))
    }

    /// Whether a representation has the Content-Format of those before, which it fixes when it is the first.
    fn admits(&mut self, response: &Response<'_>) -> bool {
        let format = response.content_format;
        if !response.code.is_success() || (format.is_none() && response.payload.as_slice().is_empty()) {
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

impl<P: Peer> Server<P> {
    /// Puts the client on the list (RFC 7641 §4.1) as an observer of one resource. To be called before
    /// [`Server::respond`], which then says so.
    ///
    /// # Errors
    /// [`ObserveRefused`]; the answer then just carries no Observe option.
    pub fn observe(&mut self, now: Timestamp, ticket: &mut Ticket<P>) -> Result<Registered, ObserveRefused> {
        self.observe_as(now, ticket, Observed::One)
    }

    /// As [`Server::observe`], and says what is observed.
    ///
    /// # Errors
    /// [`ObserveRefused`]; the answer then just carries no Observe option.
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

    /// Ends an observation silently; the application has no more to say to it.
    pub fn end_observation(&mut self, relation: RelationId) {
        self.remove_relation(relation.0, GoneReason::Ended);
    }

    /// Whether a notification would go out at once, as far as that can be known.
    #[must_use]
    pub fn is_ready(&self, now: Timestamp, relation: RelationId) -> bool {
        self.relations.get(relation.0).is_some_and(|entry| !entry.is_blocked(now) && entry.last.is_none())
    }

    /// Whether an observer that the application has something for would never be asked for: an invariant that tests
    /// and debug builds check before they sleep. [`Event::Ready`] of it must not be on its way.
    #[must_use]
    pub fn is_forgotten(&self, now: Timestamp, relation: RelationId) -> bool {
        let due = self.next_timeout().is_some_and(|at| at <= now);
        let forgotten = |entry: &Relation| !entry.dirty || (!entry.is_blocked(now) && entry.in_flight.is_none());
        !due && self.relations.get(relation.0).is_some_and(|entry| entry.last.is_none() && forgotten(entry))
    }

    /// Who observes.
    #[must_use]
    pub fn observer(&self, relation: RelationId) -> Option<P> {
        let relation = self.relations.get(relation.0)?;
        self.peers.get(relation.peer).map(|peer| peer.address)
    }

    fn add_relation(&mut self, now: Timestamp, ticket: &Ticket<P>, observed: Observed) -> Result<Key, ObserveRefused> {
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
            observed,
            format: open_format(ticket, observed),
            exchange: ticket.exchange.clone(),
            limits,
            congested: peer.congested,
            sequence: 1,
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
        };
        let key = self.relations.insert(relation).ok_or(ObserveRefused::Limit(all))?;
        if let Some(relation) = self.relations.get_mut(key) {
            // So that the observers of one thing are not all asked to acknowledge the same notification.
            let spread = key.index() % usize::from(self.config.confirm_every.max(1));
            relation.unconfirmed = u16::try_from(spread).unwrap_or(0);
        }
        self.observing += usize::from(peer.relations.is_empty());
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
        if let Some(confirmable) = relation.in_flight {
            self.take_confirmable(confirmable);
        }
        if let Some(peer) = self.peers.get_mut(relation.peer) {
            peer.relations.retain(|other| *other != key);
            self.observing -= usize::from(peer.relations.is_empty());
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

    /// The first answer to an observer fixes the Content-Format of the notifications (RFC 7641 §4.2).
    pub(crate) fn begin_notifications(&mut self, key: Key, answer: &Response<'_>) {
        if let Some(relation) = self.relations.get_mut(key) {
            relation.admits(answer);
            // It is on its way together with the notifications that follow at once.
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
