//! Records of DTLS 1.2, and the first ones of both: by whom, and what becomes of them.

use std::time::Duration;

use super::{
    Endpoint, Inbox, Peer,
    link::{Link, Shake},
};
use crate::{
    Alert, End,
    platform::Host,
    server::{Made, Step},
    session::Told,
    suite::Wear,
    wire::{ContentType, Fragment, Record, message},
};

impl<P: Peer> Endpoint<P> {
    pub(super) fn handle_record(
        &mut self,
        now: Duration,
        slot: usize,
        peer: P,
        record: &Record<'_>,
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let here = entry.peer == peer;
        let start = inbox.bytes.len();
        if let Some(live) = &mut entry.session
            && let Link::V12(session) = &mut live.session
        {
            // RFC 9146 §6: verified, and newer than all before.
            let moves = !here && session.is_newest(record);
            if let Some(content) = session.open(record, &mut inbox.bytes) {
                if !live.wake(now) {
                    inbox.bytes.truncate(start);
                    self.end(slot, End::Revoked, inbox, send);
                    return;
                }
                if content == ContentType::ApplicationData {
                    inbox.data(live.known_as(entry.peer), live.association, start);
                } else {
                    self.handle_inner(slot, content, start, inbox, send);
                }
                if moves {
                    self.relocate(slot, peer);
                }
                return;
            }
        }
        if let Some(live) = entry.session.as_mut().filter(|live| live.resting) {
            // What did not open may be anybody's: it must not make sessions heavy that are at rest.
            live.session.rest();
        }
        if entry.session.as_ref().is_some_and(|live| live.session.wear() == Wear::Spent) {
            self.end(slot, End::Spent, inbox, send);
            return;
        }
        let host = Host { credentials: self.credentials.as_ref(), platform: &self.platform };
        let step = match entry.handshake.as_mut().map(|begun| &mut begun.handshake) {
            // It does not move.
            Some(Shake::V12(handshake)) if here => handshake.handle(now, host, record),
            // That of 1.3 hears nothing in the clear but its ClientHello.
            Some(Shake::V12(_) | Shake::V13(_)) | None => {
                self.counters.dropped += 1;
                return;
            }
        };
        match step {
            Step::Waiting => {}
            Step::Done(Made { mut session, channel, watch }) => {
                self.scratch.clear();
                session.put_last_flight(&mut self.scratch);
                self.establish(now, slot, (Link::V12(*session), Box::new(channel), watch), inbox, send);
            }
            Step::Failed(alert) => self.fail(slot, alert, inbox, send),
            Step::TooEarly => {
                self.counters.failed += 1;
                self.drop_handshake(slot);
            }
        }
    }

    /// What is protected and no data.
    fn handle_inner(
        &mut self,
        slot: usize,
        content: ContentType,
        start: usize,
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        let inner = inbox.bytes.split_off(start);
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(Link::V12(session)) = entry.session.as_mut().map(|live| &mut live.session) else { return };
        self.scratch.clear();
        match content {
            ContentType::Alert => match Told::by_alert(&inner) {
                Told::Closed => self.end(slot, End::Closed, inbox, send),
                Told::Over(alert) => self.end(slot, End::Fault(alert), inbox, send),
                Told::Nothing => {}
                Told::Malformed(alert) => self.refuse(slot, alert, inbox, send),
            },
            ContentType::Handshake => {
                match Fragment::split(&inner).map(|(fragment, _)| fragment.kind) {
                    // RFC 6347 §4.2.4: our last flight was lost.
                    Some(message::FINISHED) => session.put_last_flight(&mut self.scratch),
                    // RFC 5746 §4.5 allows it.
                    Some(message::CLIENT_HELLO) => session.put_alert(Alert::NoRenegotiation, &mut self.scratch),
                    Some(_) => return self.refuse(slot, Alert::UnexpectedMessage, inbox, send),
                    None => return self.refuse(slot, Alert::DecodeError, inbox, send),
                }
                send(entry.peer, &self.scratch);
            }
            // RFC 5246 §7.1: it is not protected by what it announces, and there is no second handshake.
            ContentType::ChangeCipherSpec => self.refuse(slot, Alert::UnexpectedMessage, inbox, send),
            ContentType::ApplicationData | ContentType::Identified => {}
        }
    }
}
