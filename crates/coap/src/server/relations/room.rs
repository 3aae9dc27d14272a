//! Observers that wait for room for the rest of a large event (RFC 7959 §2.6).
//!
//! Those of one owner wait in order, because room for one is no room for all. When room comes, a few are asked for
//! their newest state; each that finds room lets another follow. Nobody else of that owner is even tried meanwhile.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use fogmux_fair::Owner;
use smallvec::SmallVec;

use super::part::{is_cut, keep_for_blocks};
use super::{Notification, Relation, Relations};
use crate::Timestamp;
use crate::peer::Peer;
use crate::server::Server;
use crate::server::owners::owner_of;
use crate::server::peers::Limits;
use crate::server::timers::Timer;
use crate::slab::Key;

/// Observers of one owner that are asked at once.
const ASKED_AT_ONCE: usize = 8;

/// How often the first of an owner is tried although none of that owner has been fetched: others may have made room, or
/// one may have rested for long enough.
const TRIED_EVERY: Duration = Duration::from_millis(50);

/// Owners whose first is tried each time; the others have their turn the next time.
const OWNERS_TRIED: usize = 8;

/// The place of a relation among those that wait for room, or that have been asked because room has come.
#[derive(Debug)]
pub(crate) struct Place {
    owner: Owner,
    /// Smaller numbers were there first.
    number: u64,
    asked: bool,
}

/// All that wait, by owner.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// An owner without anybody that waits has no queue.
    by_owner: BTreeMap<Owner, Queue>,
    /// The number of the next place.
    next: u64,
    /// The owner whose turn was last.
    tried: Option<Owner>,
    /// Whether the timer is set.
    armed: bool,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<u64, Key>,
    /// Those asked last that have not been heard of yet.
    asked: SmallVec<[Key; ASKED_AT_ONCE]>,
}

impl Queues {
    fn leave(&mut self, place: &Place) {
        let Some(queue) = self.by_owner.get_mut(&place.owner) else { return };
        queue.waiting.remove(&place.number);
        if queue.waiting.is_empty() {
            self.by_owner.remove(&place.owner);
        }
    }

    fn note_asked(&mut self, owner: &Owner, key: Key) {
        if let Some(queue) = self.by_owner.get_mut(owner) {
            queue.asked.push(key);
        }
    }

    /// The owners whose turn it is.
    fn next_owners(&mut self) -> SmallVec<[Owner; OWNERS_TRIED]> {
        let behind = self.tried.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let after = self.by_owner.range((behind, Bound::Unbounded)).map(|(owner, _)| owner);
        let count = OWNERS_TRIED.min(self.by_owner.len());
        let owners: SmallVec<_> = after.chain(self.by_owner.keys()).take(count).cloned().collect();
        self.tried = owners.last().cloned();
        owners
    }
}

impl Relation {
    /// Whether it waits for room.
    pub(super) fn awaits_room(&self) -> bool {
        self.place.as_ref().is_some_and(|place| !place.asked)
    }

    fn is_asked(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.asked)
    }
}

impl Relations {
    /// Lets a relation wait for room: where it was, or behind all others.
    fn await_room(&mut self, key: Key, owner: Owner) {
        let Self { entries, queues, .. } = self;
        let Some(relation) = entries.get_mut(key) else { return };
        let number = match relation.place.take() {
            Some(place) if place.owner == owner => place.number,
            Some(_) | None => {
                queues.next += 1;
                queues.next
            }
        };
        queues.by_owner.entry(owner.clone()).or_default().waiting.insert(number, key);
        relation.place = Some(Box::new(Place { owner, number, asked: false }));
    }

    /// A relation does not wait for room any more.
    pub(super) fn leave_room_queue(&mut self, key: Key) {
        if let Some(place) = self.entries.get_mut(key).and_then(|relation| relation.place.take()) {
            self.queues.leave(&place);
        }
    }

    /// Takes the first of an owner's that waits, unless `count` are asked already, and tells whether it was the last.
    fn next_to_ask(&mut self, owner: &Owner, count: usize) -> Option<(Key, bool)> {
        let Self { entries, queues, .. } = self;
        let queue = queues.by_owner.get_mut(owner)?;
        queue.asked.retain(|key| entries.get(*key).is_some_and(Relation::is_asked));
        if queue.asked.len() >= count {
            return None;
        }
        let (_, key) = queue.waiting.pop_first()?;
        Some((key, queue.waiting.is_empty()))
    }
}

impl<P: Peer> Server<P> {
    /// Keeps the rest of a notification of which only a part is sent. `false`: there is no room, and the relation
    /// waits.
    pub(super) fn keep_rest(
        &mut self,
        now: Timestamp,
        (key, limits): (Key, Limits),
        notification: &Notification<'_>,
    ) -> bool {
        let Some(relation) = self.relations.get(key) else { return true };
        let Some(peer) = self.peers.get(relation.peer) else { return true };
        if !is_cut(&notification.response, limits) {
            return true;
        }
        let owner = owner_of(&self.owners, relation.exchange.as_ref(), &peer.address);
        let needs_room = notification.event;
        let is_behind = needs_room && !relation.is_asked() && self.relations.queues.by_owner.contains_key(&owner);
        let (downloads, whose) = (&mut self.downloads, (relation, owner.clone()));
        if is_behind || !keep_for_blocks(downloads, &self.hash, now, whose, notification) {
            self.relations.await_room(key, owner);
            self.set_room_timer(now);
            return false;
        }
        if needs_room {
            self.relations.leave_room_queue(key);
            self.ask_for_room(now, &owner, ASKED_AT_ONCE);
        }
        true
    }

    fn set_room_timer(&mut self, now: Timestamp) {
        if !self.relations.queues.by_owner.is_empty() && !std::mem::replace(&mut self.relations.queues.armed, true) {
            self.timers.add(now + TRIED_EVERY, Timer::Room);
        }
    }

    /// Something of an owner was fetched whole.
    pub(crate) fn room_came(&mut self, now: Timestamp, owner: &Owner) {
        self.ask_for_room(now, owner, 1);
    }

    /// Tries the first of some owners, in turn.
    pub(crate) fn room_due(&mut self, now: Timestamp) {
        self.relations.queues.armed = false;
        for owner in self.relations.queues.next_owners() {
            if let Some(queue) = self.relations.queues.by_owner.get_mut(&owner) {
                // Those that were asked before may have nothing to send.
                queue.asked.clear();
            }
            self.ask_for_room(now, &owner, 1);
        }
        self.set_room_timer(now);
    }

    /// Asks relations of an owner for their newest state, in order, until `count` are asked.
    fn ask_for_room(&mut self, now: Timestamp, owner: &Owner, count: usize) {
        while let Some((key, is_last)) = self.relations.next_to_ask(owner, count) {
            if let Some(relation) = self.relations.get_mut(key) {
                if let Some(place) = &mut relation.place {
                    place.asked = true;
                }
                if relation.is_blocked(now) {
                    // It waits for something else besides, and tries again after that.
                    relation.place = None;
                    self.set_alarm(now, key);
                } else {
                    self.relations.queues.note_asked(owner, key);
                    self.announce(key);
                }
            }
            if is_last {
                self.relations.queues.by_owner.remove(owner);
            }
        }
    }
}
