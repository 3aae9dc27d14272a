//! A session of DTLS 1.3 whose peer has all the keys: KeyUpdates, acknowledgements, identifiers and whatever else may
//! come after the handshake, in turn and out of turn, against a model of the epochs of both directions.

mod steps;

use std::time::Duration;

use super::{
    input::Input,
    pair::{IDENTITY, Pair, Way},
    server::identifier,
};
use crate::{
    client::ClientEvent,
    v13::{
        ack,
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
