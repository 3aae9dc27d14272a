//! Representations that are being fetched block by block, kept so that all blocks are of the same state
//! (RFC 7959 §2.4: the ETag tells the client, this spares it the restart).
//!
//! Owners share the room (ADR 0036). A representation that is retained can be cut anew from its newest state, so one
//! too many is not kept. The rest of an event is there only as long as it is kept: the notification waits for room.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use fogmux_fair::{GaveWay, Owner, Room};
use foldhash::fast::FixedState;

use crate::Timestamp;
use crate::etag::ETag;
use crate::peer::Peer;
use crate::server::resting::{Noted, Resting};
use crate::server::{Server, ServerConfig, TransferId as Id};
use crate::slab::Key;

/// A download that has not moved for this long makes room for others: two retransmissions of a request that was lost.
const RESTING: Duration = Duration::from_secs(10);

/// One state of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) body: Bytes,
    pub(crate) etag: Option<ETag>,
    pub(crate) content_format: Option<u16>,
    pub(crate) touched: Timestamp,
}

/// A snapshot in its place.
#[derive(Debug)]
struct Kept {
    id: Id,
    owner: Owner,
    /// When it last moved, as noted in [`Resting`].
    noted: Noted,
    snapshot: Snapshot,
    /// Whether it is the rest of an event, which is lost when it goes.
    event: bool,
    /// Whether its last block was sent. It stays for repeats of that request, as long as there is room.
    fetched: bool,
}

/// When peers last fetched a block of an event.
type Progress = HashMap<Key, Timestamp, FixedState>;

/// The snapshots, with a share of the room for each owner.
#[derive(Debug)]
pub(crate) struct Downloads {
    map: HashMap<Id, u64, FixedState>,
    room: Room<Kept>,
    resting: Resting,
    progress: Progress,
    bytes_max: usize,
    count_max: usize,
    /// The weight of a small snapshot, so that the bound in bytes is one in number, too.
    least: usize,
    lifetime: Duration,
    /// How many snapshots went for those of others since somebody asked, and whose was the last.
    gave_way: Option<(u64, Owner)>,
    /// Events that went before they were fetched.
    lost: u64,
}

impl<P: Peer> Server<P> {
    /// Forgets the representations of which later blocks are to be fetched, but the rests of events, which are nowhere
    /// else. To be called when other answers may be due than before, as after a change of access rules: a later block
    /// is cut from the answer of its moment then, and its ETag says whether that is another.
    pub fn forget_representations(&mut self) {
        self.downloads.forget_states();
    }
}

impl Downloads {
    pub(crate) fn new(config: &ServerConfig, hash: FixedState) -> Self {
        Self {
            map: HashMap::with_hasher(hash.clone()),
            room: Room::new(config.download_bytes_max),
            resting: Resting::default(),
            progress: HashMap::with_hasher(hash),
            bytes_max: config.download_bytes_max,
            count_max: config.downloads_max,
            least: config.download_bytes_max.div_ceil(config.downloads_max.max(1)).max(1),
            lifetime: config.download_lifetime,
            gave_way: None,
            lost: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// How many snapshots had to go for others since the last call, and whose was the last.
    pub(crate) fn take_gave_way(&mut self) -> Option<(u64, Owner)> {
        self.gave_way.take()
    }

    /// The number of events so far whose rest went before it was fetched.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Keeps a representation. If there is no room, one of the owner that has most goes, which may be this one; and one
    /// that is larger than all room is not kept: then each block is cut from the state of its moment.
    pub(crate) fn keep(&mut self, now: Timestamp, (id, owner): (Id, Owner), snapshot: Snapshot) {
        self.remove(id);
        if !self.fits(&snapshot) {
            return;
        }
        self.enter(id, owner, snapshot, false);
        self.make_room(now);
    }

    /// Keeps a representation that can be fetched elsewhere as well, as long as nothing else needs the room.
    pub(crate) fn keep_besides(&mut self, (id, owner): (Id, Owner), snapshot: Snapshot) {
        self.remove(id);
        if self.fits(&snapshot) && snapshot.body.len().max(self.least) <= self.room.free() {
            self.enter(id, owner, snapshot, false);
        }
    }

    /// Keeps the rest of an event. False if there is no room: others of its owner are still to be fetched. To be
    /// refused costs little, however much is kept.
    pub(crate) fn keep_event(&mut self, now: Timestamp, (id, owner): (Id, Owner), snapshot: Snapshot) -> bool {
        if !self.fits(&snapshot) {
            self.lost += 1;
            return true;
        }
        let before = self.map.get(&id).copied();
        let had = self.room.weight_of_owner(&owner);
        let number = self.enter(id, owner.clone(), snapshot, true);
        // An owner leaves half of the room to those that come.
        let half = self.bytes_max / 2;
        let beyond = |room: &Room<Kept>| had > 0 && room.weight_of_owner(&owner) > half;
        while self.room.is_overfull() || beyond(&self.room) {
            let own = beyond(&self.room).then_some(&owner);
            if let Some(resting) = self.longest_resting(now, own) {
                self.lose(resting);
            } else if had == 0 && self.room.heaviest().is_some_and(|heaviest| heaviest != owner) {
                // Everybody gets at least one.
                self.give_way(now);
            } else {
                self.leave(number);
                self.restore(id, before);
                return false;
            }
        }
        if let Some(before) = before {
            // A newer event of the same resource.
            self.leave(before);
        }
        true
    }

    /// The representation under way, if it is still there.
    pub(crate) fn find(&mut self, now: Timestamp, id: Id) -> Option<Snapshot> {
        let number = *self.map.get(&id)?;
        let (lifetime, progress) = (self.lifetime, &self.progress);
        let kept = self.room.get_mut(number).filter(|kept| rested(kept, progress, now) < lifetime)?;
        kept.snapshot.touched = now;
        if kept.event {
            self.progress.insert(id.0, now);
        }
        Some(kept.snapshot.clone())
    }

    /// Notes that the last block was sent. Returns the owner, for whose next one there is room now.
    pub(crate) fn finish(&mut self, id: Id) -> Option<Owner> {
        let number = *self.map.get(&id)?;
        let kept = self.room.get_mut(number)?;
        kept.fetched = true;
        self.resting.remove(&kept.owner, kept.noted, number);
        kept.noted = None;
        self.resting.add(&kept.owner, None, number);
        Some(kept.owner.clone())
    }

    /// Forgets one.
    pub(crate) fn remove(&mut self, id: Id) {
        if let Some(number) = self.map.remove(&id) {
            self.leave(number);
        }
    }

    /// Forgets what can be had elsewhere or made anew: all but the rests of events.
    pub(crate) fn forget_states(&mut self) {
        let (room, resting) = (&mut self.room, &mut self.resting);
        self.map.retain(|_, number| {
            let stays = room.get(*number).is_some_and(|kept| kept.event);
            if !stays {
                leave(room, resting, *number);
            }
            stays
        });
    }

    /// Drops those of a peer that is gone.
    pub(crate) fn forget(&mut self, peer: Key) {
        self.progress.remove(&peer);
        let (room, resting) = (&mut self.room, &mut self.resting);
        self.map.retain(|id, number| {
            let stays = id.0 != peer;
            if !stays {
                leave(room, resting, *number);
            }
            stays
        });
    }

    /// Drops what rests too long.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        let (room, resting) = (&mut self.room, &mut self.resting);
        let (progress, lifetime, lost) = (&self.progress, self.lifetime, &mut self.lost);
        self.map.retain(|_, number| {
            let stays = room.get(*number).is_some_and(|kept| rested(kept, progress, now) < lifetime);
            if !stays {
                *lost += u64::from(leave(room, resting, *number).is_some_and(|kept| kept.event && !kept.fetched));
            }
            stays
        });
        self.progress.retain(|_, at| now.since(*at) < lifetime);
    }

    fn fits(&self, snapshot: &Snapshot) -> bool {
        snapshot.body.len() <= self.bytes_max && self.count_max > 0
    }

    fn enter(&mut self, id: Id, owner: Owner, snapshot: Snapshot, event: bool) -> u64 {
        let weight = snapshot.body.len().max(self.least);
        let noted = Some(snapshot.touched);
        let kept = Kept { id, owner: owner.clone(), noted, snapshot, event, fetched: false };
        let number = self.room.enter(owner.clone(), weight, kept);
        self.resting.add(&owner, noted, number);
        self.map.insert(id, number);
        number
    }

    fn leave(&mut self, number: u64) -> Option<Kept> {
        leave(&mut self.room, &mut self.resting, number)
    }

    fn restore(&mut self, id: Id, before: Option<u64>) {
        match before {
            Some(number) => self.map.insert(id, number),
            None => self.map.remove(&id),
        };
    }

    /// The snapshot, of one owner or of all, that is not needed any more or has not moved for longest. One that has
    /// moved since that was noted is noted again, once in [`RESTING`] at most.
    fn longest_resting(&mut self, now: Timestamp, owner: Option<&Owner>) -> Option<u64> {
        loop {
            let (noted, number) = self.resting.first(owner)?;
            if noted.is_some_and(|noted| now.since(noted) < RESTING) {
                return None;
            }
            let kept = self.room.get_mut(number)?;
            let moved = (!kept.fetched).then(|| last_moved(kept, &self.progress));
            if moved <= noted {
                return Some(number);
            }
            self.resting.remove(&kept.owner, noted, number);
            kept.noted = moved;
            self.resting.add(&kept.owner, moved, number);
        }
    }

    fn make_room(&mut self, now: Timestamp) {
        while self.give_way(now) {}
    }

    /// Has one of the owner that has most go, if there are too many.
    fn give_way(&mut self, now: Timestamp) -> bool {
        let progress = &self.progress;
        let gone = self.room.give_way(|kept| rests(kept, progress, now));
        let Some(GaveWay { owner, value, number }) = gone else { return false };
        self.resting.remove(&value.owner, value.noted, number);
        self.dropped(number, &value);
        if !value.fetched {
            let before = self.gave_way.take().map_or(0, |(count, _)| count);
            self.gave_way = Some((before + 1, owner));
        }
        true
    }

    fn lose(&mut self, number: u64) {
        if let Some(kept) = self.leave(number) {
            self.dropped(number, &kept);
        }
    }

    fn dropped(&mut self, number: u64, kept: &Kept) {
        if self.map.get(&kept.id) == Some(&number) {
            self.map.remove(&kept.id);
        }
        self.lost += u64::from(kept.event && !kept.fetched);
    }
}

fn leave(room: &mut Room<Kept>, resting: &mut Resting, number: u64) -> Option<Kept> {
    let kept = room.leave(number)?;
    resting.remove(&kept.owner, kept.noted, number);
    Some(kept)
}

/// When a snapshot last moved. One of an event moves with all others of its peer, which fetches a few at a time.
fn last_moved(kept: &Kept, progress: &Progress) -> Timestamp {
    let of_peer = progress.get(&kept.id.0).filter(|_| kept.event);
    of_peer.map_or(kept.snapshot.touched, |at| kept.snapshot.touched.max(*at))
}

/// How long a snapshot has not moved.
fn rested(kept: &Kept, progress: &Progress, now: Timestamp) -> Duration {
    now.since(last_moved(kept, progress))
}

/// How long a snapshot has rested, if it makes room for others because of that.
fn rests(kept: &Kept, progress: &Progress, now: Timestamp) -> Option<Duration> {
    if kept.fetched {
        Some(Duration::MAX)
    } else {
        Some(rested(kept, progress, now)).filter(|rested| *rested >= RESTING)
    }
}

#[cfg(test)]
mod tests;
