use std::net::SocketAddr;

use super::*;
use crate::option::OptionNumber;
use crate::response::Payload;
use crate::token::Token;

const NOW: Timestamp = Timestamp::from_millis(1_000);

fn peer(last: u8, port: u16) -> SocketAddr {
    ([192, 0, 2, last], port).into()
}

fn request(kind: Type, code: Code, id: u16, options: &[(OptionNumber, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, kind, code, id, &Token::new(b"tok").unwrap());
    for (number, value) in options {
        encoder.push(*number, value);
    }
    encoder.finish();
    bytes
}

const CORE: [(OptionNumber, &[u8]); 2] = [(OptionNumber::URI_PATH, b".well-known"), (OptionNumber::URI_PATH, b"core")];

fn get(id: u16) -> Vec<u8> {
    request(Type::NonConfirmable, Code::GET, id, &CORE)
}

fn server(config: GroupConfig) -> GroupServer<SocketAddr> {
    GroupServer::new(config, 7)
}

fn links(text: &[u8]) -> Response<'_> {
    let content_format = Some(content_format::LINK_FORMAT);
    Response { content_format, payload: Payload::Slice(text), ..Response::new(Code::CONTENT) }
}

#[test]
fn s8_1_only_non_confirmable_get_of_the_well_known_core_is_taken() {
    let with = |more: &[(OptionNumber, &[u8])]| {
        let options = [&CORE[..], more].concat();
        request(Type::NonConfirmable, Code::GET, 1, &options)
    };
    let put = request(Type::NonConfirmable, Code::PUT, 1, &CORE);
    let ping = request(Type::Confirmable, Code::EMPTY, 1, &[]);
    let elsewhere =
        request(Type::NonConfirmable, Code::GET, 1, &[(OptionNumber::URI_PATH, b"ps"), (OptionNumber::URI_PATH, b"a")]);
    for (what, datagram, expected) in [
        ("GET", get(1), Verdict::Waits),
        ("a query", with(&[(OptionNumber::URI_QUERY, b"rt=x")]), Verdict::Waits),
        ("the first block", with(&[(OptionNumber::BLOCK2, &[0x02])]), Verdict::Waits),
        ("Confirmable", request(Type::Confirmable, Code::GET, 1, &CORE), Verdict::Ignored),
        ("a ping", ping, Verdict::Ignored),
        ("PUT", put, Verdict::Ignored),
        ("POST", request(Type::NonConfirmable, Code::POST, 1, &CORE), Verdict::Ignored),
        ("DELETE", request(Type::NonConfirmable, Code::DELETE, 1, &CORE), Verdict::Ignored),
        ("FETCH", request(Type::NonConfirmable, Code::FETCH, 1, &CORE), Verdict::Ignored),
        ("a topic", elsewhere, Verdict::Ignored),
        ("a later block", with(&[(OptionNumber::BLOCK2, &[0x12])]), Verdict::Ignored),
        ("another format", with(&[(OptionNumber::ACCEPT, &[50])]), Verdict::Ignored),
        ("an unknown critical option", with(&[(OptionNumber::new(65_001), b"x")]), Verdict::Ignored),
        ("No-Response", with(&[(OptionNumber::NO_RESPONSE, &[2])]), Verdict::Ignored),
        ("no CoAP", b"hello".to_vec(), Verdict::Ignored),
        ("too long", with(&[(OptionNumber::URI_QUERY, &[b'q'; 300][..255])]), Verdict::Ignored),
    ] {
        assert_eq!(server(GroupConfig::default()).handle(NOW, peer(1, 1), &datagram), expected, "{what}");
    }
}

#[test]
fn s8_2_answers_are_spread_over_the_leisure_in_the_order_in_which_they_are_due() {
    let mut server = server(GroupConfig::default());
    for last in 0..60 {
        assert_eq!(server.handle(NOW, peer(last, 5), &get(u16::from(last))), Verdict::Waits);
    }
    let end = NOW + DEFAULT_LEISURE;
    let mut dues = Vec::new();
    while let Some(at) = server.next_timeout() {
        assert!(at >= NOW && at <= end, "{at:?}");
        dues.push(at);
        assert!(server.take_due(at).is_some());
    }
    assert!(dues.is_sorted());
    let (early, late) = (dues.iter().filter(|at| **at < NOW + DEFAULT_LEISURE / 2).count(), dues.len());
    assert!((10..50).contains(&early), "{early} of {late}");
}

#[test]
fn s8_2_errors_and_empty_results_are_not_answered() {
    let mut server = server(GroupConfig { leisure: Duration::ZERO, ..GroupConfig::default() });
    server.handle(NOW, peer(1, 1), &get(1));
    let waiting = server.take_due(NOW).unwrap();
    let mut out = Outbox::default();
    assert!(!server.respond(&waiting, &Response::new(Code::UNAUTHORIZED), &mut out));
    assert!(!server.respond(&waiting, &Response::diagnostic(Code::NOT_FOUND, "none"), &mut out));
    assert!(!server.respond(&waiting, &links(b""), &mut out));
    assert!(out.is_empty());
    assert!(server.respond(&waiting, &links(b"</ps>"), &mut out));
    let (to, datagram) = out.iter().next().unwrap();
    let answer = Message::decode(datagram).unwrap();
    assert_eq!((to, answer.kind, answer.code), (peer(1, 1), Type::NonConfirmable, Code::CONTENT));
    assert_eq!((answer.token, answer.payload()), (Token::new(b"tok").unwrap(), &b"</ps>"[..]));
    assert!(answer.option(OptionNumber::BLOCK2).is_none());
}

#[test]
fn s2_8_of_a_long_list_only_the_first_block_is_sent() {
    let mut server = server(GroupConfig { leisure: Duration::ZERO, ..GroupConfig::default() });
    let text = vec![b'x'; 10_000];
    for (id, options, bytes) in [(1, vec![], 256), (2, vec![(OptionNumber::BLOCK2, &[0x01_u8][..])], 32)] {
        let datagram = request(Type::NonConfirmable, Code::GET, id, &[&CORE[..], &options].concat());
        server.handle(NOW, peer(1, 1), &datagram);
        let (waiting, mut out) = (server.take_due(NOW).unwrap(), Outbox::default());
        assert!(server.respond(&waiting, &links(&text), &mut out));
        assert_eq!(out.len(), 1);
        let (_, datagram) = out.iter().next().unwrap();
        let answer = Message::decode(datagram).unwrap();
        let block = answer.option(OptionNumber::BLOCK2).and_then(|option| Block::decode(option.uint()?)).unwrap();
        assert_eq!((block.number, block.more, answer.payload().len()), (0, true, bytes));
        assert_eq!(answer.option(OptionNumber::SIZE2).and_then(|option| option.uint()), Some(10_000));
    }
}

#[test]
fn a_host_and_all_hosts_together_have_bounds() {
    let mut server = server(GroupConfig { waiting_max: 4, answers_per_minute: 2, ..GroupConfig::default() });
    assert_eq!(server.handle(NOW, peer(1, 1), &get(1)), Verdict::Waits);
    assert_eq!(server.handle(NOW, peer(1, 1), &get(1)), Verdict::Ignored, "a repetition");
    assert_eq!(server.handle(NOW, peer(1, 2), &get(1)), Verdict::Waits, "another endpoint");
    assert_eq!(server.handle(NOW, peer(1, 3), &get(2)), Verdict::Limited, "a host");
    assert_eq!(server.handle(NOW, peer(2, 1), &get(3)), Verdict::Waits);
    assert_eq!(server.handle(NOW, peer(3, 1), &get(4)), Verdict::Waits);
    assert_eq!(server.handle(NOW, peer(4, 1), &get(5)), Verdict::Limited, "too many wait");
    let later = NOW + PERIOD;
    while server.take_due(later).is_some() {}
    assert_eq!(server.handle(later, peer(1, 3), &get(6)), Verdict::Waits, "a minute later");
}

#[test]
fn the_table_of_hosts_has_a_bound_and_forgets() {
    let mut server = server(GroupConfig { waiting_max: usize::MAX, ..GroupConfig::default() });
    let host = |number: u32| SocketAddr::new(std::net::Ipv4Addr::from_bits(number).into(), 1);
    for number in 0..1024 {
        assert_eq!(server.handle(NOW, host(number), &get(1)), Verdict::Waits);
    }
    assert_eq!(server.handle(NOW, host(5000), &get(1)), Verdict::Limited);
    assert_eq!(server.handle(NOW + PERIOD, host(5000), &get(1)), Verdict::Waits);
    assert_eq!(server.hosts.len(), 1);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_taken_without_harm(datagram in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        let mut server = server(GroupConfig { leisure: Duration::ZERO, ..GroupConfig::default() });
        let verdict = server.handle(NOW, peer(1, 1), &datagram);
        proptest::prop_assert_eq!(verdict == Verdict::Waits, server.next_timeout().is_some());
    }
}
