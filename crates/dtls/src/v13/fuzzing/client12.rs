//! A server of DTLS 1.2 that knows the key and says what it is told: its Finished is right for whatever was said
//! before.

use rustls::SignatureScheme;

use super::{
    client::Say,
    pair::{KEY, Way},
    toys,
};
use crate::{
    exchange::Group,
    hello::{ClientHello, extension},
    prf::{self, MasterSecret, Randoms, Side},
    protection::Protection,
    reassembly::{Message, Reassembly},
    server::certificate_body,
    session::EPOCH,
    suite::Exchange,
    wire::{self, ContentType, DTLS_1_0, DTLS_1_2, Fragment, OTHERS_MAX, Reader, Record, message},
};

/// The identifier that it wants: of the length that all of ours have.
const OURS: [u8; wire::CID] = *b"are ours";
const POINT: [u8; 32] = [0xa5; 32];

pub(super) struct Server {
    way: Way,
    next: usize,
    /// Whether it sends a hint where none is of use.
    hints: bool,
    randoms: Randoms,
    sequence: u16,
    plain: u64,
    sent: u64,
    parts: Reassembly,
    transcript: Vec<u8>,
    hello: Vec<u8>,
    has_extended: bool,
    theirs: Option<Vec<u8>>,
    keys: Option<(MasterSecret, Protection, Protection)>,
    has_heard: bool,
    pub(super) has_finished: bool,
}

impl Server {
    pub(super) fn new(way: Way, verifies: bool, hints: bool) -> Self {
        Self {
            way,
            next: usize::from(!verifies),
            hints,
            randoms: Randoms { client: [0; 32], server: [0x5a; 32] },
            sequence: 0,
            plain: 0,
            sent: 0,
            parts: Reassembly::new(0, 1 << 16),
            transcript: Vec::new(),
            hello: Vec::new(),
            has_extended: false,
            theirs: None,
            keys: None,
            has_heard: false,
            has_finished: false,
        }
    }

    /// The next message of an honest server.
    pub(super) fn next(&mut self) -> Option<Say> {
        let next = self.next;
        self.next += 1;
        let exchange = self.way.suite().exchange();
        Some(match next {
            0 => {
                let mut body = DTLS_1_0.to_be_bytes().to_vec();
                wire::put_vector8(&mut body, b"a cookie");
                Say::Message(message::HELLO_VERIFY_REQUEST, body)
            }
            1 => Say::Message(message::SERVER_HELLO, self.answer()?),
            2 | 4 if !self.way.by_certificate => return self.next(),
            2 => Say::Message(message::CERTIFICATE, certificate_body(&[toys::certificate()])),
            3 if exchange == Exchange::Psk && !self.hints => return self.next(),
            3 => Say::Message(message::SERVER_KEY_EXCHANGE, self.key_exchange(exchange)?),
            // RFC 5246 §7.4.4: kinds, schemes, no names.
            4 => Say::Message(message::CERTIFICATE_REQUEST, vec![1, 64, 0, 2, 8, 7, 0, 0]),
            5 => Say::Message(message::SERVER_HELLO_DONE, Vec::new()),
            6 if !self.has_heard => {
                self.next = 6;
                return None;
            }
            6 => {
                let (master, ..) = self.keys.as_ref()?;
                Say::Message(message::FINISHED, prf::verify_data(master, Side::Server, &self.transcript).to_vec())
            }
            _ => return None,
        })
    }

    fn answer(&mut self) -> Option<Vec<u8>> {
        let hello = ClientHello::parse(&self.hello).ok()?;
        self.randoms.client = hello.random;
        let mut body = DTLS_1_2.to_be_bytes().to_vec();
        body.extend(self.randoms.server);
        wire::put_vector8(&mut body, &[]);
        body.extend(self.way.suite().number().to_be_bytes());
        body.push(0);
        let mut extensions = Vec::new();
        self.has_extended = self.way.nth & 4 == 0;
        if self.has_extended {
            wire::put_extension(&mut extensions, extension::EXTENDED_MASTER_SECRET, &[]);
        }
        if let Some(theirs) = hello.connection_id {
            self.theirs = Some(theirs.to_vec());
            let mut vector = Vec::new();
            wire::put_vector8(&mut vector, &OURS);
            wire::put_extension(&mut extensions, extension::CONNECTION_ID, &vector);
        }
        wire::put_vector16(&mut body, &extensions);
        Some(body)
    }

    fn key_exchange(&self, exchange: Exchange) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        if self.way.suite().is_psk() {
            wire::put_vector16(&mut body, b"a hint");
        }
        if exchange == Exchange::Psk {
            return Some(body);
        }
        let start = body.len();
        body.push(3);
        body.extend(Group::X25519.number().to_be_bytes());
        wire::put_vector8(&mut body, &POINT);
        if self.way.by_certificate {
            let signer = toys::certified(false).key.choose_scheme(&[SignatureScheme::ED25519])?;
            let signed = [&self.randoms.client[..], &self.randoms.server, &body[start..]].concat();
            body.extend(u16::from(signer.scheme()).to_be_bytes());
            wire::put_vector16(&mut body, &signer.sign(&signed).ok()?);
        }
        Some(body)
    }

    /// Says a message in its turn: its record, or records of its halves.
    pub(super) fn emit(&mut self, kind: u8, body: &[u8], in_halves: bool) -> Vec<u8> {
        let mut datagram = Vec::new();
        let epoch = u64::from(kind == message::FINISHED);
        if epoch > 0 {
            datagram.extend(self.record(0, ContentType::ChangeCipherSpec.byte(), &[1]));
        }
        let cut = if in_halves { body.len() / 2 } else { 0 };
        for (offset, part) in [(0, body.get(..cut).unwrap_or_default()), (cut, body.get(cut..).unwrap_or_default())] {
            if !part.is_empty() || cut == 0 && offset == 0 && body.is_empty() {
                let mut piece = Vec::new();
                wire::put_fragment(&mut piece, kind, self.sequence, body.len(), offset, part);
                datagram.extend(self.record(epoch, ContentType::Handshake.byte(), &piece));
            }
        }
        if kind != message::HELLO_VERIFY_REQUEST {
            wire::put_message(&mut self.transcript, kind, self.sequence, body);
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.has_finished |= kind == message::FINISHED;
        datagram
    }

    /// A record of that epoch, in the clear where there is no key for it.
    pub(super) fn record(&mut self, epoch: u64, content: u8, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let content = ContentType::parse(content).unwrap_or(ContentType::Handshake);
        if let (Some((_, _, write)), true) = (&mut self.keys, epoch > 0) {
            let number = wire::number(EPOCH, self.sent);
            self.sent += 1;
            let theirs = self.theirs.as_ref().filter(|theirs| !theirs.is_empty());
            let sealed = match theirs {
                Some(theirs) => write.seal_identified(theirs, content, number, plain, &mut out),
                None => write.seal(content, number, plain, &mut out),
            };
            if sealed.is_some() {
                return out;
            }
        }
        wire::put_record(&mut out, content, DTLS_1_2, wire::number(0, self.plain), plain);
        self.plain += 1;
        out
    }

    /// Takes in what the client says; gives data.
    pub(super) fn hear(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let (mut rest, mut data) = (datagram, Vec::new());
        while let Some((record, after)) = Record::split(rest) {
            rest = after;
            let mut payload = record.payload.to_vec();
            if record.epoch > 0 {
                let mut plain = Vec::new();
                let content = self.keys.as_mut().and_then(|(_, read, _)| read.open(&record, &mut plain));
                if content == Some(ContentType::ApplicationData) {
                    data.push(plain);
                    continue;
                }
                payload = if content == Some(ContentType::Handshake) { plain } else { Vec::new() };
            } else if record.content != ContentType::Handshake {
                continue;
            }
            let mut payload = &payload[..];
            while let Some((fragment, more)) = Fragment::split(payload) {
                self.parts.push(0, &fragment);
                payload = more;
            }
            while let Some(message) = self.parts.pop() {
                self.handle(&message);
            }
        }
        data
    }

    fn handle(&mut self, message: &Message) {
        if message.kind == message::CLIENT_HELLO {
            self.transcript.clear();
            self.hello.clone_from(&message.body);
        }
        message.put(&mut self.transcript);
        match message.kind {
            message::CLIENT_KEY_EXCHANGE => self.agree(&message.body),
            message::FINISHED => self.has_heard = true,
            _ => {}
        }
    }

    fn agree(&mut self, body: &[u8]) {
        let mut reader = Reader(body);
        let suite = self.way.suite();
        if suite.is_psk() {
            let identity = reader.vector16();
            assert!(identity.is_some_and(|identity| identity.len() <= OTHERS_MAX));
        }
        let agreed = reader.vector8().and_then(|point| toys::agreed(&POINT, point));
        let agreed = agreed.filter(|_| suite.exchange() != Exchange::Psk);
        let premaster = match (suite.is_psk(), &agreed) {
            (true, agreed) => prf::psk_premaster(KEY, agreed.as_ref().map(|agreed| &agreed[..])),
            (false, Some(agreed)) => agreed.to_vec().into(),
            (false, None) => return,
        };
        let session_hash = self.has_extended.then_some(&self.transcript[..]);
        let master = prf::master_secret(&premaster, &self.randoms, session_hash);
        let (read, write) = prf::keys(suite, &master, &self.randoms);
        self.keys = Some((master, read, write));
    }
}
