//! Two clients, an endpoint, and a network between them that an enemy holds: a script of bytes says which datagrams are
//! lost, repeated, bent, cut, mixed and made up, when time passes, who sends what and who begins again.
//!
//! For every script this holds: nothing panics; an association belongs to the identity whose key made it; it carries
//! what that client sent, each record at most once; limits hold; and when the enemy lets go, a client that knows its
//! key gets a session and an answer.

mod claims;
pub(crate) mod toys;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use self::toys::platform;
use fogmux_dtls::{
    Association, CookieKey, Credentials, Endpoint, EndpointConfig, Inbox, Platform, Psk, Suite,
    client::{Client, ClientConfig, ClientEvent},
};

/// Datagrams remembered for repetition.
const OLD_MAX: usize = 64;
/// Datagrams under way; more are lost.
const QUEUE_MAX: usize = 64;

/// Two keys are known, and a certificate that belongs to the first; a third client tries a key that is not known, and
/// the certificate with another key than its own.
fn key_of(identity: &[u8]) -> Option<&'static [u8]> {
    match identity {
        b"one" => Some(b"the key of one"),
        b"two" => Some(b"the key of two"),
        _ => None,
    }
}

/// The identity and key of a client by its number; those of the third are wrong.
fn keys_of(number: usize) -> (&'static [u8], &'static [u8]) {
    match number {
        0 => (b"one", b"the key of one"),
        1 => (b"two", b"the key of two"),
        _ => (b"two", b"a guess"),
    }
}

/// A client, where it is, and what is on its way to it.
struct Party {
    number: usize,
    client: Client,
    address: SocketAddr,
    incoming: VecDeque<Vec<u8>>,
    /// Its session or handshake has ended.
    over: bool,
    sent: u32,
    received: HashSet<Vec<u8>>,
}

struct World {
    endpoint: Endpoint<SocketAddr>,
    parties: Vec<Party>,
    /// To the endpoint, from where.
    incoming: VecDeque<(SocketAddr, Vec<u8>)>,
    old: VecDeque<(SocketAddr, Vec<u8>)>,
    now: Duration,
    inbox: Inbox<SocketAddr>,
    /// The owner of each association, and the messages it has brought.
    owners: HashMap<Association, (Vec<u8>, HashSet<Vec<u8>>)>,
    last: Option<(SocketAddr, Association)>,
    /// The peer that sent data last.
    asked: Option<(SocketAddr, Association)>,
    answers: u32,
    ports: u16,
}

/// Plays a script; gives the number of associations that were made and of records that arrived before the enemy let go.
pub(crate) fn run(script: &[u8]) -> (usize, usize) {
    toys::reseed(0x9E37_79B9_7F4A_7C15);
    let mut world = World::new();
    let mut script = script.iter().copied();
    // The enemy comes while sessions are made, or when they are there.
    if script.next().is_some_and(|first| !first.is_multiple_of(4)) {
        world.settle();
    }
    while let Some(step) = script.next() {
        world.step(step, &mut script);
        world.look();
    }
    let made = (world.owners.len(), world.owners.values().map(|(_, seen)| seen.len()).sum());
    world.recovers();
    made
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

/// A client's configuration by `how`: both versions, the older or the newer; one of the suites of the older; with and
/// without a key exchange, an identifier, and a certificate instead of a key.
fn config(number: usize, how: u8) -> ClientConfig {
    let (identity, key) = keys_of(number);
    let by_certificate = how & 128 != 0 && number != 1;
    let mut config = if by_certificate {
        toys::by_certificate(number != 0)
    } else {
        let suites = [Suite::PskAes128Ccm8, Suite::PskAes128Gcm, Suite::EcdhePskAes128Ccm];
        let suites = suites.into_iter().cycle().skip(usize::from(how)).take(1).collect();
        ClientConfig { suites, ..ClientConfig::psk(identity, key) }
    };
    config.identifiers = how & 64 != 0;
    if how & 32 != 0 && !by_certificate {
        // A suite with a key exchange is not offered without a group.
        config.suites.iter_mut().for_each(|suite| *suite = suite_without_exchange(*suite));
        config.groups.clear();
    }
    match how / 3 % 3 {
        0 => {}
        1 => config.suites_13.clear(),
        _ => config.suites.clear(),
    }
    config
}

fn suite_without_exchange(suite: Suite) -> Suite {
    if suite == Suite::EcdhePskAes128Ccm { Suite::PskAes128Ccm8 } else { suite }
}

fn start(number: usize, how: u8, now: Duration) -> (Client, Vec<Vec<u8>>) {
    let mut out = Vec::new();
    let client = Client::start(config(number, how), platform(), now, &mut |bytes| out.push(bytes.to_vec()));
    (client.unwrap_or_else(|alert| panic!("a client does not start: {alert:?}")), out)
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            endpoint: toys::endpoint(toys::Keys(key_of)),
            parties: Vec::new(),
            incoming: VecDeque::new(),
            old: VecDeque::new(),
            now: Duration::ZERO,
            inbox: Inbox::default(),
            owners: HashMap::new(),
            last: None,
            asked: None,
            answers: 0,
            ports: 5000,
        };
        for number in 0..3 {
            let (client, out) = start(number, if number == 1 { 3 } else { 0 }, world.now);
            let address = world.port();
            let party = Party {
                number,
                client,
                address,
                incoming: VecDeque::new(),
                over: false,
                sent: 0,
                received: HashSet::new(),
            };
            world.parties.push(party);
            world.incoming.extend(out.into_iter().map(|datagram| (address, datagram)));
        }
        world
    }

    fn port(&mut self) -> SocketAddr {
        self.ports = self.ports.checked_add(1).unwrap_or(5000);
        address(self.ports)
    }

    fn step(&mut self, step: u8, script: &mut impl Iterator<Item = u8>) {
        let mut next = || script.next().unwrap_or(0);
        match step % 32 {
            // Most of the time the network does what it should.
            0..=9 => self.deliver(),
            10..=15 => (0..self.parties.len()).for_each(|at| self.hear(at)),
            16..=19 => self.send(next()),
            20 => drop(self.incoming.pop_front()),
            21 => self.incoming.rotate_left(usize::from(!self.incoming.is_empty())),
            22 => self.bend(next(), next()),
            23 => self.cut(next()),
            24 => self.repeat(next(), next()),
            25 => self.make_up(next(), &[next(), next(), next(), next()]),
            26 => self.wait(Duration::from_millis(1 << (next() % 18))),
            27 => self.answer(),
            28 => self.update(next()),
            29 => self.begin_again(next(), next()),
            30 => self.move_away(next()),
            _ => self.close(next()),
        }
    }

    /// The next datagram of the endpoint's.
    fn deliver(&mut self) {
        if let Some((from, datagram)) = self.incoming.pop_front() {
            self.arrive(from, &datagram);
            if self.old.len() == OLD_MAX {
                self.old.pop_front();
            }
            self.old.push_back((from, datagram));
        }
    }

    fn arrive(&mut self, from: SocketAddr, datagram: &[u8]) {
        let mut out = Vec::new();
        let mut send = |to, bytes: &[u8]| out.push((to, bytes.to_vec()));
        self.endpoint.handle(self.now, from, datagram, &mut self.inbox, &mut send);
        self.carry(out);
    }

    fn carry(&mut self, out: Vec<(SocketAddr, Vec<u8>)>) {
        for (to, datagram) in out {
            let party = self.parties.iter_mut().find(|party| party.address == to);
            if let Some(party) = party.filter(|party| party.incoming.len() < QUEUE_MAX) {
                party.incoming.push_back(datagram);
            }
        }
    }

    fn hear(&mut self, at: usize) {
        let Some(party) = self.parties.get_mut(at) else { return };
        let Some(datagram) = party.incoming.pop_front() else { return };
        let mut out = Vec::new();
        let events = party.client.handle(self.now, &datagram, &mut |bytes| out.push(bytes.to_vec()));
        for event in events {
            match event {
                ClientEvent::Established(_) => assert_ne!(party.number, 2, "a guess made a session"),
                ClientEvent::Data(data) => {
                    assert!(data.starts_with(b"answer "), "{data:?} came from nobody");
                    assert!(party.received.insert(data.clone()), "{data:?} came twice");
                }
                ClientEvent::Ended(_) => party.over = true,
            }
        }
        let from = party.address;
        self.depart(from, out);
    }

    fn depart(&mut self, from: SocketAddr, out: Vec<Vec<u8>>) {
        for datagram in out {
            if self.incoming.len() < QUEUE_MAX {
                self.incoming.push_back((from, datagram));
            }
        }
    }

    fn bend(&mut self, place: u8, with: u8) {
        if let Some((_, datagram)) = self.incoming.front_mut() {
            let at = usize::from(place) % datagram.len().max(1);
            if let Some(byte) = datagram.get_mut(at) {
                *byte ^= with;
            }
        }
    }

    fn cut(&mut self, place: u8) {
        if let Some((_, datagram)) = self.incoming.front_mut() {
            datagram.truncate(usize::from(place));
        }
    }

    /// An old datagram once more, maybe from elsewhere, maybe behind another in one datagram.
    fn repeat(&mut self, which: u8, how: u8) {
        let Some((from, datagram)) = self.old.get(usize::from(which) % OLD_MAX).cloned() else { return };
        let other = self.parties.get(usize::from(how) % 4).map_or(from, |party| party.address);
        match how / 4 % 3 {
            0 => self.arrive(from, &datagram),
            1 => self.arrive(other, &datagram),
            _ => {
                let Some((_, before)) = self.old.get(usize::from(how) % OLD_MAX) else { return };
                let both = [before.as_slice(), &datagram].concat();
                self.arrive(other, &both);
            }
        }
    }

    /// A record that nobody sent: right in its header, wrong in what it holds.
    fn make_up(&mut self, who: u8, with: &[u8; 4]) {
        let from = self.parties.get(usize::from(who) % 4).map_or(address(4999), |party| party.address);
        let [kind, epoch, number, length] = *with;
        let body = vec![number; usize::from(length)];
        let mut datagram = vec![20 + kind % 8, 254, 253, 0, epoch % 4, 0, 0, 0, 0, 0, number];
        datagram.extend(u16::from(length).to_be_bytes());
        datagram.extend(body);
        self.arrive(from, &datagram);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        for at in 0..self.parties.len() {
            let Some(party) = self.parties.get_mut(at) else { return };
            let mut out = Vec::new();
            party.client.handle_timeout(self.now, &mut |bytes| out.push(bytes.to_vec()));
            let from = party.address;
            self.depart(from, out);
        }
        let mut out = Vec::new();
        self.endpoint.handle_timeout(self.now, &mut self.inbox, &mut |to, bytes| out.push((to, bytes.to_vec())));
        self.carry(out);
    }

    fn send(&mut self, who: u8) {
        let at = usize::from(who) % self.parties.len();
        let Some(party) = self.parties.get_mut(at) else { return };
        party.sent += 1;
        let data = [keys_of(party.number).0, format!(" {}", party.sent).as_bytes()].concat();
        let mut out = Vec::new();
        party.client.send(&data, &mut |bytes| out.push(bytes.to_vec()));
        let from = party.address;
        self.depart(from, out);
    }

    fn answer(&mut self) {
        let Some((peer, association)) = self.last else { return };
        self.answers += 1;
        let data = format!("answer {}", self.answers);
        let mut out = Vec::new();
        let mut send = |to, bytes: &[u8]| out.push((to, bytes.to_vec()));
        let _ = self.endpoint.send(self.now, peer, association, data.as_bytes(), &mut send);
        self.carry(out);
    }

    /// A client changes its keys.
    fn update(&mut self, who: u8) {
        let at = usize::from(who) % self.parties.len();
        let Some(party) = self.parties.get_mut(at) else { return };
        let mut out = Vec::new();
        party.client.update_keys(self.now, who & 128 != 0, &mut |bytes| out.push(bytes.to_vec()));
        let from = party.address;
        self.depart(from, out);
    }

    /// A client forgets everything and starts again where it was, as a device does that has rebooted.
    fn begin_again(&mut self, who: u8, how: u8) {
        let at = usize::from(who) % self.parties.len();
        let Some(party) = self.parties.get_mut(at) else { return };
        let (client, out) = start(party.number, how, self.now);
        (party.client, party.over) = (client, false);
        let from = party.address;
        self.depart(from, out);
    }

    /// A client's datagrams come from another port from now on.
    fn move_away(&mut self, who: u8) {
        let at = usize::from(who) % self.parties.len();
        let address = self.port();
        if let Some(party) = self.parties.get_mut(at) {
            party.address = address;
        }
    }

    fn close(&mut self, who: u8) {
        if let Some((peer, association)) = self.last.filter(|_| who.is_multiple_of(2)) {
            let mut out = Vec::new();
            let mut send = |to, bytes: &[u8]| out.push((to, bytes.to_vec()));
            self.endpoint.close(peer, association, &mut self.inbox, &mut send);
            return self.carry(out);
        }
        let at = usize::from(who / 2) % self.parties.len();
        let Some(party) = self.parties.get_mut(at) else { return };
        let mut out = Vec::new();
        party.client.close(&mut |bytes| out.push(bytes.to_vec()));
        let from = party.address;
        self.depart(from, out);
    }
}
