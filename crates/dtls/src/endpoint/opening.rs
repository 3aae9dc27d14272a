//! Opening the records of a session, of either version.

use std::time::Duration;

use super::{Endpoint, Inbox, Peer, link::Link};
use crate::End;

/// The outcome of a record for the session of its slot.
pub(super) enum Opening<T> {
    /// It has opened; its content is in the inbox.
    Opened(T),
    /// It has opened, but what let the peer in was taken back meanwhile: the session has ended.
    Ended,
    /// There is no session, or it is not of its keys.
    Failed,
}

impl<P: Peer> Endpoint<P> {
    /// Opens a record from `peer`. `open` gives what it found and whether the record is newer than all before.
    pub(super) fn open<T>(
        &mut self,
        now: Duration,
        (slot, peer): (usize, P),
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
        open: impl FnOnce(&mut Link, &mut Vec<u8>) -> Option<(T, bool)>,
    ) -> Opening<T> {
        let entry = self.slots.get_mut(slot).and_then(Option::as_mut);
        let Some(live) = entry.and_then(|entry| entry.session.as_mut()) else { return Opening::Failed };
        let start = inbox.bytes.len();
        let Some((found, newest)) = open(&mut live.session, &mut inbox.bytes) else {
            if live.resting {
                // A record that did not open may be anybody's: it must not make sessions heavy that are at rest.
                live.session.rest();
            }
            return Opening::Failed;
        };
        if !live.wake(now) {
            inbox.bytes.truncate(start);
            self.end(slot, End::Revoked, inbox, send);
            return Opening::Ended;
        }
        // RFC 9146 §6: verified, and newer than all before.
        if newest {
            self.relocate(slot, peer, inbox);
        }
        Opening::Opened(found)
    }

    /// The inbox holds data of a session from `start` on.
    pub(super) fn deliver(&mut self, slot: usize, start: usize, inbox: &mut Inbox<P>) {
        let Some(entry) = self.slots.get(slot).and_then(Option::as_ref) else { return };
        if let Some(live) = &entry.session {
            inbox.data(live.known_as(entry.peer), live.association, start);
        }
    }
}
