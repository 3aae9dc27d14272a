//! Keys and numbers of DTLS 1.2 that are used up.

use super::{
    super::*,
    keys::psk_keys,
    net::{Net, address, endpoint},
};
use crate::{
    client::{ClientConfig, ClientEvent},
    endpoint::Endpoint,
};

fn net() -> Net {
    let config = ClientConfig { suites: vec![Suite::PskAes128Ccm8], ..ClientConfig::psk(b"device", b"secret") };
    let mut net = Net::new(endpoint(psk_keys(), EndpointConfig::default()), config);
    assert!(net.shake());
    net
}

fn spent(net: &Net) -> bool {
    net.inbox.events().any(|event| matches!(event, Event::Ended { end: End::Spent, .. }))
}

fn session(server: &mut Endpoint<std::net::SocketAddr>) -> &mut session::Session {
    server.session_of_12(address(5000)).unwrap()
}

#[test]
fn records_that_were_forged_end_a_session_before_one_could_hold() {
    let mut net = net();
    let mut genuine = Vec::new();
    net.client.send(b"data", &mut |bytes| genuine = bytes.to_vec());
    let mut bent = genuine.clone();
    *bent.last_mut().unwrap() ^= 1;
    session(&mut net.server).wear_down(0, (1 << 20) - 2);
    net.arrive(true, &bent);
    assert!(!spent(&net));
    // Repeated records are not forged.
    net.arrive(true, &genuine);
    net.arrive(true, &genuine);
    assert!(!spent(&net));
    net.arrive(true, &bent);
    assert!(!spent(&net), "the number was seen");
    let mut next = Vec::new();
    net.client.send(b"data", &mut |bytes| next = bytes.to_vec());
    *next.last_mut().unwrap() ^= 1;
    net.arrive(true, &next);
    assert!(spent(&net));
    net.travel();
    assert_eq!(net.events.last(), Some(&ClientEvent::Ended(Alert::CloseNotify)));
    assert_eq!((net.server.sessions(), net.server.peers()), (0, 0));
}

#[test]
fn blocks_that_were_sealed_end_a_session_and_the_peer_is_told() {
    let mut net = net();
    net.exchange();
    let association = net.association();
    session(&mut net.server).wear_down((1 << 33) - 8, 0);
    net.exchange();
    assert!(!spent(&net));
    // The last that is allowed, and one too many.
    for (last, allowed) in [(b"1", Sent::Yes), (b"2", Sent::Ended)] {
        let out = &mut net.to_client;
        let send = &mut |_, bytes: &[u8]| out.push_back(bytes.to_vec());
        assert_eq!(net.server.send(net.now, address(5000), association, last, send), allowed);
    }
    assert!(net.server.next_timeout().is_some_and(|at| at <= net.now));
    net.wait();
    net.travel();
    assert!(spent(&net));
    assert_eq!(net.events.last(), Some(&ClientEvent::Ended(Alert::CloseNotify)));
}

#[test]
fn s4_1_numbers_that_are_used_up_end_a_session() {
    let mut net = net();
    let association = net.association();
    session(&mut net.server).skip((1 << 48) - 2);
    let out = &mut net.to_client;
    let send = &mut |_, bytes: &[u8]| out.push_back(bytes.to_vec());
    assert_eq!(net.server.send(net.now, address(5000), association, b"last", send), Sent::Yes);
    assert_eq!(net.server.send(net.now, address(5000), association, b"none", send), Sent::Ended);
    net.wait();
    net.travel();
    assert!(spent(&net));
    assert_eq!(net.events.last(), Some(&ClientEvent::Ended(Alert::CloseNotify)), "there was a number for this");
}

#[test]
fn a_client_that_has_sealed_too_much_says_goodbye() {
    let mut net = net();
    net.client.session_of_12().unwrap().wear_down(1 << 33, 0);
    let mut said = Vec::new();
    assert!(!net.client.send(b"data", &mut |bytes| said.push(bytes.to_vec())));
    assert!(!net.client.is_established() && said.len() == 1);
    net.arrive(true, &said[0]);
    assert_eq!((net.server.sessions(), net.server.peers()), (0, 0));
}

#[test]
fn a_client_ends_its_session_before_a_forged_record_could_hold() {
    let mut net = net();
    net.client.session_of_12().unwrap().wear_down(0, (1 << 20) - 2);
    let (mut said, mut heard) = (Vec::new(), Vec::new());
    for sequence in 9..12 {
        let mut forged = Vec::new();
        let number = wire::number(session::EPOCH, sequence);
        wire::put_record(&mut forged, wire::ContentType::ApplicationData, wire::DTLS_1_2, number, &[7; 40]);
        heard.extend(net.client.handle(net.now, &forged, &mut |bytes| said.push(bytes.to_vec())));
    }
    assert_eq!(heard, [ClientEvent::Ended(Alert::CloseNotify)]);
    assert!(!net.client.is_established() && said.len() == 1);
    net.arrive(true, &said[0]);
    assert_eq!((net.server.sessions(), net.server.peers()), (0, 0));
}
