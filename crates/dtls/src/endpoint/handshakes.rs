//! Handshakes of peers: begun by a ClientHello with a good cookie, and ended by a session or a failure.

use std::{net::IpAddr, time::Duration};

use super::{
    Endpoint, Peer,
    entry::{Begun, Live},
    link::{Link, Shake},
};
use crate::{
    Alert, Channel, End, Inbox, Refused, Watch,
    hello::{self, Verdict, Verified},
    platform::Host,
    server::Handshake,
    v13::{self, Identities, Refusal},
};

/// How long a handshake is kept whatever other ClientHello its peer sends: beginning one is expensive.
const KEPT_AT_LEAST: Duration = Duration::from_millis(500);

impl<P: Peer> Endpoint<P> {
    /// Handles a ClientHello in the clear: of a new peer, of one in a handshake, or of one that has lost its session.
    pub(super) fn handle_hello(
        &mut self,
        now: Duration,
        peer: P,
        datagram: &[u8],
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        self.scratch.clear();
        match hello::look(&self.cookies, now, peer.address(), datagram, &self.config.suites_13, &mut self.scratch) {
            Verdict::Drop => self.counters.dropped += 1,
            Verdict::Answered => {
                self.counters.hellos += 1;
                send(peer, &self.scratch);
            }
            Verdict::Verified(verified) => {
                let slot = self.slot_at(&peer);
                let begun = slot.and_then(|slot| self.slots.get_mut(slot)?.as_mut()?.handshake.as_mut());
                match begun {
                    Some(begun) if begun.handshake.is_repeated(&verified) => {
                        begun.handshake.send(now, &mut |datagram| send(peer, datagram));
                    }
                    // A late duplicate, or two in turn to make us sign. A real client sends it again after a second.
                    Some(begun) if now < begun.handshake.began() + KEPT_AT_LEAST => self.counters.crowded += 1,
                    Some(_) | None => self.begin(now, peer, &verified, inbox, send),
                }
                if let Some(slot) = slot {
                    self.set_alarm(slot);
                }
            }
        }
    }

    fn begin(
        &mut self,
        now: Duration,
        peer: P,
        verified: &Verified<'_>,
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        let address = peer.address().ip();
        if let Some(slot) = self.slot_at(&peer) {
            // An older attempt of the same peer is over.
            self.abandon(slot, inbox);
        }
        if self.networks.of(address).handshakes >= self.config.handshakes_per_address_max {
            self.counters.crowded += 1;
            return;
        }
        let mut handshake = match self.answer(now, address, verified) {
            Ok((handshake, refused)) => {
                // Each was a guess, though another key of the client holds.
                let refused = refused.into_iter().map(Refused::Identity);
                refused.for_each(|refused| inbox.failed(peer, Alert::DecryptError, Some(refused)));
                handshake
            }
            Err(refusal) => {
                self.counters.failed += 1;
                if let Refusal::Alert(alert, refused) = refusal {
                    if refused.is_empty() {
                        inbox.failed(peer, alert, None);
                    }
                    let refused = refused.into_iter().map(Refused::Identity);
                    refused.for_each(|refused| inbox.failed(peer, alert, Some(refused)));
                    self.scratch.clear();
                    hello::refuse(&mut self.scratch, verified.record_sequence, alert);
                    send(peer, &self.scratch);
                }
                if let Some(slot) = self.slot_at(&peer) {
                    self.tidy(slot);
                }
                return;
            }
        };
        self.make_room_for_handshake(inbox);
        handshake.send(now, &mut |datagram| send(peer, datagram));
        self.counters.begun += 1;
        let serial = self.number();
        let slot = self.slot_of(peer);
        self.names.add(handshake.identifier(), slot);
        if let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) {
            entry.handshake = Some(Box::new(Begun { serial, handshake }));
            self.handshakes += 1;
            self.networks.change(address, |taken| taken.handshakes += 1);
            self.half_open.push_back((slot, serial));
        }
        self.set_alarm(slot);
    }

    /// The first flight of the version that the client has come for.
    fn answer(&mut self, now: Duration, from: IpAddr, verified: &Verified<'_>) -> Result<(Shake, Identities), Refusal> {
        let host = Host { credentials: self.credentials.as_ref(), platform: &self.platform };
        let cid = verified.hello.connection_id.and_then(|_| self.names.make(&self.platform));
        if let Some(retry) = &verified.retry {
            let (begun, refused) = v13::Handshake::begin(host, now, from, verified, retry, cid)?;
            return Ok((Shake::V13(Box::new(begun)), refused));
        }
        // RFC 8446 §4.1.2: it offers no version of ours.
        if self.config.suites.is_empty() {
            return Err(Alert::ProtocolVersion.into());
        }
        let newer = !self.config.suites_13.is_empty();
        let begun = Handshake::begin(host, &self.config.suites, newer, cid, now, from, verified)?;
        Ok((Shake::V12(Box::new(begun)), Identities::new()))
    }

    /// A handshake is done; the last that is to be said of it is in `scratch`.
    pub(super) fn establish(
        &mut self,
        now: Duration,
        slot: usize,
        (session, channel, watch): (Link, Box<Channel>, Option<Watch>),
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        let owner = self.owners.of_channel(self.credentials.as_ref(), &channel);
        let Some(entry) = self.slots.get(slot).and_then(Option::as_ref) else { return };
        let (peer, is_new) = (entry.peer, entry.session.is_none());
        let last = std::mem::take(&mut self.scratch);
        if is_new && !self.make_room_for_session(peer.address().ip(), owner, inbox, send) {
            self.scratch = last;
            self.turn_away(slot, session, inbox, send);
            return;
        }
        self.drop_handshake(slot);
        let association = self.association();
        self.names.add(session.identifier(), slot);
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let live = Live {
            association,
            session,
            moved: None,
            watch: watch.map(Box::new),
            active: now,
            resting: false,
            anonymous: owner.is_none(),
        };
        // RFC 6347 §4.2.8: only now the old one goes, for only now it is certain that this is the peer.
        if let Some(old) = entry.session.replace(Box::new(live)) {
            let known_as = old.known_as(peer);
            self.names.forget(known_as, &old);
            self.count_out(slot, peer, &old);
            inbox.ended(known_as, old.association, End::Replaced);
        }
        self.count_in(slot, peer.address(), association, owner);
        self.counters.finished += 1;
        inbox.established(peer, association, channel);
        if !last.is_empty() {
            send(peer, &last);
        }
        self.scratch = last;
    }

    /// There is no room for what a handshake has made. `internal_error` is a fault that is neither the peer's nor the
    /// protocol's (RFC 5246 §7.2.2).
    fn turn_away(&mut self, slot: usize, session: Link, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        self.counters.crowded += 1;
        match session {
            // The client has no keys of ours yet.
            Link::V12(_) => self.fail(slot, Alert::InternalError, inbox, send),
            Link::V13(mut session) => {
                session.put_alert(Alert::InternalError, &mut self.scratch);
                self.counters.failed += 1;
                if let Some(entry) = self.slots.get(slot).and_then(Option::as_ref) {
                    inbox.failed(entry.peer, Alert::InternalError, None);
                    send(entry.peer, &self.scratch);
                }
                self.drop_handshake(slot);
            }
        }
    }

    pub(super) fn fail(&mut self, slot: usize, alert: Alert, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let peer = entry.peer;
        if let Some(begun) = &mut entry.handshake {
            self.scratch.clear();
            begun.handshake.put_alert(alert, &mut self.scratch);
            inbox.failed(peer, alert, begun.handshake.take_refused());
            send(peer, &self.scratch);
        }
        self.counters.failed += 1;
        self.drop_handshake(slot);
    }
}
