//! CoAP clients of the simulation over datagrams: PUT and POST, and observers of a topic or of all that match a filter.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use fogmux_coap::{
    Call, Class, Client, ClientConfig, ClientEvent, Code, Outbox,
    client::{Answer, CallFailed},
};
use tokio::time::sleep;

use super::{
    ledger::{Fate, Ledger, Promise, Reader},
    network::Socket,
    random::Random,
    world::World,
};

/// A few blocks of 1024 bytes (RFC 7959 §2.2), each of which may have to be sent several times.
const PAYLOAD_BYTES_MAX: usize = 4_000;

/// A client's end.
struct Device {
    world: Rc<World>,
    socket: Socket,
    client: Client,
    out: Outbox<()>,
}

impl Device {
    fn new(world: &Rc<World>, random: &Random) -> Self {
        Self {
            world: Rc::clone(world),
            socket: world.network.socket(random),
            client: Client::new(ClientConfig::default(), random.below(usize::MAX) as u64),
            out: Outbox::default(),
        }
    }

    fn now(&self) -> fogmux_coap::Timestamp {
        fogmux_coap::Timestamp::from_millis(self.world.now().as_millis())
    }

    fn flush(&mut self) {
        self.out.iter().for_each(|((), datagram)| self.socket.send(datagram));
        self.out.clear();
    }

    fn start(&mut self, call: Call) {
        let now = self.now();
        self.client.request(now, call, &mut self.out).unwrap();
        self.flush();
    }

    async fn event(&mut self) -> ClientEvent {
        loop {
            if let Some(event) = self.client.poll_event() {
                return event;
            }
            let due = self.client.next_timeout().map(|at| at.since(self.now()));
            let timeout = sleep(due.unwrap_or(Duration::from_secs(86_400)));
            tokio::select! {
                biased;
                datagram = self.socket.receive() => {
                    let now = self.now();
                    self.client.handle(now, &datagram, &mut self.out);
                }
                () = timeout => {
                    let now = self.now();
                    self.client.handle_timeout(now, &mut self.out);
                }
            }
            self.flush();
        }
    }
}

/// Publishes `count` messages, one after the other.
pub(super) async fn publish(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize, count: usize) {
    let mut device = Device::new(&world, &random);
    for _ in 0..count {
        if random.percent(20) {
            sleep(Duration::from_millis(random.below(100) as u64)).await;
        }
        let id = ledger.publish(number, 1, PAYLOAD_BYTES_MAX, &random);
        let message = ledger.message(id);
        let method = match message.retain {
            true if message.payload.is_empty() => Code::DELETE,
            true => Code::PUT,
            false => Code::POST,
        };
        let path = format!("/ps/{}", message.topic);
        device.start(Call { payload: Bytes::from(message.payload), ..Call::new(method, &path) });
        match device.event().await {
            ClientEvent::Answered { answer, .. } => match answer.code.class() {
                Class::Success => ledger.settle(id, Fate::Accepted),
                Class::ServerError => ledger.settle(id, Fate::Refused),
                Class::ClientError | Class::Empty | Class::Request | Class::Signal | Class::Reserved => {
                    ledger.fault(format!("{method:?} was answered with {:?}", answer.code));
                }
            },
            ClientEvent::Failed { reason, .. } => {
                return ledger.cut(format!("{method:?} of {number} failed: {reason}"));
            }
            ClientEvent::Notified { .. } => ledger.fault(format!("{number} observes nothing and was notified")),
        }
    }
}

/// The target of an observation.
enum Reach {
    Topic(String),
    Filter(String),
}

impl Reach {
    fn random(random: &Random) -> Self {
        if random.percent(50) {
            Self::Topic(super::ledger::topic(random, true))
        } else {
            Self::Filter(super::ledger::filter(random))
        }
    }

    fn call(&self, queries: &[String]) -> Call {
        let (mut call, filter) = match self {
            Self::Topic(topic) => (Call::new(Code::GET, &format!("/ps/{topic}")), None),
            Self::Filter(filter) => (Call::new(Code::FETCH, "/ps"), Some(format!("filter={filter}"))),
        };
        call.observe = true;
        call.queries = queries.iter().cloned().chain(filter).collect();
        call
    }
}

/// Observes a topic or a filter to the end of the simulation.
pub(super) async fn observe(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize) {
    let reach = Reach::random(&random);
    let mut device = Device::new(&world, &random);
    let queries: Vec<_> = random.percent(50).then(|| "qos=1".to_owned()).into_iter().collect();
    device.start(reach.call(&queries));
    let (Reach::Topic(filter) | Reach::Filter(filter)) = &reach;
    let name = format!("datagram-observer-{number} ({queries:?}, {})", device.socket.path());
    let confirmed = matches!(reach, Reach::Filter(_)) && !device.socket.is_steady();
    let promise = if confirmed { Promise::LatestConfirmed } else { Promise::Latest };
    let reader = ledger.subscribe(name, filter.clone(), u8::from(!queries.is_empty()), promise);
    let pauses = *random.pick(&[0, 2, 30]);
    loop {
        if random.percent(pauses) && !ledger.is_closing() {
            sleep(Duration::from_millis(1 + random.below(400) as u64)).await;
        }
        let again = match device.event().await {
            ClientEvent::Answered { answer, observed, .. } => {
                receive(&ledger, &reader, &reach, &answer);
                !observed
            }
            ClientEvent::Notified { answer, .. } => {
                receive(&ledger, &reader, &reach, &answer);
                !answer.code.is_success()
            }
            // The value changed more than once while its blocks were fetched.
            ClientEvent::Failed { reason: CallFailed::Blocks, .. } => true,
            ClientEvent::Failed { reason, .. } => {
                return ledger.cut(format!("{}: {reason}", reader.name));
            }
        };
        if again {
            sleep(Duration::from_millis(100)).await;
            device.start(reach.call(&queries));
        }
    }
}

fn receive(ledger: &Ledger, reader: &Reader, reach: &Reach, answer: &Answer) {
    match (reach, answer.code.class()) {
        // An empty answer begins an observation of a topic without a value; of a filter, the first answer is empty.
        (Reach::Filter(_), Class::Success) if answer.location.is_empty() => {}
        (Reach::Filter(_), Class::Success) => {
            ledger.receive(reader, &answer.location[1..].join("/"), &answer.payload);
        }
        (Reach::Topic(topic), Class::Success) => ledger.receive(reader, topic, &answer.payload),
        (Reach::Topic(topic), Class::ClientError) if answer.code == Code::NOT_FOUND => {
            ledger.receive(reader, topic, b"");
        }
        // More than may wait has come; or the gateway shuts down.
        (_, Class::ServerError) => {}
        (_, _) => ledger.fault(format!("{} got an answer of code {:?}", reader.name, answer.code)),
    }
}
