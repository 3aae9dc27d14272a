//! Representations that are being fetched block by block, kept so that all blocks are of the same state
//! (RFC 7959 §2.4: the ETag tells the client, this spares it the restart).
//!
//! Owners share the room (ADR 0036). A representation that is retained can be cut anew from its newest state, so one
//! too many is not kept. The rest of an event is there only as long as it is kept: the notification waits for room.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use fogmux_fair::{GaveWay, Owner, Room};
use foldhash::fast::FixedState;

use crate::Timestamp;
use crate::etag::ETag;
use crate::server::owners::drop_transfers;
use crate::server::{ServerConfig, TransferId as Id};
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

impl Downloads {
    pub(crate) fn new(config: &ServerConfig, hash: FixedState) -> Self {
        Self {
            map: HashMap::with_hasher(hash.clone()),
            room: Room::new(config.download_bytes_max),
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

    /// Keeps the rest of an event. False if there is no room: others of its owner are still to be fetched.
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
                self.room.leave(number);
                self.restore(id, before);
                return false;
            }
        }
        if let Some(before) = before {
            // A newer event of the same resource.
            self.room.leave(before);
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

    /// Notes that the last block was sent.
    pub(crate) fn finish(&mut self, id: Id) {
        if let Some(kept) = self.map.get(&id).and_then(|number| self.room.get_mut(*number)) {
            kept.fetched = true;
        }
    }

    /// Forgets one.
    pub(crate) fn remove(&mut self, id: Id) {
        if let Some(number) = self.map.remove(&id) {
            self.room.leave(number);
        }
    }

    /// Drops those of a peer that is gone.
    pub(crate) fn forget(&mut self, peer: Key) {
        self.progress.remove(&peer);
        drop_transfers(&mut self.map, &mut self.room, peer);
    }

    /// Drops what rests too long.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        let (room, progress, lifetime, lost) = (&mut self.room, &self.progress, self.lifetime, &mut self.lost);
        self.map.retain(|_, number| {
            let stays = room.get(*number).is_some_and(|kept| rested(kept, progress, now) < lifetime);
            if !stays {
                *lost += u64::from(room.leave(*number).is_some_and(|kept| kept.event && !kept.fetched));
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
        let number = self.room.enter(owner, weight, Kept { id, snapshot, event, fetched: false });
        self.map.insert(id, number);
        number
    }

    fn restore(&mut self, id: Id, before: Option<u64>) {
        match before {
            Some(number) => self.map.insert(id, number),
            None => self.map.remove(&id),
        };
    }

    /// The snapshot, of one owner or of all, that is not needed any more or has not moved for longest.
    fn longest_resting(&self, now: Timestamp, owner: Option<&Owner>) -> Option<u64> {
        let resting = |number: u64| Some((rests(self.room.get(number)?, &self.progress, now)?, Reverse(number)));
        let longest = match owner {
            Some(owner) => self.room.of_owner(owner).filter_map(|(number, _)| resting(number)).max(),
            None => self.map.values().filter_map(|number| resting(*number)).max(),
        };
        longest.map(|(_, Reverse(number))| number)
    }

    fn make_room(&mut self, now: Timestamp) {
        while self.give_way(now) {}
    }

    /// Has one of the owner that has most go, if there are too many.
    fn give_way(&mut self, now: Timestamp) -> bool {
        let progress = &self.progress;
        let gone = self.room.give_way(|kept| rests(kept, progress, now));
        let Some(GaveWay { owner, value, number }) = gone else { return false };
        self.dropped(number, &value);
        if !value.fetched {
            let before = self.gave_way.take().map_or(0, |(count, _)| count);
            self.gave_way = Some((before + 1, owner));
        }
        true
    }

    fn lose(&mut self, number: u64) {
        if let Some(kept) = self.room.leave(number) {
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

/// How long a snapshot has not moved. One of an event moves with all others of its peer, which fetches a few at a time.
fn rested(kept: &Kept, progress: &Progress, now: Timestamp) -> Duration {
    let of_peer = progress.get(&kept.id.0).filter(|_| kept.event);
    now.since(of_peer.map_or(kept.snapshot.touched, |at| kept.snapshot.touched.max(*at)))
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
mod tests {
    use super::*;
    use crate::slab::Slab;

    const CONFIG: fn() -> ServerConfig =
        || ServerConfig { download_bytes_max: 1000, downloads_max: 100, ..ServerConfig::default() };

    fn downloads() -> Downloads {
        Downloads::new(&CONFIG(), FixedState::with_seed(1))
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn snapshot(now: Timestamp, bytes: usize) -> Snapshot {
        Snapshot { body: vec![7; bytes].into(), etag: None, content_format: None, touched: now }
    }

    fn owner(name: &str) -> Owner {
        Owner::principal(name.into())
    }

    fn peers() -> [Key; 3] {
        let mut slab = Slab::new();
        [(); 3].map(|()| slab.insert(()).unwrap())
    }

    #[test]
    fn a_hog_does_not_end_the_download_of_another() {
        let (mut downloads, [hog, victim, _]) = (downloads(), peers());
        downloads.keep(at(1), ((victim, 0, 0), owner("victim")), snapshot(at(1), 400));
        for number in 0..50 {
            downloads.keep(at(2), ((hog, 0, number), owner("hog")), snapshot(at(2), 100));
            assert!(downloads.room.weight() <= 1000);
        }
        assert!(downloads.find(at(50), (victim, 0, 0)).is_some());
        assert_eq!(downloads.take_gave_way(), Some((44, owner("hog"))));
        assert_eq!(downloads.map.len(), 7);
        assert_eq!(downloads.lost(), 0, "all of that can be fetched anew");
    }

    #[test]
    fn an_event_waits_until_those_before_are_fetched() {
        let (mut downloads, [peer, ..]) = (downloads(), peers());
        let keep = |downloads: &mut Downloads, seconds, number| {
            downloads.keep_event(at(seconds), ((peer, 0, number), owner("ada")), snapshot(at(seconds), 200))
        };
        assert!(keep(&mut downloads, 1, 0) && keep(&mut downloads, 1, 1), "half of the room");
        assert!(!keep(&mut downloads, 1, 2));
        assert!(!keep(&mut downloads, 1, 0), "a newer one of the same resource");
        // Progress of one is progress of all: they are fetched one after the other.
        assert!(downloads.find(at(9), (peer, 0, 0)).is_some());
        assert!(!keep(&mut downloads, 12, 2));
        downloads.finish((peer, 0, 0));
        assert!(keep(&mut downloads, 12, 2));
        assert!(downloads.find(at(12), (peer, 0, 0)).is_none() && downloads.find(at(12), (peer, 0, 1)).is_some());
        assert_eq!((downloads.lost(), downloads.map.len()), (0, 2));
        // A client that fetches nothing holds nobody up for long, and what it has not fetched is counted.
        assert!(!keep(&mut downloads, 21, 3) && keep(&mut downloads, 22, 3));
        assert_eq!(downloads.lost(), 1);
        downloads.sweep(at(100));
        assert_eq!((downloads.lost(), downloads.room.weight(), downloads.progress.len()), (3, 0, 0));
    }

    #[test]
    fn an_event_of_one_that_has_none_finds_room() {
        let (mut downloads, [ada, bob, eve]) = (downloads(), peers());
        for number in 0..2 {
            assert!(downloads.keep_event(at(1), ((ada, 0, number), owner("ada")), snapshot(at(1), 250)));
            assert!(downloads.keep_event(at(1), ((bob, 0, number), owner("bob")), snapshot(at(1), 250)));
        }
        assert!(downloads.keep_event(at(1), ((eve, 0, 0), owner("eve")), snapshot(at(1), 250)));
        assert!(
            !downloads.keep_event(at(1), ((eve, 0, 1), owner("eve")), snapshot(at(1), 250)),
            "but not a second one"
        );
        assert_eq!((downloads.lost(), downloads.map.len()), (1, 4));
        assert!(downloads.keep_event(at(1), ((eve, 0, 1), owner("eve")), snapshot(at(1), 2000)), "never any room");
        assert_eq!(downloads.lost(), 2);
    }

    #[test]
    fn what_is_kept_besides_displaces_nothing() {
        let (mut downloads, [ada, ..]) = (downloads(), peers());
        downloads.keep(at(1), ((ada, 0, 0), owner("ada")), snapshot(at(1), 900));
        downloads.keep_besides(((ada, 0, 1), owner("ada")), snapshot(at(1), 200));
        assert!(downloads.find(at(1), (ada, 0, 1)).is_none() && downloads.find(at(1), (ada, 0, 0)).is_some());
        downloads.forget(ada);
        assert!(downloads.is_empty() && downloads.room.is_empty());
    }
}
