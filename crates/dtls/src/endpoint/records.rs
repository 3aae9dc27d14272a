//! Records of DTLS 1.2, and the first ones of both: by whom, and what becomes of them.

use std::time::Duration;

use super::{
    Endpoint, Inbox, Peer,
    link::{Link, Shake},
    opening::Opening,
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
        let start = inbox.bytes.len();
        let open = |link: &mut Link, bytes: &mut Vec<u8>| match link {
            Link::V12(session) => {
                let newest = session.is_newest(record);
                session.open(record, bytes).map(|content| (content, newest))
            }
            Link::V13(_) => None,
        };
        match self.open(now, (slot, peer), inbox, send, open) {
            Opening::Opened(ContentType::ApplicationData) => return self.deliver(slot, start, inbox),
            Opening::Opened(content) => return self.handle_inner(slot, content, start, inbox, send),
            Opening::Ended => return,
            Opening::Failed => {}
        }
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let here = entry.peer == peer;
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

    /// Handles protected content other than data.
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
                entry.say(&self.scratch, send);
            }
            // RFC 5246 §7.1: it is not protected by what it announces, and there is no second handshake.
            ContentType::ChangeCipherSpec => self.refuse(slot, Alert::UnexpectedMessage, inbox, send),
            ContentType::ApplicationData | ContentType::Identified => {}
        }
    }
}
