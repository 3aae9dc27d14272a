//! Convergence: whatever is lost, delayed, reset or repeated, a live observer's last notification is the newest value.

use std::collections::BTreeMap;

use fogmux_coap::server::Observed;

use super::lossy::Dice;
use super::*;

/// Datagrams under way to an observer of some topics, and what it has seen.
struct Observer {
    relation: RelationId,
    many: bool,
    /// Topics that the application has not been able to tell, in their order.
    pending: Vec<u8>,
    seen: BTreeMap<u8, u64>,
    gone: bool,
}

struct World {
    server: Server<SocketAddr>,
    now: Timestamp,
    dice: Dice,
    values: BTreeMap<u8, u64>,
    observers: BTreeMap<SocketAddr, Observer>,
    /// With the time of arrival.
    under_way: Vec<(Timestamp, SocketAddr, Vec<u8>)>,
    /// Of a hundred datagrams, how many are lost; Non-confirmables of filters never are, for nothing makes that good.
    loss: u64,
    confirmable: bool,
}

const TOPICS: u8 = 12;

impl World {
    fn new(seed: u64, loss: u64, confirmable: bool) -> Self {
        let config = ServerConfig { amplification: fogmux_coap::server::Amplification::Off, ..ServerConfig::default() };
        let mut world = Self {
            server: Server::new(config, seed, Box::new(|_: &[u8]| [0; 8])),
            now: Timestamp::from_millis(1_000_000),
            dice: Dice(seed),
            values: (0..TOPICS).map(|topic| (topic, 0)).collect(),
            observers: BTreeMap::new(),
            under_way: Vec::new(),
            loss,
            confirmable,
        };
        for number in 0..6_u16 {
            let host = if number % 2 == 0 { [127, 0, 0, 1] } else { [198, 51, 100, 7] };
            world.register(SocketAddr::from((host, 40_000 + number)), number % 3 == 0);
        }
        world
    }

    fn register(&mut self, from: SocketAddr, many: bool) {
        let datagram = compose(Type::Confirmable, Code::GET, 1, &[REGISTER, PATH], &[]);
        let mut out = Outbox::default();
        let incoming = self.server.handle(self.now, from, &datagram, &mut out).unwrap();
        let mut ticket = incoming.ticket;
        let observed = if many { Observed::Many } else { Observed::One };
        let relation = self.server.observe_as(self.now, &mut ticket, observed).unwrap().relation();
        self.server.respond(self.now, ticket, &Response::new(Code::CONTENT), &mut out);
        let observer = Observer { relation, many, pending: Vec::new(), seen: BTreeMap::new(), gone: false };
        self.observers.insert(from, observer);
    }

    /// The topic that an observer of one topic follows is the first.
    fn update(&mut self, out: &mut Outbox<SocketAddr>) {
        let topic = u8::try_from(self.dice.roll(u64::from(TOPICS))).unwrap();
        *self.values.get_mut(&topic).unwrap() += 1;
        for observer in self.observers.values_mut().filter(|observer| observer.many || topic == 0) {
            let waits = observer.many && !observer.pending.is_empty();
            let value = self.values[&topic];
            let told =
                !waits && tell(&mut self.server, self.now, observer.relation, topic, value, self.confirmable, out);
            if !told && !observer.pending.contains(&topic) {
                observer.pending.push(topic);
            }
        }
    }

    fn attend(&mut self, out: &mut Outbox<SocketAddr>) {
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::ObserverGone { relation, .. } => {
                    let observer = self.observers.values_mut().find(|observer| observer.relation == relation);
                    observer.unwrap().gone = true;
                }
                Event::Ready { relation } => {
                    let observer = self.observers.values_mut().find(|observer| observer.relation == relation).unwrap();
                    if observer.pending.is_empty() && !observer.many {
                        observer.pending.push(0);
                    }
                    while let Some(topic) = observer.pending.first().copied() {
                        if !tell(
                            &mut self.server,
                            self.now,
                            relation,
                            topic,
                            self.values[&topic],
                            self.confirmable,
                            out,
                        ) {
                            break;
                        }
                        observer.pending.remove(0);
                    }
                }
            }
        }
        for observer in self.observers.values().filter(|observer| !observer.gone && !observer.pending.is_empty()) {
            assert!(!self.server.is_forgotten(self.now, observer.relation), "an observer would wait for ever");
        }
    }

    fn send(&mut self, out: &Outbox<SocketAddr>) {
        for (to, datagram) in out.iter() {
            let kind = Message::decode(datagram).unwrap().kind;
            let spared = kind == Type::NonConfirmable && self.observers[&to].many;
            if !spared && self.dice.roll(100) < self.loss {
                continue;
            }
            let at = self.now + Duration::from_millis(self.dice.roll(120));
            self.under_way.push((at, to, datagram.to_vec()));
        }
    }

    /// Notes a received message, and acknowledges it unless the acknowledgement is to be lost.
    fn deliver(&mut self) {
        let now = self.now;
        let (mut arrived, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.under_way).into_iter().partition(|(at, ..)| *at <= now);
        self.under_way = later;
        arrived.sort_by_key(|(at, ..)| *at);
        for (_, at, datagram) in arrived {
            let message = Message::decode(&datagram).unwrap();
            let observer = self.observers.get_mut(&at).unwrap();
            if let Some((topic, value)) = message.payload().split_first() {
                let value = u64::from_be_bytes(value.try_into().unwrap());
                let newest = observer.seen.entry(*topic).or_default();
                *newest = value.max(*newest);
            }
            if message.kind == Type::Confirmable && self.dice.roll(100) >= self.loss {
                let resets = self.dice.roll(300) == 0;
                let kind = if resets { Type::Reset } else { Type::Acknowledgement };
                let reply = compose(kind, Code::EMPTY, message.message_id, &[], &[]);
                let mut out = Outbox::default();
                self.server.handle(self.now, at, &reply, &mut out);
                self.attend(&mut out);
                self.send(&out);
            }
        }
    }

    fn step(&mut self, updates: u64) {
        let mut out = Outbox::default();
        for _ in 0..updates {
            self.update(&mut out);
        }
        if self.server.next_timeout().is_some_and(|at| at <= self.now) {
            self.server.handle_timeout(self.now, &mut out);
        }
        self.attend(&mut out);
        self.send(&out);
        self.deliver();
    }

    fn run(&mut self) {
        for _ in 0..300 {
            let updates = if self.dice.roll(4) == 0 { self.dice.roll(30) } else { 0 };
            self.step(updates);
            self.now = self.now + Duration::from_millis(self.dice.roll(200));
        }
        // Quiet, for longer than the interval in which a Confirmable comes anyway and all of its repeats.
        for _ in 0..1_500 {
            self.step(0);
            self.now = self.now + Duration::from_secs(1);
        }
    }
}

fn tell(
    server: &mut Server<SocketAddr>,
    now: Timestamp,
    relation: RelationId,
    topic: u8,
    value: u64,
    confirmable: bool,
    out: &mut Outbox<SocketAddr>,
) -> bool {
    let payload: Vec<u8> = [topic].into_iter().chain(value.to_be_bytes()).collect();
    let response = Response { payload: Payload::Slice(&payload), ..Response::new(Code::CONTENT) };
    server.notify(now, relation, &Notification { response, confirmable, encoded: None, event: false }, out)
        != Notified::Later
}

#[test]
fn rfc_7641_s1_3_every_live_observer_ends_on_the_newest_value_of_each_topic() {
    let mut lived = 0;
    for seed in 0..300 {
        let mut world = World::new(seed, [0, 5, 20, 30][usize::try_from(seed % 4).unwrap()], seed % 3 == 0);
        world.run();
        for (at, observer) in world.observers.iter().filter(|(_, observer)| !observer.gone) {
            lived += 1;
            let topics = if observer.many { TOPICS } else { 1 };
            let expected: BTreeMap<u8, u64> = world
                .values
                .iter()
                .filter(|(topic, value)| **topic < topics && **value > 0)
                .map(|(t, v)| (*t, *v))
                .collect();
            assert_eq!(observer.seen, expected, "seed {seed}, {at}, many: {}", observer.many);
        }
        assert_eq!(world.server.observers(), world.observers.values().filter(|observer| !observer.gone).count());
    }
    assert!(lived > 600, "{lived}");
}
