//! Client and server over a network that loses, repeats and reorders.

use bytes::Bytes;
use fogmux_coap::{Call, Client, ClientConfig, ClientEvent};

use super::*;

/// Numbers that look random.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A network that loses one datagram in five and repeats one in ten.
struct Network {
    dice: Dice,
    to_server: Vec<(Timestamp, Vec<u8>)>,
    to_client: Vec<(Timestamp, Vec<u8>)>,
}

impl Network {
    fn carry(&mut self, now: Timestamp, datagram: &[u8], to_server: bool) {
        for _ in 0..1 + u64::from(self.dice.roll(10) == 0) {
            if self.dice.roll(5) == 0 {
                continue;
            }
            let at = now + Duration::from_millis(self.dice.roll(200));
            let queue = if to_server { &mut self.to_server } else { &mut self.to_client };
            queue.push((at, datagram.to_vec()));
        }
    }
}

fn due(queue: &mut Vec<(Timestamp, Vec<u8>)>, now: Timestamp) -> Vec<Vec<u8>> {
    let (due, later) = std::mem::take(queue).into_iter().partition(|(at, _)| *at <= now);
    *queue = later;
    let mut due: Vec<(Timestamp, Vec<u8>)> = due;
    due.sort_by_key(|(at, _)| *at);
    due.into_iter().map(|(_, datagram)| datagram).collect()
}

/// Runs until the client has something to tell, or `limit` is over.
fn run(bench: &mut Bench, client: &mut Client, network: &mut Network, limit: Duration) -> Option<ClientEvent> {
    let end = bench.now + limit;
    while bench.now < end {
        bench.now = bench.now + Duration::from_millis(10);
        let mut out = Outbox::default();
        for datagram in due(&mut network.to_client, bench.now) {
            client.handle(bench.now, &datagram, &mut out);
        }
        client.handle_timeout(bench.now, &mut out);
        out.iter().for_each(|(_, datagram)| network.carry(bench.now, datagram, true));
        for datagram in due(&mut network.to_server, bench.now) {
            for sent in bench.raw(&datagram) {
                network.carry(bench.now, &sent.bytes, false);
            }
        }
        for sent in bench.wait(Duration::ZERO) {
            network.carry(bench.now, &sent.bytes, false);
        }
        if let Some(event) = client.poll_event() {
            return Some(event);
        }
    }
    None
}

fn start(bench: &Bench, client: &mut Client, network: &mut Network, call: Call) {
    let mut out = Outbox::default();
    client.request(bench.now, call, &mut out).unwrap();
    out.iter().for_each(|(_, datagram)| network.carry(bench.now, datagram, true));
}

#[test]
fn bodies_go_up_and_come_down_whole() {
    let mut arrived = 0;
    for seed in 0..20 {
        let mut bench = Bench::new(ServerConfig::default());
        bench.peer = address(seed % 2 == 0);
        let mut client = Client::new(ClientConfig::default(), seed);
        let mut network = Network { dice: Dice(seed), to_server: Vec::new(), to_client: Vec::new() };
        let body: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let put = Call { payload: Bytes::from(body.clone()), ..Call::new(Code::PUT, "/ps") };
        start(&bench, &mut client, &mut network, put);
        match run(&mut bench, &mut client, &mut network, Duration::from_secs(600)) {
            Some(ClientEvent::Answered { answer, .. }) => assert_eq!(answer.code, Code::CHANGED),
            Some(ClientEvent::Failed { .. }) => continue,
            other => panic!("{other:?}"),
        }
        assert_eq!(bench.state.as_deref(), Some(&body[..]));
        start(&bench, &mut client, &mut network, Call::new(Code::GET, "/ps"));
        match run(&mut bench, &mut client, &mut network, Duration::from_secs(600)) {
            Some(ClientEvent::Answered { answer, .. }) => {
                assert_eq!(answer.payload, body);
                arrived += 1;
            }
            Some(ClientEvent::Failed { .. }) => {}
            other => panic!("{other:?}"),
        }
        assert!(client.is_idle());
    }
    assert!(arrived >= 15, "{arrived} of 20");
}

#[test]
fn the_newest_state_always_arrives() {
    for seed in 0..20 {
        let mut bench = Bench::new(ServerConfig::default());
        let mut client = Client::new(ClientConfig::default(), seed);
        let mut network = Network { dice: Dice(seed), to_server: Vec::new(), to_client: Vec::new() };
        start(&bench, &mut client, &mut network, Call { observe: true, ..Call::new(Code::GET, "/ps") });
        match run(&mut bench, &mut client, &mut network, Duration::from_secs(200)) {
            Some(ClientEvent::Answered { observed: true, .. }) => {}
            other => panic!("{other:?}"),
        }
        for state in 0..20_u8 {
            let (_, sent) = bench.notify(&[state], true);
            sent.iter().for_each(|sent| network.carry(bench.now, &sent.bytes, false));
            bench.now = bench.now + Duration::from_millis(300);
        }
        let mut newest = None;
        while let Some(event) = run(&mut bench, &mut client, &mut network, Duration::from_secs(200)) {
            if let ClientEvent::Notified { answer, .. } = event {
                newest = answer.payload.first().copied();
            }
        }
        assert!(newest == Some(19) || bench.gone().is_some(), "{seed}: {newest:?}");
    }
}
