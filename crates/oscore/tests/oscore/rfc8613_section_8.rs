//! RFC 8613 §4 to §8: what is inside and what outside, replays, errors, observation.

use std::sync::Arc;

use crate::support::{BrokenDisk, Ends, UNUSED, content, context, decode, get, parameters};
use fogmux_coap::{Code, Encoder, OptionNumber, Timestamp, Token, Type};
use fogmux_oscore::{
    Algorithm, Context, Exchange, Opened, Parameters, Pending, RequestRefused, Requests, ResponseRefused, SealError,
    Start,
};

const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::A128Gcm,
    Algorithm::A256Gcm,
    Algorithm::AesCcm1664128,
    Algorithm::AesCcm1664256,
    Algorithm::ChaCha20Poly1305,
    Algorithm::AesCcm16128128,
    Algorithm::AesCcm16128256,
];

fn sealed(client: &Arc<Context>, plain: &[u8]) -> (Vec<u8>, Pending) {
    let mut out = Vec::new();
    let pending = client.seal_request(&decode(plain), &mut out).unwrap();
    (out, pending)
}

/// The request is opened; what was inside.
fn opened(ends: &Ends, request: &[u8]) -> (Exchange, Vec<u8>) {
    let mut inner = Vec::new();
    match ends.server.open_request(Timestamp::ZERO, &decode(request), &mut inner) {
        Ok(Opened::Request(exchange)) => (exchange, inner),
        other => panic!("{other:?}"),
    }
}

fn refused(ends: &Ends, request: &[u8]) -> RequestRefused {
    let mut inner = vec![1, 2, 3];
    let error = ends.server.open_request(Timestamp::ZERO, &decode(request), &mut inner).unwrap_err();
    assert_eq!(inner, [1, 2, 3]);
    error
}

fn answered(exchange: &Exchange, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    exchange.seal(&decode(plain), &mut out).unwrap();
    out
}

fn partial_iv(message: &[u8]) -> Option<u64> {
    let option = decode(message).option(OptionNumber::OSCORE).unwrap();
    fogmux_oscore::OscoreOption::decode(option.value).unwrap().partial_iv.map(|piv| piv.number())
}

#[test]
fn every_algorithm_both_ways() {
    for algorithm in ALGORITHMS {
        let ends = Ends::new(&Parameters { algorithm, ..parameters("0a", "0b") });
        let plain = get("a", None);
        let (request, mut pending) = sealed(&ends.client, &plain);
        let (exchange, inner) = opened(&ends, &request);
        assert_eq!(inner, plain);
        let answer = content(b"21.5", None);
        let protected = answered(&exchange, &answer);
        let mut inner = Vec::new();
        pending.open(&decode(&protected), &mut inner).unwrap();
        assert_eq!(inner, answer, "{algorithm}");
    }
}

#[test]
fn s4_1_each_option_goes_where_it_belongs() {
    let ends = Ends::new(&parameters("", "01"));
    let mut plain = Vec::new();
    let all: [(OptionNumber, &[u8]); 15] = [
        (OptionNumber::IF_MATCH, b"tag"),
        (OptionNumber::URI_HOST, b"example.org"),
        (OptionNumber::IF_NONE_MATCH, b""),
        (OptionNumber::URI_PORT, &[0x16, 0x33]),
        (OptionNumber::URI_PATH, b"a"),
        (OptionNumber::URI_PATH, b""),
        (OptionNumber::CONTENT_FORMAT, &[50]),
        (OptionNumber::URI_QUERY, b"retain=true"),
        (OptionNumber::HOP_LIMIT, &[16]),
        (OptionNumber::ACCEPT, &[50]),
        (OptionNumber::BLOCK1, &[6]),
        (OptionNumber::PROXY_SCHEME, b"coap"),
        (OptionNumber::SIZE1, &[9]),
        (OptionNumber::NO_RESPONSE, &[26]),
        (OptionNumber::new(65000), b"unknown"),
    ];
    let mut encoder =
        Encoder::new(&mut plain, Type::NonConfirmable, Code::PUT, 9, &Token::new(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap());
    all.iter().for_each(|(number, value)| encoder.push(*number, value));
    encoder.payload(b"payload");
    let (request, _) = sealed(&ends.client, &plain);
    let outer: Vec<u16> = decode(&request).options().map(|option| option.number.get()).collect();
    assert_eq!(outer, [3, 7, 9, 16, 39]);
    assert_eq!(decode(&request).code, Code::POST);
    let (_, inner) = opened(&ends, &request);
    assert_eq!(inner, plain);
}

#[test]
fn s8_2_1_outer_options_of_class_e_are_not_believed() {
    let ends = Ends::new(&parameters("", "01"));
    let (request, _) = sealed(&ends.client, &get("a", None));
    let protected = decode(&request);
    let mut forged = Vec::new();
    let mut encoder = Encoder::new(&mut forged, Type::Confirmable, Code::DELETE, 0x1234, &protected.token);
    encoder.push(OptionNumber::IF_NONE_MATCH, &[]);
    encoder.push(OptionNumber::OBSERVE, &[]);
    encoder.push(OptionNumber::OSCORE, protected.option(OptionNumber::OSCORE).unwrap().value);
    encoder.push(OptionNumber::URI_PATH, b"other");
    encoder.push(OptionNumber::NO_RESPONSE, &[26]);
    encoder.payload(protected.payload());
    assert_eq!(opened(&ends, &forged).1, get("a", None));
}

#[test]
fn s7_4_a_replay_is_refused_and_s8_2_every_other_error() {
    let ends = Ends::new(&parameters("", "01"));
    let (request, _) = sealed(&ends.client, &get("a", None));
    opened(&ends, &request);
    assert_eq!(refused(&ends, &request), RequestRefused::Replay);

    let (request, _) = sealed(&ends.client, &get("a", None));
    let mut damaged = request.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(refused(&ends, &damaged), RequestRefused::Decryption);
    // A message that could not be decrypted leaves the replay window unchanged.
    opened(&ends, &request);

    let stranger = context(&parameters("77", "01"), UNUSED);
    assert_eq!(refused(&ends, &sealed(&stranger, &get("a", None)).0), RequestRefused::NoContext);

    let with_option = |value: &[u8], payload: &[u8]| {
        let mut bytes = Vec::new();
        let encoder = Encoder::new(&mut bytes, Type::Confirmable, Code::POST, 1, &Token::EMPTY);
        encoder.option(OptionNumber::OSCORE, value).payload(payload);
        bytes
    };
    for (value, payload) in
        [(&[0x89_u8, 0][..], &[7_u8; 20][..]), (&[], &[7; 20]), (&[0x01, 9], &[7; 20]), (&[0x09, 9], &[])]
    {
        assert_eq!(refused(&ends, &with_option(value, payload)), RequestRefused::Decode);
    }
    assert_eq!(refused(&ends, &with_option(&[0x09, 99], &[7; 3])), RequestRefused::Decryption);
    let codes = [
        (RequestRefused::Decode, Code::BAD_OPTION),
        (RequestRefused::NoContext, Code::UNAUTHORIZED),
        (RequestRefused::Replay, Code::UNAUTHORIZED),
        (RequestRefused::Decryption, Code::BAD_REQUEST),
    ];
    for (error, code) in codes {
        assert_eq!((error.reason(), error.text()), (code, error.to_string().as_str()));
    }
}

#[test]
fn s5_1_the_id_context_tells_contexts_apart() {
    let with = |id_context: &[u8]| Parameters { id_context: Some(id_context.to_vec()), ..parameters("", "01") };
    let mut ends = Ends::new(&with(b"one"));
    ends.server.add(context(&with(b"two").mirrored(), UNUSED)).unwrap();
    assert!(ends.server.add(context(&with(b"two").mirrored(), UNUSED)).is_err());
    let second = context(&with(b"two"), UNUSED);
    for client in [&ends.client, &second] {
        let (request, _) = sealed(client, &get("a", None));
        assert_eq!(opened(&ends, &request).0.context().id_context(), client.id_context());
    }
    let third = context(&with(b"three"), UNUSED);
    assert_eq!(refused(&ends, &sealed(&third, &get("a", None)).0), RequestRefused::NoContext);
}

#[test]
fn s4_1_3_5_an_observation() {
    let ends = Ends::new(&parameters("", "01"));
    let (request, mut pending) = sealed(&ends.client, &get("a", Some(0)));
    assert_eq!(decode(&request).code, Code::FETCH);
    assert_eq!(decode(&request).option(OptionNumber::OBSERVE).unwrap().value, b"");
    let (exchange, inner) = opened(&ends, &request);
    assert_eq!(inner, get("a", Some(0)));

    let first = answered(&exchange, &content(b"1", Some(1)));
    let notifications = [2_u8, 3, 4].map(|number| answered(&exchange, &content(&[number], Some(number.into()))));
    assert_eq!(
        (partial_iv(&first), partial_iv(&notifications[0]), partial_iv(&notifications[2])),
        (None, Some(0), Some(2))
    );
    assert_eq!(decode(&first).code, Code::CONTENT);
    assert_eq!(decode(&notifications[1]).option(OptionNumber::OBSERVE).unwrap().value, [3]);

    let mut open = |bytes: &[u8]| {
        let mut inner = Vec::new();
        pending.open(&decode(bytes), &mut inner).map(|()| {
            let message = decode(&inner);
            (message.payload().to_vec(), message.option(OptionNumber::OBSERVE).unwrap().uint().unwrap())
        })
    };
    assert_eq!(open(&first), Ok((b"1".to_vec(), 1)));
    assert_eq!(open(&first), Err(ResponseRefused::Old));
    assert_eq!(open(&notifications[1]), Ok((vec![3], 2)));
    assert_eq!(open(&notifications[0]), Err(ResponseRefused::Old));
    assert_eq!(open(&notifications[1]), Err(ResponseRefused::Old));
    assert_eq!(open(&notifications[2]), Ok((vec![4], 3)));
    // The end of an observation has a Partial IV as well, and is no notification.
    let end = answered(&exchange, &content(b"gone", None));
    assert_eq!(partial_iv(&end), Some(3));
    let mut inner = Vec::new();
    pending.open(&decode(&end), &mut inner).unwrap();
    assert!(decode(&inner).option(OptionNumber::OBSERVE).is_none());
}

#[test]
fn s4_1_3_5_2_no_notification_to_one_who_does_not_observe() {
    let ends = Ends::new(&parameters("", "01"));
    let (request, mut pending) = sealed(&ends.client, &get("a", None));
    let (exchange, _) = opened(&ends, &request);
    let notification = answered(&exchange, &content(b"1", Some(1)));
    assert_eq!(pending.open(&decode(&notification), &mut Vec::new()), Err(ResponseRefused::NoResponse));
}

#[test]
fn s7_1_an_answer_to_another_request_is_not_opened() {
    let ends = Ends::new(&parameters("", "01"));
    let (first, _) = sealed(&ends.client, &get("a", None));
    let (second, mut pending) = sealed(&ends.client, &get("a", None));
    let (first, _) = opened(&ends, &first);
    opened(&ends, &second);
    for _ in 0..2 {
        let answer = answered(&first, &content(b"1", None));
        assert_eq!(pending.open(&decode(&answer), &mut Vec::new()), Err(ResponseRefused::Decryption));
    }
    assert_eq!(pending.open(&decode(&content(b"", None)), &mut Vec::new()), Err(ResponseRefused::Unprotected));
}

#[test]
fn b_1_2_after_a_restart_the_first_request_must_come_again() {
    let start = Start { next: 2048, durable: 4096, requests: Requests::Unknown { echo: *b"12345678" } };
    let ends = Ends::with(&parameters("", "01"), start);
    let (old, _) = sealed(&ends.client, &get("a", None));
    let (request, mut pending) = sealed(&ends.client, &get("a", None));
    let mut inner = Vec::new();
    let Ok(Opened::Unproven(exchange, echo)) = ends.server.open_request(Timestamp::ZERO, &decode(&request), &mut inner)
    else {
        panic!("a request is believed")
    };
    assert!(inner.is_empty());
    let mut challenge = Vec::new();
    let token = decode(&request).token;
    Encoder::new(&mut challenge, Type::Acknowledgement, Code::UNAUTHORIZED, 0x1234, &token)
        .option(OptionNumber::ECHO, &echo)
        .finish();
    let sealed_challenge = answered(&exchange, &challenge);
    assert_eq!(partial_iv(&sealed_challenge), Some(2048));
    pending.open(&decode(&sealed_challenge), &mut inner).unwrap();
    assert_eq!(inner, challenge);

    let with_echo = |echo: &[u8]| {
        let mut bytes = Vec::new();
        Encoder::new(&mut bytes, Type::Confirmable, Code::GET, 0x1235, &token)
            .option(OptionNumber::URI_PATH, b"a")
            .option(OptionNumber::ECHO, echo)
            .finish();
        bytes
    };
    let (wrong, _) = sealed(&ends.client, &with_echo(b"87654321"));
    assert!(matches!(
        ends.server.open_request(Timestamp::ZERO, &decode(&wrong), &mut Vec::new()),
        Ok(Opened::Unproven(..))
    ));
    // Kept back, it is not fresh any more (RFC 9175 §2.3), and another value is asked for.
    let (late, _) = sealed(&ends.client, &with_echo(&echo));
    let later = ends.server.open_request(Timestamp::from_millis(600_000), &decode(&late), &mut Vec::new());
    assert!(matches!(later, Ok(Opened::Unproven(_, other)) if other != echo));
    let (proof, _) = sealed(&ends.client, &with_echo(&echo));
    opened(&ends, &proof);
    for replay in [&old, &request, &wrong, &late, &proof] {
        assert_eq!(refused(&ends, replay), RequestRefused::Replay);
    }
    opened(&ends, &sealed(&ends.client, &get("a", None)).0);
}

#[test]
fn b_1_1_nothing_is_sealed_with_a_number_that_is_not_durable() {
    let start = Start { next: 7, durable: 8, requests: Requests::SeenBelow(0) };
    let client = Context::new("c".into(), &parameters("", "01"), start, Arc::new(BrokenDisk)).unwrap();
    let mut out = Vec::new();
    assert!(client.seal_request(&decode(&get("a", None)), &mut out).is_ok());
    let length = out.len();
    assert_eq!(client.seal_request(&decode(&get("a", None)), &mut out).unwrap_err(), SealError::NotDurable);
    assert_eq!(out.len(), length);
}

#[test]
fn s4_1_3_7_nothing_is_protected_twice() {
    let ends = Ends::new(&parameters("", "01"));
    let (request, _) = sealed(&ends.client, &get("a", None));
    assert_eq!(ends.client.seal_request(&decode(&request), &mut Vec::new()).unwrap_err(), SealError::Nested);
    let (exchange, _) = opened(&ends, &request);
    assert_eq!(exchange.seal(&decode(&request), &mut Vec::new()), Err(SealError::Nested));
}
