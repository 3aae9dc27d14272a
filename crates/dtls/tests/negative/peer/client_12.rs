//! A client of DTLS 1.2 that misbehaves, with real keys. It says its last flight by a plan that cases change.

use std::{collections::VecDeque, time::Duration};

use super::{
    crypto::{Half12, Share, prf, random, sha256},
    house::{House, Said},
    pki::{KEY, PKI},
    wire::{
        self, ALERT, ClientHello, Cursor, DATA, HANDSHAKE, IDENTIFIED, Parts, V12, ext, kind, number, vec8, vec16,
        vec24,
    },
};
use crate::case::Enemy;

pub(crate) const PSK: u16 = 0x00a8;
const ECDHE_PSK: u16 = 0xd001;
const ECDHE_ECDSA: u16 = 0xc02b;

type Edit<T> = Box<dyn FnOnce(&mut T)>;

pub(crate) struct Client12 {
    pub(crate) house: House,
    pub(crate) hello: ClientHello,
    pub(crate) transcript: Vec<u8>,
    /// Numbers of the next message, the next record in the clear and the next under keys.
    pub(crate) next: u16,
    pub(crate) plain: u64,
    pub(crate) sealed: u64,
    /// Messages of the last flight.
    pub(crate) plan: Vec<u8>,
    edits: Vec<(u8, Edit<Vec<u8>>)>,
    /// Messages that are sent in another epoch than their own.
    epochs: Vec<(u8, u16)>,
    server_random: [u8; 32],
    share: Option<Share>,
    point: Vec<u8>,
    master: Vec<u8>,
    /// The keys that it writes and reads with.
    pub(crate) keys: Option<(Half12, Half12)>,
    /// The identifier in records to our server.
    pub(crate) cid: Vec<u8>,
    parts: Parts,
    /// Messages of our server that were not looked at.
    messages: VecDeque<(u8, Vec<u8>)>,
    alerts: Vec<(u8, u8)>,
    pub(crate) data: Vec<Vec<u8>>,
    others: usize,
    greeted: bool,
    done: bool,
    strict: bool,
}

impl Client12 {
    /// With a pre-shared key and nothing else.
    pub(crate) fn psk() -> Self {
        Self::with(PSK, vec![kind::CLIENT_KEY_EXCHANGE, kind::CHANGE_CIPHER, kind::FINISHED], false)
    }

    pub(crate) fn ecdhe_psk() -> Self {
        Self::with(ECDHE_PSK, vec![kind::CLIENT_KEY_EXCHANGE, kind::CHANGE_CIPHER, kind::FINISHED], false)
    }

    /// With a certificate of its own.
    pub(crate) fn certificate() -> Self {
        Self::with(ECDHE_ECDSA, Self::certified(), false)
    }

    /// At a server that wants certificates.
    pub(crate) fn strict() -> Self {
        Self::with(ECDHE_ECDSA, Self::certified(), true)
    }

    fn certified() -> Vec<u8> {
        let [certificate, exchange, verify] = [kind::CERTIFICATE, kind::CLIENT_KEY_EXCHANGE, kind::CERTIFICATE_VERIFY];
        vec![certificate, exchange, verify, kind::CHANGE_CIPHER, kind::FINISHED]
    }

    /// With an identifier.
    pub(crate) fn identified() -> Self {
        let mut this = Self::psk();
        this.hello.extensions.push((ext::CONNECTION_ID, vec8(b"cid")));
        this
    }

    fn with(suite: u16, plan: Vec<u8>, strict: bool) -> Self {
        let hello = ClientHello {
            version: V12,
            random: random(),
            session: Vec::new(),
            cookie: Vec::new(),
            suites: vec![suite, 0x00ff],
            compressions: vec![0],
            extensions: vec![
                (ext::EXTENDED_MASTER_SECRET, Vec::new()),
                (ext::GROUPS, vec16(&[0, 29])),
                (ext::POINT_FORMATS, vec8(&[0])),
                (ext::SCHEMES, vec16(&[4, 3])),
            ],
        };
        Self {
            house: House::new(strict),
            hello,
            transcript: Vec::new(),
            next: 0,
            plain: 0,
            sealed: 0,
            plan,
            edits: Vec::new(),
            epochs: Vec::new(),
            server_random: [0; 32],
            share: None,
            point: Vec::new(),
            master: Vec::new(),
            keys: None,
            cid: Vec::new(),
            parts: Parts::default(),
            messages: VecDeque::new(),
            alerts: Vec::new(),
            data: Vec::new(),
            others: 0,
            greeted: false,
            done: false,
            strict,
        }
    }

    /// Changes a message of the plan before it is sent. The transcript has it as it is sent.
    pub(crate) fn edit(&mut self, kind: u8, edit: impl FnOnce(&mut Vec<u8>) + 'static) -> &mut Self {
        self.edits.push((kind, Box::new(edit)));
        self
    }

    pub(crate) fn skip(&mut self, kind: u8) -> &mut Self {
        self.plan.retain(|at| *at != kind);
        self
    }

    pub(crate) fn twice(&mut self, kind: u8) -> &mut Self {
        self.plan.insert(self.place(kind), kind);
        self
    }

    pub(crate) fn before(&mut self, kind: u8, new: u8) -> &mut Self {
        self.plan.insert(self.place(kind), new);
        self
    }

    pub(crate) fn swap(&mut self, one: u8, other: u8) -> &mut Self {
        let (one, other) = (self.place(one), self.place(other));
        self.plan.swap(one, other);
        self
    }

    pub(crate) fn in_epoch(&mut self, kind: u8, epoch: u16) -> &mut Self {
        self.epochs.push((kind, epoch));
        self
    }

    fn place(&self, kind: u8) -> usize {
        self.plan.iter().position(|at| *at == kind).unwrap()
    }

    /// The first flights, up to the server's.
    pub(crate) fn greet(&mut self) -> &mut Self {
        self.greeted = true;
        self.say_hello();
        if self.messages.front().is_some_and(|(at, _)| *at == kind::HELLO_VERIFY_REQUEST) {
            let (_, body) = self.messages.pop_front().unwrap();
            self.hello.cookie = Cursor(&body[2..]).vector(1).to_vec();
            self.transcript.clear();
            self.say_hello();
        }
        let mut sequence = self.next - 1;
        while let Some((at, body)) = self.messages.pop_front() {
            self.transcript.extend(wire::message(at, sequence, &body));
            sequence += 1;
            match at {
                kind::SERVER_HELLO => {
                    let mut hello = wire::ServerHello::decode(&body);
                    self.server_random = hello.random;
                    // RFC 8449 §4: where it was asked for, and nowhere else.
                    let asked = wire::limit_in(&self.hello.extensions).is_some();
                    assert_eq!(wire::limit_in(&hello.extensions), asked.then_some(1 << 14));
                    if hello.extensions.iter().any(|(at, _)| *at == ext::CONNECTION_ID) {
                        self.cid = wire::Extensions::get(&mut hello, ext::CONNECTION_ID)[1..].to_vec();
                    }
                }
                kind::SERVER_KEY_EXCHANGE => {
                    let hint = if self.hello.suites[0] == ECDHE_PSK { 2 } else { 0 };
                    self.point = Cursor(&body[hint + 3..]).vector(1).to_vec();
                    self.share = Some(Share::new());
                }
                _ => {}
            }
        }
        self
    }

    /// Sends a ClientHello, as a new message.
    pub(crate) fn say_hello(&mut self) {
        let body = self.hello.encode();
        self.say(kind::CLIENT_HELLO, &body);
    }

    /// Sends a message in the clear in a record of its own.
    pub(crate) fn say(&mut self, kind: u8, body: &[u8]) {
        self.say_in(kind, body, 0);
    }

    pub(crate) fn say_in(&mut self, kind: u8, body: &[u8], epoch: u16) {
        let message = wire::message(kind, self.next, body);
        self.next += 1;
        self.transcript.extend(&message);
        self.send_in(HANDSHAKE, &message, epoch);
    }

    pub(crate) fn send_in(&mut self, content: u8, payload: &[u8], epoch: u16) {
        let datagram = if epoch == 0 { self.clear(content, payload) } else { self.seal(content, payload) };
        self.raw(&datagram);
    }

    /// A record in the clear.
    pub(crate) fn clear(&mut self, content: u8, payload: &[u8]) -> Vec<u8> {
        self.plain += 1;
        wire::record(content, self.plain - 1, payload)
    }

    /// A record under keys.
    pub(crate) fn seal(&mut self, content: u8, plain: &[u8]) -> Vec<u8> {
        self.sealed += 1;
        self.seal_at(content, number(1, self.sealed - 1), plain)
    }

    pub(crate) fn seal_at(&self, content: u8, number: u64, plain: &[u8]) -> Vec<u8> {
        let (write, _) = self.keys.as_ref().unwrap();
        match &self.cid[..] {
            [] => write.seal(content, number, plain),
            cid => write.seal_identified(cid, number, &[plain, &[content]].concat()),
        }
    }

    /// Sends a datagram and takes in what comes back.
    pub(crate) fn raw(&mut self, datagram: &[u8]) {
        self.house.arrive(datagram);
        self.hear();
    }

    /// Takes in what has come.
    pub(crate) fn hear(&mut self) {
        while let Some(datagram) = self.house.out.pop_front() {
            let mut reader = Cursor(&datagram);
            while !reader.0.is_empty() {
                let content = reader.take(1)[0];
                reader.u16();
                let number = reader.number(8);
                if content == IDENTIFIED {
                    reader.take(3);
                }
                let payload = reader.vector(2);
                self.hear_record(content, number, payload);
            }
        }
    }

    fn hear_record(&mut self, content: u8, number: u64, payload: &[u8]) {
        // Without nonce and tag.
        let inner = if number >> 48 == 1 { payload.len() - 24 } else { payload.len() };
        let most = wire::limit_in(&self.hello.extensions).unwrap_or(1 << 14).min(1 << 14);
        assert!(inner <= most, "{inner} bytes, where {most} are the limit");
        let plain = match &self.keys {
            // No case looks at records that are protected with an identifier.
            _ if content == IDENTIFIED => return self.others += 1,
            Some((_, read)) if number >> 48 == 1 => read.open(content, number, payload).unwrap(),
            _ => payload.to_vec(),
        };
        match content {
            HANDSHAKE if number >> 48 == 1 => self.done = true,
            HANDSHAKE => self.messages.extend(self.parts.push(&plain).into_iter().map(|(kind, _, body)| (kind, body))),
            ALERT => self.alerts.push((plain[0], plain[1])),
            DATA => self.data.push(plain),
            _ => {}
        }
    }

    /// Sends a part of the plan.
    pub(crate) fn last_flight(&mut self) {
        for kind in std::mem::take(&mut self.plan) {
            self.step(kind);
        }
    }

    /// Sends one message of the last flight.
    pub(crate) fn step(&mut self, kind: u8) {
        let mut body = match kind {
            kind::CERTIFICATE => vec24(&vec24(&PKI.enemy.certificate)),
            kind::CLIENT_KEY_EXCHANGE => self.exchange(),
            kind::CERTIFICATE_VERIFY => [&[4, 3][..], &vec16(&PKI.enemy.sign(&self.transcript))].concat(),
            kind::CHANGE_CIPHER => vec![1],
            kind::FINISHED => prf(&self.master, "client finished", &sha256(&self.transcript), 12),
            _ => Vec::new(),
        };
        while let Some(at) = self.edits.iter().position(|(at, _)| *at == kind) {
            self.edits.remove(at).1(&mut body);
        }
        let epoch = self.epochs.iter().find(|(at, _)| *at == kind).map(|(_, epoch)| *epoch);
        match kind {
            kind::CHANGE_CIPHER => self.send_in(wire::CHANGE_CIPHER_SPEC, &body, 0),
            kind::FINISHED => self.say_in(kind, &body, epoch.unwrap_or(1)),
            _ => self.say_in(kind, &body, epoch.unwrap_or(0)),
        }
        if kind == kind::CLIENT_KEY_EXCHANGE && self.keys.is_none() {
            self.make_keys();
        }
    }

    /// A ClientKeyExchange; its secret is in `master` until keys are made of it.
    fn exchange(&mut self) -> Vec<u8> {
        let is_psk = self.hello.suites[0] != ECDHE_ECDSA;
        let mut body = if is_psk { vec16(b"enemy") } else { Vec::new() };
        let agreed = self.share.as_mut().map(|share| {
            body.extend(vec8(&share.1));
            share.agree(&self.point)
        });
        if self.keys.is_none() {
            self.master = match (is_psk, agreed) {
                (true, agreed) => [vec16(&agreed.unwrap_or_else(|| vec![0; KEY.len()])), vec16(KEY)].concat(),
                (false, agreed) => agreed.unwrap(),
            };
        }
        body
    }

    fn make_keys(&mut self) {
        self.master = prf(&self.master, "extended master secret", &sha256(&self.transcript), 48);
        self.keys = Some(Half12::both(&self.master, &self.hello.random, &self.server_random));
    }

    /// The rest of a handshake.
    pub(crate) fn shake(&mut self) -> &mut Self {
        if !self.greeted {
            self.greet();
        }
        if !self.done {
            self.last_flight();
        }
        self
    }

    /// A session, and nothing unread.
    pub(crate) fn session(&mut self) -> &mut Self {
        self.shake();
        assert!(self.done || self.others > 0, "{:?}", self.alerts);
        (self.done, self.others) = (true, 0);
        self
    }

    /// Sends something under keys.
    pub(crate) fn send(&mut self, content: u8, plain: &[u8]) {
        self.send_in(content, plain, 1);
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.house.wait(Duration::from_secs(seconds));
        self.hear();
    }
}

impl Enemy for Client12 {
    fn alerts(&self) -> Vec<(u8, u8)> {
        self.alerts.clone()
    }

    fn is_answered(&self) -> bool {
        !self.messages.is_empty() || !self.data.is_empty() || self.others > 0
    }

    fn goes_on(&mut self) {
        self.session();
        self.send(DATA, b"question");
        assert_eq!(self.house.said.last(), Some(&Said::Data(b"question".to_vec())));
        assert!(self.others > 0 || self.data.last().is_some_and(|data| data == b"answer"));
    }

    fn is_over(&mut self, _: Option<u8>) {
        self.house.is_rid_of_it();
        assert!(!matches!(self.house.said.last(), Some(Said::Established | Said::Data(_))), "{:?}", self.house.said);
    }

    fn begins_again(&mut self) {
        self.house.is_unharmed();
        self.wait(1);
        let mut again = if self.strict { Self::strict() } else { Self::psk() };
        std::mem::swap(&mut again.house, &mut self.house);
        again.house.out.clear();
        again.goes_on();
        again.house.is_unharmed();
    }
}
