//! The table of peers: places, alarms, and the end of sessions.

use std::{cmp::Reverse, time::Duration};

use super::{Endpoint, Peer, entry::Entry, link::Link};
use crate::{Alert, Association, End, Inbox, suite::Wear};

/// How long a session keeps what it can compute again from its keys.
const REST_AFTER: Duration = Duration::from_secs(20);

impl<P: Peer> Endpoint<P> {
    pub(super) fn handle_due(
        &mut self,
        now: Duration,
        slot: usize,
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let peer = entry.peer;
        if let Some(begun) = &mut entry.handshake {
            if now >= begun.handshake.began() + self.config.handshake_timeout {
                if begun.handshake.is_doubted() {
                    self.fail(slot, Alert::DecryptError, inbox, send);
                } else {
                    self.counters.failed += 1;
                    self.drop_handshake(slot);
                }
            } else if begun.handshake.again_at().is_some_and(|at| now >= at) {
                begun.handshake.resend(now, &mut |datagram| send(peer, datagram));
            }
        }
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        if let Some(Link::V13(session)) = entry.session.as_mut().map(|live| &mut live.session)
            && session.again_at().is_some_and(|at| now >= at)
        {
            self.scratch.clear();
            session.resend(now, &mut self.scratch);
            entry.say(&self.scratch, send);
        }
        if let Some(live) = &mut entry.session {
            if live.session.wear() != Wear::Fresh {
                self.refresh(now, slot, inbox, send);
            } else if live.is_revoked() {
                self.end(slot, End::Revoked, inbox, send);
            } else if now >= live.active + self.config.idle_timeout_of(live.anonymous) {
                self.end(slot, End::Idle, inbox, send);
            } else if !live.resting && now >= live.active + REST_AFTER {
                live.session.rest();
                live.resting = true;
            }
        }
    }

    /// Ends a session, with close_notify if the peer may receive it.
    pub(super) fn end(&mut self, slot: usize, end: End, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(mut live) = entry.session.take() else { return };
        let known_as = live.known_as(entry.peer);
        let peer = entry.peer;
        self.names.forget(known_as, &live);
        self.count_out(slot, peer, &live);
        match end {
            // RFC 5246 §7.2.1: close_notify is answered with the same.
            End::Closed | End::Idle | End::Evicted | End::Spent | End::Revoked | End::Ours => {
                self.scratch.clear();
                live.session.put_alert(Alert::CloseNotify, &mut self.scratch);
                if live.may_send(self.scratch.len()) {
                    send(peer, &self.scratch);
                }
            }
            End::Fault(_) | End::Replaced => {}
        }
        inbox.ended(known_as, live.association, end);
    }

    /// Ends a session whose peer breaks the protocol under its own keys, and tells it how.
    pub(super) fn refuse(&mut self, slot: usize, alert: Alert, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        if let Some(live) = &mut entry.session {
            self.scratch.clear();
            live.session.put_alert(alert, &mut self.scratch);
            entry.say(&self.scratch, send);
        }
        self.end(slot, End::Fault(alert), inbox, send);
    }

    /// The peer's slot.
    pub(crate) fn slot_at(&self, peer: &P) -> Option<usize> {
        self.places.find(&self.slots, peer)
    }

    /// The peer's slot, or a new one.
    pub(super) fn slot_of(&mut self, peer: P) -> usize {
        if let Some(slot) = self.slot_at(&peer) {
            return slot;
        }
        let entry = Entry { peer, session: None, handshake: None, alarm: None };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(entry);
        }
        self.places.add(&self.slots, &peer, slot);
        slot
    }

    /// Removes a peer without session and handshake.
    pub(super) fn tidy(&mut self, slot: usize) {
        let Some(place) = self.slots.get_mut(slot) else { return };
        if let Some(entry) = place.take_if(|entry| entry.session.is_none() && entry.handshake.is_none()) {
            self.places.remove(&entry.peer, slot);
            self.free.push(slot);
        }
        if self.alarms.len() > 4 * self.places.len() + 1024 {
            // Alarms of those that are gone.
            let slots = &self.slots;
            self.alarms.retain(|Reverse((at, slot))| {
                slots.get(*slot).and_then(Option::as_ref).is_some_and(|entry| entry.alarm == Some(*at))
            });
        }
    }

    pub(super) fn set_alarm(&mut self, slot: usize) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let handshake = entry.handshake.as_ref().map(|begun| {
            let over = begun.handshake.began() + self.config.handshake_timeout;
            begun.handshake.again_at().map_or(over, |again| again.min(over))
        });
        let session = entry.session.as_ref().map(|live| {
            if live.session.wear() != Wear::Fresh {
                return live.active;
            }
            let idle = self.config.idle_timeout_of(live.anonymous);
            let rests = if live.resting { idle } else { REST_AFTER.min(idle) };
            let again = if let Link::V13(session) = &live.session { session.again_at() } else { None };
            again.map_or(live.active + rests, |again| again.min(live.active + rests))
        });
        let Some(due) = handshake.into_iter().chain(session).min() else { return };
        // One that is too early only looks again: a session that is used moves no alarms.
        if entry.alarm.is_none_or(|alarm| due < alarm) {
            entry.alarm = Some(due);
            self.alarms.push(Reverse((due, slot)));
        }
    }

    /// The number of a new session. 64 bits do not come to their end: principals are found by it.
    pub(super) const fn association(&mut self) -> Association {
        Association(self.number())
    }

    pub(super) const fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
