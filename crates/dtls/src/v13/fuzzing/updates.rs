//! A session of DTLS 1.3 whose peer has all the keys: KeyUpdates, acknowledgements, identifiers and whatever else may
//! come after the handshake, in turn and out of turn, against a model of the epochs of both directions.

use std::time::Duration;

use super::{
    input::Input,
    pair::{IDENTITY, Pair, Way},
    server::{KINDS, any_fragment, identifier, number},
};
use crate::{
    client::ClientEvent,
    v13::{
        USER_CANCELED, ack,
        record::{Content, Number, Reading, Sealed, Writing},
        session::EPOCH_DATA,
    },
    wire::{self, CID, Fragment, Record, message},
};

/// Bytes that one record may make a session say: an acknowledgement, and a KeyUpdate.
const ANSWER_MAX: usize = 200;
/// A session that says and hears nothing for so long may be over: 25 hours.
const IDLE: Duration = Duration::from_secs(20 * 3600);

/// The state that the session has to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lives,
    Ends,
    /// Nobody can say.
    Either,
}

struct Attack {
    pair: Pair,
    /// Whether the session in question is the client's, and its peer the server.
    of_client: bool,
    /// Keys of each epoch of ours, and of each of the session's.
    write: Vec<Writing>,
    read: Vec<Reading>,
    /// The identifier that our records have to carry.
    cid: Vec<u8>,
    /// Bytes of the identifier in the session's.
    cid_len: usize,
    /// Of our next message.
    next: u16,
    /// KeyUpdates of ours that were taken, and of the session's that we have acknowledged.
    taken: usize,
    acknowledged: usize,
    /// The records of the session's KeyUpdate that was not acknowledged.
    pending: Vec<Number>,
    /// When it was said first, and how long nothing was said.
    pending_since: Duration,
    quiet: Duration,
    is_over: bool,
    answers: usize,
}

impl Attack {
    /// A session that was made as it should be.
    fn new(how: u8) -> Self {
        let way = Way::new(how & 0xf8 | 1);
        let mut pair = Pair::new(way);
        pair.settle();
        assert!(pair.client.is_established() && pair.association.is_some());
        let of_client = how & 4 != 0;
        let [ours, theirs] = match of_client {
            true => ["SERVER_TRAFFIC_SECRET_0", "CLIENT_TRAFFIC_SECRET_0"],
            false => ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"],
        };
        let aead = way.suite_13().aead();
        let secret = |label| pair.secrets.traffic(label).unwrap_or_else(|| panic!("no {label}"));
        let mut write = Writing::new(aead, secret(ours), EPOCH_DATA);
        let read = Reading::new(aead, secret(theirs), EPOCH_DATA);
        // Behind what an honest server has said: its acknowledgement.
        write.skip(EPOCH_DATA, 8);
        let theirs = identifier(&pair).unwrap_or_default();
        let cid_len = if way.has_identifier { CID } else { 0 };
        // The client's own identifier is random: it stands in its greeting, behind the number of its extension.
        let mine = pair.greeting.windows(5).position(|part| part == [0, 54, 0, 9, 8]).map(|at| at + 5);
        let mine = mine.and_then(|at| pair.greeting.get(at..at + CID)).unwrap_or_default().to_vec();
        pair.events.clear();
        Self {
            cid: if !way.has_identifier {
                Vec::new()
            } else if of_client {
                mine
            } else {
                theirs
            },
            // Two ClientHellos and Finished; HelloRetryRequest, ServerHello, EncryptedExtensions and Finished.
            next: if of_client { 4 } else { 3 },
            write: vec![write],
            read: vec![read],
            pair,
            of_client,
            cid_len,
            taken: 0,
            acknowledged: 0,
            pending: Vec::new(),
            pending_since: Duration::ZERO,
            quiet: Duration::ZERO,
            is_over: false,
            answers: 0,
        }
    }

    /// A record of ours under the keys that are so many KeyUpdates behind or before those that are read.
    fn seal(&mut self, back: usize, content: Content, plain: &[u8]) -> Vec<u8> {
        let at = self.taken.saturating_sub(back);
        while self.write.len() <= at {
            let next = self.write.last().map(Writing::next);
            self.write.extend(next);
        }
        let mut out = Vec::new();
        self.write[at].seal(&self.cid, content, plain, &mut out);
        out
    }

    /// A datagram comes to the session; what it says is read.
    fn arrive(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let before = self.pair.heard.len();
        let (mut said, mut data) = (Vec::new(), Vec::new());
        if self.of_client {
            let events = self.pair.client.handle(self.pair.now, datagram, &mut |bytes| said.push(bytes.to_vec()));
            for event in events {
                match event {
                    ClientEvent::Established(_) => panic!("established twice"),
                    ClientEvent::Data(bytes) => data.push(bytes),
                    ClientEvent::Ended(_) => self.is_over = true,
                }
            }
        } else {
            self.pair.arrive(datagram);
            said.extend(self.pair.down.drain(..));
            data.extend(self.pair.heard.drain(before..));
            self.is_over = self.pair.association.is_none();
        }
        assert!(said.iter().map(Vec::len).sum::<usize>() <= ANSWER_MAX, "{said:?}");
        said.iter().for_each(|datagram| self.read(datagram));
        data
    }

    /// Reads what the session says: KeyUpdates are remembered, data is counted.
    fn read(&mut self, datagram: &[u8]) {
        let mut rest = datagram;
        // An answer to a ClientHello: that is not of the session.
        if Record::split(datagram).is_some() {
            return;
        }
        while let Some((record, after)) = Sealed::split_with(rest, self.cid_len) {
            rest = after;
            let mut plain = Vec::new();
            let opened = self.read.iter_mut().rev().find_map(|read| read.open(&record, &mut plain));
            let Some(opened) = opened else { panic!("a record under no key of its own") };
            let epoch = EPOCH_DATA + self.acknowledged as u64;
            assert_eq!(opened.number.epoch, epoch, "{:?} of another epoch", opened.content);
            match opened.content {
                Content::Handshake => {
                    let (fragment, more) = Fragment::split(&plain).unwrap_or_else(|| panic!("{plain:?}"));
                    assert!(more.is_empty() && fragment.kind == message::KEY_UPDATE && fragment.is_whole());
                    if self.pending.is_empty() {
                        self.pending_since = self.pair.now;
                    }
                    self.pending.push(opened.number);
                }
                Content::ApplicationData => self.answers += 1,
                Content::Ack => assert!(ack::numbers(&plain).is_ok_and(|numbers| numbers.count() > 0)),
                Content::Alert => {}
                Content::Unknown => panic!("a record of no type"),
            }
        }
        assert!(rest.is_empty(), "what is no record");
    }

    fn check(&mut self, fate: Fate) {
        let tired = !self.pending.is_empty() && self.pair.now > self.pending_since + Duration::from_secs(60);
        let fate = if fate == Fate::Lives && (tired || self.quiet > IDLE) { Fate::Either } else { fate };
        match fate {
            Fate::Lives => assert!(!self.is_over, "ended by nothing"),
            Fate::Ends => assert!(self.is_over, "lives on"),
            Fate::Either => {}
        }
    }

    /// A handshake message in its turn, under the newest keys.
    fn say(&mut self, kind: u8, body: &[u8], fate: Fate) {
        let mut plain = Vec::new();
        wire::put_message(&mut plain, kind, self.next, body);
        self.next += 1;
        let datagram = self.seal(0, Content::Handshake, &plain);
        let had = self.pending.len();
        if kind == message::KEY_UPDATE && fate == Fate::Lives {
            // The answer is under the old keys of the session, whatever these are.
            self.taken += 1;
        }
        self.arrive(&datagram);
        assert!(self.pending.len() <= had + 2, "more than one KeyUpdate for one");
        self.check(fate);
    }

    /// Acknowledges these records.
    fn acknowledge(&mut self, numbers: &[Number]) {
        let datagram = self.seal(0, Content::Ack, &ack::body(numbers));
        if numbers.iter().any(|number| self.pending.contains(number)) {
            self.acknowledged += 1;
            self.pending.clear();
            let next = self.read.last().map(Reading::next);
            self.read.extend(next);
        }
        self.arrive(&datagram);
        self.check(Fate::Lives);
    }

    /// Data in both directions, under the keys that the model says.
    fn exchange(&mut self) {
        let datagram = self.seal(0, Content::ApplicationData, IDENTITY);
        let data = self.arrive(&datagram);
        self.check(Fate::Lives);
        if self.is_over {
            return;
        }
        assert_eq!(data, [IDENTITY], "data under the newest keys");
        assert!(self.arrive(&datagram).is_empty(), "data twice");
        // A session whose KeyUpdate nobody acknowledges tells data first, and ends with the next record.
        self.check(Fate::Lives);
        if self.is_over {
            return;
        }
        self.quiet = Duration::ZERO;
        let before = self.answers;
        if self.of_client {
            let mut said = Vec::new();
            assert!(self.pair.client.send(b"answer", &mut |bytes| said.push(bytes.to_vec())));
            said.iter().for_each(|datagram| self.read(datagram));
        } else {
            assert!(self.pair.tell(b"answer"));
            let said: Vec<_> = self.pair.down.drain(..).collect();
            said.iter().for_each(|datagram| self.read(datagram));
        }
        assert_eq!(self.answers, before + 1, "an answer under the keys that were acknowledged");
    }

    fn wait(&mut self, time: Duration) {
        self.quiet += time;
        if self.of_client {
            self.pair.now += time;
            let mut said = Vec::new();
            self.pair.client.handle_timeout(self.pair.now, &mut |bytes| said.push(bytes.to_vec()));
            said.iter().for_each(|datagram| self.read(datagram));
        } else {
            self.pair.wait(time);
            let said: Vec<_> = self.pair.down.drain(..).collect();
            said.iter().for_each(|datagram| self.read(datagram));
            self.is_over = self.pair.association.is_none();
        }
        self.check(Fate::Lives);
    }

    /// A message whose place or form is wrong.
    fn misbehave(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        let mut plain = Vec::new();
        let body = input.bytes();
        let fate = match how % 8 {
            // Heard before, and not yet heard of: neither counts.
            0 => {
                wire::put_message(&mut plain, KINDS[usize::from(how) / 16], self.next - 1, body);
                Fate::Lives
            }
            1 => {
                wire::put_message(&mut plain, KINDS[usize::from(how) / 16], self.next + 1, body);
                Fate::Lives
            }
            // RFC 8446 §4.6.3: neither asked for nor not.
            2 if body != [0] && body != [1] => {
                wire::put_message(&mut plain, message::KEY_UPDATE, self.next, body);
                Fate::Ends
            }
            // Cut, though it is short.
            3 => {
                wire::put_fragment(&mut plain, message::KEY_UPDATE, self.next, 2, 0, &[0]);
                Fate::Ends
            }
            // Messages of a handshake.
            4 => {
                wire::put_message(&mut plain, message::FINISHED, self.next, body);
                Fate::Ends
            }
            _ => {
                plain = any_fragment(input, self.next);
                Fate::Either
            }
        };
        let datagram = self.seal(0, Content::Handshake, &plain);
        self.arrive(&datagram);
        self.check(fate);
        // From here on the model does not know which message is next.
        self.is_over |= fate == Fate::Either;
    }

    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        match step % 16 {
            0 | 1 => self.say(message::KEY_UPDATE, &[step >> 4 & 1], Fate::Lives),
            2 => self.exchange(),
            3 | 4 => {
                let nth = input.index(4);
                let number = self.pending.get(nth).or(self.pending.last()).copied();
                number.into_iter().for_each(|number| self.acknowledge(&[number]));
            }
            5 => {
                let numbers: Vec<_> = (0..input.index(40)).map(|_| number(input)).collect();
                self.acknowledge(&numbers);
            }
            6 => self.update(step & 16 != 0),
            7 => self.wait(Duration::from_millis(1 << (input.byte() % 18))),
            8 => self.misbehave(input),
            9 => self.identify(input),
            10 => {
                // Of a key that was changed: data that was on its way is heard, anything older is not.
                let back = 1 + input.index(3);
                let datagram = self.seal(back, Content::ApplicationData, b"late");
                let is_older = self.taken < back;
                let data = self.arrive(&datagram);
                assert!(back == 1 || is_older || data.is_empty(), "data under keys of long ago");
                self.check(Fate::Lives);
            }
            11 => {
                let body = input.bytes();
                let datagram = self.seal(0, Content::Ack, body);
                if ack::numbers(body).is_err() {
                    self.arrive(&datagram);
                    self.check(Fate::Ends);
                } else {
                    // It may name anything.
                    self.arrive_unknown(&datagram);
                }
            }
            12 => {
                let body = input.bytes();
                let ends = body.len() != 2 || body.get(1) != Some(&USER_CANCELED);
                let datagram = self.seal(0, Content::Alert, body);
                self.arrive(&datagram);
                self.check(if ends { Fate::Ends } else { Fate::Lives });
            }
            13 => {
                let bytes = input.bytes();
                assert!(self.arrive(bytes).is_empty());
                self.check(Fate::Lives);
            }
            14 => {
                let mut datagram = self.seal(0, Content::ApplicationData, b"forged");
                let at = input.index(datagram.len());
                datagram[at] ^= input.byte().max(1);
                assert!(self.arrive(&datagram).is_empty(), "forged data");
                self.check(Fate::Lives);
            }
            _ => {
                // Several records in one datagram.
                let mut datagram = self.seal(0, Content::ApplicationData, b"one");
                let more = self.seal(0, Content::ApplicationData, b"two");
                datagram.extend(more);
                let data = self.arrive(&datagram);
                self.check(Fate::Lives);
                assert!(self.is_over || data == [b"one", b"two"]);
            }
        }
    }

    fn arrive_unknown(&mut self, datagram: &[u8]) {
        let had = self.pending.clone();
        self.arrive(datagram);
        // Rather than to read it as the session does.
        if !had.is_empty() {
            self.is_over = true;
        }
    }

    /// The session changes its keys by itself.
    fn update(&mut self, request: bool) {
        if self.of_client {
            let mut said = Vec::new();
            self.pair.client.update_keys(self.pair.now, request, &mut |bytes| said.push(bytes.to_vec()));
            assert!(said.len() <= usize::from(self.pending.is_empty()), "two KeyUpdates at once");
            said.iter().for_each(|datagram| self.read(datagram));
        }
    }

    /// RFC 9147 §9: the session is given other identifiers for what it sends, or asked for some.
    fn identify(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        if how & 1 == 0 {
            let fate = if self.cid.is_empty() { Fate::Ends } else { Fate::Lives };
            return self.say(message::REQUEST_CONNECTION_ID, &[how], fate);
        }
        let (mut list, mut body) = (Vec::new(), Vec::new());
        let cid = &b"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopq"[..usize::from(how >> 2) % 40];
        wire::put_vector8(&mut list, cid);
        wire::put_vector16(&mut body, &list);
        body.push(how >> 1 & 1);
        let (is_now, is_too_long) = (how >> 1 & 1 == 0, cid.len() > wire::OTHERS_MAX);
        let fate = if self.cid_len == 0 || is_now && is_too_long { Fate::Ends } else { Fate::Lives };
        // The acknowledgement comes under the new one already.
        if fate == Fate::Lives && is_now && !cid.is_empty() {
            self.cid_len = cid.len();
        }
        self.say(message::NEW_CONNECTION_ID, &body, fate);
    }
}

/// The session never ends but for a reason, never takes data twice or under keys of long ago, never uses keys that were
/// not acknowledged, and what an honest peer says is heard whatever was said before.
pub fn updates(data: &[u8]) {
    let mut input = Input(data);
    let mut attack = Attack::new(input.byte());
    while let Some(step) = input.next() {
        attack.step(step, &mut input);
        if attack.is_over {
            break;
        }
    }
    if !attack.is_over {
        attack.exchange();
    }
    attack.pair.serves_others(Way::new(1));
}
