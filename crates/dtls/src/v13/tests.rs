//! The server and a small client on a simulated network: seeded loss, repetition and disorder, time by hand.

mod client;
mod identities;
mod moves;
mod net;
mod peer;
mod wear;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use proptest::prelude::*;
use rustls::CertificateError;

use self::{
    net::{Net, WORKER, endpoint},
    peer::{Heard, Offer, Peer},
};
use super::{Content, Suite13, identified};
use crate::{
    Alert, ChannelSuite, Credentials, End, EndpointConfig, Event, Inbox, Refused, Sent, Suite,
    client::{Client, ClientConfig, ClientEvent},
    exchange::Group,
    tests::{Authority, Dice, MS, address, older, platform, psk_keys},
};

fn device() -> Offer {
    Offer::psk(b"device", b"secret")
}

#[test]
fn every_suite_group_and_mode_makes_a_session_that_carries_data_both_ways() {
    for suite in Suite13::ALL {
        for (share, modes) in [
            (Some(Group::X25519), vec![1]),
            (Some(Group::Secp256r1), vec![0, 1]),
            (None, vec![1]),
            (Some(Group::X25519), vec![0]),
        ] {
            let mut net = Net::psk(Offer { suite, share, modes, ..device() });
            assert!(net.shake(), "{suite:?} {share:?}");
            assert_eq!(net.now, Duration::ZERO, "without waiting for anything");
            net.exchange();
            let Some(Event::Established { channel, .. }) = net.inbox.events().next() else { panic!() };
            assert_eq!((channel.suite.protocol(), channel.suite), ("DTLSv1.3", ChannelSuite::V13(suite)));
            assert_eq!(channel.psk.as_ref().map(|psk| &*psk.identity), Some(&b"device"[..]));
        }
    }
}

#[test]
fn certificates_are_verified_as_everywhere() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let connect = |keys: Arc<dyn Credentials>, certified| {
        let mut net = Net::new(endpoint(keys, EndpointConfig::default()), Offer { certified, ..Offer::certificates() });
        net.shake();
        net
    };
    let own = authority.certified("dev1");
    let mut net = connect(authority.server(), Some(Arc::clone(&own)));
    net.exchange();
    let Some(Event::Established { channel, .. }) = net.inbox.events().next() else { panic!() };
    assert_eq!(channel.certificate.as_ref(), own.cert.first());
    connect(authority.server(), None).exchange();
    for (keys, certified, alert) in [
        (authority.strict_server(), None, Alert::CertificateRequired),
        (authority.server(), Some(other.certified("dev1")), Alert::UnknownCa),
        (authority.server(), Some(authority.stolen("dev1")), Alert::DecryptError),
    ] {
        let shown = certified.as_ref().and_then(|certified| certified.cert.first().cloned());
        let net = connect(keys, certified);
        assert_eq!(net.client.heard, [Heard::Alert(alert)]);
        let refused = match shown {
            None => Refused::NoCertificate,
            Some(leaf) if alert == Alert::DecryptError => Refused::Unproven(leaf),
            Some(leaf) => Refused::Certificate(leaf, CertificateError::UnknownIssuer.into()),
        };
        let failed = Event::Failed { peer: address(5000), alert, refused: Some(&refused) };
        assert_eq!(net.inbox.events().collect::<Vec<_>>(), [failed]);
        assert_eq!((net.server.handshakes(), net.server.sessions(), net.server.peers()), (0, 0, 0));
    }
}

#[test]
fn a_wrong_key_and_an_unknown_identity_look_the_same() {
    for (identity, key) in [(&b"device"[..], &b"wrong"[..]), (b"nobody", b"secret")] {
        let mut net = Net::psk(Offer::psk(identity, key));
        assert!(!net.shake());
        assert_eq!(net.client.heard, [Heard::Alert(Alert::DecryptError)]);
        let events: Vec<_> = net.inbox.events().collect();
        let refused = Refused::Identity(identity.into());
        let failed = Event::Failed { peer: address(5000), alert: Alert::DecryptError, refused: Some(&refused) };
        assert_eq!(events, [failed]);
        assert_eq!((net.server.handshakes(), net.server.peers()), (0, 0));
    }
}

#[test]
fn who_comes_too_early_hears_nothing_and_it_counts_as_no_attempt() {
    let keys = psk_keys();
    keys.wait.store(true, Ordering::Relaxed);
    let mut net = Net::new(endpoint(keys, EndpointConfig::default()), device());
    net.travel();
    assert!(!net.client.done && net.client.heard.is_empty() && net.inbox.is_empty());
    assert_eq!((net.server.handshakes(), net.server.peers(), net.server.counters().failed), (0, 0, 1));
}

#[test]
fn s5_1_a_flood_of_hellos_leaves_nothing_behind() {
    let mut server = endpoint(psk_keys(), EndpointConfig::default());
    let mut inbox = Inbox::default();
    let hello = Peer::new(device(), Duration::ZERO).poll().unwrap();
    for number in 0..2000_u16 {
        let from = SocketAddr::from(([10, 0, 1, 1], number));
        let mut answers = 0;
        server.handle(MS, from, &hello, &mut inbox, &mut |to, bytes| {
            assert!(to == from && bytes.len() <= 2 * hello.len());
            answers += 1;
        });
        assert_eq!(answers, 1);
    }
    assert!(server.peers() == 0 && server.slots.is_empty() && server.alarms.is_empty() && inbox.is_empty());
    assert_eq!(server.counters().hellos, 2000);
}

#[test]
fn s5_1_a_cookie_is_good_for_its_address_and_hello_only() {
    let (mut net, mut other) = (Net::psk(device()), Net::psk(device()));
    let first = net.client.poll().unwrap();
    net.arrive(&first);
    let (_, retry) = net.to_client.pop_front().unwrap();
    net.client.handle(MS, &retry);
    let second = net.client.poll().unwrap();
    // Of another address, and of another client.
    net.from = address(5001);
    net.arrive(&second);
    other.client.poll().unwrap();
    other.client.handle(MS, &retry);
    let second_of_other = other.client.poll().unwrap();
    net.from = address(5000);
    net.arrive(&second_of_other);
    for (_, answer) in net.to_client.drain(..) {
        assert_eq!(answer[0], 21, "an alert");
        assert_eq!(answer[answer.len() - 1], 47, "illegal_parameter");
    }
    assert_eq!(net.server.handshakes(), 0);
    net.arrive(&second);
    assert_eq!(net.server.handshakes(), 1);
}

#[test]
fn s4_1_3_who_speaks_1_2_sees_that_1_3_was_there() {
    for (suites_13, sentinel) in [(Suite13::ALL.to_vec(), true), (Vec::new(), false)] {
        let mut server = endpoint(psk_keys(), EndpointConfig { suites_13, ..EndpointConfig::default() });
        let config =
            older(ClientConfig { suites: vec![Suite::PskAes128Ccm8], ..ClientConfig::psk(b"device", b"secret") });
        let (mut inbox, mut up, mut down) = (Inbox::default(), VecDeque::new(), Vec::new());
        let mut client = Client::start(config, platform(), MS, &mut |bytes| up.push_back(bytes.to_vec())).unwrap();
        let (mut seen, mut made) = (false, false);
        while let Some(datagram) = up.pop_front() {
            server.handle(MS, address(1), &datagram, &mut inbox, &mut |_, bytes| down.push(bytes.to_vec()));
            for datagram in down.drain(..) {
                seen |= datagram.windows(8).any(|part| part == b"DOWNGRD\x01");
                let events = client.handle(MS, &datagram, &mut |bytes| up.push_back(bytes.to_vec()));
                made |= matches!(events[..], [ClientEvent::Established(_)]);
            }
        }
        assert_eq!((made, seen), (true, sentinel));
    }
}

#[test]
fn without_suites_of_1_3_a_client_that_speaks_nothing_else_is_refused() {
    let config = EndpointConfig { suites_13: Vec::new(), ..EndpointConfig::default() };
    let mut net = Net::new(endpoint(psk_keys(), config), device());
    assert!(!net.shake());
    assert_eq!(net.client.heard, [Heard::Alert(Alert::ProtocolVersion)]);
    assert_eq!(net.server.peers(), 0);
}

#[test]
fn a_device_that_has_forgotten_its_session_gets_a_new_one_and_the_old_goes_then() {
    let mut net = Net::psk(Offer { cid: Some(Vec::new()), ..device() });
    assert!(net.shake());
    net.exchange();
    net.now += Duration::from_secs(5);
    net.client = Peer::new(Offer { cid: Some(Vec::new()), ..device() }, net.now);
    for _ in 0..3 {
        let datagram = net.client.poll().unwrap();
        net.arrive(&datagram);
        assert_eq!(net.server.sessions(), 1, "the old one, whatever is begun");
        let Some((_, datagram)) = net.to_client.pop_front() else { break };
        net.client.handle(net.now, &datagram);
    }
    assert!(net.shake());
    let ended = net.inbox.events().filter(|event| matches!(event, Event::Ended { end: End::Replaced, .. })).count();
    assert_eq!((ended, net.server.sessions()), (1, 1));
    net.exchange();
}

#[test]
fn s8_keys_are_changed_when_the_client_changes_its_own_and_asks_for_it() {
    let mut net = Net::psk(device());
    assert!(net.shake());
    net.exchange();
    for request in [false, true, true] {
        net.client.update(net.now, request);
        net.travel();
        net.exchange();
        net.now += 10 * MS;
    }
    assert_eq!(net.client.data.as_ref().unwrap().epoch(), 6);
}

#[test]
fn s4_5_3_keys_are_changed_when_many_records_were_forged() {
    let mut net = Net::psk(device());
    assert!(net.shake());
    for _ in 0..200 {
        let mut forged = net.client.seal(Content::ApplicationData, b"forged");
        *forged.last_mut().unwrap() ^= 1;
        net.arrive(&forged);
    }
    net.exchange();
    net.travel();
    assert_eq!(net.client.data.as_ref().unwrap().epoch(), 4, "the client was asked for new keys");
    assert_eq!(net.server.sessions(), 1);
    net.exchange();
}

#[test]
fn s9_a_session_follows_its_identifier_to_another_address() {
    let mut net = Net::psk(Offer { cid: Some(vec![1, 2, 3]), ..device() });
    assert!(net.shake());
    assert_eq!(net.client.theirs.len(), 8);
    let datagram = net.client.seal(Content::ApplicationData, b"old");
    assert_eq!(identified(&datagram), Some(WORKER));
    assert_eq!(net.exchange(), Some(address(5000)));
    net.from = address(5001);
    // A record older than those that have come stays an old address's.
    net.arrive(&datagram);
    let out = net.server.slots.iter().flatten().map(|entry| entry.peer).collect::<Vec<_>>();
    assert_eq!(out, [address(5000)]);
    assert_eq!(net.exchange(), Some(address(5001)));
    net.from = address(5002);
    assert_eq!(net.exchange(), Some(address(5002)));
    net.from = address(5000);
    assert_eq!(net.exchange(), Some(address(5000)));
    net.from = address(5003);
    net.say(Content::Alert, &[1, 0]);
    assert_eq!((net.server.sessions(), net.server.peers()), (0, 0));
    assert!(net.server.names.is_empty() && net.server.networks.is_empty());
    let last = net.inbox.events().last().map(|event| format!("{event:?}"));
    assert!(last.is_some_and(|last| last.contains("5000") && last.contains("Closed")));
}

#[test]
fn s8_who_has_moved_before_its_new_keys_were_acknowledged_is_answered_where_it_is() {
    let mut net = Net::psk(Offer { cid: Some(Vec::new()), ..device() });
    assert!(net.shake());
    net.exchange();
    net.client.update(net.now, false);
    let update = net.client.poll().unwrap();
    net.arrive(&update);
    // The acknowledgement is lost, and it goes on with its old keys elsewhere.
    net.to_client.clear();
    net.from = address(5001);
    assert_eq!(net.exchange(), Some(address(5001)));
    net.wait();
    net.travel();
    assert_eq!(net.client.data.as_ref().unwrap().epoch(), 4);
    assert_eq!(net.exchange(), Some(address(5001)));
}

#[test]
fn s9_forged_and_repeated_records_move_nobody_and_nobody_is_driven_out() {
    let mut net = Net::psk(Offer { cid: Some(Vec::new()), ..device() });
    assert!(net.shake());
    net.exchange();
    let genuine = net.client.seal(Content::ApplicationData, b"genuine");
    let mut forged = genuine.clone();
    *forged.last_mut().unwrap() ^= 1;
    net.arrive(&genuine);
    net.from = address(6000);
    net.arrive(&forged);
    net.arrive(&genuine);
    assert!(net.server.slot_at(&address(5000)).is_some() && net.server.peers() == 1);
    // Another has a session where it goes next: what it says is heard, the answers go where it was.
    let mut other = Net::new(net.server, device());
    other.from = address(6000);
    assert!(other.shake());
    other.client = net.client;
    assert_eq!(other.exchange(), Some(address(5000)));
    assert_eq!((other.server.sessions(), other.server.peers()), (2, 2));
}

#[test]
fn a_session_at_rest_is_secrets_and_forged_records_do_not_wake_it() {
    let mut net = Net::psk(device());
    assert!(net.shake());
    net.exchange();
    assert_eq!(net.server.expanded(), 1);
    net.now += Duration::from_secs(30);
    net.server.handle_timeout(net.now, &mut net.inbox, &mut |_, _| ());
    assert_eq!(net.server.expanded(), 0);
    let mut forged = net.client.seal(Content::ApplicationData, b"forged");
    *forged.last_mut().unwrap() ^= 1;
    net.arrive(&forged);
    assert_eq!(net.server.expanded(), 0);
    net.exchange();
}

#[test]
fn s5_8_handshakes_are_made_whatever_is_lost_repeated_and_out_of_order() {
    let authority = Authority::new("ours");
    for (lost, least) in [(0, 100), (10, 100), (25, 98)] {
        for certificates in [None, Some(&authority)] {
            let made = (1..=100).filter(|seed| {
                let (keys, offer): (Arc<dyn Credentials>, _) = match certificates {
                    Some(authority) => {
                        let certified = Some(authority.certified("dev1"));
                        (authority.server(), Offer { certified, ..Offer::certificates() })
                    }
                    None => (psk_keys(), device()),
                };
                let mut net = Net::new(endpoint(keys, EndpointConfig::default()), offer);
                (net.dice, net.lost, net.disorder) = (Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(*seed)), lost, true);
                let made = net.shake();
                (net.lost, net.disorder) = (0, false);
                if made {
                    net.travel();
                    net.exchange();
                }
                made
            });
            let made = made.count();
            println!("{lost} % lost, certificates: {}: {made} of 100", certificates.is_some());
            assert!(made >= least, "{lost} %: {made}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bent_datagrams_are_survived(seed in 1_u64.., at in 0_usize..300, byte: u8) {
        let mut net = Net::psk(Offer { cid: Some(vec![7]), ..device() });
        net.dice = Dice(seed);
        let nth = net.dice.roll(4);
        for step in 0..4 {
            let Some(mut datagram) = net.client.poll() else { break };
            if step == nth && let Some(place) = datagram.get_mut(at) {
                *place = byte;
            }
            net.arrive(&datagram);
            while let Some((_, datagram)) = net.to_client.pop_front() {
                if net.client.heard.is_empty() {
                    net.client.handle(net.now, &datagram);
                }
            }
        }
        prop_assert!(net.server.peers() <= 1);
    }
}
