//! A server's end of all its associations on one socket.

mod config;
mod entry;
mod handshakes;
mod link;
mod moves;
mod networks;
mod opening;
mod owners;
mod places;
mod records;
mod room;
mod slots;
mod unified;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    hash::Hash,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

pub use self::config::{Counters, EndpointConfig, Evicted};
use self::{entry::Entry, moves::Names, networks::Networks, owners::Owners, places::Places, room::Anonymous};
use super::{
    Association, CookieKey, Credentials, End, Inbox, Platform,
    session::EPOCH,
    suite::Wear,
    v13,
    wire::{ContentType, Fragment, Record, message},
};

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

/// The fate of data that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "data that was withheld is as good as lost"]
pub enum Sent {
    /// It is sent.
    Yes,
    /// It is as good as lost: more than may go to a new address before [`Endpoint::validate`].
    Withheld,
    /// It is not sent: the peer takes no record that large (RFC 8449, [`Endpoint::data_max`]).
    TooLong,
    /// There is no such session any more.
    Ended,
}

/// All associations of a socket.
pub struct Endpoint<P> {
    config: EndpointConfig,
    credentials: Arc<dyn Credentials>,
    platform: Platform,
    cookies: Arc<CookieKey>,
    places: Places,
    /// Peers found by other means than their address.
    pub(super) names: Names<P>,
    pub(super) slots: Vec<Option<Entry<P>>>,
    free: Vec<usize>,
    pub(super) alarms: BinaryHeap<Reverse<(Duration, usize)>>,
    /// Handshakes by age; those that are no longer half-open are skipped.
    half_open: VecDeque<(usize, u64)>,
    handshakes: usize,
    sessions: usize,
    anonymous: Anonymous,
    pub(super) networks: Networks,
    pub(super) owners: Owners,
    next: u64,
    scratch: Vec<u8>,
    /// Bytes of the record that is handled, as long as they count for no address.
    arrived: usize,
    counters: Counters,
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
            places: Places::default(),
            names: Names::default(),
            slots: Vec::new(),
            free: Vec::new(),
            alarms: BinaryHeap::new(),
            half_open: VecDeque::new(),
            handshakes: 0,
            sessions: 0,
            anonymous: Anonymous::default(),
            networks: Networks::default(),
            owners: Owners::default(),
            next: 0,
            scratch: Vec::new(),
            arrived: 0,
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
            None => self.slot_at(&peer),
            Some(cid) => self.names.slot(cid),
        };
        match slot {
            Some(slot) => self.handle_records(now, slot, (peer, datagram), inbox, send),
            None => self.counters.dropped += 1,
        }
    }

    /// Takes in a datagram if it belongs to a session, so that it costs no more than opening its records. A step of a
    /// handshake may cost a hundred times as much: it is left to [`Endpoint::handle`], as is all else, and the result
    /// is `false`.
    pub fn handle_of_session(
        &mut self,
        now: Duration,
        peer: P,
        datagram: &[u8],
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) -> bool {
        let is_sealed = v13::is_sealed(datagram);
        let cid = if is_sealed {
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
            None => self.slot_at(&peer),
        };
        let Some(slot) = slot else { return false };
        let entry = self.slots.get(slot).and_then(Option::as_ref);
        if !entry.is_some_and(|entry| entry.session.is_some() && entry.handshake.is_none()) {
            return false;
        }
        if is_sealed {
            self.handle_sealed(now, peer, datagram, inbox, send);
        } else {
            self.handle_records(now, slot, (peer, datagram), inbox, send);
        }
        true
    }

    /// Takes in the records of a datagram, below DTLS 1.3, for a slot.
    fn handle_records(
        &mut self,
        now: Duration,
        slot: usize,
        (peer, datagram): (P, &[u8]),
        inbox: &mut Inbox<P>,
        send: &mut dyn FnMut(P, &[u8]),
    ) {
        let mut rest = datagram;
        while let Some((record, after)) = Record::split(rest) {
            let bytes = if record.cid.is_some() { rest.len() - after.len() } else { 0 };
            self.note_arrival(slot, peer, bytes);
            self.handle_record(now, slot, peer, &record, inbox, send);
            rest = after;
        }
        self.tidy(slot);
        self.set_alarm(slot);
    }

    /// Hands out connection identifiers that begin with this number, so that the reader of another socket of the same
    /// address can find the owner of a datagram ([`identified`](crate::identified)). Without it none are handed
    /// out.
    #[must_use]
    pub fn identified_by(mut self, number: u8) -> Self {
        self.names.number(number);
        self
    }

    /// The most bytes of data that may be sent to a session at once: what the peer takes in a record (RFC 8449). `None`
    /// when there is no such session.
    #[must_use]
    pub fn data_max(&self, peer: P, association: Association) -> Option<usize> {
        let slot = self.slot_of_session(peer, association)?;
        let live = self.slots.get(slot)?.as_ref()?.session.as_ref()?;
        (live.association == association).then(|| live.session.data_max())
    }

    /// Protects data for a session and sends it, if that may be.
    pub fn send(
        &mut self,
        now: Duration,
        peer: P,
        association: Association,
        data: &[u8],
        send: &mut dyn FnMut(P, &[u8]),
    ) -> Sent {
        let slot = self.slot_of_session(peer, association);
        let entry = slot.and_then(|slot| self.slots.get_mut(slot)).and_then(Option::as_mut);
        let Some(entry) = entry else { return Sent::Ended };
        let peer = entry.peer;
        let Some(live) = entry.session.as_mut().filter(|live| live.association == association) else {
            return Sent::Ended;
        };
        // It ends when something is heard of it; until then nothing is said.
        if live.is_revoked() {
            return Sent::Ended;
        }
        if data.len() > live.session.data_max() {
            return Sent::TooLong;
        }
        self.scratch.clear();
        let sealed = live.session.seal(data, &mut self.scratch).is_some();
        // The alarm changes or ends what is used up.
        let due = live.session.wear() != Wear::Fresh;
        if !sealed {
            if let (Some(slot), true) = (slot, due) {
                self.set_alarm(slot);
            }
            return Sent::Ended;
        }
        live.active = now;
        let due = std::mem::take(&mut live.resting) || due;
        let may_go = live.may_send(self.scratch.len());
        if may_go {
            send(peer, &self.scratch);
        }
        if let (Some(slot), true) = (slot, due) {
            self.set_alarm(slot);
        }
        if may_go { Sent::Yes } else { Sent::Withheld }
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
            self.tidy(slot);
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

    /// The number of peers with a session or a handshake.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn peers(&self) -> usize {
        self.places.len()
    }

    /// Sessions that keep what could be computed again from their keys.
    #[cfg(test)]
    pub(super) fn expanded(&self) -> usize {
        let live = self.slots.iter().flatten().filter_map(|entry| entry.session.as_ref());
        live.filter(|live| !live.session.is_at_rest()).count()
    }

    #[cfg(test)]
    pub(super) fn session_of_12(&mut self, peer: P) -> Option<&mut super::session::Session> {
        let slot = self.slot_at(&peer)?;
        match &mut self.slots.get_mut(slot)?.as_mut()?.session.as_mut()?.session {
            link::Link::V12(session) => Some(session),
            link::Link::V13(_) => None,
        }
    }

    #[cfg(test)]
    pub(super) fn session_of_13(&mut self, peer: P) -> Option<&mut v13::Session> {
        let slot = self.slot_at(&peer)?;
        match &mut self.slots.get_mut(slot)?.as_mut()?.session.as_mut()?.session {
            link::Link::V12(_) => None,
            link::Link::V13(session) => Some(session),
        }
    }

    /// As if so many numbers had been given.
    #[cfg(test)]
    pub(super) const fn skip_numbers(&mut self, numbers: u64) {
        self.next = numbers;
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
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
