//! A server of DTLS 1.3 that knows the key and says what it is told: its Finished is right for whatever was said
//! before.

use super::{
    client::Say,
    pair::{KEY, Way},
    toys,
};
use crate::{
    exchange::Group,
    hello::{ClientHello, extension},
    prf::Side,
    v13::{
        ack,
        certificates::{certificate_body, signed},
        hello::{Retry, server_hello, share},
        record::{Content, Number, Reading, Sealed, Writing},
        schedule::{self, Early, Secret, Stage, Transcript},
        server::EPOCH_HANDSHAKE,
        session::EPOCH_DATA,
    },
    wire::{self, ContentType, DTLS_1_2, DTLS_1_3, Fragment, Record, message},
};

/// The identifier that it wants.
const OURS: &[u8] = b"ours";

pub(super) struct Server {
    way: Way,
    /// Whether it asks for another ClientHello, and for another group in that.
    retries: Option<bool>,
    next: usize,
    hello: Vec<u8>,
    transcript: Transcript,
    /// Of the next message, and of the next record in the clear.
    sequence: u16,
    plain: u64,
    stage: Option<Stage>,
    theirs: Vec<u8>,
    writing: Vec<Writing>,
    reading: Vec<Reading>,
    /// The secret of the server's data.
    data: Option<[Secret; 2]>,
    /// Records of the client's last flight.
    flight: Vec<Number>,
    pub(super) has_finished: bool,
    pub(super) has_acknowledged: bool,
}

impl Server {
    pub(super) fn new(way: Way, retries: Option<bool>) -> Self {
        Self {
            way,
            retries,
            next: usize::from(retries.is_none()),
            hello: Vec::new(),
            transcript: Transcript::empty(),
            sequence: 0,
            plain: 0,
            stage: None,
            theirs: Vec::new(),
            writing: Vec::new(),
            reading: Vec::new(),
            data: None,
            flight: Vec::new(),
            has_finished: false,
            has_acknowledged: false,
        }
    }

    /// The next message of an honest server.
    pub(super) fn next(&mut self) -> Option<Say> {
        let next = self.next;
        self.next += 1;
        let by_certificate = self.way.by_certificate;
        Some(match next {
            0 => Say::Message(message::SERVER_HELLO, self.retry()),
            1 => Say::Message(message::SERVER_HELLO, self.answer()?),
            // RFC 8449 §4: some take records of 64 bytes only.
            2 if self.way.nth & 8 != 0 => Say::Message(message::ENCRYPTED_EXTENSIONS, vec![0, 6, 0, 28, 0, 2, 0, 64]),
            2 => Say::Message(message::ENCRYPTED_EXTENSIONS, vec![0, 0]),
            3..=5 if !by_certificate => return self.next(),
            // RFC 8446 §4.3.2: of any context, with the schemes that it takes.
            3 => Say::Message(message::CERTIFICATE_REQUEST, vec![0, 0, 8, 0, 13, 0, 4, 0, 2, 8, 7]),
            4 => Say::Message(message::CERTIFICATE, certificate_body(&[toys::certificate()])),
            5 => {
                let signer = toys::certified(false).key.choose_scheme(&[rustls::SignatureScheme::ED25519])?;
                let mut body = u16::from(signer.scheme()).to_be_bytes().to_vec();
                wire::put_vector16(&mut body, &signer.sign(&signed(Side::Server, &self.transcript.hash())).ok()?);
                Say::Message(message::CERTIFICATE_VERIFY, body)
            }
            6 => {
                let secret = self.writing.first()?.secret();
                Say::Message(message::FINISHED, schedule::finished(secret, &self.transcript.hash()).to_vec())
            }
            7 if self.flight.is_empty() => {
                self.next = 7;
                return None;
            }
            7 => {
                self.has_acknowledged = true;
                Say::Record(EPOCH_DATA, Content::Ack.byte(), ack::body(&self.flight))
            }
            _ => return None,
        })
    }

    fn retry(&self) -> Vec<u8> {
        let group = self.retries.filter(|another| *another && self.way.has_exchange).map(|_| Group::Secp256r1);
        let retry = Retry { suite: self.way.suite_13(), group, first: [0; 32] };
        retry.body(b"a cookie")
    }

    /// A ServerHello for the last ClientHello; after it there are keys.
    fn answer(&mut self) -> Option<Vec<u8>> {
        let hello = ClientHello::parse(&self.hello).ok()?;
        let (mut extensions, mut agreed) = (Vec::new(), None);
        wire::put_extension(&mut extensions, extension::SUPPORTED_VERSIONS, &DTLS_1_3.to_be_bytes());
        if let Some((group, point)) = hello.key_shares.and_then(|shares| share(shares)?) {
            let ours = [0xa5; 32];
            let mut entry = group.number().to_be_bytes().to_vec();
            wire::put_vector16(&mut entry, &ours);
            wire::put_extension(&mut extensions, extension::KEY_SHARE, &entry);
            agreed = toys::agreed(&ours, point);
        }
        if let Some(theirs) = hello.connection_id {
            self.theirs = theirs.to_vec();
            let mut vector = Vec::new();
            wire::put_vector8(&mut vector, OURS);
            wire::put_extension(&mut extensions, extension::CONNECTION_ID, &vector);
        }
        let early = Early::new((!self.way.by_certificate).then_some(KEY));
        if !self.way.by_certificate {
            wire::put_extension(&mut extensions, extension::PRE_SHARED_KEY, &[0, 0]);
        }
        self.stage = Some(early.handshake(agreed.as_ref().map(|agreed| &agreed[..])));
        Some(server_hello(&[0x5a; 32], self.way.suite_13(), &extensions))
    }

    /// Says a message in its turn: its record, or records of its halves.
    pub(super) fn emit(&mut self, kind: u8, body: &[u8], in_halves: bool) -> Vec<u8> {
        let mut datagram = Vec::new();
        let cut = if in_halves { body.len() / 2 } else { 0 };
        for (offset, part) in [(0, body.get(..cut).unwrap_or_default()), (cut, body.get(cut..).unwrap_or_default())] {
            if !part.is_empty() || cut == 0 && offset == 0 && body.is_empty() {
                let mut piece = Vec::new();
                wire::put_fragment(&mut piece, kind, self.sequence, body.len(), offset, part);
                let epoch = if self.writing.is_empty() { 0 } else { EPOCH_HANDSHAKE };
                datagram.extend(self.record(epoch, Content::Handshake.byte(), &piece));
            }
        }
        self.sequence = self.sequence.wrapping_add(1);
        if self.writing.is_empty() {
            self.note_plain(kind, body);
        } else {
            self.transcript.add(kind, body);
        }
        if kind == message::FINISHED && self.data.is_none() {
            self.finish();
        }
        datagram
    }

    fn note_plain(&mut self, kind: u8, body: &[u8]) {
        let Some(stage) = self.stage.as_ref().filter(|_| kind == message::SERVER_HELLO) else {
            let first = schedule::hash_of_hello(&self.hello);
            self.transcript = Transcript::after_retry(&first, body);
            return;
        };
        self.transcript.add(message::CLIENT_HELLO, &self.hello);
        self.transcript.add(kind, body);
        let (hash, aead) = (self.transcript.hash(), self.way.suite_13().aead());
        self.writing.push(Writing::new(aead, stage.traffic(Side::Server, &hash), EPOCH_HANDSHAKE));
        self.reading.push(Reading::new(aead, stage.traffic(Side::Client, &hash), EPOCH_HANDSHAKE));
    }

    fn finish(&mut self) {
        let Some(stage) = &self.stage else { return };
        let (master, hash) = (stage.master(), self.transcript.hash());
        let [ours, theirs] = [Side::Server, Side::Client].map(|side| master.traffic(side, &hash));
        let aead = self.way.suite_13().aead();
        self.writing.push(Writing::new(aead, ours.clone(), EPOCH_DATA));
        self.reading.push(Reading::new(aead, theirs.clone(), EPOCH_DATA));
        self.data = Some([ours, theirs]);
        self.has_finished = true;
    }

    /// A record of that epoch, in the clear where there is no key for it.
    pub(super) fn record(&mut self, epoch: u64, content: u8, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let at = usize::try_from(epoch).unwrap_or_default().checked_sub(2);
        let (writing, theirs) = (at.and_then(|at| self.writing.get_mut(at)), &self.theirs);
        let inner = Content::parse(content).unwrap_or(Content::Handshake);
        if writing.and_then(|writing| writing.seal(theirs, inner, plain, &mut out)).is_none() {
            let content = ContentType::parse(content).unwrap_or(ContentType::Handshake);
            wire::put_record(&mut out, content, DTLS_1_2, wire::number(0, self.plain), plain);
            self.plain += 1;
        }
        out
    }

    /// Takes in what the client says; gives data.
    pub(super) fn hear(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let (mut rest, mut data) = (datagram, Vec::new());
        loop {
            if let Some((record, after)) = Record::split(rest) {
                rest = after;
                let hello =
                    Fragment::split(record.payload).filter(|(fragment, _)| fragment.kind == message::CLIENT_HELLO);
                if let (Some((fragment, _)), true) = (hello, self.writing.is_empty()) {
                    self.hello = fragment.body.to_vec();
                }
                continue;
            }
            let cid = if self.theirs.is_empty() { 0 } else { OURS.len() };
            let Some((record, after)) = Sealed::split_with(rest, cid) else { return data };
            rest = after;
            let mut plain = Vec::new();
            let Some(opened) = self.reading.iter_mut().find_map(|read| read.open(&record, &mut plain)) else {
                continue;
            };
            match opened.content {
                Content::Handshake if opened.number.epoch == EPOCH_HANDSHAKE => {
                    // A client that repeats its flight for hours knows the last of its records only.
                    if self.flight.len() == 32 {
                        self.flight.remove(0);
                    }
                    self.flight.push(opened.number);
                }
                Content::ApplicationData => data.push(plain),
                Content::Handshake | Content::Ack | Content::Alert => {}
                Content::Unknown => panic!("a record of no type"),
            }
        }
    }
}
