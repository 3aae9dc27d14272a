//! RFC 8613 appendix C.4 to C.8: whole messages. C.1 to C.3, the derivation of keys, are tested beside it in
//! `src/derive.rs`.

use crate::support::{context, decode, hex, parameters};
use fogmux_coap::Timestamp;
use fogmux_oscore::{Opened, Parameters, Requests, Ring, Start};

const AT_20: Start = Start { next: 20, durable: 1024, requests: Requests::SeenBelow(0) };
const AT_0: Start = Start { next: 0, durable: 1024, requests: Requests::SeenBelow(0) };

const RESPONSE: &str = "64455d1f00003974ff48656c6c6f20576f726c6421";

/// Seals as the client, compares, and opens as the server.
fn request(parameters: &Parameters, plain: &str, protected: &str) {
    let client = context(parameters, AT_20);
    let mut sealed = Vec::new();
    client.seal_request(&decode(&hex(plain)), &mut sealed).unwrap();
    assert_eq!(sealed, hex(protected));
    let mut server = Ring::default();
    server.add(context(&parameters.mirrored(), AT_0)).unwrap();
    let mut inner = Vec::new();
    assert!(matches!(server.open_request(Timestamp::ZERO, &decode(&sealed), &mut inner), Ok(Opened::Request(_))));
    assert_eq!(inner, hex(plain));
}

#[test]
fn c_4_request() {
    request(
        &parameters("", "01"),
        "44015d1f00003974396c6f63616c686f737483747631",
        "44025d1f00003974396c6f63616c686f7374620914ff612f1092f1776f1c1668b3825e",
    );
}

#[test]
fn c_5_request_with_an_id() {
    let parameters = Parameters { master_salt: Vec::new(), ..parameters("00", "01") };
    request(
        &parameters,
        "440171c30000b932396c6f63616c686f737483747631",
        "440271c30000b932396c6f63616c686f737463091400ff4ed339a5a379b0b8bc731fffb0",
    );
}

#[test]
fn c_6_request_with_an_id_context() {
    let parameters = Parameters { id_context: Some(hex("37cbf3210017a2d3")), ..parameters("", "01") };
    request(
        &parameters,
        "44012f8eef9bbf7a396c6f63616c686f737483747631",
        "44022f8eef9bbf7a396c6f63616c686f73746b19140837cbf3210017a2d3ff72cd7273fd331ac45cffbe55c3",
    );
}

#[test]
fn c_7_response_and_c_8_response_with_a_partial_iv() {
    let parameters = parameters("", "01");
    let client = context(&parameters, AT_20);
    let (mut sealed, mut inner) = (Vec::new(), Vec::new());
    let plain = hex("44015d1f00003974396c6f63616c686f737483747631");
    let mut pending = client.seal_request(&decode(&plain), &mut sealed).unwrap();
    let mut server = Ring::default();
    server.add(context(&parameters.mirrored(), AT_0)).unwrap();
    let Ok(Opened::Request(exchange)) = server.open_request(Timestamp::ZERO, &decode(&sealed), &mut inner) else {
        panic!("the request of C.4 is not opened")
    };
    let expected = [
        "64445d1f0000397490ffdbaad1e9a7e7b2a813d3c31524378303cdafae119106",
        "64445d1f00003974920100ff4d4c13669384b67354b2b6175ff4b8658c666a6cf88e",
    ];
    for protected in expected {
        let (mut sealed, mut inner) = (Vec::new(), Vec::new());
        exchange.seal(&decode(&hex(RESPONSE)), &mut sealed).unwrap();
        assert_eq!(sealed, hex(protected));
        pending.open(&decode(&sealed), &mut inner).unwrap();
        assert_eq!(inner, hex(RESPONSE));
    }
}
