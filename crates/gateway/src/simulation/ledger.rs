//! The model: every published message, its fate as the publisher knows it, and every message that a reader received.
//!
//! Topics are of two kinds. A *value* topic has retained publications only, and is cleared now and then: at the end
//! every reader holds its latest value, or knows that there is none. An *event* topic has none: every reader receives
//! each accepted message.

mod verdict;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use super::random::Random;

/// Topics of each kind.
const TOPICS: usize = 6;

/// The fate of a message as its publisher knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// No acknowledgement has come, or none will.
    Unknown,
    /// Acknowledged with success.
    Accepted,
    /// Refused.
    Refused,
}

/// A published message.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) publisher: usize,
    pub(super) topic: String,
    pub(super) qos: u8,
    pub(super) retain: bool,
    /// Empty: it clears the topic.
    pub(super) payload: Vec<u8>,
    pub(super) fate: Fate,
    at: u64,
    /// When its publisher knew its fate.
    settled: Option<u64>,
    /// The gateway that it was published to.
    life: usize,
}

/// A message that a reader received.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Got {
    Message(usize),
    Cleared(String),
}

/// The promise of a reader's door and subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// Every message, in the order of its publisher.
    All,
    /// Every message whose QoS on the way to the reader is at least 1, whether it is connected or not.
    AllConfirmed,
    /// Every message of QoS 1, at one of several members of a shared subscription. One of QoS 2 that a member had in
    /// flight when it left goes to no other ([MQTT-4.8.2-5]). No retained messages are sent at its start (§3.8.4).
    Shared,
    /// The latest value of each topic; intermediate ones may be skipped (RFC 7641 §1.3).
    Latest,
    /// The same of what is sent Confirmable: the notifications of a filter that are not may be lost for good.
    LatestConfirmed,
}

impl Promise {
    /// Whether a message of this QoS must come.
    const fn covers(self, qos: u8) -> bool {
        match self {
            Self::All => true,
            Self::AllConfirmed => qos > 0,
            Self::Shared => qos == 1,
            Self::Latest | Self::LatestConfirmed => false,
        }
    }
}

/// One subscription of one connection, from its grant to its end.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) name: String,
    pub(super) promise: Promise,
    pub(super) filter: String,
    pub(super) max_qos: u8,
    granted: u64,
    /// The gateway that it reads from.
    life: usize,
    /// It is still connected and reads, or will be.
    pub(super) live: Cell<bool>,
    /// Its session has no connection.
    pub(super) away: Cell<bool>,
    /// Whether the gateway has reported a gap.
    pub(super) told_of_gap: Cell<bool>,
    got: RefCell<Vec<Got>>,
}

impl Reader {
    /// The number of messages received.
    pub(super) fn count(&self) -> usize {
        self.got.borrow().len()
    }
}

/// Everything that happened in one simulation.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    sent: RefCell<Vec<Sent>>,
    by_payload: RefCell<HashMap<Vec<u8>, usize>>,
    readers: RefCell<Vec<std::rc::Rc<Reader>>>,
    faults: RefCell<Vec<String>>,
    clock: Cell<u64>,
    /// How many gateways have ended.
    life: Cell<usize>,
    is_closing: Cell<bool>,
    /// The first numbers of the groups of readers.
    groups: RefCell<Vec<usize>>,
}

/// More readers of a kind than a group has.
const GROUP: usize = 4;

/// A topic's retained message as the gateway has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Latest {
    /// It is this, or there is none.
    Kept(Option<Vec<u8>>),
    /// Subscribers were sent something newer that could not be kept.
    Behind,
}

/// Every topic.
pub(super) fn topics() -> impl Iterator<Item = String> {
    ["value", "event"].into_iter().flat_map(|kind| (0..TOPICS).map(move |number| format!("{kind}/{number}/t")))
}

/// Any topic; `value` topics are retained.
pub(super) fn topic(random: &Random, value: bool) -> String {
    let kind = if value { "value" } else { "event" };
    format!("{kind}/{}/t", random.below(TOPICS))
}

/// A filter that matches some topics.
pub(super) fn filter(random: &Random) -> String {
    let one = random.below(TOPICS);
    (*random.pick(&["value/#", "event/#", "#", "+/+/t", "value/+/t", "event/+/t"]))
        .to_owned()
        .replace("value/+/t", &if random.percent(50) { format!("value/{one}/t") } else { "value/+/t".to_owned() })
}

fn messages(got: &[Got]) -> impl Iterator<Item = usize> {
    got.iter().filter_map(|got| match got {
        Got::Message(id) => Some(*id),
        Got::Cleared(_) => None,
    })
}

fn matches(filter: &str, topic: &str) -> bool {
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(a), Some(b)) if a == b => {}
            _ => return false,
        }
    }
}

impl Ledger {
    fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// A new message about to be sent, with a payload that no other has. Sizes lie around the gateway's constants.
    pub(super) fn publish(&self, publisher: usize, qos: u8, size_max: usize, random: &Random) -> usize {
        let value = random.percent(60);
        let id = self.sent.borrow().len();
        let size = match random.below(20) {
            0 => (16 << 10) - 1 + random.below(3),
            1 => (64 << 10) - 1 + random.below(3),
            2 => 100_000,
            3..6 => 1000,
            _ => 20,
        };
        let clears = value && random.percent(8);
        let mut payload = format!("{id}:").into_bytes();
        payload.resize(size.min(size_max).max(payload.len()), b'.');
        if clears {
            payload.clear();
        }
        let sent = Sent {
            publisher,
            topic: topic(random, value),
            qos,
            retain: value,
            payload: payload.clone(),
            fate: Fate::Unknown,
            at: self.tick(),
            settled: None,
            life: self.life.get(),
        };
        self.sent.borrow_mut().push(sent);
        if !clears {
            self.by_payload.borrow_mut().insert(payload, id);
        }
        id
    }

    pub(super) fn message(&self, id: usize) -> Sent {
        self.sent.borrow()[id].clone()
    }

    pub(super) fn settle(&self, id: usize, fate: Fate) {
        let sent = &mut self.sent.borrow_mut()[id];
        sent.fate = fate;
        sent.settled = Some(self.tick());
    }

    /// The first number of a group of readers: the one drawn, unless another group has it. A client of the same name
    /// would take the session of the other over ([MQTT-3.1.4-3]).
    pub(super) fn group(&self, drawn: usize) -> usize {
        let mut groups = self.groups.borrow_mut();
        let is_taken = |number: usize| groups.iter().any(|group| group.abs_diff(number) < GROUP);
        let free = (drawn..).step_by(GROUP).find(|number| !is_taken(*number)).unwrap();
        groups.push(free);
        free
    }

    /// The gateway shuts down: connections end from now on.
    pub(super) fn close(&self) {
        self.is_closing.set(true);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    /// The gateway is over and all its clients with it; another is about to start.
    pub(super) fn restart(&self) {
        self.readers.borrow().iter().for_each(|reader| reader.live.set(false));
        self.is_closing.set(false);
        self.life.set(self.life.get() + 1);
    }

    /// A connection ended that the gateway had no reason to end, but a shutdown.
    pub(super) fn cut(&self, text: String) {
        if !self.is_closing() {
            self.fault(text);
        }
    }

    /// A reader's connection ended; at a shutdown it has to have everything by now.
    pub(super) fn end(&self, reader: &Reader) {
        reader.live.set(self.is_closing());
        self.cut(format!("{} was cut", reader.name));
    }

    /// Notes a granted subscription.
    pub(super) fn subscribe(&self, name: String, filter: String, max_qos: u8, promise: Promise) -> std::rc::Rc<Reader> {
        let reader = std::rc::Rc::new(Reader {
            name,
            promise,
            filter,
            max_qos,
            granted: self.tick(),
            life: self.life.get(),
            live: Cell::new(true),
            away: Cell::new(false),
            told_of_gap: Cell::new(false),
            got: RefCell::default(),
        });
        self.readers.borrow_mut().push(std::rc::Rc::clone(&reader));
        reader
    }

    /// Notes a message that a reader received, and faults that show at once.
    pub(super) fn receive(&self, reader: &Reader, topic: &str, payload: &[u8]) {
        if payload.is_empty() {
            return reader.got.borrow_mut().push(Got::Cleared(topic.to_owned()));
        }
        let Some(id) = self.by_payload.borrow().get(payload).copied() else {
            let start = String::from_utf8_lossy(payload.get(..60).unwrap_or(payload)).into_owned();
            return self.fault(format!("{} got {start:?} on {topic}, which nobody published", reader.name));
        };
        let message = &self.sent.borrow()[id];
        if message.topic != topic || !matches(&reader.filter, topic) {
            let (name, filter) = (&reader.name, &reader.filter);
            self.fault(format!("{name} ({filter}) got message {id} of {} on {topic}", message.topic));
        }
        reader.got.borrow_mut().push(Got::Message(id));
    }

    /// Notes a message, or its first block (RFC 7959 §2.6), which begins with the number of the message.
    pub(super) fn receive_first(&self, reader: &Reader, topic: &str, block: &[u8]) {
        let number = block.split(|byte| *byte == b':').next().and_then(|digits| std::str::from_utf8(digits).ok());
        let whole = number.and_then(|digits| self.sent.borrow().get(digits.parse::<usize>().ok()?).cloned());
        match whole {
            Some(message) if message.payload.starts_with(block) => self.receive(reader, topic, &message.payload),
            _ => self.fault(format!("{} got {block:?} on {topic}", reader.name)),
        }
    }

    pub(super) fn fault(&self, text: String) {
        self.faults.borrow_mut().push(text);
    }

    /// The number of messages and of deliveries.
    pub(super) fn count(&self) -> (usize, usize) {
        let got = self.readers.borrow().iter().map(|reader| reader.count()).sum();
        (self.sent.borrow().len(), got)
    }
}
