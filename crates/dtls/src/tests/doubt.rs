//! Forged records in a handshake of DTLS 1.2, beside those of a client with a wrong key.

use std::time::Duration;

use super::{
    super::*,
    keys::{platform, psk_keys},
    net::{MS, Net, address, endpoint},
};
use crate::client::{Client, ClientConfig, ClientEvent};

/// Bytes of a record of epoch 1 that nobody has a key for.
fn forged(sequence: u8) -> Vec<u8> {
    let mut record = vec![22, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, sequence, 0, 48];
    record.extend([sequence; 48]);
    record
}

fn psk(key: &[u8]) -> ClientConfig {
    ClientConfig { suites: vec![Suite::PskAes128Ccm8], ..ClientConfig::psk(b"device", key) }
}

/// A handshake up to the last flight of the client, which is on its way.
fn half_way(config: ClientConfig) -> Net {
    let mut net = Net::new(endpoint(psk_keys(), EndpointConfig::default()), config);
    for up in [true, false, true] {
        let queue = if up { &mut net.to_server } else { &mut net.to_client };
        let datagrams: Vec<_> = queue.drain(..).collect();
        datagrams.iter().for_each(|datagram| net.arrive(up, datagram));
    }
    let flight: Vec<_> = net.to_client.drain(..).collect();
    flight.iter().for_each(|datagram| net.arrive(false, datagram));
    net
}

fn failures(net: &Net) -> usize {
    net.inbox.events().filter(|event| matches!(event, Event::Failed { .. })).count()
}

#[test]
fn s4_1_2_7_forged_records_neither_end_a_handshake_nor_count_against_its_identity() {
    for count in [1_u8, 2, 5] {
        let mut net = half_way(psk(b"secret"));
        let last: Vec<_> = net.to_server.drain(..).collect();
        // Before there is a key, and behind the ClientKeyExchange.
        net.arrive(true, &forged(7));
        let (exchange, finished) = split_last(&last);
        net.arrive(true, &exchange);
        (10..10 + count).for_each(|sequence| net.arrive(true, &forged(sequence)));
        assert!(net.to_client.is_empty(), "nothing is said");
        net.arrive(true, &finished);
        net.travel();
        assert!(net.client.is_established(), "{count}");
        assert_eq!(failures(&net), 0);
        net.exchange();
    }
}

/// The flight's ClientKeyExchange and what comes behind it.
fn split_last(flight: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let bytes = flight.concat();
    let (_, rest) = wire::Record::split(&bytes).unwrap();
    let at = bytes.len() - rest.len();
    (bytes[..at].to_vec(), bytes[at..].to_vec())
}

#[test]
fn a_wrong_key_is_told_within_seconds_and_counts_once() {
    let mut net = half_way(psk(b"wrong"));
    assert!(!net.shake());
    assert_eq!(net.events, [ClientEvent::Ended(Alert::DecryptError)]);
    assert_eq!(failures(&net), 1);
    assert_eq!(net.server.handshakes(), 0);
    // It was told with the second repeat.
    let mut net = half_way(psk(b"wrong"));
    while net.events.is_empty() {
        net.travel();
        net.wait();
    }
    assert!(net.now <= Duration::from_secs(5), "{:?}", net.now);
}

#[test]
fn keys_cannot_be_guessed_by_a_finished_for_each() {
    let mut net = half_way(psk(b"secret"));
    let last: Vec<_> = net.to_server.drain(..).collect();
    let (exchange, finished) = split_last(&last);
    net.arrive(true, &exchange);
    (10..30).for_each(|sequence| net.arrive(true, &forged(sequence)));
    net.arrive(true, &finished);
    assert!(net.to_client.is_empty(), "after so many none is tried");
    net.now += Duration::from_secs(3);
    net.arrive(true, &forged(31));
    assert_eq!(failures(&net), 1);
}

#[test]
fn a_key_that_was_tried_counts_whatever_becomes_of_the_handshake() {
    for config in [EndpointConfig::default(), EndpointConfig { handshakes_max: 1, ..EndpointConfig::default() }] {
        let mut net = half_way(psk(b"wrong"));
        net.server = endpoint(psk_keys(), config.clone());
        net.reboot(psk(b"wrong"));
        net.to_server.drain(..net.to_server.len() - 1);
        net.to_client.clear();
        net.travel();
        assert_eq!((failures(&net), net.server.handshakes()), (0, 1));
        if config.handshakes_max == 1 {
            // Another's takes its place.
            let hello = super::good_hello(&mut net.server, net.now, address(9));
            net.server.handle(net.now, address(9), &hello, &mut net.inbox, &mut |_, _| ());
        } else {
            // A new one of the same peer.
            net.now += 600 * MS;
            let hello = super::good_hello(&mut net.server, net.now, address(5000));
            net.server.handle(net.now, address(5000), &hello, &mut net.inbox, &mut |_, _| ());
        }
        assert_eq!(failures(&net), 1);
    }
    // Nothing more comes at all.
    let mut net = half_way(psk(b"wrong"));
    net.travel();
    net.now += Duration::from_secs(90);
    net.server.handle_timeout(net.now, &mut net.inbox, &mut |_, _| ());
    assert_eq!((failures(&net), net.server.handshakes()), (1, 0));
    let _ = Client::start(psk(b"secret"), platform(), net.now, &mut |_| ());
}
