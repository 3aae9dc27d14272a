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
        if block.number == 0 {
            self.begin(now, id);
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
            self.make_room(id);
            return Progress::Continue;
        }
        Progress::Complete(self.remove(id).map(|upload| Bytes::from(upload.body)).unwrap_or_default())
    }

    /// Drops what rests too long.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        let lifetime = self.lifetime;
        self.map.retain(|_, upload| now.since(upload.touched) < lifetime);
        self.bytes = self.map.values().map(|upload| upload.body.len()).sum();
    }

    /// RFC 7959 §2.5: block 0 begins anew whatever was there.
    fn begin(&mut self, now: Timestamp, id: Id) {
        self.remove(id);
        let of_peer = |(other, _): &(&Id, &Upload)| other.0 == id.0;
        if self.map.iter().filter(of_peer).count() >= self.per_peer_max {
            let oldest = self.map.iter().filter(of_peer).min_by_key(|(_, upload)| upload.touched).map(|(id, _)| *id);
            oldest.and_then(|oldest| self.remove(oldest));
        }
        if self.map.len() >= self.count_max {
            self.remove_oldest_but(id);
        }
        self.map.insert(id, Upload { body: Vec::new(), touched: now });
    }

    /// Drops those of a peer that is gone.
    pub(crate) fn forget(&mut self, peer: Key) {
        self.map.retain(|id, _| id.0 != peer);
        self.bytes = self.map.values().map(|upload| upload.body.len()).sum();
    }

    fn make_room(&mut self, id: Id) {
        while self.bytes > self.bytes_max && self.map.len() > 1 {
            self.remove_oldest_but(id);
        }
    }

    fn remove_oldest_but(&mut self, id: Id) {
        let others = self.map.iter().filter(|(other, _)| **other != id);
        let oldest = others.min_by_key(|(_, upload)| upload.touched).map(|(id, _)| *id);
        oldest.and_then(|oldest| self.remove(oldest));
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
