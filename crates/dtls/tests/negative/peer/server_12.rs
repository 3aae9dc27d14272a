//! A server of DTLS 1.2 that misbehaves, with real keys, and our client at it.

mod plan;

use fogmux_dtls::{
    Suite,
    client::{ClientConfig, ClientEvent},
};

use super::{
    crypto::{Half12, Share, prf, random, sha256},
    guest::{self, Guest, Versions},
    pki::{KEY, PKI, Proof},
    wire::{
        self, ALERT, CHANGE_CIPHER_SPEC, Cursor, DATA, Extensions as _, HANDSHAKE, IDENTIFIED, Parts, ServerHello, V10,
        V12, ext, kind, number, vec8, vec16, vec24,
    },
};
use crate::case::Enemy;

type Edit<T> = Box<dyn FnOnce(&mut T)>;

pub(crate) struct Server12 {
    pub(crate) guest: Guest,
    pub(crate) hello: ServerHello,
    pub(crate) proof: &'static Proof,
    transcript: Vec<u8>,
    pub(crate) next: u16,
    pub(crate) plain: u64,
    pub(crate) sealed: u64,
    /// Messages of the first flight, and of the last.
    pub(crate) plan: Vec<u8>,
    pub(crate) last: Vec<u8>,
    edits: Vec<(u8, Edit<Vec<u8>>)>,
    epochs: Vec<(u8, u16)>,
    client_random: [u8; 32],
    share: Share,
    agreed: Option<Vec<u8>>,
    pub(crate) master: Vec<u8>,
    pub(crate) keys: Option<(Half12, Half12)>,
    /// The identifier in records to our client.
    pub(crate) cid: Vec<u8>,
    /// The identifier that this server wants in records to itself.
    own: &'static [u8],
    parts: Parts,
    alerts: Vec<(u8, u8)>,
    pub(crate) data: Vec<Vec<u8>>,
    greeted: bool,
    flown: bool,
    done: bool,
}

impl Server12 {
    pub(crate) fn psk() -> Self {
        Self::with(guest::psk(Versions::Older, Suite::PskAes128Gcm), Suite::PskAes128Gcm)
    }

    /// For a client that offers both versions.
    pub(crate) fn both() -> Self {
        Self::with(guest::psk(Versions::Both, Suite::PskAes128Gcm), Suite::PskAes128Gcm)
    }

    /// For a client that offers DTLS 1.3 only.
    pub(crate) fn newer() -> Self {
        Self::with(guest::psk(Versions::Newer, Suite::PskAes128Gcm), Suite::PskAes128Gcm)
    }

    pub(crate) fn ecdhe_psk() -> Self {
        let mut this = Self::with(guest::psk(Versions::Older, Suite::EcdhePskAes128Gcm), Suite::EcdhePskAes128Gcm);
        this.plan.insert(1, kind::SERVER_KEY_EXCHANGE);
        this
    }

    pub(crate) fn certificate() -> Self {
        let mut this = Self::with(guest::certificates(Versions::Older), Suite::EcdheEcdsaAes128Gcm);
        let more = [kind::CERTIFICATE, kind::SERVER_KEY_EXCHANGE, kind::CERTIFICATE_REQUEST];
        this.plan.splice(1..1, more);
        this
    }

    /// With identifiers in both directions.
    pub(crate) fn identified() -> Self {
        let config = ClientConfig { identifiers: true, ..guest::psk(Versions::Older, Suite::PskAes128Gcm) };
        let mut this = Self::with(config, Suite::PskAes128Gcm);
        this.hello.put(ext::CONNECTION_ID, &vec8(b"cid"));
        this.own = b"cid";
        this
    }

    fn with(config: ClientConfig, suite: Suite) -> Self {
        let hello = ServerHello {
            version: V12,
            random: random(),
            session: Vec::new(),
            suite: suite.number(),
            compression: 0,
            extensions: vec![(ext::RENEGOTIATION_INFO, vec![0]), (ext::EXTENDED_MASTER_SECRET, Vec::new())],
        };
        Self {
            guest: Guest::new(config),
            hello,
            proof: &PKI.enemy,
            transcript: Vec::new(),
            next: 0,
            plain: 0,
            sealed: 0,
            plan: vec![kind::SERVER_HELLO, kind::SERVER_HELLO_DONE],
            last: vec![kind::CHANGE_CIPHER, kind::FINISHED],
            edits: Vec::new(),
            epochs: Vec::new(),
            client_random: [0; 32],
            share: Share::new(),
            agreed: None,
            master: Vec::new(),
            keys: None,
            cid: Vec::new(),
            own: &[],
            parts: Parts::default(),
            alerts: Vec::new(),
            data: Vec::new(),
            greeted: false,
            flown: false,
            done: false,
        }
    }

    /// Asks for a cookie, as a server does.
    pub(crate) fn greet(&mut self) -> &mut Self {
        self.greeted = true;
        self.hear();
        self.verify();
        self
    }

    /// Without a HelloVerifyRequest.
    pub(crate) fn skip_greeting(&mut self) -> &mut Self {
        self.greeted = true;
        self.hear();
        self
    }

    /// Its Finished now, in these words.
    pub(crate) fn finished(&self, label: &str) -> Vec<u8> {
        prf(&self.master, label, &sha256(&self.transcript), 12)
    }

    /// A HelloVerifyRequest, which is in no transcript.
    pub(crate) fn verify(&mut self) {
        self.transcript.clear();
        let body = [&V10.to_be_bytes()[..], &vec8(b"cookie")].concat();
        let message = wire::message(kind::HELLO_VERIFY_REQUEST, self.next, &body);
        self.next += 1;
        self.send_in(HANDSHAKE, &message, 0);
    }

    pub(crate) fn send_in(&mut self, content: u8, payload: &[u8], epoch: u16) {
        let datagram = if epoch == 0 { self.clear(content, payload) } else { self.seal(content, payload) };
        self.raw(&datagram);
    }

    pub(crate) fn clear(&mut self, content: u8, payload: &[u8]) -> Vec<u8> {
        self.plain += 1;
        wire::record(content, self.plain - 1, payload)
    }

    pub(crate) fn seal(&mut self, content: u8, plain: &[u8]) -> Vec<u8> {
        self.sealed += 1;
        self.seal_at(content, number(1, self.sealed - 1), plain)
    }

    pub(crate) fn seal_at(&self, content: u8, number: u64, plain: &[u8]) -> Vec<u8> {
        let (_, write) = self.keys.as_ref().unwrap();
        match &self.cid[..] {
            [] => write.seal(content, number, plain),
            cid => write.seal_identified(cid, number, &[plain, &[content]].concat()),
        }
    }

    pub(crate) fn raw(&mut self, datagram: &[u8]) {
        self.guest.arrive(datagram);
        self.hear();
    }

    pub(crate) fn say_in(&mut self, kind: u8, body: &[u8], epoch: u16) {
        let message = wire::message(kind, self.next, body);
        self.next += 1;
        self.transcript.extend(&message);
        self.send_in(HANDSHAKE, &message, epoch);
    }

    pub(crate) fn hear(&mut self) {
        while let Some(datagram) = self.guest.out.pop_front() {
            let mut reader = Cursor(&datagram);
            while !reader.0.is_empty() {
                let content = reader.take(1)[0];
                reader.u16();
                let number = reader.number(8);
                let cid = reader.take(if content == IDENTIFIED { self.own.len() } else { 0 }).to_vec();
                assert_eq!(content == IDENTIFIED, !cid.is_empty());
                let payload = reader.vector(2).to_vec();
                self.hear_record(content, &cid, number, &payload);
            }
        }
    }

    fn hear_record(&mut self, content: u8, cid: &[u8], number: u64, payload: &[u8]) {
        let (content, plain) = match &self.keys {
            Some((read, _)) if content == IDENTIFIED => {
                assert_eq!(cid, self.own);
                read.open_identified(cid, number, payload).unwrap()
            }
            Some((read, _)) if number >> 48 == 1 => (content, read.open(content, number, payload).unwrap()),
            _ => (content, payload.to_vec()),
        };
        let most = wire::limit_in(&self.hello.extensions).unwrap_or(1 << 14).min(1 << 14);
        let inner = plain.len() + usize::from(!cid.is_empty());
        assert!(!self.flown || inner <= most, "{inner} bytes, where {most} are the limit");
        match content {
            HANDSHAKE => {
                for (kind, sequence, body) in self.parts.push(&plain) {
                    self.heard(kind, sequence, &body);
                }
            }
            ALERT => {
                // RFC 5246 §7.1: behind its ChangeCipherSpec our client says nothing in the clear.
                assert!(self.keys.is_none() || number >> 48 == 1, "an alert in the clear");
                self.alerts.push((plain[0], plain[1]));
            }
            DATA => self.data.push(plain),
            _ => {}
        }
    }

    fn heard(&mut self, kind: u8, sequence: u16, body: &[u8]) {
        self.transcript.extend(wire::message(kind, sequence, body));
        match kind {
            kind::CLIENT_HELLO => {
                self.client_random.copy_from_slice(&body[2..34]);
                self.heard_hello(body);
            }
            kind::CLIENT_KEY_EXCHANGE => {
                let mut reader = Cursor(body);
                let is_psk = self.hello.suite != Suite::EcdheEcdsaAes128Gcm.number();
                if is_psk {
                    reader.vector(2);
                }
                if !reader.0.is_empty() {
                    self.agreed = Some(self.share.agree(reader.vector(1)));
                }
                let premaster = match (is_psk, self.agreed.take()) {
                    (true, agreed) => [vec16(&agreed.unwrap_or_else(|| vec![0; KEY.len()])), vec16(KEY)].concat(),
                    (false, agreed) => agreed.unwrap(),
                };
                self.master = prf(&premaster, "extended master secret", &sha256(&self.transcript), 48);
                self.keys = Some(Half12::both(&self.master, &self.client_random, &self.hello.random));
            }
            _ => {}
        }
    }

    /// The identifier that our client asks for.
    fn heard_hello(&mut self, body: &[u8]) {
        let mut reader = Cursor(&body[34..]);
        reader.vector(1);
        reader.vector(1);
        reader.vector(2);
        reader.vector(1);
        let asked = reader.extensions().into_iter().find(|(at, _)| *at == ext::CONNECTION_ID);
        self.cid = asked.map(|(_, body)| body[1..].to_vec()).unwrap_or_default();
    }

    /// The first flight.
    pub(crate) fn fly(&mut self) -> &mut Self {
        if !self.greeted {
            self.greet();
        }
        self.flown = true;
        for kind in std::mem::take(&mut self.plan) {
            self.step(kind);
        }
        self
    }

    pub(crate) fn step(&mut self, kind: u8) {
        let mut body = match kind {
            kind::SERVER_HELLO => self.hello.encode(),
            kind::CERTIFICATE => vec24(&vec24(&self.proof.certificate)),
            kind::SERVER_KEY_EXCHANGE => self.exchange(),
            kind::CERTIFICATE_REQUEST => [&vec8(&[64])[..], &vec16(&[4, 3]), &[0, 0]].concat(),
            kind::CHANGE_CIPHER => vec![1],
            kind::FINISHED => self.finished("server finished"),
            _ => Vec::new(),
        };
        while let Some(at) = self.edits.iter().position(|(at, _)| *at == kind) {
            self.edits.remove(at).1(&mut body);
        }
        let epoch = self.epochs.iter().find(|(at, _)| *at == kind).map(|(_, epoch)| *epoch);
        match kind {
            kind::CHANGE_CIPHER => self.send_in(CHANGE_CIPHER_SPEC, &body, 0),
            // It is in no transcript (RFC 5246 §7.4.1.1).
            kind::HELLO_REQUEST => {
                let message = wire::message(kind, self.next, &body);
                self.next += 1;
                self.send_in(HANDSHAKE, &message, epoch.unwrap_or(0));
            }
            kind::FINISHED => self.say_in(kind, &body, epoch.unwrap_or(1)),
            _ => self.say_in(kind, &body, epoch.unwrap_or(0)),
        }
    }

    fn exchange(&self) -> Vec<u8> {
        let parameters = [&[3, 0, 29][..], &vec8(&self.share.1)].concat();
        if self.hello.suite == Suite::EcdhePskAes128Gcm.number() {
            return [&[0, 0][..], &parameters].concat();
        }
        if self.hello.suite == Suite::PskAes128Gcm.number() {
            return vec16(b"hint");
        }
        let signed = [&self.client_random[..], &self.hello.random, &parameters].concat();
        [&parameters[..], &[4, 3], &vec16(&self.proof.sign(&signed))].concat()
    }

    /// The last flight.
    pub(crate) fn finish(&mut self) -> &mut Self {
        if self.keys.is_some() {
            self.done = true;
            for kind in std::mem::take(&mut self.last) {
                self.step(kind);
            }
        }
        self
    }

    pub(crate) fn shake(&mut self) -> &mut Self {
        if !self.flown {
            self.fly();
        }
        if !self.done {
            self.finish();
        }
        self
    }

    pub(crate) fn session(&mut self) -> &mut Self {
        self.shake();
        let is_there = self.guest.said.iter().any(|said| matches!(said, ClientEvent::Established(_)));
        assert!(is_there, "{:?} {:?}", self.alerts, self.guest.said);
        self
    }

    pub(crate) fn send(&mut self, content: u8, plain: &[u8]) {
        self.send_in(content, plain, 1);
    }
}

impl Enemy for Server12 {
    fn alerts(&self) -> Vec<(u8, u8)> {
        self.alerts.clone()
    }

    fn is_answered(&self) -> bool {
        !self.data.is_empty()
    }

    fn goes_on(&mut self) {
        self.session();
        self.send(DATA, b"question");
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
