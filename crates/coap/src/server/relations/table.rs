//! The list of observers (RFC 7641 §4.1): entries, the counts that bound them, and the queues of those that wait.

use std::collections::HashMap;
use std::net::IpAddr;

use foldhash::fast::FixedState;

use super::room::Queues;
use super::{ObserveRefused, Relation};
use crate::peer::Peer;
use crate::server::ServerConfig;
use crate::server::peers::{PeerState, Peers, Waiting};
use crate::slab::{Key, Slab};

/// All relations. Each is in the list of its peer, too, and counts for its host.
pub(crate) struct Relations {
    pub(super) entries: Slab<Relation>,
    pub(super) queues: Queues,
    per_host: HashMap<IpAddr, usize, FixedState>,
    peers: usize,
}

impl Relations {
    pub(crate) fn new(hash: FixedState) -> Self {
        Self { entries: Slab::new(), queues: Queues::default(), per_host: HashMap::with_hasher(hash), peers: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of peers that have a relation.
    pub(crate) const fn peers(&self) -> usize {
        self.peers
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Relation> {
        self.entries.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Relation> {
        self.entries.get_mut(key)
    }

    /// Adds a relation of a peer within the bounds on all, on those of a host and on those of a peer.
    pub(super) fn add<P: Peer>(
        &mut self,
        config: &ServerConfig,
        peer: &mut PeerState<P>,
        relation: Relation,
    ) -> Result<Key, ObserveRefused> {
        let (all, per_host, per_peer) =
            (config.observers_max, config.observers_per_host_max, config.observers_per_peer_max);
        if self.entries.len() >= all {
            return Err(ObserveRefused::Limit(all));
        }
        if peer.relations.len() >= per_peer {
            return Err(ObserveRefused::Limit(per_peer));
        }
        let of_host = self.per_host.entry(peer.address.host()).or_insert(0);
        if *of_host >= per_host {
            return Err(ObserveRefused::Limit(per_host));
        }
        let key = self.entries.insert(relation).ok_or(ObserveRefused::Limit(all))?;
        if let Some(relation) = self.entries.get_mut(key) {
            // Spread, so that not all observers of a resource have to acknowledge the same notification.
            let spread = key.index() % usize::from(config.confirm_every.max(1));
            relation.unconfirmed = u16::try_from(spread).unwrap_or(0);
        }
        self.peers += usize::from(peer.relations.is_empty());
        peer.relations.push(key);
        *of_host += 1;
        Ok(key)
    }

    /// Removes a relation from here and from the lists of its peer.
    pub(super) fn remove<P: Peer>(&mut self, peers: &mut Peers<P>, key: Key) -> Option<Relation> {
        self.leave_room_queue(key);
        let relation = self.entries.remove(key)?;
        if let Some(peer) = peers.get_mut(relation.peer) {
            peer.relations.retain(|other| *other != key);
            peer.waiting.retain(|waiting| *waiting != Waiting::Relation(key));
            self.peers -= usize::from(peer.relations.is_empty());
            let host = peer.address.host();
            if let Some(count) = self.per_host.get_mut(&host) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.per_host.remove(&host);
                }
            }
        }
        Some(relation)
    }
}
