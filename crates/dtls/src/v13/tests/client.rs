//! Our client of DTLS 1.3 with our server, on the simulated network.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use super::{WORKER, endpoint};
use crate::{
    Alert, ChannelSuite, Credentials, End, Endpoint, EndpointConfig, Event, Group, Psk, Suite, Suite13,
    client::{ClientConfig, ClientEvent},
    tests::{Authority, Dice, Net, address, psk_keys},
    wire::{self, ContentType, DTLS_1_2, Fragment, Record, message},
};

fn newer(config: ClientConfig) -> ClientConfig {
    ClientConfig { suites: Vec::new(), ..config }
}

fn device() -> ClientConfig {
    newer(ClientConfig::psk(b"device", b"secret"))
}

fn server(keys: Arc<dyn Credentials>) -> Endpoint<SocketAddr> {
    endpoint(keys, EndpointConfig::default())
}

fn of(versions: (bool, bool)) -> EndpointConfig {
    let default = EndpointConfig::default();
    EndpointConfig {
        suites: if versions.0 { default.suites } else { Vec::new() },
        suites_13: if versions.1 { default.suites_13 } else { Vec::new() },
        ..EndpointConfig::default()
    }
}

fn agreed(net: &Net) -> ChannelSuite {
    let made = net.events.iter().find_map(|event| match event {
        ClientEvent::Established(channel) => Some(channel.suite),
        ClientEvent::Data(_) | ClientEvent::Ended(_) => None,
    });
    let theirs = net.inbox.events().find_map(|event| match event {
        Event::Established { channel, .. } => Some(channel.suite),
        Event::Data { .. } | Event::Moved { .. } | Event::Ended { .. } | Event::Failed { .. } => None,
    });
    assert_eq!(made, theirs);
    made.unwrap()
}

#[test]
fn every_suite_and_group_makes_a_session_that_carries_data_both_ways() {
    for suite in Suite13::ALL {
        for groups in [vec![Group::X25519], vec![Group::Secp256r1], vec![]] {
            let config = ClientConfig { suites_13: vec![suite], groups: groups.clone(), ..device() };
            let mut net = Net::of_any(server(psk_keys()), config);
            assert!(net.shake(), "{suite:?} {groups:?}");
            assert!(net.now.is_zero(), "{suite:?} {groups:?}: without waiting for anything");
            assert_eq!(agreed(&net), ChannelSuite::V13(suite));
            net.exchange();
        }
    }
}

#[test]
fn certificates_are_verified_on_both_sides() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let own = authority.certified("dev1");
    let make = |keys: Arc<dyn Credentials>, certified_key, of: &Authority| {
        let config = ClientConfig { certified_key, ..newer(of.client()) };
        let mut net = Net::of_any(server(keys), config);
        let made = net.shake();
        (made, net)
    };
    for groups in [vec![Group::X25519], vec![Group::Secp256r1]] {
        let config = ClientConfig { certified_key: Some(Arc::clone(&own)), groups, ..newer(authority.client()) };
        let mut net = Net::of_any(server(authority.server()), config);
        assert!(net.shake());
        let Some(Event::Established { channel, .. }) = net.inbox.events().next() else { panic!() };
        assert_eq!(channel.certificate.as_ref(), own.cert.first());
        net.exchange();
    }
    let (made, net) = make(authority.server(), None, &authority);
    assert!(made, "a certificate is asked for and need not be there");
    let Some(ClientEvent::Established(channel)) = net.events.first() else { panic!() };
    assert!(channel.certificate.is_some(), "the server's");
    for (keys, certified, of, alert) in [
        (authority.strict_server(), None, &authority, Alert::CertificateRequired),
        (authority.server(), Some(other.certified("dev1")), &authority, Alert::UnknownCa),
        (authority.server(), Some(authority.stolen("dev1")), &authority, Alert::DecryptError),
        (authority.server(), None, &other, Alert::UnknownCa),
        (authority.stolen_server(), None, &authority, Alert::DecryptError),
    ] {
        let (made, net) = make(keys, certified, of);
        assert!(!made);
        assert_eq!(net.events, [ClientEvent::Ended(alert)]);
        assert_eq!((net.server.sessions(), net.server.handshakes()), (0, 0), "{alert}");
    }
}

#[test]
fn a_wrong_key_and_an_unknown_identity_look_the_same() {
    for (identity, key) in [(&b"device"[..], &b"wrong"[..]), (b"nobody", b"secret")] {
        let mut net = Net::of_any(server(psk_keys()), newer(ClientConfig::psk(identity, key)));
        assert!(!net.shake());
        assert_eq!(net.events, [ClientEvent::Ended(Alert::DecryptError)]);
    }
}

#[test]
fn the_newest_version_that_both_speak_is_chosen() {
    let authority = Authority::new("ours");
    for (client, server, chosen) in [
        ((true, true), (true, true), Some(true)),
        ((true, true), (true, false), Some(false)),
        ((true, true), (false, true), Some(true)),
        ((false, true), (true, true), Some(true)),
        ((true, false), (true, true), Some(false)),
        ((true, false), (false, true), None),
        ((false, true), (true, false), None),
    ] {
        for certificates in [false, true] {
            let keys: Arc<dyn Credentials> = if certificates { authority.server() } else { psk_keys() };
            let config = if certificates { authority.client() } else { ClientConfig::psk(b"device", b"secret") };
            let EndpointConfig { suites, suites_13, .. } = of(client);
            let config = ClientConfig { suites, suites_13, ..config };
            let mut net = Net::of_any(endpoint(keys, of(server)), config);
            let what = format!("client {client:?}, server {server:?}, certificates: {certificates}");
            assert_eq!(net.shake(), chosen.is_some(), "{what}: {:?}", net.events);
            match chosen {
                Some(newest) => {
                    assert_eq!(matches!(agreed(&net), ChannelSuite::V13(_)), newest, "{what}");
                    net.exchange();
                }
                None => assert_eq!(net.events, [ClientEvent::Ended(Alert::ProtocolVersion)], "{what}"),
            }
        }
    }
}

#[test]
fn rfc_8446_s4_1_3_a_downgrade_is_noticed() {
    // Somebody takes DTLS 1.3 out of the ClientHello: its versions become of an extension that nobody knows.
    let mut net = Net::of_any(server(psk_keys()), ClientConfig::psk(b"device", b"secret"));
    let strip = |datagram: &mut Vec<u8>| {
        let at = datagram.windows(9).position(|bytes| bytes == [0, 43, 0, 5, 4, 0xfe, 0xfc, 0xfe, 0xfd]).unwrap();
        datagram[at] = 0x7a;
    };
    for _ in 0..2 {
        let mut hello = net.to_server.pop_front().unwrap();
        strip(&mut hello);
        net.arrive(true, &hello);
        let answer = net.to_client.pop_front().unwrap();
        net.arrive(false, &answer);
    }
    assert_eq!(net.events, [ClientEvent::Ended(Alert::IllegalParameter)]);
}

#[test]
fn a_session_outlives_its_address_in_both_versions() {
    for versions in [(true, false), (false, true)] {
        let config = ClientConfig { identifiers: true, ..ClientConfig::psk(b"device", b"secret") };
        let mut net = Net::of_any(endpoint(psk_keys(), of(versions)), config);
        assert!(net.shake());
        net.exchange();
        net.port = 6000;
        let out = &mut net.to_server;
        assert!(net.client.send(b"from elsewhere", &mut |bytes| out.push_back(bytes.to_vec())));
        let datagram = net.to_server.back().unwrap();
        assert_eq!(super::identified(datagram), Some(WORKER));
        net.travel();
        let last = net.inbox.events().last();
        assert!(matches!(last, Some(Event::Data { peer, data: b"from elsewhere", .. }) if peer == address(5000)));
        net.exchange();
        assert_eq!(net.server.sessions(), 1);
    }
}

#[test]
fn s8_keys_change_in_both_directions_under_loss() {
    for (seed, request) in (1..=40).zip([false, true].into_iter().cycle()) {
        let mut net = Net::of_any(server(psk_keys()), device());
        assert!(net.shake());
        (net.dice, net.lost, net.disorder) = (Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)), 30, true);
        for _ in 0..5 {
            let (now, out) = (net.now, &mut net.to_server);
            net.client.update_keys(now, request, &mut |bytes| out.push_back(bytes.to_vec()));
            net.travel();
            while net.client.next_timeout().is_some() {
                net.wait();
                net.travel();
            }
        }
        (net.lost, net.disorder) = (0, false);
        net.exchange();
    }
}

#[test]
fn s5_8_handshakes_are_made_whatever_is_lost_repeated_and_out_of_order() {
    let authority = Authority::new("ours");
    for (lost, least) in [(0, 100), (10, 100), (25, 97)] {
        for certificates in [false, true] {
            let made = (1..=100).filter(|seed| {
                let keys: Arc<dyn Credentials> = if certificates { authority.server() } else { psk_keys() };
                let own = certificates.then(|| authority.certified("dev1"));
                let config = if certificates { newer(authority.client()) } else { device() };
                let mut net = Net::of_any(server(keys), ClientConfig { certified_key: own, ..config });
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
            println!("{lost} % lost, certificates: {certificates}: {made} of 100");
            assert!(made >= least, "{lost} %: {made}");
        }
    }
}

#[test]
fn close_notify_ends_it_on_either_side() {
    let mut net = Net::of_any(server(psk_keys()), device());
    assert!(net.shake());
    let out = &mut net.to_server;
    net.client.close(&mut |bytes| out.push_back(bytes.to_vec()));
    net.travel();
    assert!(matches!(net.inbox.events().last(), Some(Event::Ended { end: End::Closed, .. })));
    let mut net = Net::of_any(server(psk_keys()), device());
    assert!(net.shake());
    let (association, out) = (net.association(), &mut net.to_client);
    net.server.close(address(5000), association, &mut net.inbox, &mut |_, bytes| out.push_back(bytes.to_vec()));
    net.travel();
    assert_eq!(net.events.last(), Some(&ClientEvent::Ended(Alert::CloseNotify)));
}

/// Has only the second identity.
struct Shy;

impl Credentials for Shy {
    fn certified_key(&self) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn client_verifier(&self) -> Option<Arc<dyn rustls::server::danger::ClientCertVerifier>> {
        None
    }

    fn has_psk(&self) -> bool {
        false
    }

    fn psk(&self, _from: IpAddr, _identity: &[u8]) -> Option<Psk> {
        None
    }
}

#[test]
fn a_server_with_nothing_in_common_says_so() {
    let mut net = Net::of_any(server(Arc::new(Shy)), ClientConfig::psk(b"device", b"secret"));
    assert!(!net.shake());
    assert_eq!(net.events, [ClientEvent::Ended(Alert::HandshakeFailure)]);
}

/// Gives the client the server's answers after `change` has bent their messages in the clear.
fn bent(change: impl Fn(&mut Vec<u8>)) -> Vec<ClientEvent> {
    let mut net = Net::of_any(server(psk_keys()), ClientConfig::psk(b"device", b"secret"));
    for _ in 0..3 {
        let Some(hello) = net.to_server.pop_front() else { break };
        net.arrive(true, &hello);
        while let Some(answer) = net.to_client.pop_front() {
            let Some((record, rest)) = Record::split(&answer) else { continue };
            let Some((fragment, _)) = Fragment::split(record.payload) else { continue };
            let mut body = fragment.body.to_vec();
            change(&mut body);
            let (mut payload, mut datagram) = (Vec::new(), Vec::new());
            wire::put_message(&mut payload, message::SERVER_HELLO, fragment.sequence, &body);
            wire::put_record(&mut datagram, ContentType::Handshake, DTLS_1_2, record.number(), &payload);
            datagram.extend(rest);
            net.arrive(false, &datagram);
        }
    }
    net.events
}

/// Replaces the bytes behind an extension's number and length.
fn replace(body: &mut [u8], number: u16, with: &[u8]) {
    let header = [number.to_be_bytes(), u16::try_from(with.len()).unwrap().to_be_bytes()].concat();
    if let Some(at) = body.windows(4).position(|bytes| bytes == header) {
        body[at + 4..at + 4 + with.len()].copy_from_slice(with);
    }
}

#[test]
fn rfc_8446_s4_1_what_was_not_offered_is_refused() {
    let illegal = [ClientEvent::Ended(Alert::IllegalParameter)];
    assert!(matches!(bent(|_| {})[..], []), "or not bent at all");
    // A suite of DTLS 1.3 that was not offered; one of 1.2.
    for suite in [[0x13, 0x02], Suite::PskAes128Gcm.number().to_be_bytes()] {
        assert_eq!(bent(|body| body[35..37].copy_from_slice(&suite)), illegal);
    }
    // A version that is none.
    assert_eq!(bent(|body| replace(body, 43, &[0xfe, 0xfb])), illegal);
    // An echo of a session, compression.
    assert_eq!(bent(|body| body[37] = 1), illegal);
    // A key that was not offered.
    assert_eq!(bent(|body| replace(body, 41, &[0, 1])), illegal);
    // An extension that was not asked for.
    let unasked = |body: &mut Vec<u8>| {
        if let Some(at) = body.windows(4).position(|bytes| bytes == [0, 41, 0, 2]) {
            body[at + 1] = 54;
        }
    };
    assert_eq!(bent(unasked), [ClientEvent::Ended(Alert::UnsupportedExtension)]);
}

#[test]
fn rfc_8446_s4_1_4_a_retry_asks_for_something_and_once() {
    let mut net = Net::of_any(server(psk_keys()), device());
    let hello = net.to_server.pop_front().unwrap();
    net.arrive(true, &hello);
    let retry = net.to_client.pop_front().unwrap();
    net.arrive(false, &retry);
    // The same once more, as its next message.
    let mut again = retry.clone();
    let sequence = wire::RECORD_HEADER + 5;
    assert_eq!(again[sequence], 0);
    again[sequence] = 1;
    net.arrive(false, &again);
    assert_eq!(net.events, [ClientEvent::Ended(Alert::UnexpectedMessage)]);
}

#[test]
fn s8_a_lost_acknowledgement_is_said_again_after_a_long_silence() {
    let mut net = Net::of_any(server(psk_keys()), device());
    assert!(net.shake());
    net.exchange();
    let (now, out) = (net.now, &mut net.to_server);
    net.client.update_keys(now, false, &mut |bytes| out.push_back(bytes.to_vec()));
    for _ in 0..6 {
        while let Some(datagram) = net.to_server.pop_front() {
            net.arrive(true, &datagram);
        }
        // The acknowledgement is lost, for more than half a minute.
        net.to_client.clear();
        net.wait();
        net.now = net.client.next_timeout().unwrap();
    }
    assert!(net.now.as_secs() > 30 && net.client.next_timeout().is_some());
    net.wait();
    net.travel();
    assert_eq!(net.client.next_timeout(), None, "acknowledged");
    net.exchange();
}
