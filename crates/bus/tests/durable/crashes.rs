//! Clients that publish to each other through a gateway that crashes: what was acknowledged is delivered, at QoS 2
//! once.
//!
//! The gateway here is the least that keeps the order of ADR 0042: it sends, and acknowledges, what the store has. With
//! each of its waits taken away in turn, a run must fail, so that none is there for nothing.

mod client;
mod gateway;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use client::Client;
use fogmux_bus::durable::MemoryStore;
use gateway::Gateway;

const CLIENTS: usize = 3;

/// A packet between a client and the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packet {
    Publish { id: u16, exactly_once: bool, dup: bool, message: u64 },
    Puback(u16),
    Pubrec(u16),
    Pubrel(u16),
    Pubcomp(u16),
}

/// The packets that are under way on one connection.
#[derive(Debug, Default)]
struct Wire {
    to_gateway: VecDeque<Packet>,
    to_client: VecDeque<Packet>,
}

/// The order of ADR 0042, of which a wait can be left out.
#[derive(Clone, Copy, Debug)]
struct Rules {
    connack_waits: bool,
    publish_waits: bool,
    pubrec_waits: bool,
    pubrel_waits: bool,
    pubcomp_waits: bool,
    puback_waits: bool,
    /// An identifier that was received is in the batch of its deliveries.
    one_batch: bool,
    /// The store holds what everybody was sent at once.
    holds: bool,
    /// A batch that is not held is appended behind those of the publisher that are.
    behind: bool,
}

const ALL: Rules = Rules {
    connack_waits: true,
    publish_waits: true,
    pubrec_waits: true,
    pubrel_waits: true,
    pubcomp_waits: true,
    puback_waits: true,
    one_batch: true,
    holds: true,
    behind: true,
};

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}

struct World {
    rules: Rules,
    random: Random,
    gateway: Gateway,
    clients: Vec<Client>,
    wires: Vec<Option<Wire>>,
    /// The publisher of each message, and whether it was published with QoS 2.
    published: BTreeMap<u64, (usize, bool)>,
}

impl World {
    fn new(seed: u64, rules: Rules) -> Self {
        let store = MemoryStore::default();
        let mut gateway = Gateway::start(store, rules);
        (0..CLIENTS).for_each(|who| gateway.subscribe(who));
        gateway.store.commit(usize::MAX);
        Self {
            rules,
            random: Random(seed),
            gateway,
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            wires: (0..CLIENTS).map(|_| None).collect(),
            published: BTreeMap::new(),
        }
    }

    fn connect(&mut self, who: usize) {
        if self.wires[who].is_none() {
            let mut wire = Wire::default();
            self.clients[who].resume(&mut wire.to_gateway);
            self.gateway.connect(who);
            self.wires[who] = Some(wire);
        }
    }

    fn disconnect(&mut self, who: usize) {
        if self.wires[who].take().is_some() {
            self.gateway.disconnect(who);
        }
    }

    fn crash(&mut self) {
        let cut = self.random.below(self.gateway.store.waiting() + 1);
        self.gateway = Gateway::start(self.gateway.store.crashed(cut), self.rules);
        self.wires.iter_mut().for_each(|wire| *wire = None);
    }

    /// One packet to the gateway, and one to the client.
    fn carry(&mut self, who: usize, to_gateway: bool) -> Result<bool, String> {
        let Some(wire) = &mut self.wires[who] else { return Ok(false) };
        if to_gateway {
            let Some(packet) = wire.to_gateway.pop_front() else { return Ok(false) };
            self.gateway.handle(who, packet)?;
        } else {
            let Some(packet) = wire.to_client.pop_front() else { return Ok(false) };
            self.clients[who].handle(packet, &mut wire.to_gateway)?;
        }
        Ok(true)
    }

    fn pump(&mut self) -> bool {
        let mut any = false;
        for (who, wire) in self.wires.iter_mut().enumerate() {
            let Some(wire) = wire else { continue };
            any |= self.gateway.send(who, &mut wire.to_client);
        }
        any
    }

    fn step(&mut self) -> Result<(), String> {
        let who = self.random.below(CLIENTS);
        match self.random.below(40) {
            0..8 => {
                if let Some(wire) = &mut self.wires[who] {
                    let (message, exactly_once) = (self.published.len() as u64, self.random.below(3) > 0);
                    self.published.insert(message, (who, exactly_once));
                    self.clients[who].publish(message, exactly_once, &mut wire.to_gateway);
                }
            }
            8..16 => drop(self.carry(who, true)?),
            16..24 => drop(self.carry(who, false)?),
            24..30 => drop(self.pump()),
            30..34 => {
                let count = self.random.below(4);
                if self.random.below(3) == 0 {
                    self.gateway.store.release(count);
                }
                self.gateway.store.commit(count);
            }
            34 => self.disconnect(who),
            35..39 => self.connect(who),
            _ => self.crash(),
        }
        Ok(())
    }

    /// Runs until nothing is left to do.
    fn settle(&mut self) -> Result<(), String> {
        (0..CLIENTS).for_each(|who| self.connect(who));
        loop {
            self.gateway.store.release(usize::MAX);
            self.gateway.store.commit(usize::MAX);
            let mut any = self.pump();
            for who in 0..CLIENTS {
                while self.carry(who, true)? || self.carry(who, false)? {
                    any = true;
                }
            }
            if !any && self.gateway.store.waiting() == 0 {
                return Ok(());
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        for (who, client) in self.clients.iter().enumerate() {
            if client.is_busy() {
                return Err(format!("client {who} waits for ever: {client:?}"));
            }
            for (message, (from, exactly_once)) in &self.published {
                let times = client.got.iter().filter(|got| *got == message).count();
                let once = *exactly_once && gateway::takes_exactly_once(who);
                if (times > 0) != gateway::receives(who, *message) || (once && times > 1) {
                    return Err(format!("client {who} got message {message} of client {from} {times} times"));
                }
            }
            // Those of QoS 2 of one publisher are in order, and so are the first copies of those of QoS 1.
            for from in 0..CLIENTS {
                let mut seen = BTreeSet::new();
                let is_first = |message: &&u64| self.published[*message] == (from, false) && seen.insert(**message);
                if !client.got.iter().filter(is_first).is_sorted() {
                    return Err(format!("client {who} got first copies of client {from} out of order"));
                }
                let is_of = |message: &&u64| self.published.get(message) == Some(&(from, true));
                if gateway::takes_exactly_once(who) && !client.got.iter().filter(is_of).is_sorted() {
                    return Err(format!("client {who} got messages of client {from} out of order"));
                }
            }
        }
        // A session and its subscription each: nothing else is left.
        let records = self.gateway.store.len();
        if records == 2 * CLIENTS { Ok(()) } else { Err(format!("{records} records are left")) }
    }
}

fn run(seed: u64, rules: Rules) -> Result<(), String> {
    let mut world = World::new(seed, rules);
    for _ in 0..400 {
        world.step()?;
    }
    world.settle()?;
    world.check()
}

#[test]
fn s4_3_what_was_acknowledged_is_delivered_and_at_qos_2_once() {
    for seed in 0..400 {
        let rules = Rules { holds: seed % 2 == 0, ..ALL };
        run(seed, rules).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn each_wait_is_needed() {
    let without = [
        ("CONNACK waits", Rules { connack_waits: false, ..ALL }),
        ("PUBLISH of QoS 2 waits", Rules { publish_waits: false, ..ALL }),
        ("PUBREC waits", Rules { pubrec_waits: false, ..ALL }),
        ("PUBREL waits", Rules { pubrel_waits: false, ..ALL }),
        ("PUBCOMP waits", Rules { pubcomp_waits: false, ..ALL }),
        ("PUBACK waits", Rules { puback_waits: false, ..ALL }),
        ("what is held is not overtaken", Rules { behind: false, ..ALL }),
        ("one batch", Rules { one_batch: false, ..ALL }),
    ];
    for (what, rules) in without {
        let failed = (0..1_000).find(|seed| run(*seed, rules).is_err());
        assert!(failed.is_some(), "{what}: no run fails without it");
    }
}
