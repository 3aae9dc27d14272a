//! Bodies that come in blocks (RFC 7959 §2.5): bounded per peer and in all, and gone when they rest too long.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::FixedState;

use crate::block::Block;
use crate::code::Code;
use crate::server::{ServerConfig, TransferId as Id};
use crate::slab::Key;
use crate::time::Timestamp;

/// An upload that has not moved for this long makes room for others: two retransmissions of a block that was lost.
const RESTING: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Upload {
    body: Vec<u8>,
    touched: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Uploads {
    map: HashMap<Id, Upload, FixedState>,
    bytes: usize,
    body_bytes_max: usize,
    bytes_max: usize,
    count_max: usize,
    per_peer_max: usize,
    lifetime: Duration,
}

/// What becomes of a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// 2.31: the next one.
    Continue,
    /// That was the last.
    Complete(Bytes),
    /// This code instead; 4.13 is to carry Size1.
    Refused(Code),
}

impl Uploads {
    pub(crate) fn new(config: &ServerConfig, hash: FixedState) -> Self {
        Self {
            map: HashMap::with_hasher(hash),
            bytes: 0,
            body_bytes_max: config.body_bytes_max,
            bytes_max: config.upload_bytes_max,
            count_max: config.uploads_max,
            per_peer_max: config.uploads_per_peer_max,
            lifetime: config.upload_lifetime,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Takes a block in.
    pub(crate) fn accept(
        &mut self,
        now: Timestamp,
        id: Id,
        block: Block,
        size1: Option<u32>,
        payload: &[u8],
    ) -> Progress {
        let fits = match block.size.is_bert() {
            // RFC 8323 §6: any number of blocks, all of them whole.
            true => !payload.is_empty() && payload.len().is_multiple_of(block.size.bytes()),
            // RFC 7959 §2.2: all but the last have the size they say.
            false => payload.len() == block.size.bytes(),
        };
        if block.more && !fits {
            return Progress::Refused(Code::BAD_REQUEST);
        }
        let announced = size1.map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX));
        let end = block.offset().saturating_add(payload.len());
        if end.max(announced) > self.body_bytes_max.min(self.bytes_max) {
            self.remove(id);
            return Progress::Refused(Code::REQUEST_ENTITY_TOO_LARGE);
        }
        if block.number == 0 && !self.begin(now, id) {
            return Progress::Refused(Code::TOO_MANY_REQUESTS);
        }
        let Some(upload) = self.map.get_mut(&id) else {
            return Progress::Refused(Code::REQUEST_ENTITY_INCOMPLETE);
        };
        if upload.body.len() != block.offset() {
            // RFC 7959 §2.9.2: blocks that do not join.
            self.remove(id);
            return Progress::Refused(Code::REQUEST_ENTITY_INCOMPLETE);
        }
        upload.body.extend_from_slice(payload);
        upload.touched = now;
        self.bytes += payload.len();
        if block.more {
            return if self.make_room(now, id) {
                Progress::Continue
            } else {
                Progress::Refused(Code::TOO_MANY_REQUESTS)
            };
        }
        Progress::Complete(self.remove(id).map(|upload| Bytes::from(upload.body)).unwrap_or_default())
    }

    /// Drops what rests too long.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        let lifetime = self.lifetime;
        self.map.retain(|_, upload| now.since(upload.touched) < lifetime);
        self.bytes = self.map.values().map(|upload| upload.body.len()).sum();
    }

    /// RFC 7959 §2.5: block 0 begins anew whatever was there. `false`: there is no room for one more.
    fn begin(&mut self, now: Timestamp, id: Id) -> bool {
        self.remove(id);
        if self.map.keys().filter(|other| other.0 == id.0).count() >= self.per_peer_max {
            match self.oldest_but(id, Some(id.0)) {
                Some((oldest, touched)) if now.since(touched) >= RESTING => self.remove(oldest),
                _ => return false,
            };
        }
        if self.map.len() >= self.count_max {
            let victim = self.victim(now, id, |_| 1);
            if victim == id {
                return false;
            }
            self.remove(victim);
        }
        self.map.insert(id, Upload { body: Vec::new(), touched: now });
        true
    }

    /// Drops those of a peer that is gone.
    pub(crate) fn forget(&mut self, peer: Key) {
        self.map.retain(|id, _| id.0 != peer);
        self.bytes = self.map.values().map(|upload| upload.body.len()).sum();
    }

    /// `false`: the upload `id` itself had to go.
    fn make_room(&mut self, now: Timestamp, id: Id) -> bool {
        while self.bytes > self.bytes_max && self.map.len() > 1 {
            let victim = self.victim(now, id, |upload| upload.body.len());
            self.remove(victim);
            if victim == id {
                return false;
            }
        }
        true
    }

    /// The upload that makes room: one that rests, or else one of the peer that has most by `weight`. If that is the peer
    /// of `id`, it is `id` itself: uploads that go on side by side do not take each other's room until none ends.
    fn victim(&self, now: Timestamp, id: Id, weight: impl Fn(&Upload) -> usize) -> Id {
        if let Some((oldest, touched)) = self.oldest_but(id, None)
            && now.since(touched) >= RESTING
        {
            return oldest;
        }
        let mut of_peers: HashMap<Key, usize, FixedState> = HashMap::with_hasher(self.map.hasher().clone());
        for (other, upload) in self.map.iter().filter(|(other, _)| **other != id) {
            *of_peers.entry(other.0).or_default() += weight(upload);
        }
        let own = of_peers.remove(&id.0).unwrap_or(0) + self.map.get(&id).map_or(1, weight);
        let heaviest = of_peers.into_iter().max_by_key(|(_, weight)| *weight);
        let peer = heaviest.filter(|(_, weight)| *weight >= own).map(|(peer, _)| peer);
        peer.and_then(|peer| self.oldest_but(id, Some(peer))).map_or(id, |(oldest, _)| oldest)
    }

    /// The upload other than `id` that has rested for longest, of one peer or of all.
    fn oldest_but(&self, id: Id, peer: Option<Key>) -> Option<(Id, Timestamp)> {
        let others = self.map.iter().filter(|(other, _)| **other != id && peer.is_none_or(|peer| other.0 == peer));
        others.map(|(other, upload)| (*other, upload.touched)).min_by_key(|(_, touched)| *touched)
    }

    fn remove(&mut self, id: Id) -> Option<Upload> {
        let upload = self.map.remove(&id)?;
        self.bytes = self.bytes.saturating_sub(upload.body.len());
        Some(upload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockSize;
    use crate::slab::Slab;

    fn uploads(config: &ServerConfig) -> Uploads {
        Uploads::new(config, FixedState::with_seed(1))
    }

    fn block(number: u32, more: bool) -> Block {
        Block { number, more, size: BlockSize::from_exponent(0).unwrap() }
    }

    #[test]
    fn s2_5_blocks_join_in_order_or_4_08() {
        let mut slab = Slab::new();
        let id = (slab.insert(()).unwrap(), 0, 9);
        let mut uploads = uploads(&ServerConfig::default());
        let mut accept = |b, payload: &[u8]| uploads.accept(Timestamp::ZERO, id, b, None, payload);
        assert_eq!(accept(block(1, true), &[1; 16]), Progress::Refused(Code::REQUEST_ENTITY_INCOMPLETE));
        assert_eq!(accept(block(0, true), &[1; 16]), Progress::Continue);
        assert_eq!(accept(block(2, true), &[1; 16]), Progress::Refused(Code::REQUEST_ENTITY_INCOMPLETE));
        assert_eq!(accept(block(0, true), &[1; 16]), Progress::Continue);
        assert_eq!(accept(block(1, true), &[2; 15]), Progress::Refused(Code::BAD_REQUEST));
        let whole: Vec<u8> = [vec![1; 16], vec![2; 3]].concat();
        assert_eq!(accept(block(1, false), &[2; 3]), Progress::Complete(whole.into()));
        assert_eq!(accept(block((1 << 20) - 1, true), &[1; 16]), Progress::Refused(Code::REQUEST_ENTITY_TOO_LARGE));
    }

    #[test]
    fn uploads_side_by_side_do_not_keep_each_other_from_ending() {
        for (count, per_peer) in [1, 2, 4, 5, 16, 97, 1000].into_iter().flat_map(|n| [(n, 4), (n, 128), (n, 1000)]) {
            for peers in [1, 2, 5] {
                // Bodies of 160 bytes, of which ten fit.
                let config = ServerConfig {
                    upload_bytes_max: 1600,
                    uploads_per_peer_max: per_peer,
                    uploads_max: 1000,
                    ..ServerConfig::default()
                };
                let (mut slab, mut uploads) = (Slab::new(), uploads(&config));
                let keys: Vec<Key> = (0..peers).map(|_| slab.insert(()).unwrap()).collect();
                let mut open: Vec<Id> = (0..count).map(|n| (keys[n % peers], 0, u64::try_from(n).unwrap())).collect();
                let mut complete = 0;
                for number in 0..10 {
                    open.retain(|id| {
                        let progress = uploads.accept(Timestamp::ZERO, *id, block(number, number < 9), None, &[0; 16]);
                        complete += usize::from(matches!(progress, Progress::Complete(_)));
                        assert!(uploads.bytes <= 1600);
                        progress == Progress::Continue
                    });
                }
                let least = count.min(per_peer).min(9);
                assert!(complete >= least / peers, "{complete} of {count} by {peers} peers, {per_peer} each");
                assert!(peers > 1 || complete >= least, "{complete} of {count}, {per_peer} at once");
            }
        }
    }

    #[test]
    fn an_upload_that_rests_makes_room() {
        let config = ServerConfig { uploads_per_peer_max: 2, ..ServerConfig::default() };
        let mut uploads = uploads(&config);
        let peer = Slab::new().insert(()).unwrap();
        let mut begin = |seconds: u64, name| {
            let now = Timestamp::from_millis(seconds * 1000);
            uploads.accept(now, (peer, 0, name), block(0, true), None, &[0; 16])
        };
        assert_eq!(begin(0, 1), Progress::Continue);
        assert_eq!(begin(1, 2), Progress::Continue);
        assert_eq!(begin(9, 3), Progress::Refused(Code::TOO_MANY_REQUESTS));
        assert_eq!(begin(10, 3), Progress::Continue);
    }

    #[test]
    fn unfinished_uploads_are_bounded_in_bytes_count_and_time() {
        let mut slab = Slab::new();
        let config =
            ServerConfig { uploads_max: 3, upload_bytes_max: 64, uploads_per_peer_max: 2, ..ServerConfig::default() };
        let mut uploads = uploads(&config);
        for millis in 0..100 {
            let id = (slab.insert(()).unwrap(), 0, millis);
            let now = Timestamp::from_millis(millis);
            assert_eq!(uploads.accept(now, id, block(0, true), None, &[0; 16]), Progress::Continue);
            assert_eq!(uploads.accept(now, id, block(1, true), None, &[0; 16]), Progress::Continue);
            assert!(uploads.bytes <= 64 && uploads.map.len() <= 3);
        }
        let id = (slab.insert(()).unwrap(), 0, 7);
        let lie = uploads.accept(Timestamp::ZERO, id, block(0, true), Some(u32::MAX), &[0; 16]);
        assert_eq!(lie, Progress::Refused(Code::REQUEST_ENTITY_TOO_LARGE));
        uploads.sweep(Timestamp::from_millis(1_000_000));
        assert!(uploads.is_empty() && uploads.bytes == 0);
    }
}
