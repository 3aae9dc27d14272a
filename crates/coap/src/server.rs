//! An origin server on one socket: requests in, answers and notifications out (RFC 7252, 7641, 7959).
//!
//! [`Server::handle`] takes datagrams in and returns a [`Request`] for the application with a [`Ticket`], which the
//! application hands to [`Server::respond`], now or later. [`Server::observe`] adds observers, [`Server::notify`]
//! notifies them. [`Server::handle_timeout`] is due at [`Server::next_timeout`]; [`Server::poll_event`] says which
//! observers may be notified again and which are gone. All output is put into an [`Outbox`].

mod buffers;
mod config;
mod confirmables;
mod dedup;
mod downloads;
mod echo;
mod moved;
mod owners;
mod peers;
mod proof;
pub mod protection;
mod receive;
mod relations;
mod reliable;
mod respond;
mod resting;
mod timers;
mod under_way;
mod uploads;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fogmux_fair::Owner;
use foldhash::fast::FixedState;
use smallvec::SmallVec;

pub use self::config::{Amplification, ServerConfig};
pub use self::echo::EchoKey;
pub use self::protection::{Exchange, Opened, Protection, Role, Room, Unsealed};
pub use self::relations::{Notification, Notified, ObserveRefused, Observed, Registered, RelationId};
pub use self::reliable::StreamLimits;

use self::buffers::Buffers;
use self::confirmables::Confirmable;
use self::downloads::Downloads;
use self::peers::{Limits, Peers};
use self::relations::Relations;
use self::timers::Timers;
use self::uploads::Uploads;
use crate::Timestamp;
use crate::block::{Block, BlockSize};
use crate::code::Code;
use crate::etag::ETag;
use crate::jitter::Jitter;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::request::Request;
use crate::slab::{Key, Slab};
use crate::token::Token;

/// How often the machine looks for entries that have expired.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Peers looked at each time.
const SWEEP_PEERS: usize = 1024;

/// Bytes of an answer in a datagram beside its payload and Location-Path: header 4, token 8, ETag 9, Observe 4,
/// Content-Format 3, Max-Age 5, Block1 and Block2 9, Size2 5, and the marker.
const ANSWER_BYTES: usize = 48;

/// The server machine of one socket.
pub struct Server<P> {
    config: ServerConfig,
    exchange_lifetime: Duration,
    peers: Peers<P>,
    relations: Relations,
    /// The origin of all times, in milliseconds since an origin that is the same in every process.
    origin_ms: u64,
    confirmables: Slab<Confirmable>,
    uploads: Uploads,
    owners: Owners,
    downloads: Downloads,
    timers: Timers,
    sweep_at: Timestamp,
    events: VecDeque<Event>,
    /// Peers that have shown that they receive at their new address.
    validated: VecDeque<P>,
    echo_key: Box<dyn EchoKey>,
    protection: Option<Box<dyn Protection>>,
    /// Associations of which only protected requests are taken; 0 stands for peers without one.
    demanding: HashSet<u64, FixedState>,
    hash: FixedState,
    jitter: Jitter,
    buffers: Buffers,
    counters: Counters,
}

/// A request for the application.
#[derive(Debug)]
pub struct Incoming<'a, P> {
    /// The request.
    pub request: Request<'a>,
    /// To be handed back with the response.
    pub ticket: Ticket<P>,
}

/// The right to answer one request, and all that the answer depends on.
#[derive(Debug)]
#[must_use = "a request that is never answered is repeated by its client"]
pub struct Ticket<P> {
    address: P,
    peer: Key,
    message_id: u16,
    token: Token,
    confirmable: bool,
    method: Code,
    request_bytes: usize,
    cache_key: u64,
    block1: Option<Block>,
    block2: Option<Block>,
    accept: Option<u16>,
    etags: SmallVec<[ETag; 1]>,
    no_response: u8,
    register: bool,
    relation: Option<Key>,
    /// Of a protected request.
    exchange: Option<Rc<dyn Exchange>>,
    /// Block1 of the message around it, to be repeated outside.
    outer_block1: Option<Block>,
}

/// The key of a blockwise transfer: the peer, its security context and the resource.
type TransferId = (Key, u64, u64);

/// The users of associations.
type Owners = HashMap<u64, Arc<str>, FixedState>;

impl<P: Copy> Ticket<P> {
    /// The peer.
    #[must_use]
    pub const fn peer(&self) -> P {
        self.address
    }

    /// The method.
    #[must_use]
    pub const fn method(&self) -> Code {
        self.method
    }

    /// Whether the request is Confirmable, which all are over a reliable transport.
    #[must_use]
    pub const fn is_confirmable(&self) -> bool {
        self.confirmable
    }

    /// The exchange of a request that was protected from end to end.
    #[must_use]
    pub const fn exchange(&self) -> Option<&Rc<dyn Exchange>> {
        self.exchange.as_ref()
    }
}

/// An event that the application has to handle without having asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An observer may be notified again. The application notifies it of the newest state if the observer does not have
    /// it, or has received it without proof of arrival.
    Ready {
        /// The observation.
        relation: RelationId,
    },
    /// An observation has ended.
    ObserverGone {
        /// The observation.
        relation: RelationId,
        /// The reason.
        reason: GoneReason,
    },
}

/// Why an observation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoneReason {
    /// The client deregistered (RFC 7641 §3.6).
    Deregistered,
    /// It rejected a notification (RFC 7641 §3.6).
    Reset,
    /// Its connection or its security association is over (RFC 8323 §7.4).
    Disconnected,
    /// It did not acknowledge (RFC 7641 §4.5).
    TimedOut,
    /// Its token is used for something else now (RFC 7641 §4.1).
    Replaced,
    /// It got an error response, which ends an observation (RFC 7641 §4.2).
    Refused,
    /// Its security context cannot protect any more messages.
    Unprotected,
    /// The application ended it.
    Ended,
}

/// Counts since the start; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that are no message.
    pub malformed: u64,
    /// Requests handed to the application.
    pub requests: u64,
    /// Duplicates of requests.
    pub duplicates: u64,
    /// Requests refused by the machine: options, blocks, proxying.
    pub refused: u64,
    /// Requests without the protection that is demanded of them.
    pub unprotected: u64,
    /// Requests from new peers when there was no room.
    pub peers_refused: u64,
    /// Requests answered with an Echo instead.
    pub echo_demanded: u64,
    /// Notifications sent, Confirmable or not.
    pub notified: u64,
    /// Notifications that a newer one replaced before they were sent.
    pub conflated: u64,
    /// Observations refused for lack of room.
    pub observers_refused: u64,
    /// Confirmables sent again.
    pub retransmitted: u64,
    /// Confirmables given up.
    pub timed_out: u64,
    /// Notifications that are not sent because their location fits no message for the observer.
    pub too_long: u64,
}

impl<P> fmt::Debug for Server<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl<P: Peer> Server<P> {
    /// A machine without peers. `seed` spreads hashes, message identifiers and back-off; `echo_key` makes Echo values.
    #[must_use]
    pub fn new(config: ServerConfig, seed: u64, echo_key: Box<dyn EchoKey>) -> Self {
        let hash = FixedState::with_seed(seed);
        Self {
            exchange_lifetime: config.transmission.exchange_lifetime(),
            peers: Peers::new(
                config.peers_max,
                config.exchange_bytes_max,
                Limits::of_datagrams(config.block_size),
                hash.clone(),
            ),
            relations: Relations::new(hash.clone()),
            origin_ms: 0,
            confirmables: Slab::new(),
            uploads: Uploads::new(&config, hash.clone()),
            owners: HashMap::with_hasher(hash.clone()),
            downloads: Downloads::new(&config, hash.clone()),
            timers: Timers::default(),
            sweep_at: Timestamp::ZERO,
            events: VecDeque::new(),
            validated: VecDeque::new(),
            echo_key,
            protection: None,
            demanding: HashSet::with_hasher(hash.clone()),
            hash,
            jitter: Jitter::new(seed),
            buffers: Buffers::default(),
            counters: Counters::default(),
            config,
        }
    }

    /// Tells when the origin of all times was, in milliseconds since 1970: numbers of observations go on from there. A
    /// client that registers again after a restart would take smaller ones for older notifications (RFC 7641 §3.4).
    pub const fn set_origin(&mut self, unix_ms: u64) {
        self.origin_ms = unix_ms;
    }

    /// Sets the protection that opens requests with an OSCORE option; without it they are answered 4.02.
    pub fn set_protection(&mut self, protection: Box<dyn Protection>) {
        self.protection = Some(protection);
    }

    /// Answers requests of an association that are not protected with 4.01 from now on, before anything of them is
    /// kept: the first part of a body like the last. 0 stands for peers without an association. It ends with
    /// [`Server::forget`].
    pub fn demand_protection(&mut self, association: u64) {
        self.demanding.insert(association);
    }

    /// Notes whose association or connection a peer's is, so that its uploads and downloads are of that user's share.
    /// It ends with [`Server::forget`].
    pub fn belongs_to(&mut self, peer: &P, user: Arc<str>) {
        self.owners.insert(peer.association(), user);
    }

    /// Notes the most bytes that a message to an association may have, as RFC 8449 limits it over DTLS. Answers that
    /// would be longer go in smaller blocks, of 16 bytes at least. It ends with [`Server::forget`].
    pub fn limit_messages(&mut self, peer: &P, bytes_max: usize) {
        let size = BlockSize::at_most(bytes_max.saturating_sub(ANSWER_BYTES));
        if size < self.config.block_size {
            self.peers.narrow(peer, Limits::of_datagrams(size).of_messages(bytes_max));
        }
    }

    /// Bytes of unfinished uploads; small ones count for more than they have.
    #[must_use]
    pub fn uploads_bytes(&self) -> usize {
        self.uploads.bytes()
    }

    /// How many uploads had to go for those of others since the last call, and whose was the last.
    pub fn take_gave_way(&mut self) -> Option<(u64, Owner)> {
        self.uploads.take_gave_way()
    }

    /// How many representations that were being fetched had to go for those of others since the last call, and whose
    /// was the last.
    pub fn take_downloads_gave_way(&mut self) -> Option<(u64, Owner)> {
        self.downloads.take_gave_way()
    }

    /// The number of events so far that were too large for a notification and went before the rest was fetched.
    #[must_use]
    pub const fn events_lost(&self) -> u64 {
        self.downloads.lost()
    }

    /// Counts since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The number of observations.
    #[must_use]
    pub fn observers(&self) -> usize {
        self.relations.len()
    }

    /// The number of peers that observe something.
    #[must_use]
    pub const fn observing_peers(&self) -> usize {
        self.relations.peers()
    }

    /// The number of peers that are remembered.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// The next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Server::handle_timeout`] is due, if ever.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let resting = self.peers.len() > 0 || !self.uploads.is_empty() || !self.downloads.is_empty();
        let sweep = resting.then_some(self.sweep_at);
        [self.timers.next(), sweep].into_iter().flatten().min()
    }

    /// Does what is due: retransmissions, delayed acknowledgements, postponed notifications, and expiry.
    pub fn handle_timeout(&mut self, now: Timestamp, out: &mut Outbox<P>) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                timers::Timer::Confirmable(key) => self.confirmable_due(now, key, out),
                timers::Timer::Relation(key) => self.pump(now, key, out),
                timers::Timer::Ping(key, message_id) => self.ping_due(now, key, message_id, out),
                timers::Timer::Acknowledge(peer, message_id) => self.acknowledge_late(peer, message_id, out),
                timers::Timer::Place(peer) => self.admit_waiting(now, peer, out),
                timers::Timer::Room => self.room_due(now),
            }
        }
        if now >= self.sweep_at {
            self.sweep_at = now + SWEEP_EVERY;
            self.uploads.sweep(now);
            self.downloads.sweep(now);
            if !self.config.reliable {
                self.peers.sweep(now, self.exchange_lifetime, SWEEP_PEERS);
            }
        }
        let (confirmables, relations) = (&self.confirmables, &self.relations);
        self.timers.prune(|timer, at| match timer {
            timers::Timer::Confirmable(key) => confirmables.get(*key).is_some(),
            timers::Timer::Relation(key) => relations.get(*key).is_some_and(|entry| entry.alarm() == Some(at)),
            timers::Timer::Acknowledge(..)
            | timers::Timer::Ping(..)
            | timers::Timer::Place(_)
            | timers::Timer::Room => true,
        });
    }
}
