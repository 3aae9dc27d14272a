//! Any server: the machine's books agree with each other, and no request has two ends.

mod empty;
mod hostile;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::block::BlockSize;
use crate::client::ahead::AHEAD_MAX;
use crate::client::event::{Event, Registration};
use crate::code::Code;
use crate::encode::Encoder;
use crate::option::{OptionNumber, UintValue};

/// The end of each request that has one, and what else is known of requests.
#[derive(Default)]
struct Ends {
    over: BTreeMap<u64, &'static str>,
    established: BTreeSet<u64>,
    /// Cancelled by the caller, who hears no more of them.
    cancelled: BTreeSet<u64>,
}

impl Events for Ends {
    fn event(&mut self, tag: u64, event: Event<'_>) {
        assert_eq!(self.over.get(&tag), None, "{tag}: {event:?}");
        assert!(!self.cancelled.contains(&tag), "{tag}: {event:?}");
        let end = match &event {
            Event::Answered { registration: Registration::Established, .. } => {
                assert!(self.established.insert(tag), "{tag}: {event:?}");
                return;
            }
            Event::Notified { representation, .. } if representation.message.code.is_success() => return,
            Event::Sent => "sent",
            Event::Answered { .. } => "answered",
            Event::Notified { .. } => "notified of an error",
            Event::Failed(_) => "failed",
            Event::Ended(_) => "ended",
        };
        self.over.insert(tag, end);
    }
}

impl Machine {
    /// The counters and references are those of the requests there are.
    fn check(&self) {
        let count = |is_it: fn(Purpose) -> bool| self.exchanges.iter().filter(|(_, it)| is_it(it.purpose)).count();
        assert_eq!(self.observations, count(|purpose| purpose == Purpose::Observe));
        assert_eq!(self.rests, count(|purpose| matches!(purpose, Purpose::Rest(_))));
        let bodies: Vec<_> = self.exchanges.iter().filter_map(|(_, it)| Some(&it.download.as_ref()?.body)).collect();
        assert_eq!(self.body_bytes, bodies.iter().map(|body| body.len()).sum::<usize>());
        assert!(self.body_bytes <= self.config.bodies_bytes_max);
        let kept: usize = bodies.iter().map(|body| body.capacity()).sum();
        assert!(kept <= 2 * self.body_bytes + 16 * self.exchanges.len(), "{kept} for {}", self.body_bytes);
        let uploads: Vec<_> = self.exchanges.iter().filter(|(_, it)| it.upload.is_some()).map(|(at, _)| at).collect();
        let begun = uploads.iter().filter(|number| !self.uploads.contains(number)).count();
        assert_eq!(usize::from(self.uploading), begun, "one upload at a time (RFC 7959 §2.5)");
        assert!(self.uploads.iter().all(|number| uploads.contains(number)));
        for (number, exchange) in self.exchanges.iter() {
            if let Some(observation) = &exchange.observation {
                let rests =
                    self.exchanges.iter().filter(|(_, it)| it.purpose == Purpose::Rest(number)).map(|(at, _)| at);
                assert_eq!(observation.rests.iter().copied().collect::<BTreeSet<_>>(), rests.collect::<BTreeSet<_>>());
                assert!(observation.rests.len() <= rests::RESTS_MAX);
                assert!(observation.ahead.len() <= AHEAD_MAX);
                assert!(observation.waiting.is_empty() || self.waiting.contains(&number));
            }
            let observed = match exchange.purpose {
                Purpose::Request => None,
                Purpose::Observe => Some(number),
                Purpose::Rest(of) | Purpose::Again(of) | Purpose::End(of) => Some(of),
            };
            let observing = observed.map(|of| self.exchanges.get(of).unwrap());
            assert!(observing.is_none_or(|it| it.purpose == Purpose::Observe && it.observation.is_some()));
            if let Purpose::Again(of) | Purpose::End(of) = exchange.purpose {
                assert_eq!(self.exchanges.get(of).unwrap().follow_up(), Some(number));
            }
            let is_follow_up = |purpose| [Purpose::Again(number), Purpose::End(number)].contains(&purpose);
            let follow_up = exchange.follow_up().map(|at| self.exchanges.get(at).unwrap().purpose);
            assert!(follow_up.is_none_or(is_follow_up));
            assert!(!matches!(exchange.purpose, Purpose::Rest(_)) || exchange.download.is_some());
        }
    }
}

/// A message of the server, made for one of ours.
#[derive(Clone, Debug)]
struct Said {
    /// Which of the messages that were sent, counted from the last.
    to: usize,
    kind: u8,
    code: u8,
    observe: Option<u32>,
    etag: u8,
    block1: Option<u32>,
    block2: Option<u32>,
    location: bool,
    echo: bool,
    payload: usize,
}

impl Said {
    fn write(&self, request: &Message<'_>, message_id: u16) -> Vec<u8> {
        let (kind, id) = match self.kind {
            0 | 1 => (Type::Acknowledgement, request.message_id),
            2 => (Type::Confirmable, message_id),
            3 => (Type::NonConfirmable, message_id),
            kind => {
                let mut bytes = Vec::new();
                let kind = if kind == 4 { Type::Reset } else { Type::Acknowledgement };
                crate::encode::empty(&mut bytes, kind, request.message_id);
                return bytes;
            }
        };
        let codes = [0x45, 0x45, 0x44, 0x5f, 0x84, 0x8d, 0x81, 0xa3];
        let code = Code::from_byte(codes[usize::from(self.code) % codes.len()]);
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, kind, code, id, &request.token);
        encoder.push(OptionNumber::ETAG, &[self.etag]);
        let mut uint = |number, value: Option<u32>| {
            value.iter().for_each(|value| encoder.push(number, UintValue::new(*value).as_slice()));
        };
        uint(OptionNumber::OBSERVE, self.observe);
        uint(OptionNumber::LOCATION_PATH, self.location.then_some(0x61));
        uint(OptionNumber::BLOCK2, self.block2);
        uint(OptionNumber::BLOCK1, self.block1);
        if self.echo {
            encoder.push(OptionNumber::ECHO, b"echo");
        }
        encoder.payload(&[b'x'; 16][..self.payload]);
        bytes
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask { observe: bool, confirmable: bool, bytes: usize },
    Said(Said),
    Wait(u64),
    Cancel(u64),
}

fn said() -> impl Strategy<Value = Said> {
    let block =
        || prop::option::of((0_u32..3, any::<bool>()).prop_map(|(number, more)| number << 4 | u32::from(more) << 3));
    let head = (0_usize..4, 0_u8..6, 0_u8..8, prop::option::of(0_u32..6), 0_u8..2);
    let tail = (block(), block(), prop::bool::weighted(0.2), prop::bool::weighted(0.3), 0_usize..=16);
    (head, tail).prop_map(|((to, kind, code, observe, etag), (block1, block2, location, echo, payload))| {
        let payload = if block2.is_some_and(|block| block & 8 != 0) { 16 } else { payload };
        Said { to, kind, code, observe, etag, block1, block2, location, echo, payload }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (any::<bool>(), any::<bool>(), prop_oneof![Just(0), Just(40)])
            .prop_map(|(observe, confirmable, bytes)| Step::Ask { observe, confirmable, bytes }),
        10 => said().prop_map(Step::Said),
        2 => (0_u64..20_000).prop_map(Step::Wait),
        1 => (0_u64..8).prop_map(Step::Cancel),
    ]
}

fn template(observe: bool, confirmable: bool) -> Template {
    let kind = if confirmable { Type::Confirmable } else { Type::NonConfirmable };
    Template::new(kind, Code::FETCH, |encoder| {
        if observe {
            encoder.push(OptionNumber::OBSERVE, &[]);
        }
        encoder.push(OptionNumber::URI_PATH, b"a");
    })
}

proptest! {
    #[test]
    fn whatever_the_server_says_each_request_has_one_end(steps in vec(step(), 0..60), reliable in any::<bool>()) {
        let bounds = ClientConfig { block_size: BlockSize::at_most(16), chunk: 16, ..ClientConfig::default() };
        let config = ClientConfig { reliable, body_bytes_max: 64, bodies_bytes_max: 100, ..bounds };
        let mut machine: Machine = Machine::new(config, 7, None);
        let (mut ends, mut now, mut sent) = (Ends::default(), Timestamp::from_millis(1000), Vec::<Vec<u8>>::new());
        let (mut tags, mut id) = (0, 60_000);
        for step in steps {
            match step {
                Step::Ask { observe, confirmable, bytes } => {
                    machine.request(&template(observe, confirmable), &[b'y'; 40][..bytes], tags).unwrap();
                    tags += 1;
                }
                Step::Said(said) => {
                    id += 1;
                    let to = sent.len().checked_sub(1 + said.to).and_then(|at| sent.get(at));
                    if let Some(request) = to.map(|sent| Message::decode(sent).unwrap()) {
                        machine.handle(now, &said.write(&request, id), &mut ends);
                    }
                }
                Step::Wait(millis) => {
                    now = now + Duration::from_millis(millis);
                    machine.handle_timeout(now, &mut ends);
                }
                Step::Cancel(tag) => {
                    if tag < tags {
                        ends.cancelled.insert(tag);
                    }
                    machine.cancel(tag, &mut ends);
                }
            }
            machine.check();
            while let Some(message) = machine.front() {
                if Message::decode(message).unwrap().code != Code::EMPTY {
                    sent.push(message.to_vec());
                }
                machine.sent(now, &mut ends);
            }
            machine.check();
        }
        // Nothing is left when observations are ended and no answer comes; every request had an end.
        let observed = machine.exchanges.iter().filter(|(_, it)| it.purpose == Purpose::Observe);
        let established = observed.filter(|(_, it)| it.stage == Stage::Established);
        ends.cancelled.extend(established.map(|(_, it)| it.tag));
        machine.deregister(&mut ends);
        for _ in 0..200 {
            while machine.front().is_some() {
                machine.sent(now, &mut ends);
            }
            now = machine.next_timeout().unwrap_or(now);
            machine.handle_timeout(now, &mut ends);
            machine.check();
        }
        prop_assert_eq!((machine.in_flight(), machine.next_timeout()), (0, None));
        let has_end = |tag: u64| ends.over.contains_key(&tag) || ends.cancelled.contains(&tag);
        prop_assert!((0..tags).all(has_end));
    }
}
