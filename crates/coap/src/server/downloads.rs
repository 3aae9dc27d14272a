//! Representations that are being fetched block by block, kept so that all blocks are of the same state
//! (RFC 7959 §2.4: the ETag tells the client, this spares it the restart).

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::FixedState;

use crate::Timestamp;
use crate::etag::ETag;
use crate::server::{ServerConfig, TransferId as Id};
use crate::slab::Key;

/// One state of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) body: Bytes,
    pub(crate) etag: Option<ETag>,
    pub(crate) content_format: Option<u16>,
    pub(crate) touched: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Downloads {
    map: HashMap<Id, Snapshot, FixedState>,
    bytes: usize,
    bytes_max: usize,
    count_max: usize,
    lifetime: Duration,
}

impl Downloads {
    pub(crate) fn new(config: &ServerConfig, hash: FixedState) -> Self {
        Self {
            map: HashMap::with_hasher(hash),
            bytes: 0,
            bytes_max: config.download_bytes_max,
            count_max: config.downloads_max,
            lifetime: config.download_lifetime,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Keeps a representation; without room the one untouched for longest goes, and what is larger than all room is
    /// not kept: then each block is cut from the state of its moment.
    pub(crate) fn keep(&mut self, id: Id, snapshot: Snapshot) {
        self.remove(id);
        if snapshot.body.len() > self.bytes_max || self.count_max == 0 {
            return;
        }
        while self.map.len() >= self.count_max || self.bytes + snapshot.body.len() > self.bytes_max {
            let oldest = self.map.iter().min_by_key(|(_, snapshot)| snapshot.touched).map(|(id, _)| *id);
            let Some(oldest) = oldest else { break };
            self.remove(oldest);
        }
        self.bytes += snapshot.body.len();
        self.map.insert(id, snapshot);
    }

    /// The representation under way, if it is still there.
    pub(crate) fn find(&mut self, now: Timestamp, id: Id) -> Option<Snapshot> {
        let lifetime = self.lifetime;
        let snapshot = self.map.get_mut(&id).filter(|snapshot| now.since(snapshot.touched) < lifetime)?;
        snapshot.touched = now;
        Some(snapshot.clone())
    }

    /// Forgets one, after its last block: a repeat of that is answered from the exchange.
    pub(crate) fn remove(&mut self, id: Id) {
        if let Some(snapshot) = self.map.remove(&id) {
            self.bytes = self.bytes.saturating_sub(snapshot.body.len());
        }
    }

    /// Drops those of a peer that is gone.
    pub(crate) fn forget(&mut self, peer: Key) {
        self.map.retain(|id, _| id.0 != peer);
        self.bytes = self.map.values().map(|snapshot| snapshot.body.len()).sum();
    }

    /// Drops what rests too long.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        let lifetime = self.lifetime;
        self.map.retain(|_, snapshot| now.since(snapshot.touched) < lifetime);
        self.bytes = self.map.values().map(|snapshot| snapshot.body.len()).sum();
    }
}
