//! Shares of principals in a full table of sessions (ADR 0062).

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use proptest::prelude::*;

use super::{
    keys::{Authority, psk_keys},
    room::House,
};
use crate::{
    Association, EndpointConfig, Event, Suite,
    client::{Client, ClientConfig, ClientEvent},
};

/// A client, by which identity, and how the server knows it.
struct Held {
    who: u8,
    peer: SocketAddr,
    association: Association,
    client: Client,
}

fn identity(who: u8) -> ClientConfig {
    let suites = vec![Suite::PskAes128Ccm8];
    let config = ClientConfig::psk(format!("device{who}").as_bytes(), b"secret");
    ClientConfig { suites, suites_13: Vec::new(), groups: Vec::new(), identifiers: true, ..config }
}

fn at(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host], port))
}

fn opened(house: &mut House, who: u8, peer: SocketAddr) -> Held {
    let (client, last) = house.open(peer, identity(who));
    assert!(matches!(last, ClientEvent::Established(_)), "{last:?}");
    let of = |event| if let Event::Established { association, .. } = event { Some(association) } else { None };
    let association = house.inbox.events().filter_map(of).last().unwrap();
    Held { who, peer, association, client }
}

/// Sends a record from elsewhere, which nobody has proved to be there.
fn moved(house: &mut House, held: &mut Held, to: SocketAddr) {
    let mut records = Vec::new();
    assert!(held.client.send(b"here", &mut |bytes| records.push(bytes.to_vec())));
    for record in records {
        house.server.handle(house.now, to, &record, &mut house.inbox, &mut |_, _| ());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Open { who: u8, host: u8 },
    Move { nth: usize, host: u8 },
    Validate { nth: usize },
    Close { nth: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4_u8, 0..4_u8).prop_map(|(who, host)| Step::Open { who, host }),
        // One that always comes back from elsewhere.
        3 => (0..4_u8).prop_map(|host| Step::Open { who: 9, host }),
        4 => (any::<usize>(), 0..5_u8).prop_map(|(nth, host)| Step::Move { nth, host }),
        2 => any::<usize>().prop_map(|nth| Step::Validate { nth }),
        1 => any::<usize>().prop_map(|nth| Step::Close { nth }),
    ];
    prop::collection::vec(step, 1..60)
}

fn counts(there: &[Held]) -> BTreeMap<u8, usize> {
    there.iter().fold(BTreeMap::new(), |mut counts, held| {
        *counts.entry(held.who).or_default() += 1;
        counts
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_principal_below_its_share_loses_a_session_to_one_above(
        steps in steps(),
        sessions_max in 1..9_usize,
        sessions_per_address_max in 1..4_usize,
    ) {
        let config = EndpointConfig { sessions_max, sessions_per_address_max, ..EndpointConfig::default() };
        let mut house = House::new(psk_keys(), config);
        let mut there: Vec<Held> = Vec::new();
        let mut port = 1;
        for step in steps {
            port += 1;
            house.inbox.clear();
            match step {
                Step::Open { who, host } => {
                    let before = counts(&there);
                    let new = opened(&mut house, who, at(host, port));
                    let evicted = house.evicted();
                    prop_assert_eq!(evicted.len(), usize::from(there.len() == sessions_max));
                    for victim in evicted {
                        let place = there.iter().position(|held| held.peer == victim).unwrap();
                        let victim = there.remove(place).who;
                        let (own, its) = (before.get(&who).copied().unwrap_or(0), before[&victim]);
                        if victim != who {
                            prop_assert_eq!(Some(&its), before.values().max());
                            prop_assert!(own == 0 || its >= own + 2, "{} gave way to {}: {:?}", victim, who, before);
                        }
                    }
                    there.push(new);
                }
                Step::Move { nth, host } => {
                    let nth = nth % there.len().max(1);
                    let Some(held) = there.get_mut(nth) else { continue };
                    moved(&mut house, held, at(host, port));
                }
                Step::Validate { nth } => {
                    let Some(held) = there.get(nth % there.len().max(1)) else { continue };
                    house.server.validate(held.peer, held.association);
                }
                Step::Close { nth } => {
                    if there.is_empty() {
                        continue;
                    }
                    let held = there.swap_remove(nth % there.len());
                    house.server.close(held.peer, held.association, &mut house.inbox, &mut |_, _| ());
                }
            }
            prop_assert_eq!(house.server.sessions(), there.len());
        }
        house.server.close_all(&mut house.inbox, &mut |_, _| ());
        prop_assert!(house.server.networks.is_empty() && house.server.owners.is_empty());
    }
}

#[test]
fn a_principal_that_opens_many_sessions_evicts_its_own_whatever_their_addresses() {
    let config = EndpointConfig { sessions_max: 8, sessions_per_address_max: 3, ..EndpointConfig::default() };
    let mut house = House::new(psk_keys(), config);
    opened(&mut house, 2, at(2, 1));
    for number in 0..24 {
        let mut thief = opened(&mut house, 1, at(100 + number, 1));
        if number % 2 == 0 {
            moved(&mut house, &mut thief, at(150 + number, 1));
        }
    }
    assert!(!house.evicted().contains(&at(2, 1)), "{:?}", house.evicted());
    assert_eq!((house.evicted().len(), house.server.counters().evicted.principal), (17, 17));
    // Another comes, and again: the heaviest makes room, down to what both have.
    (0..8).for_each(|port| drop(opened(&mut house, 3, at(3, port))));
    let evicted = house.evicted();
    assert!(!evicted.contains(&at(2, 1)));
    let own = evicted.iter().filter(|peer| peer.ip() == at(3, 0).ip()).count();
    assert_eq!((evicted.len(), own), (25, 5), "three of eight places: four of the thief, one of the victim's");
}

#[test]
fn without_a_second_session_of_anybody_the_one_that_has_rested_longest_gives_way() {
    let config = EndpointConfig { sessions_max: 4, sessions_per_address_max: 2, ..EndpointConfig::default() };
    let mut house = House::new(psk_keys(), config);
    for who in 0..4 {
        opened(&mut house, who, at(who, 1));
    }
    opened(&mut house, 4, at(4, 1));
    assert_eq!((house.evicted(), house.server.counters().evicted.rest), (vec![at(0, 1)], 1));
    // An address with its share makes room itself.
    opened(&mut house, 5, at(4, 2));
    opened(&mut house, 6, at(4, 3));
    assert_eq!((house.evicted(), house.server.counters().evicted.address), (vec![at(0, 1), at(1, 1), at(4, 1)], 1));
    // A device that comes back elsewhere takes its own place.
    opened(&mut house, 3, at(7, 1));
    assert_eq!(house.evicted().last(), Some(&at(3, 1)));
}

#[test]
fn s6_a_session_counts_where_its_peer_has_proved_to_receive() {
    // One key for all, so that addresses decide.
    let config = EndpointConfig { sessions_max: 6, sessions_per_address_max: 3, ..EndpointConfig::default() };
    let mut house = House::new(psk_keys(), config);
    opened(&mut house, 1, at(2, 1));
    let mut thieves: Vec<Held> = (0..5).map(|port| opened(&mut house, 1, at(66, port))).collect();
    // Moved to forged addresses, so that its own is not crowded, or another's is.
    for (thief, host) in thieves.iter_mut().zip([101, 102, 103, 2, 2]) {
        moved(&mut house, thief, at(host, 9 + thief.peer.port()));
    }
    opened(&mut house, 1, at(2, 2));
    opened(&mut house, 1, at(2, 3));
    assert_eq!(house.evicted(), [at(66, 0), at(66, 1)], "where there are too many");
    // Where it is known to receive it counts.
    house.server.validate(thieves[3].peer, thieves[3].association);
    opened(&mut house, 1, at(2, 4));
    assert_eq!(house.evicted().last(), Some(&at(2, 1)), "four in all");
    house.server.close_all(&mut house.inbox, &mut |_, _| ());
    assert!(house.server.networks.is_empty() && house.server.owners.is_empty());
}

#[test]
fn a_certificate_is_a_principal_and_so_is_who_has_several_credentials() {
    let authority = Authority::new("ours");
    let config = EndpointConfig { sessions_max: 4, ..EndpointConfig::default() };
    for is_known in [false, true] {
        let mut keys = authority.server_with_psk();
        Arc::get_mut(&mut keys).unwrap().principal = is_known.then(|| "thief".into());
        let mut house = House::new(keys, config.clone());
        let mut open = |host, port, certified_key| {
            let config = ClientConfig { certified_key: Some(certified_key), ..authority.client() };
            house.open(at(host, port), config);
            house.evicted()
        };
        open(2, 1, authority.certified("other"));
        let thief = authority.certified("thief");
        let evicted: Vec<_> = (1..=6).map(|port| open(66, port, Arc::clone(&thief))).last().unwrap();
        assert_eq!(evicted.contains(&at(2, 1)), is_known, "all is the thief's if the names say so: {evicted:?}");
    }
}
