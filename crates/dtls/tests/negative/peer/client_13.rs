//! A client of DTLS 1.3 that misbehaves, with real keys.

use std::{collections::VecDeque, time::Duration};

use super::{
    crypto::{Half13, Share, finished, random},
    house::{House, Said},
    pki::{KEY, PKI},
    schedule::{Schedule, signed},
    wire::{
        self, ACK, ALERT, ClientHello, Cursor, DATA, Extensions as _, HANDSHAKE, Parts, V12, V13, ext, kind, vec8,
        vec16, vec24,
    },
};
use crate::case::Enemy;

type Edit<T> = Box<dyn FnOnce(&mut T)>;

pub(crate) struct Client13 {
    pub(crate) house: House,
    pub(crate) hello: ClientHello,
    /// Changes of the second ClientHello.
    second: Vec<Edit<ClientHello>>,
    /// Changes of its bytes, once its binder is made.
    bytes: Vec<Edit<Vec<u8>>>,
    pub(crate) schedule: Schedule,
    share: Share,
    pub(crate) next: u16,
    pub(crate) plain: u64,
    pub(crate) plan: Vec<u8>,
    edits: Vec<(u8, Edit<Vec<u8>>)>,
    /// By epoch, from 2 on.
    pub(crate) write: Vec<Half13>,
    read: Vec<Half13>,
    /// The identifier in records to our server, and how long those to it are.
    pub(crate) cid: Vec<u8>,
    own: usize,
    parts: Parts,
    messages: VecDeque<(u8, Vec<u8>)>,
    /// Numbers of what our server has acknowledged.
    pub(crate) acked: Vec<(u64, u64)>,
    alerts: Vec<(u8, u8)>,
    pub(crate) data: Vec<Vec<u8>>,
    others: usize,
    greeted: bool,
    finished: bool,
    strict: bool,
}

impl Client13 {
    /// With a pre-shared key and a key exchange.
    pub(crate) fn psk() -> Self {
        Self::with(Some(KEY), vec![kind::FINISHED], false)
    }

    /// With an identifier.
    pub(crate) fn identified() -> Self {
        let mut this = Self::psk();
        this.hello.put(ext::CONNECTION_ID, &vec8(b"cid"));
        this.own = 3;
        this
    }

    pub(crate) fn certificate() -> Self {
        Self::with(None, vec![kind::CERTIFICATE, kind::CERTIFICATE_VERIFY, kind::FINISHED], false)
    }

    /// At a server that wants certificates.
    pub(crate) fn strict() -> Self {
        Self::with(None, vec![kind::CERTIFICATE, kind::CERTIFICATE_VERIFY, kind::FINISHED], true)
    }

    fn with(psk: Option<&[u8]>, plan: Vec<u8>, strict: bool) -> Self {
        let share = Share::new();
        let mut extensions = vec![
            (ext::VERSIONS, vec8(&V13.to_be_bytes())),
            (ext::GROUPS, vec16(&[0, 29])),
            (ext::SCHEMES, vec16(&[4, 3])),
            (ext::KEY_SHARE, vec16(&[&[0, 29][..], &vec16(&share.1)].concat())),
        ];
        if psk.is_some() {
            extensions.push((ext::PSK_MODES, vec8(&[1])));
            extensions.push((ext::PRE_SHARED_KEY, psks(&[b"enemy"], 1)));
        }
        let hello = ClientHello {
            version: V12,
            random: random(),
            session: Vec::new(),
            cookie: Vec::new(),
            suites: vec![0x1301],
            compressions: vec![0],
            extensions,
        };
        Self {
            house: House::new(strict),
            hello,
            second: Vec::new(),
            bytes: Vec::new(),
            schedule: Schedule::new(psk),
            share,
            next: 0,
            plain: 0,
            plan,
            edits: Vec::new(),
            write: Vec::new(),
            read: Vec::new(),
            cid: Vec::new(),
            own: 0,
            parts: Parts::default(),
            messages: VecDeque::new(),
            acked: Vec::new(),
            alerts: Vec::new(),
            data: Vec::new(),
            others: 0,
            greeted: false,
            finished: false,
            strict,
        }
    }

    /// Changes the second ClientHello.
    pub(crate) fn second(&mut self, edit: impl FnOnce(&mut ClientHello) + 'static) -> &mut Self {
        self.second.push(Box::new(edit));
        self
    }

    /// Changes the bytes of the second ClientHello after its binder was made.
    pub(crate) fn bytes(&mut self, edit: impl FnOnce(&mut Vec<u8>) + 'static) -> &mut Self {
        self.bytes.push(Box::new(edit));
        self
    }

    pub(crate) fn edit(&mut self, kind: u8, edit: impl FnOnce(&mut Vec<u8>) + 'static) -> &mut Self {
        self.edits.push((kind, Box::new(edit)));
        self
    }

    pub(crate) fn skip(&mut self, kind: u8) -> &mut Self {
        self.plan.retain(|at| *at != kind);
        self
    }

    pub(crate) fn before(&mut self, kind: u8, new: u8) -> &mut Self {
        let place = self.plan.iter().position(|at| *at == kind).unwrap();
        self.plan.insert(place, new);
        self
    }

    fn say_hello(&mut self) {
        let mut body = self.hello.encode();
        let is_psk = self.hello.extensions.last().is_some_and(|(at, _)| *at == ext::PRE_SHARED_KEY);
        if is_psk && body.len() > 35 {
            let part = body.len() - 35;
            let binder = self.schedule.binder(body.len(), &body[..part]);
            body[part + 3..].copy_from_slice(&binder);
        }
        if self.greeted {
            self.bytes.drain(..).for_each(|edit| edit(&mut body));
        }
        self.schedule.add(kind::CLIENT_HELLO, &body);
        let message = wire::message(kind::CLIENT_HELLO, self.next, &body);
        self.next += 1;
        self.clear(HANDSHAKE, &message);
    }

    /// The ClientHello, and the one with the cookie.
    pub(crate) fn greet(&mut self) -> &mut Self {
        self.say_hello();
        self.greeted = true;
        let Some((_, body)) = self.messages.pop_front() else { return self };
        let mut retry = wire::ServerHello::decode(&body);
        self.schedule.retry();
        self.schedule.add(kind::SERVER_HELLO, &body);
        let at = self.hello.extensions.iter().position(|(at, _)| *at == ext::PSK_MODES);
        let at = at.unwrap_or(self.hello.extensions.len());
        self.hello.extensions.insert(at, (ext::COOKIE, retry.get(ext::COOKIE).clone()));
        if retry.extensions.iter().any(|(at, _)| *at == ext::KEY_SHARE) {
            let share = vec16(&[&[0, 29][..], &vec16(&self.share.1)].concat());
            self.hello.put(ext::KEY_SHARE, &share);
        }
        let edits = std::mem::take(&mut self.second);
        edits.into_iter().for_each(|edit| edit(&mut self.hello));
        self.say_hello();
        self
    }

    /// A record in the clear.
    pub(crate) fn clear(&mut self, content: u8, payload: &[u8]) {
        let datagram = wire::record(content, self.plain, payload);
        self.plain += 1;
        self.raw(&datagram);
    }

    /// A record of an epoch.
    pub(crate) fn seal(&mut self, epoch: usize, content: u8, plain: &[u8]) -> Vec<u8> {
        let cid = self.cid.clone();
        self.write[epoch - 2].seal(&cid, content, plain)
    }

    pub(crate) fn send(&mut self, epoch: usize, content: u8, plain: &[u8]) {
        let datagram = self.seal(epoch, content, plain);
        self.raw(&datagram);
    }

    /// A record with all that is inside given.
    pub(crate) fn send_inner(&mut self, epoch: usize, inner: &[u8]) {
        let cid = self.cid.clone();
        let datagram = self.write[epoch - 2].seal_inner(&cid, inner);
        self.raw(&datagram);
    }

    /// A message in a record of its own.
    pub(crate) fn say(&mut self, epoch: usize, kind: u8, body: &[u8]) {
        let message = wire::message(kind, self.next, body);
        self.next += 1;
        self.schedule.add(kind, body);
        self.send(epoch, HANDSHAKE, &message);
    }

    pub(crate) fn raw(&mut self, datagram: &[u8]) {
        self.house.arrive(datagram);
        self.hear();
    }

    pub(crate) fn hear(&mut self) {
        while let Some(datagram) = self.house.out.pop_front() {
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                if rest[0] >> 5 == 1 {
                    let opened = self.read.iter().rev().find_map(|read| read.open(self.own, rest));
                    let (opened, after) = opened.expect("what our server says is under keys that are there");
                    let most = wire::limit_in(&self.hello.extensions).unwrap_or(usize::MAX).min((1 << 14) + 1);
                    assert!(opened.inner <= most, "{} bytes, where {most} are the limit", opened.inner);
                    rest = after;
                    self.heard(opened.content, opened.number.0, &opened.plain);
                } else {
                    let mut reader = Cursor(rest);
                    let content = reader.take(1)[0];
                    reader.take(10);
                    let payload = reader.vector(2);
                    let most = wire::limit_in(&self.hello.extensions).unwrap_or(usize::MAX);
                    assert!(!self.greeted || payload.len() <= most, "{} bytes in the clear", payload.len());
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
                    self.heard_message(kind, epoch, body);
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

    fn heard_message(&mut self, kind: u8, epoch: u64, body: Vec<u8>) {
        match kind {
            kind::SERVER_HELLO if !self.greeted => self.messages.push_back((kind, body)),
            kind::SERVER_HELLO => {
                self.schedule.add(kind, &body);
                let mut hello = wire::ServerHello::decode(&body);
                let has = |at| hello.extensions.iter().any(|(number, _)| *number == at);
                let agreed = has(ext::KEY_SHARE);
                if has(ext::CONNECTION_ID) {
                    self.cid = hello.get(ext::CONNECTION_ID)[1..].to_vec();
                }
                let agreed = agreed.then(|| self.share.agree(&hello.get(ext::KEY_SHARE)[4..]));
                let (write, read) = self.schedule.handshake(agreed.as_deref());
                (self.write, self.read) = (vec![write], vec![read]);
            }
            kind::FINISHED => {
                assert_eq!(body, finished(&self.read[0].secret, &self.schedule.hash()));
                self.schedule.add(kind, &body);
                let (write, read) = self.schedule.data();
                self.write.push(write);
                self.read.push(read);
            }
            kind::KEY_UPDATE => {
                let next = self.read.last().unwrap().updated();
                self.read.push(next);
            }
            _ if epoch == 2 => {
                self.schedule.add(kind, &body);
                if kind == kind::ENCRYPTED_EXTENSIONS {
                    // RFC 8449 §4: where it was asked for, and nowhere else.
                    let asked = wire::limit_in(&self.hello.extensions).is_some();
                    assert_eq!(wire::limit_in(&Cursor(&body).extensions()), asked.then_some((1 << 14) + 1));
                }
            }
            _ => self.others += 1,
        }
    }

    /// Sends one message of the last flight.
    pub(crate) fn step(&mut self, kind: u8) {
        let mut body = match kind {
            kind::CERTIFICATE => [&[0][..], &vec24(&[&vec24(&PKI.enemy.certificate)[..], &[0, 0]].concat())].concat(),
            kind::CERTIFICATE_VERIFY => {
                let signature = PKI.enemy.sign(&signed("client", &self.schedule.hash()));
                [&[4, 3][..], &vec16(&signature)].concat()
            }
            kind::FINISHED => finished(&self.write[0].secret, &self.schedule.hash()).to_vec(),
            _ => vec![0],
        };
        while let Some(at) = self.edits.iter().position(|(at, _)| *at == kind) {
            self.edits.remove(at).1(&mut body);
        }
        self.say(2, kind, &body);
    }

    pub(crate) fn shake(&mut self) -> &mut Self {
        if !self.greeted {
            self.greet();
        }
        if !self.finished && !self.write.is_empty() {
            self.finished = true;
            for kind in std::mem::take(&mut self.plan) {
                self.step(kind);
            }
        }
        self
    }

    /// A session, and nothing unread.
    pub(crate) fn session(&mut self) -> &mut Self {
        self.shake();
        assert!(self.house.said.contains(&Said::Established), "{:?} {:?}", self.alerts, self.house.said);
        self.acked.clear();
        self
    }

    /// A KeyUpdate, and whatever is acknowledged the keys after it.
    pub(crate) fn key_update(&mut self, body: &[u8]) {
        let epoch = self.write.len() + 1;
        self.say(epoch, kind::KEY_UPDATE, body);
    }

    pub(crate) fn next_keys(&mut self) {
        let next = self.write.last().unwrap().updated();
        self.write.push(next);
    }
}

/// The body of `pre_shared_key`, with so many binders of nothing.
pub(crate) fn psks(identities: &[&[u8]], binders: usize) -> Vec<u8> {
    let names: Vec<u8> = identities.iter().flat_map(|name| [&vec16(name)[..], &[0; 4]].concat()).collect();
    [vec16(&names), vec16(&vec8(&[0; 32]).repeat(binders))].concat()
}

impl Enemy for Client13 {
    fn alerts(&self) -> Vec<(u8, u8)> {
        self.alerts.clone()
    }

    fn is_answered(&self) -> bool {
        !self.messages.is_empty() || !self.data.is_empty() || !self.acked.is_empty() || self.others > 0
    }

    fn goes_on(&mut self) {
        self.session();
        let epoch = self.write.len() + 1;
        self.send(epoch, DATA, b"question");
        assert_eq!(self.house.said.last(), Some(&Said::Data(b"question".to_vec())));
        assert_eq!(self.data.last().map(|data| &data[..]), Some(&b"answer"[..]));
    }

    fn is_over(&mut self, _: Option<u8>) {
        self.house.is_rid_of_it();
        assert!(!matches!(self.house.said.last(), Some(Said::Established | Said::Data(_))), "{:?}", self.house.said);
    }

    fn begins_again(&mut self) {
        self.house.is_unharmed();
        self.house.wait(Duration::from_secs(1));
        let mut again = if self.strict { Self::strict() } else { Self::psk() };
        std::mem::swap(&mut again.house, &mut self.house);
        again.house.out.clear();
        again.house.said.clear();
        again.goes_on();
        again.house.is_unharmed();
    }
}
