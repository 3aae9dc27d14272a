use super::*;
use crate::message::{CLASS_IN, Data, Flags, Kind, Message, Question, Record};
use crate::name::Name;

mod answers;
mod claims;
mod link;

const START: Timestamp = Timestamp::from_millis(1_000_000);
const ETH: LinkId = LinkId { interface: 2, is_ipv4: true };

fn name(dotted: &str) -> Name {
    Name::new(dotted.split('.').map(str::as_bytes)).unwrap()
}

fn service(kind: &'static str, port: u16) -> Service {
    Service { kind: [kind, "_tcp"], qualifier: None, port, txt: vec![] }
}

fn offer(address: &str) -> Offer {
    Offer { addresses: vec![address.parse().unwrap()], services: vec![service("_mqtt", 1883), service("_http", 8080)] }
}

fn peer(last: u8, port: u16) -> SocketAddr {
    ([192, 0, 2, last], port).into()
}

/// A responder and its time.
struct Bench {
    responder: Responder,
    now: Timestamp,
}

impl Bench {
    /// One that probes on a link.
    fn new() -> Self {
        let mut responder = Responder::new("pi", "pi-host", 7);
        responder.set_link(START, ETH, offer("192.0.2.10"));
        Self { responder, now: START }
    }

    /// One whose names are announced, a day ago.
    fn established() -> Self {
        let mut bench = Self::new();
        bench.run(Duration::from_secs(5));
        assert!(bench.responder.is_established());
        bench.now = bench.now + Duration::from_secs(24 * 3600);
        bench
    }

    /// Messages that are sent within a time.
    fn run(&mut self, time: Duration) -> Vec<(Timestamp, Transmit)> {
        let end = self.now + time;
        let mut sent = Vec::new();
        while let Some(at) = self.responder.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            while let Some(transmit) = self.responder.poll_transmit(self.now) {
                sent.push((self.now, transmit));
            }
        }
        self.now = end;
        sent
    }

    /// The messages within a time, with their delays in milliseconds.
    fn said(&mut self, time: Duration) -> Vec<(u128, Option<SocketAddr>, Message)> {
        let began = self.now;
        let sent = self.run(time);
        sent.into_iter().map(|(at, sent)| ((at - began).as_millis(), sent.to, read(&sent.bytes))).collect()
    }

    fn hear(&mut self, from: SocketAddr, message: &Message) -> Verdict {
        self.responder.handle(self.now, ETH, from, &message.encode(9000).unwrap())
    }

    fn ask(&mut self, questions: &[Question]) -> Verdict {
        self.hear(peer(77, PORT), &Message { questions: questions.to_vec(), ..Message::default() })
    }
}

fn read(bytes: &[u8]) -> Message {
    Message::decode(bytes).unwrap()
}

fn question(dotted: &str, kind: Kind) -> Question {
    Question { name: name(dotted), kind, class: CLASS_IN, unicast: false }
}

fn record(dotted: &str, ttl: u32, data: Data) -> Record {
    Record { name: name(dotted), class: CLASS_IN, flush: false, ttl, data }
}

fn response(answers: Vec<Record>) -> Message {
    Message { flags: Flags::RESPONSE, answers, ..Message::default() }
}

fn query(questions: Vec<Question>, answers: Vec<Record>) -> Message {
    Message { questions, answers, ..Message::default() }
}

/// The address of another host under a name.
fn theirs(dotted: &str) -> Record {
    record(dotted, 120, Data::A([192, 0, 2, 99].into()))
}

fn kinds(records: &[Record]) -> Vec<(String, Kind)> {
    records.iter().map(|record| (record.name.to_string(), record.data.kind())).collect()
}
