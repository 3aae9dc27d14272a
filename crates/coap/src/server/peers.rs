//! The peers of one socket: found by address, bounded, the one silent for longest forgotten first.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::Timestamp;
use crate::block::BlockSize;
use crate::peer::Peer;
use crate::server::dedup::{Budget, Exchanges};
use crate::server::moved::Moved;
use crate::server::relations::Allowance;
use crate::slab::{Key, Slab};

/// Peers looked at to find one to forget.
const EVICTION_PROBES: usize = 32;

/// The state of one peer.
#[derive(Debug)]
pub(crate) struct PeerState<P> {
    pub(crate) address: P,
    pub(crate) seen: Timestamp,
    pub(crate) verified_until: Timestamp,
    next_message_id: u16,
    pub(crate) exchanges: Exchanges,
    /// Confirmables that are not acknowledged; at most NSTART (RFC 7252 §4.7).
    pub(crate) in_flight: SmallVec<[Key; 1]>,
    /// Messages that wait until one of those is acknowledged.
    pub(crate) waiting: VecDeque<Waiting>,
    /// How many of those are separate responses.
    pub(crate) responses_waiting: usize,
    pub(crate) relations: SmallVec<[Key; 1]>,
    /// The size limits of messages to it.
    pub(crate) limits: Limits,
    /// Notifications wait: it does not read its connection, or is not known to receive at its address.
    pub(crate) congested: bool,
    /// It has moved to an address that is not validated.
    pub(crate) moved: Option<Box<Moved>>,
    /// The budget of Non-confirmable messages until the peer has to acknowledge something.
    pub(crate) allowance: Allowance,
    /// Smoothed round-trip time, once a Confirmable was acknowledged at its first transmission.
    pub(crate) round_trip: Option<Duration>,
}

/// A message that waits until another Confirmable may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// A notification of this relation.
    Relation(Key),
    /// A separate response, ready to go.
    Response(Key),
}

impl<P> PeerState<P> {
    /// The next identifier for a message to this peer (RFC 7252 §4.4).
    pub(crate) fn message_id(&mut self) -> u16 {
        self.next_message_id = self.next_message_id.wrapping_add(1);
        self.next_message_id
    }

    fn is_forgettable(&self) -> bool {
        self.relations.is_empty() && self.in_flight.is_empty() && self.waiting.is_empty()
    }

    /// Takes a round trip into account, as RFC 6298 §2.3 weighs it.
    pub(crate) fn sample_round_trip(&mut self, sample: Duration) {
        self.round_trip = Some(match self.round_trip {
            Some(smoothed) => (smoothed * 7 + sample) / 8,
            None => sample,
        });
    }
}

#[derive(Debug)]
pub(crate) struct Peers<P> {
    slab: Slab<PeerState<P>>,
    by_address: HashMap<P, Key, FixedState>,
    hand: usize,
    max: usize,
    /// The size limits of messages, unless the peer announces others.
    limits: Limits,
    /// The smaller limits of associations.
    narrow: HashMap<u64, Limits, FixedState>,
    pub(crate) budget: Budget,
}

/// The most that a datagram has where nothing is known of the network (RFC 7252 §4.6). One that is too long for a
/// network or a receiver never arrives, and an observer that does not acknowledge it counts as gone.
const DATAGRAM_BYTES_MAX: usize = 1152;

/// The size limits of a message to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of a payload that is not cut into blocks.
    pub(crate) whole: usize,
    /// The size of blocks.
    pub(crate) size: BlockSize,
    /// Bytes of several blocks in one message, where that may be (BERT).
    pub(crate) chunk: usize,
    /// Bytes of a whole message.
    pub(crate) message: usize,
}

impl Limits {
    /// One block in each message.
    pub(crate) const fn of_datagrams(size: BlockSize) -> Self {
        Self { whole: size.bytes(), size, chunk: size.bytes(), message: DATAGRAM_BYTES_MAX }
    }

    /// The same with messages of so many bytes at most.
    pub(crate) fn of_messages(self, bytes_max: usize) -> Self {
        Self { message: self.message.min(bytes_max), ..self }
    }

    /// The same when the peer asks for blocks of this size.
    pub(crate) fn at_most(self, wanted: Option<BlockSize>) -> Self {
        match wanted {
            Some(wanted) if wanted < self.size => Self { message: self.message, ..Self::of_datagrams(wanted) },
            Some(_) | None => self,
        }
    }

    /// The same beside so many bytes of header and options, for a payload of `bytes`. `None`: not even the smallest
    /// block fits.
    pub(crate) fn beside(self, options: usize, bytes: usize) -> Option<Self> {
        let room = self.message.checked_sub(options)?;
        if room >= self.whole || bytes <= room {
            return Some(Self { whole: self.whole.min(room), ..self });
        }
        let size = if room >= self.size.bytes() { self.size } else { BlockSize::at_most(room) };
        (size.bytes() <= room).then(|| Self { whole: room, size, chunk: size.chunk(room), ..self })
    }
}

impl<P: Peer> Peers<P> {
    pub(crate) fn new(max: usize, bytes_max: usize, limits: Limits, hash: FixedState) -> Self {
        let budget = Budget { used: 0, max: bytes_max };
        let (by_address, narrow) = (HashMap::with_hasher(hash.clone()), HashMap::with_hasher(hash));
        Self { slab: Slab::new(), by_address, hand: 0, max, limits, narrow, budget }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn find(&self, address: &P) -> Option<Key> {
        self.by_address.get(address).copied()
    }

    pub(crate) fn get(&self, key: Key) -> Option<&PeerState<P>> {
        self.slab.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut PeerState<P>> {
        self.slab.get_mut(key)
    }

    /// A peer and the budget for its exchanges.
    pub(crate) fn with_budget(&mut self, key: Key) -> Option<(&mut PeerState<P>, &mut Budget)> {
        self.slab.get_mut(key).map(|peer| (peer, &mut self.budget))
    }

    /// The peer of this address, made when it is new. `None` when there is no room and nobody can be forgotten.
    pub(crate) fn enter(&mut self, now: Timestamp, address: P, first_message_id: u16) -> Option<Key> {
        if let Some(key) = self.find(&address) {
            self.get_mut(key)?.seen = now;
            return Some(key);
        }
        if self.slab.len() >= self.max {
            self.evict()?;
        }
        let limits = self.narrow.get(&address.association()).copied().unwrap_or(self.limits);
        let key = self.slab.insert(PeerState {
            address,
            seen: now,
            verified_until: Timestamp::ZERO,
            next_message_id: first_message_id,
            exchanges: Exchanges::default(),
            in_flight: SmallVec::new(),
            waiting: VecDeque::new(),
            responses_waiting: 0,
            relations: SmallVec::new(),
            limits,
            congested: false,
            moved: None,
            allowance: Allowance::full(now),
            round_trip: None,
        })?;
        self.by_address.insert(address, key);
        Some(key)
    }

    /// Notes the limits of an association, for as long as that lives.
    pub(crate) fn narrow(&mut self, address: &P, limits: Limits) {
        self.narrow.insert(address.association(), limits);
        if let Some(peer) = self.find(address).and_then(|key| self.get_mut(key)) {
            peer.limits = limits;
        }
    }

    /// The association has ended.
    pub(crate) fn widen(&mut self, address: &P) {
        self.narrow.remove(&address.association());
    }

    /// Forgets the longest silent of some peers; looks at all before it gives up.
    fn evict(&mut self) -> Option<()> {
        let places = self.slab.places();
        let mut oldest: Option<(Timestamp, Key)> = None;
        for probe in 0..places {
            if probe >= EVICTION_PROBES && oldest.is_some() {
                break;
            }
            self.hand = (self.hand + 1) % places;
            if let Some((key, peer)) = self.slab.at(self.hand)
                && peer.is_forgettable()
                && peer.exchanges.under_way() == 0
                && oldest.is_none_or(|(seen, _)| peer.seen < seen)
            {
                oldest = Some((peer.seen, key));
            }
        }
        self.remove(oldest?.1);
        Some(())
    }

    /// Forgets peers that were silent for `lifetime`, looking at no more than `count`.
    pub(crate) fn sweep(&mut self, now: Timestamp, lifetime: Duration, count: usize) {
        let places = self.slab.places();
        for _ in 0..count.min(places) {
            self.hand = (self.hand + 1) % places;
            if let Some((key, peer)) = self.slab.at(self.hand)
                && peer.is_forgettable()
                && now.since(peer.seen) >= lifetime
            {
                self.remove(key);
            }
        }
    }

    pub(crate) fn remove(&mut self, key: Key) {
        if let Some(peer) = self.slab.remove(key) {
            self.by_address.remove(&peer.address);
            self.budget.give(peer.exchanges.bytes());
        }
    }
}
