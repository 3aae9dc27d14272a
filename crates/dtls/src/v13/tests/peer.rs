//! A client for the tests, as small as one can be: it believes any certificate, and says again what was not answered
//! after a second.

mod handshake;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use rustls::sign::CertifiedKey;

use crate::{
    Alert,
    exchange::{Ephemeral, Group},
    hello::extension,
    reassembly::Reassembly,
    tests::platform,
    v13::{
        Suite13, ack,
        record::{Content, Number, Reading, Sealed, Writing},
        schedule::{self, Early, Stage, Transcript},
    },
    wire::{self, ContentType, DTLS_1_2, DTLS_1_3, Fragment, Record, message},
};

const AGAIN: Duration = Duration::from_secs(1);

/// The peer's offer.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) suite: Suite13,
    /// The group of its share, if it sends one at first.
    pub(super) share: Option<Group>,
    pub(super) groups: Vec<Group>,
    pub(super) psk: Option<(Vec<u8>, Vec<u8>)>,
    /// Identities that are offered before that, with binders by these keys.
    pub(super) before: Vec<(&'static [u8], &'static [u8])>,
    pub(super) modes: Vec<u8>,
    pub(super) certified: Option<Arc<CertifiedKey>>,
    pub(super) cid: Option<Vec<u8>>,
}

impl Offer {
    pub(super) fn psk(identity: &[u8], key: &[u8]) -> Self {
        Self { psk: Some((identity.to_vec(), key.to_vec())), ..Self::certificates() }
    }

    pub(super) fn certificates() -> Self {
        let groups = Group::ALL.to_vec();
        let (suite, share) = (Suite13::Aes128Ccm8, Some(Group::X25519));
        Self { suite, share, groups, psk: None, before: Vec::new(), modes: vec![1], certified: None, cid: None }
    }
}

/// A message that the peer has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Data(Vec<u8>),
    Alert(Alert),
}

pub(super) struct Peer {
    offer: Offer,
    random: [u8; 32],
    cookie: Vec<u8>,
    ephemeral: Option<Ephemeral>,
    early: Early,
    transcript: Option<Transcript>,
    first: Vec<u8>,
    parts: Reassembly,
    stage: Option<Stage>,
    hello_hash: schedule::Hash,
    reading: Vec<Reading>,
    handshake: Option<Writing>,
    pub(super) data: Option<Writing>,
    requested: bool,
    plain_sent: u64,
    next_out: u16,
    /// Unanswered messages, with their epoch.
    flight: Vec<(u64, Vec<u8>)>,
    sent: Vec<Number>,
    again_at: Option<Duration>,
    pub(super) done: bool,
    /// Whether there was a key exchange.
    pub(super) exchanged: bool,
    /// Whether it acknowledges what comes after the handshake.
    pub(super) deaf: bool,
    pub(super) theirs: Vec<u8>,
    pub(super) heard: Vec<Heard>,
    out: VecDeque<Vec<u8>>,
}

impl Peer {
    pub(super) fn new(offer: Offer, now: Duration) -> Self {
        let ephemeral = offer.share.map(|group| Ephemeral::generate(&platform(), group).unwrap());
        let early = Early::new(offer.psk.as_ref().map(|(_, key)| &key[..]));
        let mut random = [0; 32];
        platform().fill(&mut random).unwrap();
        let mut this = Self {
            random,
            ephemeral,
            early,
            cookie: Vec::new(),
            transcript: None,
            first: Vec::new(),
            parts: Reassembly::new(0, 32 << 10),
            stage: None,
            hello_hash: [0; 32],
            reading: Vec::new(),
            handshake: None,
            data: None,
            requested: false,
            plain_sent: 0,
            next_out: 0,
            flight: Vec::new(),
            sent: Vec::new(),
            again_at: None,
            done: false,
            exchanged: false,
            deaf: false,
            theirs: Vec::new(),
            heard: Vec::new(),
            out: VecDeque::new(),
            offer,
        };
        this.first = this.hello();
        this.say(0, message::CLIENT_HELLO, &this.first.clone());
        this.send(now);
        this
    }

    /// A ClientHello with what is known now.
    fn hello(&self) -> Vec<u8> {
        let mut body = DTLS_1_2.to_be_bytes().to_vec();
        body.extend(self.random);
        body.extend([0, 0]);
        wire::put_vector16(&mut body, &self.offer.suite.number().to_be_bytes());
        body.extend([1, 0]);
        let mut extensions = Vec::new();
        let mut versions = vec![2];
        versions.extend(DTLS_1_3.to_be_bytes());
        wire::put_extension(&mut extensions, extension::SUPPORTED_VERSIONS, &versions);
        let vector = |list: &[u8]| {
            let mut vector = Vec::new();
            wire::put_vector16(&mut vector, list);
            vector
        };
        let groups: Vec<u8> = self.offer.groups.iter().flat_map(|group| group.number().to_be_bytes()).collect();
        wire::put_extension(&mut extensions, extension::SUPPORTED_GROUPS, &vector(&groups));
        wire::put_extension(&mut extensions, extension::SIGNATURE_ALGORITHMS, &vector(&[4, 3, 8, 4]));
        if !self.cookie.is_empty() {
            wire::put_extension(&mut extensions, extension::COOKIE, &vector(&self.cookie));
        }
        let mut shares = Vec::new();
        if let Some((group, ephemeral)) = self.offer.share.zip(self.ephemeral.as_ref()) {
            shares.extend(group.number().to_be_bytes());
            wire::put_vector16(&mut shares, ephemeral.public());
        }
        wire::put_extension(&mut extensions, extension::KEY_SHARE, &vector(&shares));
        if let Some(cid) = &self.offer.cid {
            let mut body = Vec::new();
            wire::put_vector8(&mut body, cid);
            wire::put_extension(&mut extensions, extension::CONNECTION_ID, &body);
        }
        let Some((identity, _)) = &self.offer.psk else {
            wire::put_vector16(&mut body, &extensions);
            return body;
        };
        let mut modes = Vec::new();
        wire::put_vector8(&mut modes, &self.offer.modes);
        wire::put_extension(&mut extensions, extension::PSK_KEY_EXCHANGE_MODES, &modes);
        let mut names = Vec::new();
        for identity in self.offer.before.iter().map(|(identity, _)| *identity).chain([&identity[..]]) {
            wire::put_vector16(&mut names, identity);
            names.extend([0; 4]);
        }
        let mut psks = vector(&names);
        let binders = 33 * (self.offer.before.len() + 1);
        psks.extend(vector(&vec![32; binders]));
        wire::put_extension(&mut extensions, extension::PRE_SHARED_KEY, &psks);
        wire::put_vector16(&mut body, &extensions);
        let mut transcript = self.transcript.clone().unwrap_or_else(Transcript::empty);
        let part = body.len() - binders - 2;
        transcript.add_part(message::CLIENT_HELLO, body.len(), &body[..part]);
        let others = self.offer.before.iter().map(|(_, key)| Early::new(Some(key)).binder(&transcript.hash()));
        let all = others.chain([self.early.binder(&transcript.hash())]);
        for (place, binder) in body[part + 2..].chunks_mut(33).zip(all) {
            place[1..].copy_from_slice(&binder);
        }
        body
    }

    fn say(&mut self, epoch: u64, kind: u8, body: &[u8]) {
        let mut bytes = Vec::new();
        wire::put_message(&mut bytes, kind, self.next_out, body);
        self.next_out = self.next_out.wrapping_add(1);
        self.flight.push((epoch, bytes));
    }

    fn send(&mut self, now: Duration) {
        let mut datagram = Vec::new();
        let theirs = self.theirs.clone();
        for (epoch, message) in &self.flight {
            if *epoch == 0 {
                wire::put_record(&mut datagram, ContentType::Handshake, DTLS_1_2, self.plain_sent, message);
                self.plain_sent += 1;
                continue;
            }
            let writing = if *epoch == 2 { &mut self.handshake } else { &mut self.data };
            // In two pieces, so that there is something to put together.
            let (whole, _) = Fragment::split(message).unwrap();
            let half = whole.length / 2;
            for (offset, body) in [(0, &whole.body[..half]), (half, &whole.body[half..])] {
                if *epoch > 2 && offset > 0 || half == 0 && offset == 0 && *epoch == 2 {
                    continue;
                }
                let mut piece = Vec::new();
                let (offset, body) = if *epoch > 2 { (0, whole.body) } else { (offset, body) };
                wire::put_fragment(&mut piece, whole.kind, whole.sequence, whole.length, offset, body);
                self.sent.extend(writing.as_mut().unwrap().seal(&theirs, Content::Handshake, &piece, &mut datagram));
            }
        }
        self.out.push_back(datagram);
        self.again_at = Some(now + AGAIN);
    }

    pub(super) fn poll(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    pub(super) const fn next_timeout(&self) -> Option<Duration> {
        self.again_at
    }

    pub(super) fn handle_timeout(&mut self, now: Duration) {
        if self.again_at.is_some_and(|at| at <= now) {
            self.send(now);
        }
    }

    pub(super) fn handle(&mut self, now: Duration, datagram: &[u8]) {
        let mut rest = datagram;
        while !rest.is_empty() {
            if let Some((record, after)) = Record::split(rest) {
                rest = after;
                self.handle_plain(now, &record);
            } else if let Some((record, after)) = Sealed::split_with(rest, self.cid_len()) {
                rest = after;
                self.handle_sealed(now, &record);
            } else {
                return;
            }
        }
    }

    fn cid_len(&self) -> usize {
        self.offer.cid.as_ref().map_or(0, Vec::len)
    }

    fn handle_plain(&mut self, now: Duration, record: &Record<'_>) {
        match record.content {
            ContentType::Handshake => {
                if let Some((fragment, _)) = Fragment::split(record.payload) {
                    self.parts.push(0, &fragment);
                    self.advance(now);
                }
            }
            ContentType::Alert if !self.done => self.heard.push(Heard::Alert(Alert::parse(record.payload[1]))),
            ContentType::Alert
            | ContentType::ApplicationData
            | ContentType::ChangeCipherSpec
            | ContentType::Identified => {}
        }
    }

    fn handle_sealed(&mut self, now: Duration, record: &Sealed<'_>) {
        let mut plain = Vec::new();
        let Some(opened) = self.reading.iter_mut().rev().find_map(|read| read.open(record, &mut plain)) else { return };
        match opened.content {
            Content::Handshake if self.deaf => {}
            Content::Handshake => {
                let (fragment, _) = Fragment::split(&plain).unwrap();
                self.parts.push(0, &fragment);
                self.advance(now);
                if self.done {
                    self.put_ack(opened.number);
                }
            }
            Content::Ack => {
                let acknowledged = ack::numbers(&plain).unwrap().any(|number| self.sent.contains(&number));
                if acknowledged && self.data.is_some() && opened.number.epoch >= 3 {
                    (self.done, self.again_at) = (true, None);
                    if std::mem::take(&mut self.requested) {
                        self.data = self.data.as_ref().map(Writing::next);
                    }
                }
            }
            Content::ApplicationData => self.heard.push(Heard::Data(plain)),
            Content::Alert => self.heard.push(Heard::Alert(Alert::parse(plain[1]))),
            Content::Unknown => panic!("a record of no type"),
        }
    }

    fn put_ack(&mut self, number: Number) {
        let mut out = Vec::new();
        let theirs = self.theirs.clone();
        self.data.as_mut().unwrap().seal(&theirs, Content::Ack, &ack::body(&[number]), &mut out);
        self.out.push_back(out);
    }

    fn advance(&mut self, now: Duration) {
        while let Some(message) = self.parts.pop() {
            self.handle_message(now, &message);
        }
    }

    /// Changes its keys.
    pub(super) fn update(&mut self, now: Duration, request: bool) {
        self.flight.clear();
        self.requested = true;
        self.say(3, message::KEY_UPDATE, &[u8::from(request)]);
        self.send(now);
    }

    /// As if the server's records up to this had come.
    pub(super) fn jump(&mut self, sequence: u64) {
        self.reading.last_mut().unwrap().jump(sequence);
    }

    /// As if so many messages had been said.
    pub(super) const fn number(&mut self, next: u16) {
        self.next_out = next;
    }

    pub(super) fn seal(&mut self, content: Content, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let theirs = self.theirs.clone();
        self.data.as_mut().unwrap().seal(&theirs, content, plain, &mut out).unwrap();
        out
    }
}
