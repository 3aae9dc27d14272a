//! Bodies that come in blocks (RFC 7959 §2.5): bounded per peer and in all, and gone when they rest too long.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use fogmux_fair::{GaveWay, Owner, Room};
use foldhash::fast::FixedState;

use crate::Timestamp;
use crate::block::Block;
use crate::code::Code;
use crate::server::{ServerConfig, TransferId as Id};
use crate::slab::Key;

/// An upload that has not moved for this long makes room for others: two retransmissions of a block that was lost.
const RESTING: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Upload {
    id: Id,
    body: Vec<u8>,
    touched: Timestamp,
}

/// The uploads, with a share of the room for each owner: when it is full, an upload of the owner that has most goes.
#[derive(Debug)]
pub(crate) struct Uploads {
    map: HashMap<Id, u64, FixedState>,
    room: Room<Upload>,
    body_bytes_max: usize,
    bytes_max: usize,
    /// The weight of a small upload, so that the bound in bytes is one in number, too.
    least: usize,
    per_peer_max: usize,
    lifetime: Duration,
    /// The number of uploads evicted since the last query, and the owner of the last one.
    gave_way: Option<(u64, Owner)>,
}

/// The outcome of adding a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// 2.31 (Continue): the next block is expected.
    Continue,
    /// The block was the last; this is the whole body.
    Complete(Bytes),
    /// The block is refused with this code; 4.13 carries Size1.
    Refused(Code),
}

impl Uploads {
    pub(crate) fn new(config: &ServerConfig, hash: FixedState) -> Self {
        Self {
            map: HashMap::with_hasher(hash),
            room: Room::new(config.upload_bytes_max),
            body_bytes_max: config.body_bytes_max,
            bytes_max: config.upload_bytes_max,
            least: config.upload_bytes_max.div_ceil(config.uploads_max.max(1)).max(1),
            per_peer_max: config.uploads_per_peer_max,
            lifetime: config.upload_lifetime,
            gave_way: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Bytes of the room that are used.
    pub(crate) fn bytes(&self) -> usize {
        self.room.weight()
    }

    /// How many uploads had to go for others since the last call, and whose was the last.
    pub(crate) fn take_gave_way(&mut self) -> Option<(u64, Owner)> {
        self.gave_way.take()
    }

    /// Takes a block in.
    pub(crate) fn accept(
        &mut self,
        now: Timestamp,
        (id, owner): (Id, Owner),
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
        if block.number == 0 && !self.begin(now, id, owner) {
            return Progress::Refused(Code::TOO_MANY_REQUESTS);
        }
        let Some(number) = self.map.get(&id).copied() else {
            return Progress::Refused(Code::REQUEST_ENTITY_INCOMPLETE);
        };
        let Some(upload) = self.room.get_mut(number).filter(|upload| upload.body.len() == block.offset()) else {
            // RFC 7959 §2.9.2: blocks that do not join.
            self.remove(id);
            return Progress::Refused(Code::REQUEST_ENTITY_INCOMPLETE);
        };
        upload.body.extend_from_slice(payload);
        upload.touched = now;
        if !block.more {
            // Without the room that it grew by: what is made of it is counted with its length.
            return Progress::Complete(self.remove(id).map(|u| u.body.into_boxed_slice().into()).unwrap_or_default());
        }
        self.room.set(number, end.max(self.least));
        self.make_room(now);
        let is_there = self.map.contains_key(&id);
        if is_there { Progress::Continue } else { Progress::Refused(Code::TOO_MANY_REQUESTS) }
    }

    /// Drops what rests too long.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        let (room, lifetime) = (&mut self.room, self.lifetime);
        self.map.retain(|_, number| {
            let stays = room.get(*number).is_some_and(|upload| now.since(upload.touched) < lifetime);
            if !stays {
                room.leave(*number);
            }
            stays
        });
    }

    /// RFC 7959 §2.5: block 0 begins anew whatever was there. `false`: the peer has too many already.
    fn begin(&mut self, now: Timestamp, id: Id, owner: Owner) -> bool {
        self.remove(id);
        if self.map.keys().filter(|other| other.0 == id.0).count() >= self.per_peer_max {
            match self.oldest(id.0) {
                Some((oldest, touched)) if now.since(touched) >= RESTING => self.remove(oldest),
                _ => return false,
            };
        }
        let number = self.room.enter(owner, self.least, Upload { id, body: Vec::new(), touched: now });
        self.map.insert(id, number);
        true
    }

    /// Drops those of a peer that is gone.
    pub(crate) fn forget(&mut self, peer: Key) {
        let room = &mut self.room;
        self.map.retain(|(owner, ..), number| {
            let stays = *owner != peer;
            if !stays {
                room.leave(*number);
            }
            stays
        });
    }

    /// Drops uploads while there are too many: one of the owner that has most, which may be the one that goes on.
    fn make_room(&mut self, now: Timestamp) {
        let rests = |upload: &Upload| Some(now.since(upload.touched)).filter(|rested| *rested >= RESTING);
        while let Some(GaveWay { owner, value, .. }) = self.room.give_way(rests) {
            self.map.remove(&value.id);
            let before = self.gave_way.take().map_or(0, |(count, _)| count);
            self.gave_way = Some((before + 1, owner));
        }
    }

    /// The upload of a peer that has rested for longest.
    fn oldest(&self, peer: Key) -> Option<(Id, Timestamp)> {
        let own = self.map.iter().filter(|(id, _)| id.0 == peer);
        let own = own.filter_map(|(id, number)| Some((*id, self.room.get(*number)?.touched)));
        own.min_by_key(|(_, touched)| *touched)
    }

    fn remove(&mut self, id: Id) -> Option<Upload> {
        let number = self.map.remove(&id)?;
        self.room.leave(number)
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

    fn anybody() -> Owner {
        Owner::nameless([192, 0, 2, 1].into())
    }

    fn owner(peer: Key) -> Owner {
        Owner::principal(format!("{peer:?}").into())
    }

    fn block(number: u32, more: bool) -> Block {
        Block { number, more, size: BlockSize::from_exponent(0).unwrap() }
    }

    #[test]
    fn s2_5_blocks_join_in_order_or_4_08() {
        let mut slab = Slab::new();
        let id = (slab.insert(()).unwrap(), 0, 9);
        let mut uploads = uploads(&ServerConfig::default());
        let mut accept = |b, payload: &[u8]| uploads.accept(Timestamp::ZERO, (id, anybody()), b, None, payload);
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
                        let progress = uploads.accept(
                            Timestamp::ZERO,
                            (*id, owner(id.0)),
                            block(number, number < 9),
                            None,
                            &[0; 16],
                        );
                        complete += usize::from(matches!(progress, Progress::Complete(_)));
                        assert!(uploads.bytes() <= 1600);
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
            uploads.accept(now, ((peer, 0, name), anybody()), block(0, true), None, &[0; 16])
        };
        assert_eq!(begin(0, 1), Progress::Continue);
        assert_eq!(begin(1, 2), Progress::Continue);
        assert_eq!(begin(9, 3), Progress::Refused(Code::TOO_MANY_REQUESTS));
        assert_eq!(begin(10, 3), Progress::Continue);
    }

    #[test]
    fn uploads_of_strangers_do_not_end_that_of_a_user() {
        let (mut slab, mut uploads) = (Slab::new(), uploads(&ServerConfig::default()));
        let device = (slab.insert(()).unwrap(), 7, 1);
        for number in 0..1000 {
            let now = Timestamp::from_millis(u64::from(number));
            let took = uploads.accept(now, (device, owner(device.0)), block(number, true), None, &[0; 16]);
            assert_eq!(took, Progress::Continue);
            for host in 0..20 {
                let stranger = Owner::nameless([192, 0, u8::try_from(number % 200).unwrap(), host].into());
                let id = (slab.insert(()).unwrap(), 0, 9);
                let took = uploads.accept(now, (id, stranger), block(0, true), None, &[0; 16]);
                assert!(matches!(took, Progress::Continue | Progress::Refused(Code::TOO_MANY_REQUESTS)));
            }
        }
        assert!(uploads.take_gave_way().is_some_and(|(count, _)| count > 10_000));
        assert!(uploads.map.len() <= 1024);
        let last = uploads.accept(Timestamp::ZERO, (device, owner(device.0)), block(1000, false), None, &[0; 3]);
        assert!(matches!(last, Progress::Complete(body) if body.len() == 16_003));
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
            assert_eq!(uploads.accept(now, (id, owner(id.0)), block(0, true), None, &[0; 16]), Progress::Continue);
            assert_eq!(uploads.accept(now, (id, owner(id.0)), block(1, true), None, &[0; 16]), Progress::Continue);
            assert!(uploads.bytes() <= 64 && uploads.map.len() <= 3);
        }
        let id = (slab.insert(()).unwrap(), 0, 7);
        let lie = uploads.accept(Timestamp::ZERO, (id, anybody()), block(0, true), Some(u32::MAX), &[0; 16]);
        assert_eq!(lie, Progress::Refused(Code::REQUEST_ENTITY_TOO_LARGE));
        uploads.sweep(Timestamp::from_millis(1_000_000));
        assert!(uploads.is_empty() && uploads.bytes() == 0);
    }
}
