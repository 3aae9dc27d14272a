//! A server of DTLS 1.3 that misbehaves, with real keys, and our client at it.

mod plan;

use fogmux_dtls::{
    Suite,
    client::{ClientConfig, ClientEvent},
};

use super::{
    crypto::{Half13, Share, finished, random},
    guest::{self, Guest, Versions},
    pki::{KEY, PKI, Proof},
    schedule::{Schedule, signed},
    wire::{
        self, ACK, ALERT, Cursor, DATA, Extensions as _, HANDSHAKE, Parts, ServerHello, V12, V13, ext, kind, vec8,
        vec16, vec24,
    },
};
use crate::case::Enemy;

type Edit<T> = Box<dyn FnOnce(&mut T)>;

/// RFC 8446 §4.1.3: the random number of a HelloRetryRequest.
const RETRY: &str = "HelloRetryRequest";

pub(crate) struct Server13 {
    pub(crate) guest: Guest,
    pub(crate) hello: ServerHello,
    pub(crate) proof: &'static Proof,
    pub(crate) schedule: Schedule,
    share: Share,
    point: Vec<u8>,
    pub(crate) next: u16,
    pub(crate) plain: u64,
    pub(crate) plan: Vec<u8>,
    edits: Vec<(u8, Edit<Vec<u8>>)>,
    write: Vec<Half13>,
    read: Vec<Half13>,
    pub(crate) cid: Vec<u8>,
    own: usize,
    /// The most that it takes in a record.
    limit: usize,
    parts: Parts,
    /// Numbers of records with handshake messages that were not acknowledged.
    pub(crate) unacknowledged: Vec<(u64, u64)>,
    pub(crate) acked: Vec<(u64, u64)>,
    /// Messages after the handshake.
    pub(crate) later: Vec<(u8, Vec<u8>)>,
    alerts: Vec<(u8, u8)>,
    pub(crate) data: Vec<Vec<u8>>,
    hellos: usize,
    flown: bool,
    done: bool,
}

impl Server13 {
    pub(crate) fn psk() -> Self {
        Self::with(guest::psk(Versions::Newer, Suite::PskAes128Gcm), true)
    }

    /// For a client that offers both versions.
    pub(crate) fn both() -> Self {
        Self::with(guest::psk(Versions::Both, Suite::PskAes128Gcm), true)
    }

    /// For a client that offers DTLS 1.2 only.
    pub(crate) fn older() -> Self {
        Self::with(guest::psk(Versions::Older, Suite::PskAes128Gcm), true)
    }

    /// For a client that wants no key exchange.
    pub(crate) fn psk_only() -> Self {
        let config = ClientConfig { groups: Vec::new(), ..guest::psk(Versions::Newer, Suite::PskAes128Gcm) };
        let mut this = Self::with(config, true);
        this.hello.without(ext::KEY_SHARE);
        this
    }

    pub(crate) fn certificate() -> Self {
        let mut this = Self::with(guest::certificates(Versions::Newer), false);
        let more = [kind::CERTIFICATE_REQUEST, kind::CERTIFICATE, kind::CERTIFICATE_VERIFY];
        this.plan.splice(2..2, more);
        this
    }

    /// With identifiers in both directions.
    pub(crate) fn identified() -> Self {
        let config = ClientConfig { identifiers: true, ..guest::psk(Versions::Newer, Suite::PskAes128Gcm) };
        let mut this = Self::with(config, true);
        this.hello.put(ext::CONNECTION_ID, &vec8(b"cid"));
        this.own = 3;
        this
    }

    fn with(config: ClientConfig, psk: bool) -> Self {
        let share = Share::new();
        let mut extensions = vec![
            (ext::VERSIONS, V13.to_be_bytes().to_vec()),
            (ext::KEY_SHARE, [&[0, 29][..], &vec16(&share.1)].concat()),
        ];
        if psk {
            extensions.push((ext::PRE_SHARED_KEY, vec![0, 0]));
        }
        let (random, suite) = (random(), 0x1301);
        let mut this = Self {
            guest: Guest::new(config),
            hello: ServerHello { version: V12, random, session: Vec::new(), suite, compression: 0, extensions },
            proof: &PKI.enemy,
            schedule: Schedule::new(psk.then_some(KEY)),
            share,
            point: Vec::new(),
            next: 0,
            plain: 0,
            plan: vec![kind::SERVER_HELLO, kind::ENCRYPTED_EXTENSIONS, kind::FINISHED],
            edits: Vec::new(),
            write: Vec::new(),
            read: Vec::new(),
            cid: Vec::new(),
            own: 0,
            limit: (1 << 14) + 1,
            parts: Parts::default(),
            unacknowledged: Vec::new(),
            acked: Vec::new(),
            later: Vec::new(),
            alerts: Vec::new(),
            data: Vec::new(),
            hellos: 0,
            flown: false,
            done: false,
        };
        this.hear();
        this
    }

    /// A HelloRetryRequest with these extensions beside the version.
    pub(crate) fn retry(&mut self, extensions: &[(u16, Vec<u8>)]) -> &mut Self {
        let random = super::crypto::sha256(RETRY.as_bytes());
        let mut hello = ServerHello { random, extensions: extensions.to_vec(), ..self.hello.clone() };
        hello.put(ext::VERSIONS, &V13.to_be_bytes());
        self.retry_as(&hello)
    }

    pub(crate) fn retry_as(&mut self, hello: &ServerHello) -> &mut Self {
        self.schedule.retry();
        self.say_clear(kind::SERVER_HELLO, &hello.encode());
        self
    }

    /// A HelloRetryRequest for a cookie.
    pub(crate) fn retry_cookie(&mut self) -> &mut Self {
        self.retry(&[(ext::COOKIE, vec16(b"cookie"))])
    }

    /// A message in the clear.
    pub(crate) fn say_clear(&mut self, kind: u8, body: &[u8]) {
        let message = wire::message(kind, self.next, body);
        self.next += 1;
        // The answer may be a ClientHello that goes into it behind this.
        self.schedule.add(kind, body);
        self.clear(HANDSHAKE, &message);
    }

    pub(crate) fn clear(&mut self, content: u8, payload: &[u8]) {
        let datagram = wire::record(content, self.plain, payload);
        self.plain += 1;
        self.raw(&datagram);
    }

    pub(crate) fn seal(&mut self, epoch: usize, content: u8, plain: &[u8]) -> Vec<u8> {
        let cid = self.cid.clone();
        self.write[epoch - 2].seal(&cid, content, plain)
    }

    pub(crate) fn half(&mut self, epoch: usize) -> &mut Half13 {
        &mut self.write[epoch - 2]
    }

    pub(crate) fn send(&mut self, epoch: usize, content: u8, plain: &[u8]) {
        let datagram = self.seal(epoch, content, plain);
        self.raw(&datagram);
    }

    pub(crate) fn send_inner(&mut self, epoch: usize, inner: &[u8]) {
        let cid = self.cid.clone();
        let datagram = self.write[epoch - 2].seal_inner(&cid, inner);
        self.raw(&datagram);
    }

    pub(crate) fn say(&mut self, epoch: usize, kind: u8, body: &[u8]) {
        let message = wire::message(kind, self.next, body);
        self.next += 1;
        self.schedule.add(kind, body);
        if kind == kind::FINISHED && epoch == 2 && self.write.len() == 1 {
            let (read, write) = self.schedule.data();
            self.write.push(write);
            self.read.push(read);
        }
        self.send(epoch, HANDSHAKE, &message);
    }

    pub(crate) fn raw(&mut self, datagram: &[u8]) {
        self.guest.arrive(datagram);
        self.hear();
    }

    pub(crate) fn hear(&mut self) {
        while let Some(datagram) = self.guest.out.pop_front() {
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                if rest[0] >> 5 == 1 {
                    let opened = self.read.iter().rev().find_map(|read| read.open(self.own, rest));
                    let (opened, after) = opened.expect("what our client says is under keys that are there");
                    rest = after;
                    assert!(opened.inner <= self.limit, "{} bytes, above the limit", opened.inner);
                    if opened.content == HANDSHAKE {
                        self.unacknowledged.push(opened.number);
                    }
                    self.heard(opened.content, opened.number.0, &opened.plain);
                } else {
                    let mut reader = Cursor(rest);
                    let content = reader.take(1)[0];
                    reader.take(10);
                    let payload = reader.vector(2);
                    rest = reader.0;
                    self.heard(content, 0, payload);
                }
            }
        }
    }

    fn heard(&mut self, content: u8, epoch: u64, plain: &[u8]) {
        match content {
            HANDSHAKE => {
                for (kind, _, body) in self.parts.push(plain) {
                    match kind {
                        kind::CLIENT_HELLO => self.heard_hello(&body),
                        _ if epoch == 2 => self.schedule.add(kind, &body),
                        kind::KEY_UPDATE => {
                            let next = self.read.last().unwrap().updated();
                            self.read.push(next);
                            self.later.push((kind, body));
                        }
                        _ => self.later.push((kind, body)),
                    }
                }
            }
            ALERT => self.alerts.push((plain[0], plain[1])),
            DATA => self.data.push(plain.to_vec()),
            ACK => {
                let mut reader = Cursor(Cursor(plain).vector(2));
                while !reader.0.is_empty() {
                    self.acked.push((reader.number(8), reader.number(8)));
                }
            }
            _ => panic!("a record of type {content}"),
        }
    }

    fn heard_hello(&mut self, body: &[u8]) {
        self.hellos += 1;
        self.schedule.add(kind::CLIENT_HELLO, body);
        let mut reader = Cursor(&body[34..]);
        reader.vector(1);
        reader.vector(1);
        reader.vector(2);
        reader.vector(1);
        for (number, body) in reader.extensions() {
            match number {
                ext::KEY_SHARE => self.point = Cursor(&body[4..]).vector(2).to_vec(),
                ext::CONNECTION_ID => self.cid = body[1..].to_vec(),
                _ => {}
            }
        }
    }

    /// The flight.
    pub(crate) fn fly(&mut self) -> &mut Self {
        self.flown = true;
        for kind in std::mem::take(&mut self.plan) {
            self.step(kind);
        }
        self
    }

    pub(crate) fn step(&mut self, kind: u8) {
        let mut body = match kind {
            kind::SERVER_HELLO => self.hello.encode(),
            kind::ENCRYPTED_EXTENSIONS => vec![0, 0],
            kind::CERTIFICATE_REQUEST => [&[0][..], &vec16(&request())].concat(),
            kind::CERTIFICATE => [&[0][..], &vec24(&[&vec24(&self.proof.certificate)[..], &[0, 0]].concat())].concat(),
            kind::CERTIFICATE_VERIFY => {
                let signature = self.proof.sign(&signed("server", &self.schedule.hash()));
                [&[4, 3][..], &vec16(&signature)].concat()
            }
            kind::FINISHED => {
                let hash = self.schedule.hash();
                self.write.first().map(|write| finished(&write.secret, &hash).to_vec()).unwrap_or_default()
            }
            _ => vec![0],
        };
        while let Some(at) = self.edits.iter().position(|(at, _)| *at == kind) {
            self.edits.remove(at).1(&mut body);
        }
        if kind == kind::SERVER_HELLO {
            self.say_clear(kind, &body);
            let has_share = self.hello.extensions.iter().any(|(at, _)| *at == ext::KEY_SHARE);
            let agreed = (has_share && !self.point.is_empty()).then(|| self.share.agree(&self.point));
            let (read, write) = self.schedule.handshake(agreed.as_deref());
            (self.read, self.write) = (vec![read], vec![write]);
            return;
        }
        self.say(2, kind, &body);
    }

    /// The flight, and the acknowledgement of our client's.
    pub(crate) fn shake(&mut self) -> &mut Self {
        if !self.flown {
            self.fly();
        }
        if !self.done && self.alerts.is_empty() {
            self.done = true;
            self.acknowledge();
        }
        self
    }

    /// Acknowledges all that was not.
    pub(crate) fn acknowledge(&mut self) {
        let numbers = std::mem::take(&mut self.unacknowledged);
        let body = ack(&numbers);
        let epoch = self.write.len() + 1;
        if epoch > 2 {
            self.send(epoch, ACK, &body);
        }
    }

    pub(crate) fn session(&mut self) -> &mut Self {
        self.shake();
        let is_there = self.guest.said.iter().any(|said| matches!(said, ClientEvent::Established(_)));
        assert!(is_there, "{:?} {:?}", self.alerts, self.guest.said);
        self.acked.clear();
        self
    }

    pub(crate) fn next_keys(&mut self) {
        let next = self.write.last().unwrap().updated();
        self.write.push(next);
    }

    pub(crate) fn key_update(&mut self, body: &[u8]) {
        let epoch = self.write.len() + 1;
        self.say(epoch, kind::KEY_UPDATE, body);
    }
}

/// The body of an acknowledgement of these records.
pub(crate) fn ack(numbers: &[(u64, u64)]) -> Vec<u8> {
    let list = numbers.iter().flat_map(|(epoch, sequence)| [epoch.to_be_bytes(), sequence.to_be_bytes()].concat());
    vec16(&list.collect::<Vec<_>>())
}

/// The extensions of a CertificateRequest.
fn request() -> Vec<u8> {
    wire::extensions(&[(ext::SCHEMES, vec16(&[4, 3]))])
}

impl Enemy for Server13 {
    fn alerts(&self) -> Vec<(u8, u8)> {
        self.alerts.clone()
    }

    fn is_answered(&self) -> bool {
        !self.data.is_empty() || !self.acked.is_empty() || !self.later.is_empty()
    }

    fn goes_on(&mut self) {
        self.session();
        let epoch = self.write.len() + 1;
        self.send(epoch, DATA, b"question");
        assert_eq!(self.guest.said.last(), Some(&ClientEvent::Data(b"question".to_vec())));
        let out = &mut self.guest.out;
        assert!(self.guest.client.send(b"answer", &mut |bytes| out.push_back(bytes.to_vec())));
        self.hear();
        assert_eq!(self.data.last().map(|data| &data[..]), Some(&b"answer"[..]));
    }

    fn is_over(&mut self, alert: Option<u8>) {
        self.guest.is_over(alert);
    }

    /// A client has one association: there is nobody else to harm, and nothing to begin again with.
    fn begins_again(&mut self) {}
}
