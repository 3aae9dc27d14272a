//! Evictions when the table of sessions is full.

use std::{
    collections::{HashSet, VecDeque},
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    keys::{Authority, Keys, platform, psk_keys},
    net::{MS, endpoint, older},
};
use crate::{
    Alert, Association, End, Endpoint, EndpointConfig, Event, Inbox, Suite,
    client::{Client, ClientConfig, ClientEvent},
};

/// A server, and clients that are connected one after the other.
pub(super) struct House {
    pub(super) server: Endpoint<SocketAddr>,
    pub(super) inbox: Inbox<SocketAddr>,
    pub(super) now: Duration,
}

impl House {
    pub(super) fn new(keys: Arc<Keys>, config: EndpointConfig) -> Self {
        Self { server: endpoint(keys, config).identified_by(5), inbox: Inbox::default(), now: MS }
    }

    /// The outcome of a client's handshake.
    fn connect(&mut self, from: &str, config: ClientConfig) -> ClientEvent {
        self.open(from.parse().unwrap(), config).1
    }

    /// The same with the client.
    pub(super) fn open(&mut self, from: SocketAddr, config: ClientConfig) -> (Client, ClientEvent) {
        self.now += MS;
        let (mut up, mut down) = (VecDeque::new(), VecDeque::new());
        let mut client =
            Client::start(config, platform(), self.now, &mut |bytes| up.push_back(bytes.to_vec())).unwrap();
        let mut last = Vec::new();
        while let Some(datagram) = up.pop_front() {
            let send = &mut |to, bytes: &[u8]| down.extend((to == from).then(|| bytes.to_vec()));
            self.server.handle(self.now, from, &datagram, &mut self.inbox, send);
            while let Some(datagram) = down.pop_front() {
                last.extend(client.handle(self.now, &datagram, &mut |bytes| up.push_back(bytes.to_vec())));
            }
        }
        (client, last.pop().unwrap())
    }

    /// The peers whose sessions have had to give way, in order.
    pub(super) fn evicted(&self) -> Vec<SocketAddr> {
        let of = |event| if let Event::Ended { peer, end: End::Evicted, .. } = event { Some(peer) } else { None };
        self.inbox.events().filter_map(of).collect()
    }

    fn there(&self) -> HashSet<SocketAddr> {
        self.server.slots.iter().flatten().map(|entry| entry.peer).collect()
    }
}

fn psk() -> ClientConfig {
    ClientConfig { suites: vec![Suite::PskAes128Ccm8], ..ClientConfig::psk(b"device", b"secret") }
}

fn parsed(addresses: &[&str]) -> HashSet<SocketAddr> {
    addresses.iter().map(|address| address.parse().unwrap()).collect()
}

#[test]
fn sessions_without_a_credential_never_take_the_place_of_one_with() {
    let authority = Authority::new("ours");
    let config = EndpointConfig { sessions_max: 4, ..EndpointConfig::default() };
    let mut house = House::new(authority.server_with_psk(), config);
    assert!(matches!(house.connect("192.0.2.1:1", psk()), ClientEvent::Established(_)));
    for number in 1..20 {
        let made = house.connect(&format!("198.51.100.{number}:1"), authority.client());
        assert!(matches!(made, ClientEvent::Established(_)), "{made:?}");
    }
    assert!(house.there().is_superset(&parsed(&["192.0.2.1:1"])), "{:?}", house.evicted());
    // With a credential there is room as long as one is there without.
    for port in 2..=4 {
        assert!(matches!(house.connect(&format!("192.0.2.1:{port}"), psk()), ClientEvent::Established(_)));
    }
    let named = parsed(&["192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.1:4"]);
    assert_eq!(house.there(), named);
    let refused = house.connect("198.51.100.99:1", authority.client());
    assert_eq!(refused, ClientEvent::Ended(Alert::InternalError), "there is no room");
    assert_eq!((house.there(), house.server.handshakes(), house.server.counters().crowded), (named, 0, 1));
    house.server.close_all(&mut house.inbox, &mut |_, _| ());
    assert!(house.server.networks.is_empty() && house.server.owners.is_empty());
    assert_eq!(house.server.sessions(), 0);
}

#[test]
fn sessions_without_a_credential_have_a_share_and_a_short_life() {
    let authority = Authority::new("ours");
    let config = EndpointConfig {
        anonymous_sessions_max: 3,
        sessions_per_address_max: 2,
        anonymous_idle_timeout: Duration::from_secs(60),
        ..EndpointConfig::default()
    };
    let mut house = House::new(authority.server_with_psk(), config);
    house.connect("192.0.2.1:1", psk());
    for port in 1..=5 {
        house.connect(&format!("198.51.100.1:{port}"), authority.client());
    }
    assert_eq!(house.there(), parsed(&["192.0.2.1:1", "198.51.100.1:4", "198.51.100.1:5"]), "two of an address");
    for number in 2..=4 {
        house.connect(&format!("198.51.100.{number}:1"), authority.client());
    }
    let newest = ["192.0.2.1:1", "198.51.100.2:1", "198.51.100.3:1", "198.51.100.4:1"];
    assert_eq!(house.there(), parsed(&newest), "three in all, the oldest go");
    house.now += Duration::from_secs(60);
    house.server.handle_timeout(house.now, &mut house.inbox, &mut |_, _| ());
    assert_eq!(house.there(), parsed(&["192.0.2.1:1"]));
}

#[test]
fn addresses_behind_one_nat_do_not_evict_each_other_before_the_table_is_full() {
    let config = EndpointConfig { sessions_max: 8, sessions_per_address_max: 2, ..EndpointConfig::default() };
    let mut house = House::new(psk_keys(), config);
    for port in 1..=8 {
        house.connect(&format!("192.0.2.1:{port}"), psk());
    }
    assert_eq!((house.server.sessions(), house.evicted()), (8, Vec::new()));
    // Then whoever has more than its share makes room: for others, and for itself.
    house.connect("198.51.100.1:1", psk());
    house.connect("198.51.100.1:2", psk());
    house.connect("192.0.2.1:9", psk());
    house.connect("198.51.100.1:3", psk());
    let evicted = house.evicted();
    assert_eq!(evicted.len(), 4);
    assert!(evicted[..3].iter().all(|peer| peer.ip().to_string() == "192.0.2.1"), "{evicted:?}");
    assert_eq!(evicted[3], "198.51.100.1:1".parse().unwrap(), "its own");
    assert!(house.there().is_superset(&parsed(&["198.51.100.1:2", "198.51.100.1:3"])));
}

#[test]
fn a_host_of_ipv6_is_its_network_and_loopback_has_no_share() {
    let config = EndpointConfig { sessions_max: 6, sessions_per_address_max: 3, ..EndpointConfig::default() };
    let mut house = House::new(psk_keys(), config);
    house.connect("192.0.2.1:1", psk());
    for number in 1..=20 {
        house.connect(&format!("[2001:db8::{number:x}]:{number}"), psk());
    }
    assert!(house.there().contains(&"192.0.2.1:1".parse().unwrap()), "its oldest, and no other's though it is older");
    for port in 1..=4 {
        house.connect(&format!("127.0.0.1:{port}"), psk());
    }
    assert_eq!(house.server.sessions(), 6);
    let evicted = house.evicted();
    assert!(evicted[..17].iter().all(|peer| peer.is_ipv6()), "{evicted:?}");
}

#[test]
fn without_anonymous_clients_a_handshake_without_a_credential_fails() {
    let authority = Authority::new("ours");
    let keys = authority.server_with_psk();
    keys.named.store(true, Ordering::Relaxed);
    let mut house = House::new(keys, EndpointConfig::default());
    // RFC 5246 §7.4.6.
    let refused = house.connect("198.51.100.1:1", older(authority.client()));
    assert_eq!(refused, ClientEvent::Ended(Alert::HandshakeFailure));
    let certified_key = Some(authority.certified("dev1"));
    let named = house.connect("198.51.100.1:1", ClientConfig { certified_key, ..authority.client() });
    assert!(matches!(named, ClientEvent::Established(_)));
    assert!(matches!(house.connect("198.51.100.1:2", psk()), ClientEvent::Established(_)));
}

#[test]
fn numbers_of_associations_are_not_used_again() {
    let mut house = House::new(psk_keys(), EndpointConfig::default());
    house.connect("192.0.2.1:1", psk());
    house.server.skip_numbers(u64::from(u32::MAX) - 1);
    for port in 2..5 {
        house.connect(&format!("192.0.2.1:{port}"), psk());
    }
    let of = |event| if let Event::Established { association, .. } = event { Some(association) } else { None };
    let numbers: Vec<Association> = house.inbox.events().filter_map(of).collect();
    assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), 4, "{numbers:?}");
    assert!(numbers[3].number() > u64::from(u32::MAX), "{numbers:?}");
}
