//! A simulated link: hosts with the same names, messages that are late or lost, and any bytes from others.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A message under way to a host.
struct Flight {
    at: Timestamp,
    to: usize,
    from: u8,
    bytes: Vec<u8>,
}

/// Hosts on one link, and the choices of its schedule.
struct Wire {
    hosts: Vec<(Timestamp, Option<Responder>)>,
    seed: u64,
    flights: Vec<Flight>,
    now: Timestamp,
    chance: Random,
    /// Of a hundred messages before the end of the loss.
    lost: u64,
    late_ms: u64,
    loss_ends: Timestamp,
}

impl Wire {
    fn next(&self) -> Timestamp {
        let hosts = self.hosts.iter().map(|(start, responder)| match responder {
            None => *start,
            Some(responder) => responder.next_timeout().unwrap_or(Timestamp::NEVER),
        });
        self.flights.iter().map(|flight| flight.at).chain(hosts).min().unwrap_or(Timestamp::NEVER)
    }

    fn run(&mut self, end: Timestamp) {
        loop {
            let next = self.next();
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            self.deliver();
            self.advance();
        }
        self.now = end;
    }

    fn deliver(&mut self) {
        while let Some(at) = self.flights.iter().position(|flight| flight.at <= self.now) {
            let flight = self.flights.remove(at);
            if let Some((_, Some(responder))) = self.hosts.get_mut(flight.to) {
                responder.handle(self.now, ETH, peer(flight.from, PORT), &flight.bytes);
            }
        }
    }

    fn advance(&mut self) {
        for at in 0..self.hosts.len() {
            let last = u8::try_from(at).unwrap() + 10;
            let (start, responder) = &mut self.hosts[at];
            if responder.is_none() && *start <= self.now {
                let mut new = Responder::new("pi", "pi-host", self.seed.wrapping_add(u64::from(last)));
                new.set_link(self.now, ETH, offer(&format!("192.0.2.{last}")));
                *responder = Some(new);
            }
            let Some(responder) = responder else { continue };
            let sent: Vec<Transmit> = std::iter::from_fn(|| responder.poll_transmit(self.now)).collect();
            for transmit in sent {
                assert!(transmit.bytes.len() <= 1400);
                read(&transmit.bytes);
                self.send(last, &transmit.bytes);
            }
        }
    }

    /// Sends to all, the sender too: its socket hears what it sends.
    fn send(&mut self, from: u8, bytes: &[u8]) {
        for to in 0..self.hosts.len() {
            let is_lost = self.now < self.loss_ends && self.chance.millis(0, 99).as_millis() < u128::from(self.lost);
            if !is_lost {
                let at = self.now + self.chance.millis(0, self.late_ms);
                self.flights.push(Flight { at, to, from, bytes: bytes.to_vec() });
            }
        }
    }

    fn names(&self) -> Vec<(String, String)> {
        let responders = self.hosts.iter().filter_map(|(_, responder)| responder.as_ref());
        responders.map(|responder| (responder.instance(), responder.host())).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// However messages are late, and lost in the first ten seconds, all hosts end with names of their own, and keep
    /// them. Someone browses now and then, so that hosts hear of each other.
    #[test]
    fn hosts_with_the_same_names_end_with_different_ones(
        starts in vec(0_u64..4000, 2..4), seed: u64, lost in 0_u64..=100, late_ms in 0_u64..=200,
    ) {
        let hosts = starts.iter().map(|start| (START + Duration::from_millis(*start), None)).collect();
        let loss_ends = START + Duration::from_secs(10);
        let chance = Random::new(seed);
        let mut wire = Wire { hosts, seed, flights: vec![], now: START, chance, lost, late_ms, loss_ends };
        let browse = Message { questions: vec![question("_mqtt._tcp.local", Kind::PTR)], ..Message::default() };
        let browse = browse.encode(1400).unwrap();
        let mut before = Vec::new();
        for round in 1..=40 {
            wire.run(START + Duration::from_secs(5 * round));
            wire.send(77, &browse);
            if round == 30 {
                before = wire.names();
            }
        }
        let names = wire.names();
        for (at, (instance, host)) in names.iter().enumerate() {
            for (other_instance, other_host) in &names[at + 1..] {
                prop_assert_ne!(instance, other_instance);
                prop_assert_ne!(host, other_host);
            }
        }
        prop_assert_eq!(before, names);
        prop_assert!(wire.hosts.iter().all(|(_, host)| host.as_ref().is_some_and(Responder::is_established)));
    }

    /// Nothing that others send makes it panic, send what cannot be read, or send without end.
    #[test]
    fn whatever_others_send_is_taken_without_harm(
        messages in vec((any::<bool>(), any::<u16>(), vec(any::<u8>(), 0..200), 0_usize..9, 0_u64..400), 0..40),
    ) {
        let mut bench = Bench::new();
        let own = Bench::new().run(Duration::from_secs(4));
        for (is_raw, port, bytes, chosen, after) in messages {
            let mut datagram = bytes.clone();
            if let (false, Some((_, sent))) = (is_raw, own.get(chosen % own.len().max(1))) {
                // One of our own, changed at a few places.
                datagram.clone_from(&sent.bytes);
                for pair in bytes.chunks_exact(20) {
                    let at = usize::from(u16::from_be_bytes([pair[0], pair[1]])) % datagram.len();
                    datagram[at] = pair[2];
                }
            }
            let port = if port % 2 == 0 { PORT } else { port };
            bench.responder.handle(bench.now, ETH, peer(77, port), &datagram);
            let sent = bench.run(Duration::from_millis(after));
            prop_assert!(sent.len() < 20);
            sent.iter().for_each(|(_, sent)| drop(read(&sent.bytes)));
        }
        bench.responder.shut_down();
        bench.run(Duration::from_secs(1));
        prop_assert_eq!(bench.responder.next_timeout(), None);
    }
}
