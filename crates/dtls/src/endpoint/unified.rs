//! Records of DTLS 1.3 that are protected (RFC 9147 §4): by whom, and what becomes of them.

use std::time::Duration;

use super::{
    Endpoint, Inbox, Peer,
    link::{Link, Shake},
    opening::Opening,
};
use crate::platform::Host;
use crate::{
    Alert, End,
    suite::Wear,
    v13::{Content, Heard, Sealed, Step, USER_CANCELED},
};

impl<P: Peer> Endpoint<P> {
    /// A datagram that begins with such a record.
    pub(super) fn handle_sealed(
        &mut self,
        now: Duration,
        peer: P,
        datagram: &[u8],
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        let first = Sealed::split(datagram).and_then(|(first, _)| match first.cid {
            Some(cid) => Some((first, self.names.slot(cid)?)),
            None => Some((first, self.slot_at(&peer)?)),
        });
        let Some((first, slot)) = first else {
            self.counters.dropped += 1;
            return;
        };
        let mut rest = datagram;
        while let Some((record, after)) = Sealed::split(rest) {
            // §4: records of one datagram are of one association.
            if record.cid.is_some_and(|cid| first.cid != Some(cid)) {
                self.counters.dropped += 1;
                break;
            }
            self.note_arrival(slot, peer, rest.len() - after.len());
            self.handle_sealed_record(now, slot, peer, &record, inbox, send);
            rest = after;
        }
        self.refresh(now, slot, inbox, send);
        self.tidy(slot);
        self.set_alarm(slot);
    }

    /// Counts the bytes of a record from a new address before it is answered: in proportion to them bytes may be sent
    /// there. If it is this record that moves the session, [`Endpoint::relocate`] counts them.
    pub(super) fn note_arrival(&mut self, slot: usize, peer: P, bytes: usize) {
        self.arrived = bytes;
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let here = entry.peer == peer;
        if let Some(moved) = entry.session.as_mut().and_then(|live| live.moved.as_mut()).filter(|_| here) {
            moved.heard(std::mem::take(&mut self.arrived));
        }
    }

    fn handle_sealed_record(
        &mut self,
        now: Duration,
        slot: usize,
        peer: P,
        record: &Sealed<'_>,
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        let start = inbox.bytes.len();
        let open = |link: &mut Link, bytes: &mut Vec<u8>| match link {
            Link::V12(_) => None,
            Link::V13(session) => session.open(record, bytes).map(|heard| (heard, heard.newest)),
        };
        match self.open(now, (slot, peer), inbox, send, open) {
            Opening::Opened(heard) if heard.content == Content::ApplicationData => {
                return self.deliver(slot, start, inbox);
            }
            Opening::Opened(heard) => return self.handle_heard(now, slot, heard, start, inbox, send),
            Opening::Ended => return,
            Opening::Failed => {}
        }
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let here = entry.peer == peer;
        match entry.handshake.as_mut().map(|begun| &mut begun.handshake) {
            Some(Shake::V13(handshake)) if here => {
                self.scratch.clear();
                let host = Host { credentials: self.credentials.as_ref(), platform: &self.platform };
                let step = handshake.handle(now, host, record, &mut self.scratch);
                self.step(now, slot, step, inbox, send);
            }
            // A handshake does not move.
            Some(Shake::V13(_) | Shake::V12(_)) | None => self.counters.dropped += 1,
        }
    }

    fn step(&mut self, now: Duration, slot: usize, step: Step, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        match step {
            Step::Waiting => {}
            Step::Done(session, channel, watch) => {
                self.establish(now, slot, (Link::V13(session), channel, watch), inbox, send);
            }
            Step::Failed(alert) => self.fail(slot, alert, inbox, send),
            // The peer has refused us, and we nobody.
            Step::Abandoned => {
                self.counters.failed += 1;
                self.drop_handshake(slot);
            }
        }
    }

    /// Bytes that a session has heard, and that are no data; they are in the inbox from `start` on.
    fn handle_heard(
        &mut self,
        now: Duration,
        slot: usize,
        heard: Heard,
        start: usize,
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(live) = &mut entry.session else { return };
        let Link::V13(session) = &mut live.session else { return };
        let inner = inbox.bytes.split_off(start);
        self.scratch.clear();
        match heard.content {
            Content::Alert => match Alert::of_record(&inner) {
                // RFC 8446 §6: but for this one all end it, whatever they say of their level; user_canceled precedes
                // it.
                Ok((_, Alert::CloseNotify)) => self.end(slot, End::Closed, inbox, send),
                Ok((_, Alert::Other(USER_CANCELED))) => {}
                Ok((_, alert)) => self.end(slot, End::Fault(alert), inbox, send),
                Err(alert) => self.refuse(slot, alert, inbox, send),
            },
            Content::Ack => {
                if let Err(alert) = session.handle_ack(&inner) {
                    self.refuse(slot, alert, inbox, send);
                }
            }
            Content::Handshake => match session.handle_message(now, heard, &inner, &mut self.scratch) {
                Ok(()) if self.scratch.is_empty() => {}
                Ok(()) => entry.say(&self.scratch, send),
                Err(alert) => self.refuse(slot, alert, inbox, send),
            },
            Content::ApplicationData => {}
            Content::Unknown => self.refuse(slot, Alert::UnexpectedMessage, inbox, send),
        }
    }

    /// Changes keys that are worn, and ends a session whose keys are used up (RFC 9147 §4.5.3).
    pub(super) fn refresh(&mut self, now: Duration, slot: usize, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(link) = entry.session.as_mut().map(|live| &mut live.session) else { return };
        match (link.wear(), link) {
            (Wear::Worn, Link::V13(session)) => {
                self.scratch.clear();
                session.refresh(now, &mut self.scratch);
                entry.say(&self.scratch, send);
            }
            (Wear::Spent, _) => self.end(slot, End::Spent, inbox, send),
            (Wear::Fresh | Wear::Worn, _) => {}
        }
    }
}
