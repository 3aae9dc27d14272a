//! A server, and a client that it knows half-way or all the way and that misbehaves: the fuzzer's bytes come as
//! handshake messages inside correctly protected records, beside and instead of what an honest client says.

use std::time::Duration;

use super::{
    input::Input,
    pair::{KEY, Pair, Way},
};
use crate::{
    hello::extension,
    prf::{self, Randoms},
    protection::Protection,
    session::EPOCH,
    v13::{
        ack,
        record::{Content, Number, Reading, Sealed, Writing},
        schedule::{Early, Transcript, hash_of_hello},
        server::EPOCH_HANDSHAKE,
        session::EPOCH_DATA,
    },
    wire::{self, ContentType, DTLS_1_2, Fragment, HANDSHAKE_HEADER, RECORD_HEADER, Reader, Record, message},
};

/// Messages of both versions, and one that there is not.
pub(super) const KINDS: [u8; 16] = [
    message::FINISHED,
    message::CERTIFICATE,
    message::CERTIFICATE_VERIFY,
    message::CLIENT_KEY_EXCHANGE,
    message::KEY_UPDATE,
    message::NEW_CONNECTION_ID,
    message::REQUEST_CONNECTION_ID,
    message::NEW_SESSION_TICKET,
    message::CLIENT_HELLO,
    message::SERVER_HELLO,
    message::HELLO_VERIFY_REQUEST,
    message::ENCRYPTED_EXTENSIONS,
    message::SERVER_KEY_EXCHANGE,
    message::CERTIFICATE_REQUEST,
    message::SERVER_HELLO_DONE,
    message::MESSAGE_HASH,
];

/// The numbers of the forger's records begin here, so that the client's own are in the same window.
const FIRST: u64 = 24;
/// The client's first message after two ClientHellos.
const NEXT: u16 = 2;

/// A piece of a message of the fuzzer's.
pub(super) fn any_fragment(input: &mut Input<'_>, next: u16) -> Vec<u8> {
    let how = input.byte();
    let kind = if how & 0x80 == 0 { KINDS[usize::from(how) % 16] } else { input.byte() };
    let sequence = if how & 0x40 == 0 { next.wrapping_add(u16::from(how >> 4 & 3)) } else { input.number() };
    let body = input.bytes();
    let mut bytes = Vec::new();
    match input.byte() {
        // A part of something longer.
        extra @ 1..64 => {
            let offset = usize::from(extra) / 2;
            wire::put_fragment(&mut bytes, kind, sequence, body.len() + usize::from(extra), offset, body);
        }
        // Of something that is far too long.
        64..80 => wire::put_fragment(&mut bytes, kind, sequence, usize::from(input.number()) << 4, 0, body),
        _ => wire::put_message(&mut bytes, kind, sequence, body),
    }
    bytes
}

/// Speaks in the name of the client.
struct Forger {
    way: Way,
    sent: u64,
}

impl Forger {
    /// Puts bytes into a record of the epoch, under its key if that is known and in the clear otherwise.
    fn seal(&mut self, pair: &Pair, epoch: u64, content: u8, plain: &[u8]) -> Vec<u8> {
        self.sent += 1;
        let mut out = Vec::new();
        let sealed = if self.way.is_newer {
            self.seal_13(pair, epoch, content, plain, &mut out)
        } else {
            self.seal_12(pair, epoch, content, plain, &mut out)
        };
        if sealed.is_none() {
            let content = ContentType::parse(content).unwrap_or(ContentType::Handshake);
            wire::put_record(&mut out, content, DTLS_1_2, wire::number(0, self.sent), plain);
        }
        out
    }

    fn seal_13(&self, pair: &Pair, epoch: u64, content: u8, plain: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let label = match epoch {
            EPOCH_HANDSHAKE => "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
            EPOCH_DATA => "CLIENT_TRAFFIC_SECRET_0",
            _ => return None,
        };
        let mut write = Writing::new(self.way.suite_13().aead(), pair.secrets.traffic(label)?, epoch);
        write.skip(epoch, self.sent);
        let content = Content::parse(content).unwrap_or(Content::Handshake);
        write.seal(&identifier(pair).unwrap_or_default(), content, plain, out).map(drop)
    }

    fn seal_12(&self, pair: &Pair, epoch: u64, content: u8, plain: &[u8], out: &mut Vec<u8>) -> Option<()> {
        if epoch == 0 {
            return None;
        }
        let mut write = self.protection(pair)?;
        let content = ContentType::parse(content).unwrap_or(ContentType::Handshake);
        let number = wire::number(EPOCH, self.sent);
        match identifier(pair) {
            Some(cid) => write.seal_identified(&cid, content, number, plain, out),
            None => write.seal(content, number, plain, out),
        }
    }

    /// The client's keys in DTLS 1.2.
    fn protection(&self, pair: &Pair) -> Option<Protection> {
        let master = pair.secrets.get::<48>("CLIENT_RANDOM")?;
        let server = *server_hello(pair)?.get(2..)?.first_chunk()?;
        Some(prf::keys(self.way.suite(), &master, &Randoms { client: pair.random, server }).0)
    }
}

/// The last ServerHello or HelloRetryRequest of the server's.
fn server_hello(pair: &Pair) -> Option<Vec<u8>> {
    pair.said.iter().rev().find_map(|datagram| {
        let (record, _) = Record::split(datagram)?;
        let (fragment, _) = Fragment::split(record.payload)?;
        let is_it = fragment.kind == message::SERVER_HELLO && fragment.is_whole();
        is_it.then(|| fragment.body.to_vec())
    })
}

/// The identifier that the server wants.
pub(super) fn identifier(pair: &Pair) -> Option<Vec<u8>> {
    let hello = server_hello(pair)?;
    let mut reader = Reader(&hello);
    reader.take(34)?;
    reader.vector8()?;
    reader.take(3)?;
    let mut list = Reader(reader.vector16()?);
    loop {
        let (number, body) = (list.u16()?, list.vector16()?);
        if number == extension::CONNECTION_ID {
            return Reader(body).vector8().filter(|cid| !cid.is_empty()).map(<[u8]>::to_vec);
        }
    }
}

/// A ClientHello with other extensions: some are taken out, some put in, and the binder is made anew. `None`: it was
/// none.
fn bent_hello(pair: &Pair, datagram: &[u8], input: &mut Input<'_>) -> Option<Vec<u8>> {
    let (record, _) = Record::split(datagram)?;
    let (fragment, _) = Fragment::split(record.payload)?;
    if fragment.kind != message::CLIENT_HELLO || record.content != ContentType::Handshake {
        return None;
    }
    let mut reader = Reader(fragment.body);
    reader.take(34)?;
    reader.vector8()?;
    reader.vector8()?;
    reader.vector16()?;
    reader.vector8()?;
    let mut body = fragment.body.get(..fragment.body.len() - reader.0.len())?.to_vec();
    let mut list = Reader(reader.vector16()?);
    let (drop, at) = (input.byte(), input.byte() % 12);
    let (mut extensions, mut last) = (Vec::new(), None);
    for nth in 0.. {
        if nth == at {
            let number = input.byte();
            let number = match extension::OF_CLIENTS.get(usize::from(number)) {
                Some(known) => *known,
                None => u16::from(number),
            };
            wire::put_extension(&mut extensions, number, input.bytes());
        }
        let Some(number) = list.u16() else { break };
        let old = list.vector16()?;
        if number == extension::PRE_SHARED_KEY {
            last = Some(old.to_vec());
        } else if nth != drop {
            wire::put_extension(&mut extensions, number, old);
        }
    }
    if let Some(last) = &last {
        wire::put_extension(&mut extensions, extension::PRE_SHARED_KEY, last);
    }
    wire::put_vector16(&mut body, &extensions);
    if last.is_some() {
        bind(pair, &mut body);
    }
    let (mut payload, mut out) = (Vec::new(), Vec::new());
    wire::put_message(&mut payload, fragment.kind, fragment.sequence, &body);
    wire::put_record(&mut out, record.content, record.version, record.number(), &payload);
    Some(out)
}

/// Makes the binder at the end of a ClientHello (RFC 8446 §4.2.11.2).
fn bind(pair: &Pair, body: &mut [u8]) {
    const BINDERS: usize = 2 + 1 + 32;
    let mut transcript = match (server_hello(pair), &pair.greeting) {
        (Some(retry), greeting) => {
            let first = greeting.get(RECORD_HEADER + HANDSHAKE_HEADER..).unwrap_or_default();
            Transcript::after_retry(&hash_of_hello(first), &retry)
        }
        (None, _) => Transcript::empty(),
    };
    let len = body.len();
    let Some((covered, binders)) = len.checked_sub(BINDERS).and_then(|at| body.split_at_mut_checked(at)) else {
        return;
    };
    transcript.add_part(message::CLIENT_HELLO, len, covered);
    binders[3..].copy_from_slice(&Early::new(Some(KEY)).binder(&transcript.hash()));
}

struct Attack {
    way: Way,
    pair: Pair,
    forger: Forger,
    /// Whether the end of the honest client's last flight has come to the server as it was.
    finished: bool,
}

impl Attack {
    fn new(how: u8) -> Self {
        let way = Way::new(how);
        Self { way, pair: Pair::new(way), forger: Forger { way, sent: FIRST }, finished: false }
    }

    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        match step % 16 {
            0..=4 => self.deliver(),
            5 | 6 => {
                let epoch = if step & 16 == 0 { u64::from(self.last_epoch()) } else { u64::from(input.byte() % 4) };
                let fragment = any_fragment(input, NEXT);
                self.say(epoch, ContentType::Handshake.byte(), &fragment);
            }
            7 => {
                let (epoch, content) = (u64::from(input.byte() % 4), 20 + input.byte() % 8);
                self.say(epoch, content, input.bytes());
            }
            8 => {
                let numbers: Vec<_> = (0..input.index(40)).map(|_| number(input)).collect();
                self.say(EPOCH_HANDSHAKE, Content::Ack.byte(), &ack::body(&numbers));
            }
            9 => self.pair.wait(Duration::from_millis(1 << (input.byte() % 16))),
            10 => {
                let hello = self.pair.up.front().and_then(|datagram| bent_hello(&self.pair, datagram, input));
                if let Some(hello) = hello {
                    self.pair.arrive(&hello);
                }
            }
            11 => drop(self.pair.up.pop_front()),
            12 => self.bend(input),
            13 => self.pair.arrive(input.bytes()),
            14 => self.pair.hear(),
            _ => {
                let up = &mut self.pair.up;
                self.pair.client.send(input.bytes(), &mut |bytes| up.push_back(bytes.to_vec()));
            }
        }
        assert!(self.pair.made == 0 || self.finished, "a session without the client's Finished");
    }

    /// The epoch of the client's last flight.
    fn last_epoch(&self) -> u16 {
        if self.way.is_newer { 2 } else { u16::from(!self.way.by_certificate) }
    }

    /// The next datagram of the honest client's.
    fn deliver(&mut self) {
        if let Some(datagram) = self.pair.up.pop_front() {
            self.finished |= is_protected(&datagram);
            self.pair.arrive(&datagram);
            self.pair.hear();
        }
    }

    fn say(&mut self, epoch: u64, content: u8, plain: &[u8]) {
        let datagram = self.forger.seal(&self.pair, epoch, content, plain);
        self.pair.arrive(&datagram);
    }

    /// The honest client's next message, with something changed inside its protection.
    fn bend(&mut self, input: &mut Input<'_>) {
        let Some(datagram) = self.pair.up.pop_front() else { return };
        let (place, with) = (input.byte(), input.byte());
        let Some((epoch, mut plain)) = self.opened(&datagram) else { return };
        let at = usize::from(place) % plain.len().max(1);
        if let (Some(byte), true) = (plain.get_mut(at), with > 0) {
            *byte ^= with;
            self.say(epoch, ContentType::Handshake.byte(), &plain);
        }
    }

    /// The first record of a datagram of the client's, without its protection.
    fn opened(&self, datagram: &[u8]) -> Option<(u64, Vec<u8>)> {
        let mut plain = Vec::new();
        if !self.way.is_newer {
            let mut rest = datagram;
            while let Some((record, after)) = Record::split(rest) {
                rest = after;
                if record.epoch == EPOCH {
                    self.forger.protection(&self.pair)?.open(&record, &mut plain)?;
                    return Some((u64::from(EPOCH), plain));
                }
            }
            return None;
        }
        let secret = self.pair.secrets.traffic("CLIENT_HANDSHAKE_TRAFFIC_SECRET")?;
        let (record, _) = Sealed::split_with(datagram, identifier(&self.pair).map_or(0, |cid| cid.len()))?;
        Reading::new(self.way.suite_13().aead(), secret, EPOCH_HANDSHAKE).open(&record, &mut plain)?;
        Some((EPOCH_HANDSHAKE, plain))
    }
}

/// Whether there is a protected record in it.
fn is_protected(datagram: &[u8]) -> bool {
    let mut rest = datagram;
    while let Some((record, after)) = Record::split(rest) {
        if record.epoch > 0 {
            return true;
        }
        rest = after;
    }
    Sealed::split(rest).is_some()
}

/// The number of a record that may have been sent.
pub(super) fn number(input: &mut Input<'_>) -> Number {
    let how = input.byte();
    let sequence =
        if how & 0x80 == 0 { u64::from(how >> 3) } else { u64::from(input.number()) << (how & 0x3f).min(48) };
    Number { epoch: u64::from(how & 7), sequence }
}

/// No message of a peer that knows the keys makes a session without a right Finished, makes the server say more than a
/// flight, or leaves anything behind.
pub fn server(data: &[u8]) {
    let mut input = Input(data);
    let mut attack = Attack::new(input.byte());
    while let Some(step) = input.next() {
        attack.step(step, &mut input);
    }
    let way = Way { nth: 0, ..attack.way };
    attack.pair.serves_others(way);
}
