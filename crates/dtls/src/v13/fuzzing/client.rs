//! A client, and a server that knows the key and misbehaves: messages skipped, repeated, bent and made up, in records
//! that are correctly protected, with a Finished that is right for all that was said.

use std::time::Duration;

use super::{
    client12, client13,
    input::Input,
    pair::{Secrets, Way},
    server::{any_fragment, number},
    toys,
    toys::platform,
};
use crate::{
    client::{Client, ClientEvent},
    hello::extension,
    v13::{ack, record::Content},
    wire::{self, Reader, message},
};

/// Bytes that a client may say to one datagram: its longest flight, with a certificate, twice.
const ANSWER_MAX: usize = 3000;

/// A server's next words: a message, or a record.
pub(super) enum Say {
    /// A handshake message.
    Message(u8, Vec<u8>),
    /// A record of an epoch with that content.
    Record(u64, u8, Vec<u8>),
}

enum Server {
    Older(Box<client12::Server>),
    Newer(Box<client13::Server>),
}

impl Server {
    fn new(way: Way, how: u8) -> Self {
        if way.is_newer {
            let retries = (how & 1 != 0).then_some(how & 2 != 0);
            return Self::Newer(Box::new(client13::Server::new(way, retries)));
        }
        Self::Older(Box::new(client12::Server::new(way, how & 1 != 0, how & 2 != 0)))
    }

    fn next(&mut self) -> Option<Say> {
        match self {
            Self::Older(server) => server.next(),
            Self::Newer(server) => server.next(),
        }
    }

    fn emit(&mut self, kind: u8, body: &[u8], in_halves: bool) -> Vec<u8> {
        match self {
            Self::Older(server) => server.emit(kind, body, in_halves),
            Self::Newer(server) => server.emit(kind, body, in_halves),
        }
    }

    fn record(&mut self, epoch: u64, content: u8, plain: &[u8]) -> Vec<u8> {
        match self {
            Self::Older(server) => server.record(epoch, content, plain),
            Self::Newer(server) => server.record(epoch, content, plain),
        }
    }

    fn hear(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        match self {
            Self::Older(server) => server.hear(datagram),
            Self::Newer(server) => server.hear(datagram),
        }
    }

    /// Whether it has said what a client has to wait for.
    fn has_finished(&self) -> bool {
        match self {
            Self::Older(server) => server.has_finished,
            // An acknowledgement may be made up as well as made, but not without the keys of a Finished.
            Self::Newer(server) => server.has_finished,
        }
    }

    const fn data_epoch(&self) -> u64 {
        match self {
            Self::Older(_) => 1,
            Self::Newer(_) => 3,
        }
    }
}

struct Play {
    client: Client,
    server: Server,
    now: Duration,
    last: Vec<u8>,
    /// Whether everything was as it should be so far.
    is_honest: bool,
    /// Whether a signature that has to be there was not made by the server.
    is_unsigned: bool,
    is_over: bool,
    data: Vec<Vec<u8>>,
}

impl Play {
    fn new(way: Way, how: u8) -> Self {
        toys::reseed(0x9E37_79B9_7F4A_7C15);
        let (mut server, mut up) = (Server::new(way, how), Vec::new());
        let config = way.config(&std::sync::Arc::new(Secrets::default()));
        let client = Client::start(config, platform(), Duration::ZERO, &mut |bytes| up.push(bytes.to_vec()));
        let client = client.unwrap_or_else(|alert| panic!("a client does not start: {alert:?}"));
        up.iter().for_each(|datagram| drop(server.hear(datagram)));
        let (is_honest, is_unsigned, is_over) = (true, way.by_certificate, false);
        Self {
            client,
            server,
            now: Duration::ZERO,
            last: Vec::new(),
            is_honest,
            is_unsigned,
            is_over,
            data: Vec::new(),
        }
    }

    /// A datagram comes to the client, and its answers to the server.
    fn arrive(&mut self, datagram: &[u8]) {
        let mut up = Vec::new();
        let events = self.client.handle(self.now, datagram, &mut |bytes| up.push(bytes.to_vec()));
        let bytes: usize = up.iter().map(Vec::len).sum();
        assert!(bytes <= ANSWER_MAX, "{bytes} bytes for {}", datagram.len());
        up.iter().for_each(|datagram| self.data.extend(self.server.hear(datagram)));
        for event in events {
            match event {
                ClientEvent::Established(channel) => {
                    assert!(self.server.has_finished(), "a session without a Finished");
                    assert!(!self.is_unsigned, "a session without a signature");
                    let leaf = channel.certificate;
                    assert!(leaf.is_none_or(|leaf| leaf == toys::certificate()));
                }
                ClientEvent::Data(_) => assert!(self.server.has_finished()),
                ClientEvent::Ended(_) => {
                    assert!(!self.is_over, "over twice");
                    self.is_over = true;
                }
            }
        }
        assert!(!(self.is_over && self.client.is_established()));
    }

    /// Says what comes next, changed by `bend`.
    fn next(&mut self, in_halves: bool, bend: &mut dyn FnMut(&mut Vec<u8>)) {
        let datagram = match self.server.next() {
            Some(Say::Message(kind, mut body)) => {
                let before = body.clone();
                bend(&mut body);
                self.is_honest &= body == before;
                // RFC 8446 §4.4.3, RFC 8422 §5.4: where the server proves that the certificate is its own.
                let proof = match self.server {
                    Server::Older(_) => message::SERVER_KEY_EXCHANGE,
                    Server::Newer(_) => message::CERTIFICATE_VERIFY,
                };
                self.is_unsigned &= kind != proof || body != before;
                self.server.emit(kind, &body, in_halves)
            }
            Some(Say::Record(epoch, content, mut plain)) => {
                let before = plain.clone();
                bend(&mut plain);
                self.is_honest &= plain == before;
                self.server.record(epoch, content, &plain)
            }
            None => return,
        };
        self.arrive(&datagram);
        self.last = datagram;
    }

    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        let in_halves = step & 32 != 0;
        match step % 16 {
            0..=5 => self.next(in_halves, &mut |_| ()),
            6 => {
                let (place, with) = (usize::from(input.byte()), input.byte());
                self.next(in_halves, &mut |body| bend(body, place, with));
            }
            7 => {
                let (known, number) = (usize::from(input.byte()), input.number());
                let number = extension::OF_CLIENTS.get(known).copied().unwrap_or(number);
                let bytes = input.bytes();
                self.next(in_halves, &mut |body| insert(body, number, bytes));
            }
            8 => {
                self.is_honest = false;
                let _ = self.server.next();
            }
            9 => {
                self.is_honest = false;
                let kind = super::server::KINDS[usize::from(input.byte()) % 16];
                let datagram = self.server.emit(kind, input.bytes(), in_halves);
                self.arrive(&datagram);
            }
            10 => {
                self.is_honest = false;
                let (epoch, next) = (u64::from(input.byte() % 4), u16::from(input.byte() % 8));
                let fragment = any_fragment(input, next);
                let datagram = self.server.record(epoch, Content::Handshake.byte(), &fragment);
                self.arrive(&datagram);
            }
            11 => {
                self.is_honest = false;
                let (epoch, content) = (u64::from(input.byte() % 4), 20 + input.byte() % 8);
                let datagram = self.server.record(epoch, content, input.bytes());
                self.arrive(&datagram);
            }
            12 => {
                self.is_honest = false;
                let epoch = 2 + u64::from(input.byte() % 2);
                let numbers: Vec<_> = (0..input.index(40)).map(|_| number(input)).collect();
                let datagram = self.server.record(epoch, Content::Ack.byte(), &ack::body(&numbers));
                self.arrive(&datagram);
            }
            13 => {
                let last = self.last.clone();
                self.arrive(&last);
            }
            14 => self.wait(Duration::from_millis(1 << (input.byte() % 16))),
            _ => {
                // A client believes an alert in the clear as long as there are no keys.
                self.is_honest = false;
                self.arrive(input.bytes());
            }
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        let mut up = Vec::new();
        self.client.handle_timeout(self.now, &mut |bytes| up.push(bytes.to_vec()));
        assert!(up.iter().map(Vec::len).sum::<usize>() <= ANSWER_MAX);
        up.iter().for_each(|datagram| self.data.extend(self.server.hear(datagram)));
    }

    /// With an honest server there is a session; a session carries data both ways, whoever the server is.
    fn end(mut self) {
        if self.is_honest {
            for _ in 0..10 {
                self.next(false, &mut |_| ());
            }
            assert!(self.client.is_established(), "no session with an honest server");
        }
        if !self.client.is_established() {
            return;
        }
        let mut up = Vec::new();
        assert!(self.client.send(b"question", &mut |bytes| up.push(bytes.to_vec())));
        up.iter().for_each(|datagram| self.data.extend(self.server.hear(datagram)));
        if self.is_honest {
            assert_eq!(self.data.last().map(|data| &data[..]), Some(&b"question"[..]));
            let answer = self.server.record(self.server.data_epoch(), Content::ApplicationData.byte(), b"answer");
            let events = self.client.handle(self.now, &answer, &mut |_| ());
            assert_eq!(events, [ClientEvent::Data(b"answer".to_vec())]);
        }
    }
}

/// Changes a byte, or cuts, or adds bytes.
fn bend(body: &mut Vec<u8>, place: usize, with: u8) {
    match with {
        0 => body.truncate(place),
        255 => body.extend([0x55; 3].into_iter().take(1 + place % 3)),
        _ => {
            let at = place % body.len().max(1);
            body.get_mut(at).into_iter().for_each(|byte| *byte ^= with);
        }
    }
}

/// Puts an extension behind the others of a hello, or of EncryptedExtensions.
fn insert(body: &mut Vec<u8>, number: u16, bytes: &[u8]) {
    let fixed = if body.len() > 38 { 38 } else { 0 };
    let Some(mut list) = body.get(fixed..).and_then(|rest| Reader(rest).vector16()).map(<[u8]>::to_vec) else { return };
    wire::put_extension(&mut list, number, bytes);
    body.truncate(fixed);
    wire::put_vector16(body, &list);
}

/// A server that knows the key gets no session without saying what it has to, makes the client say no more than a
/// flight, and an honest one always gets its session.
pub fn client(data: &[u8]) {
    let mut input = Input(data);
    let way = Way::new(input.byte());
    let mut play = Play::new(way, input.byte());
    while let Some(step) = input.next() {
        play.step(step, &mut input);
    }
    play.end();
}
