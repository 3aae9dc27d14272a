//! A server's end of all its associations on one socket.

mod link;
mod moves;
mod networks;
mod records;
mod room;
mod unified;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    hash::Hash,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use self::{
    link::{Link, Shake},
    moves::{Moved, Names},
    networks::Networks,
};
use super::{
    Alert, Association, Channel, CookieKey, Credentials, End, Inbox, Platform, Suite, Suite13, Watch,
    hello::{self, Verdict, Verified},
    platform::Host,
    server::Handshake,
    session::EPOCH,
    v13::{self, Refusal},
    wire::{ContentType, Fragment, Record, message},
};

/// How long a session keeps what it can compute again from its keys.
const REST_AFTER: Duration = Duration::from_secs(20);
/// How long a handshake is kept whatever other ClientHello its peer sends: beginning one is expensive.
const KEPT_AT_LEAST: Duration = Duration::from_millis(500);

/// Where a peer is. Two with the same address and port and different values of this have different sessions.
pub trait Peer: Copy + Eq + Hash {
    /// Its address and port.
    fn address(&self) -> SocketAddr;
}

impl Peer for SocketAddr {
    fn address(&self) -> SocketAddr {
        *self
    }
}

/// Bounds of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Suites of DTLS 1.2, best first.
    pub suites: Vec<Suite>,
    /// Suites of DTLS 1.3, best first; without any it is not spoken.
    pub suites_13: Vec<Suite13>,
    /// Sessions; one more takes the place of one that has rested long.
    pub sessions_max: usize,
    /// Sessions from one address, whatever its ports; one more takes the place of one of them that has rested long. An
    /// IPv6 host is its /64. Loopback is not bounded so: behind it are proxies and the operator.
    pub sessions_per_address_max: usize,
    /// Handshakes under way; one more takes the place of the oldest from where most are under way.
    pub handshakes_max: usize,
    /// Handshakes under way from one address, whatever its ports; one more is not begun. An IPv6 host is its /64.
    pub handshakes_per_address_max: usize,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// How long a session may say and hear nothing.
    pub idle_timeout: Duration,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            suites: Suite::ALL.to_vec(),
            suites_13: Suite13::ALL.to_vec(),
            sessions_max: 32_768,
            sessions_per_address_max: 1000,
            handshakes_max: 1024,
            handshakes_per_address_max: 256,
            // Six repeats, which are 63 seconds (RFC 6347 §4.2.4.1), and the answer to the last.
            handshake_timeout: Duration::from_secs(90),
            // Devices that report once a day need no handshake for each report.
            idle_timeout: Duration::from_secs(25 * 3600),
        }
    }
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// ClientHellos answered without keeping anything.
    pub hellos: u64,
    /// Handshakes begun.
    pub begun: u64,
    /// Handshakes finished.
    pub finished: u64,
    /// Handshakes that failed.
    pub failed: u64,
    /// Handshakes not begun, or given up, for want of room.
    pub crowded: u64,
    /// Records dropped: forged, repeated, of nobody we know.
    pub dropped: u64,
}

/// All associations of a socket.
pub struct Endpoint<P> {
    config: EndpointConfig,
    credentials: Arc<dyn Credentials>,
    platform: Platform,
    cookies: Arc<CookieKey>,
    pub(super) peers: HashMap<P, usize, foldhash::fast::RandomState>,
    /// Peers found by other means than their address.
    pub(super) names: Names<P>,
    pub(super) slots: Vec<Option<Entry<P>>>,
    free: Vec<usize>,
    pub(super) alarms: BinaryHeap<Reverse<(Duration, usize)>>,
    /// Handshakes by age; those that are no longer half-open are skipped.
    half_open: VecDeque<(usize, u64)>,
    handshakes: usize,
    sessions: usize,
    pub(super) networks: Networks,
    next: u64,
    scratch: Vec<u8>,
    counters: Counters,
}

/// One peer: its session, and a handshake that may become its next.
pub(super) struct Entry<P> {
    peer: P,
    session: Option<Box<Live<P>>>,
    handshake: Option<Box<Begun>>,
    alarm: Option<Duration>,
}

struct Live<P> {
    association: Association,
    session: Link,
    /// Where it was made, and what may be sent to where it is now; nothing while these are the same.
    moved: Option<Box<Moved<P>>>,
    /// Boxed, so that a session without a certificate keeps no more than a pointer.
    watch: Option<Box<Watch>>,
    active: Duration,
    resting: bool,
}

impl<P: Peer> Live<P> {
    /// The peer as those above know it: where it was when the session was made.
    fn known_as(&self, peer: P) -> P {
        self.moved.as_ref().map_or(peer, |moved| moved.from)
    }

    fn is_revoked(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.is_revoked())
    }

    /// A record of it has opened. `false`: what let it in was taken back meanwhile.
    fn wake(&mut self, now: Duration) -> bool {
        if self.is_revoked() {
            return false;
        }
        self.active = now;
        self.resting = false;
        true
    }
}

struct Begun {
    serial: u64,
    handshake: Shake,
}

impl<P: Peer> Endpoint<P> {
    /// An endpoint without peers.
    #[must_use]
    pub fn new(
        config: EndpointConfig,
        credentials: Arc<dyn Credentials>,
        platform: Platform,
        cookies: Arc<CookieKey>,
    ) -> Self {
        Self {
            config,
            credentials,
            platform,
            cookies,
            peers: HashMap::default(),
            names: Names::default(),
            slots: Vec::new(),
            free: Vec::new(),
            alarms: BinaryHeap::new(),
            half_open: VecDeque::new(),
            handshakes: 0,
            sessions: 0,
            networks: Networks::default(),
            next: 0,
            scratch: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Takes in a datagram. What came of it is in `inbox`; what has to be said goes to `send`.
    pub fn handle(
        &mut self,
        now: Duration,
        peer: P,
        datagram: &[u8],
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        if v13::is_sealed(datagram) {
            self.handle_sealed(now, peer, datagram, inbox, send);
            return;
        }
        let Some((first, _)) = Record::split(datagram) else {
            self.counters.dropped += 1;
            return;
        };
        if is_client_hello(&first) {
            self.handle_hello(now, peer, datagram, inbox, send);
            return;
        }
        let slot = match first.cid {
            None => self.peers.get(&peer).copied(),
            Some(cid) => self.names.slot(cid),
        };
        let Some(slot) = slot else {
            self.counters.dropped += 1;
            return;
        };
        let mut rest = datagram;
        while let Some((record, after)) = Record::split(rest) {
            self.handle_record(now, slot, peer, &record, inbox, send);
            if record.cid.is_some() {
                self.note_arrival(slot, peer, rest.len() - after.len());
            }
            rest = after;
        }
        self.tidy(slot);
        self.set_alarm(slot);
    }

    /// Whether a datagram belongs to a session, so that it costs no more than opening its records. A step of a
    /// handshake may cost a hundred times as much.
    #[must_use]
    pub fn is_of_session(&self, peer: P, datagram: &[u8]) -> bool {
        let cid = if v13::is_sealed(datagram) {
            let Some((record, _)) = v13::Sealed::split(datagram) else { return false };
            record.cid
        } else {
            match Record::split(datagram) {
                Some((record, _)) if !is_client_hello(&record) => record.cid.map(|cid| cid.as_slice()),
                Some(_) | None => return false,
            }
        };
        let slot = match cid {
            Some(cid) => self.names.slot(cid),
            None => self.peers.get(&peer).copied(),
        };
        let entry = slot.and_then(|slot| self.slots.get(slot)).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.session.is_some() && entry.handshake.is_none())
    }

    /// Hands out connection identifiers that begin with this number, so that the reader of another socket of the same
    /// address can find the owner of a datagram ([`identified`](crate::identified)). Without it none are handed
    /// out.
    #[must_use]
    pub fn identified_by(mut self, number: u8) -> Self {
        self.names.number(number);
        self
    }

    /// Protects data for a session and sends it. `false`: there is no such session any more.
    pub fn send(
        &mut self,
        now: Duration,
        peer: P,
        association: Association,
        data: &[u8],
        send: &mut dyn FnMut(P, &[u8]),
    ) -> bool {
        let slot = self.slot_of_session(peer, association);
        let Some(entry) = slot.and_then(|slot| self.slots.get_mut(slot)).and_then(Option::as_mut) else { return false };
        let peer = entry.peer;
        let Some(live) = entry.session.as_mut().filter(|live| live.association == association) else { return false };
        // It ends when something is heard of it; until then nothing is said.
        if live.is_revoked() {
            return false;
        }
        self.scratch.clear();
        if live.session.seal(data, &mut self.scratch).is_none() {
            return false;
        }
        live.active = now;
        let woken = std::mem::take(&mut live.resting);
        // A datagram that may not be sent is as good as lost.
        if live.moved.as_mut().is_none_or(|moved| moved.may_send(self.scratch.len())) {
            send(peer, &self.scratch);
        }
        if let (Some(slot), true) = (slot, woken) {
            self.set_alarm(slot);
        }
        true
    }

    /// Ends a session and tells the peer.
    pub fn close(&mut self, peer: P, association: Association, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        if let Some(slot) = self.slot_of_session(peer, association) {
            self.end(slot, End::Ours, inbox, send);
            self.tidy(slot);
        }
    }

    /// Ends them all.
    pub fn close_all(&mut self, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        for slot in 0..self.slots.len() {
            self.end(slot, End::Ours, inbox, send);
        }
    }

    /// When [`Endpoint::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        self.alarms.peek().map(|Reverse((at, _))| *at)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        while let Some(Reverse((at, slot))) = self.alarms.peek().copied() {
            if at > now {
                break;
            }
            self.alarms.pop();
            let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { continue };
            if entry.alarm != Some(at) {
                continue;
            }
            entry.alarm = None;
            self.handle_due(now, slot, inbox, send);
            self.tidy(slot);
            self.set_alarm(slot);
        }
    }

    /// Sessions that are there.
    #[must_use]
    pub const fn sessions(&self) -> usize {
        self.sessions
    }

    /// Handshakes under way.
    #[must_use]
    pub const fn handshakes(&self) -> usize {
        self.handshakes
    }

    /// Sessions that keep what could be computed again from their keys.
    #[cfg(test)]
    pub(super) fn expanded(&self) -> usize {
        let live = self.slots.iter().flatten().filter_map(|entry| entry.session.as_ref());
        live.filter(|live| !live.session.is_at_rest()).count()
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Handles a ClientHello in the clear: of a new peer, of one in a handshake, or of one that has lost its session.
    fn handle_hello(
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
                let slot = self.peers.get(&peer).copied();
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
        if let Some(slot) = self.peers.get(&peer).copied() {
            // An older attempt of the same peer is over.
            self.drop_handshake(slot);
        }
        if self.networks.of(address).handshakes >= self.config.handshakes_per_address_max {
            self.counters.crowded += 1;
            return;
        }
        let mut handshake = match self.answer(now, address, verified) {
            Ok(handshake) => handshake,
            Err(refusal) => {
                self.counters.failed += 1;
                if let Refusal::Alert(alert, identity) = refusal {
                    inbox.failed(peer, alert, identity);
                    self.scratch.clear();
                    hello::refuse(&mut self.scratch, verified.record_sequence, alert);
                    send(peer, &self.scratch);
                }
                if let Some(slot) = self.peers.get(&peer).copied() {
                    self.tidy(slot);
                }
                return;
            }
        };
        self.make_room_for_handshake();
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
    fn answer(&mut self, now: Duration, from: IpAddr, verified: &Verified<'_>) -> Result<Shake, Refusal> {
        let host = Host { credentials: self.credentials.as_ref(), platform: &self.platform };
        let cid = verified.hello.connection_id.and_then(|_| self.names.make(&self.platform));
        if let Some(retry) = &verified.retry {
            let begun = v13::Handshake::begin(host, now, from, verified, retry, cid)?;
            return Ok(Shake::V13(Box::new(begun)));
        }
        let newer = !self.config.suites_13.is_empty();
        let begun = Handshake::begin(host, &self.config.suites, newer, cid, now, from, verified)?;
        Ok(Shake::V12(Box::new(begun)))
    }

    /// A handshake is done; the last that is to be said of it is in `scratch`.
    fn establish(
        &mut self,
        now: Duration,
        slot: usize,
        (session, channel, watch): (Link, Box<Channel>, Option<Watch>),
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        let last = std::mem::take(&mut self.scratch);
        self.drop_handshake(slot);
        let entry = self.slots.get(slot).and_then(Option::as_ref).filter(|entry| entry.session.is_none());
        if let Some(address) = entry.map(|entry| entry.peer.address().ip()) {
            self.make_room_for_session(address, inbox, send);
        }
        let association = self.association();
        self.names.add(session.identifier(), slot);
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let live = Box::new(Live {
            association,
            session,
            moved: None,
            watch: watch.map(Box::new),
            active: now,
            resting: false,
        });
        match entry.session.replace(live) {
            // RFC 6347 §4.2.8: only now the old one goes, for only now it is certain that this is the peer.
            Some(old) => {
                let known_as = old.known_as(entry.peer);
                self.names.forget(known_as, &old);
                inbox.ended(known_as, old.association, End::Replaced);
            }
            None => {
                self.sessions += 1;
                self.networks.change(entry.peer.address().ip(), |taken| taken.sessions += 1);
            }
        }
        self.counters.finished += 1;
        inbox.established(entry.peer, association, channel);
        if !last.is_empty() {
            send(entry.peer, &last);
        }
        self.scratch = last;
    }

    fn fail(&mut self, slot: usize, alert: Alert, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let peer = entry.peer;
        if let Some(begun) = &mut entry.handshake {
            self.scratch.clear();
            begun.handshake.put_alert(alert, &mut self.scratch);
            inbox.failed(peer, alert, begun.handshake.take_identity());
            send(peer, &self.scratch);
        }
        self.counters.failed += 1;
        self.drop_handshake(slot);
    }

    fn handle_due(&mut self, now: Duration, slot: usize, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let peer = entry.peer;
        if let Some(begun) = &mut entry.handshake {
            if now >= begun.handshake.began() + self.config.handshake_timeout {
                self.counters.failed += 1;
                self.drop_handshake(slot);
            } else if begun.handshake.again_at().is_some_and(|at| now >= at) {
                begun.handshake.resend(now, &mut |datagram| send(peer, datagram));
            }
        }
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        if let Some(live) = &mut entry.session {
            if let Link::V13(session) = &mut live.session
                && session.again_at().is_some_and(|at| now >= at)
            {
                self.scratch.clear();
                session.resend(now, &mut self.scratch);
                send(peer, &self.scratch);
            }
            if live.is_revoked() {
                self.end(slot, End::Revoked, inbox, send);
            } else if now >= live.active + self.config.idle_timeout {
                self.end(slot, End::Idle, inbox, send);
            } else if !live.resting && now >= live.active + REST_AFTER {
                live.session.rest();
                live.resting = true;
            }
        }
    }

    /// Ends a session, with close_notify if the peer may receive it.
    fn end(&mut self, slot: usize, end: End, inbox: &mut Inbox<P>, send: &mut dyn FnMut(P, &[u8])) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(mut live) = entry.session.take() else { return };
        let known_as = live.known_as(entry.peer);
        self.names.forget(known_as, &live);
        self.sessions -= 1;
        self.networks.change(entry.peer.address().ip(), |taken| taken.sessions -= 1);
        match end {
            // RFC 5246 §7.2.1: close_notify is answered with the same.
            End::Closed | End::Idle | End::Evicted | End::Revoked | End::Ours => {
                self.scratch.clear();
                live.session.put_alert(Alert::CloseNotify, &mut self.scratch);
                send(entry.peer, &self.scratch);
            }
            End::Fault(_) | End::Replaced => {}
        }
        inbox.ended(known_as, live.association, end);
    }

    /// The peer's slot, or a new one.
    fn slot_of(&mut self, peer: P) -> usize {
        if let Some(slot) = self.peers.get(&peer) {
            return *slot;
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
        self.peers.insert(peer, slot);
        slot
    }

    /// Removes a peer without session and handshake.
    fn tidy(&mut self, slot: usize) {
        let Some(place) = self.slots.get_mut(slot) else { return };
        if let Some(entry) = place.take_if(|entry| entry.session.is_none() && entry.handshake.is_none()) {
            self.peers.remove(&entry.peer);
            self.free.push(slot);
        }
        if self.alarms.len() > 4 * self.peers.len() + 1024 {
            // Alarms of those that are gone.
            let slots = &self.slots;
            self.alarms.retain(|Reverse((at, slot))| {
                slots.get(*slot).and_then(Option::as_ref).is_some_and(|entry| entry.alarm == Some(*at))
            });
        }
    }

    fn set_alarm(&mut self, slot: usize) {
        let Some(entry) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let handshake = entry.handshake.as_ref().map(|begun| {
            let over = begun.handshake.began() + self.config.handshake_timeout;
            begun.handshake.again_at().map_or(over, |again| again.min(over))
        });
        let session = entry.session.as_ref().map(|live| {
            let rests = if live.resting { self.config.idle_timeout } else { REST_AFTER.min(self.config.idle_timeout) };
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

    fn association(&mut self) -> Association {
        loop {
            let [_, _, _, _, low @ ..] = self.number().to_be_bytes();
            if low != [0; 4] {
                return Association(u32::from_be_bytes(low));
            }
        }
    }

    const fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl<P> std::fmt::Debug for Endpoint<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("sessions", &self.sessions)
            .field("handshakes", &self.handshakes)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

fn is_client_hello(record: &Record<'_>) -> bool {
    record.content == ContentType::Handshake
        && record.epoch < EPOCH
        && Fragment::split(record.payload).is_some_and(|(fragment, _)| fragment.kind == message::CLIENT_HELLO)
}
