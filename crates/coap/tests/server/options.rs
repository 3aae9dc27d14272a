//! RFC 7252 §5.4, §5.10: options; RFC 8768.

use super::*;

#[test]
fn s5_4_1_unknown_critical_options_are_refused_and_elective_ones_ignored() {
    let mut bench = Bench::new(ServerConfig::default());
    for (number, value) in [
        (65001, &b"x"[..]),
        (OptionNumber::OSCORE.get(), &b""[..]),
        (OptionNumber::ACCEPT.get(), &b"abc"[..]),
        (OptionNumber::URI_PATH.get(), &[0xff]),
        (OptionNumber::IF_NONE_MATCH.get(), &b"x"[..]),
    ] {
        let answer = bench.ask(Code::GET, &[(OptionNumber::new(number), value)], &[]);
        assert_eq!((answer.code(), bench.asked), (Code::BAD_OPTION, 0), "{number}");
        let datagram = bench.compose(Type::NonConfirmable, Code::GET, &[(OptionNumber::new(number), value)], &[]);
        assert_eq!(bench.raw(&datagram)[0].kind(), Type::Reset, "{number}");
    }
    let elective: &[(OptionNumber, &[u8])] =
        &[PATH, (OptionNumber::new(2052), b"x"), (OptionNumber::new(65002), b"xxxxxxxxxxxxxxxxxxxxxx")];
    assert_eq!(bench.ask(Code::GET, elective, &[]).code(), Code::CONTENT);
}

#[test]
fn s5_4_5_an_option_too_often_is_as_if_unknown() {
    let mut bench = Bench::new(ServerConfig::default());
    let twice = [PATH, (OptionNumber::ACCEPT, &[0][..]), (OptionNumber::ACCEPT, &[0][..])];
    assert_eq!(bench.ask(Code::GET, &twice, &[]).code(), Code::BAD_OPTION);
    let host_twice = [(OptionNumber::URI_HOST, &b"a"[..]), (OptionNumber::URI_HOST, &b"b"[..])];
    assert_eq!(bench.ask(Code::GET, &host_twice, &[]).code(), Code::BAD_OPTION);
}

#[test]
fn s5_10_2_this_is_no_proxy() {
    let mut bench = Bench::new(ServerConfig::default());
    for option in [OptionNumber::PROXY_URI, OptionNumber::PROXY_SCHEME] {
        assert_eq!(bench.ask(Code::GET, &[(option, b"coap")], &[]).code(), Code::PROXYING_NOT_SUPPORTED);
    }
}

#[test]
fn s5_10_4_another_format_is_not_acceptable() {
    let mut bench = Bench::new(ServerConfig::default());
    assert_eq!(bench.ask(Code::GET, &[PATH, (OptionNumber::ACCEPT, &[50])], &[]).code(), Code::NOT_ACCEPTABLE);
    assert_eq!(bench.ask(Code::GET, &[PATH, (OptionNumber::ACCEPT, &[])], &[]).code(), Code::CONTENT);
}

#[test]
fn s5_10_6_a_state_that_the_client_has_is_only_confirmed() {
    let mut bench = Bench::new(ServerConfig::default());
    let tag = etag(b"state");
    let answer =
        bench.ask(Code::GET, &[(OptionNumber::ETAG, b"other"), (OptionNumber::ETAG, tag.as_slice()), PATH], &[]);
    assert_eq!((answer.code(), answer.message().payload().len()), (Code::VALID, 0));
    assert_eq!(answer.message().option(OptionNumber::ETAG).unwrap().value, tag.as_slice());
}

#[test]
fn s5_10_8_preconditions() {
    let tag = etag(b"state");
    let other = etag(b"other");
    let none: (OptionNumber, &[u8]) = (OptionNumber::IF_NONE_MATCH, &[]);
    type Case<'a> = (&'a [(OptionNumber, &'a [u8])], bool, bool);
    let cases: &[Case<'_>] = &[
        (&[], true, true),
        (&[none], false, true),
        (&[(OptionNumber::IF_MATCH, &[])], true, false),
        (&[(OptionNumber::IF_MATCH, tag.as_slice())], true, false),
        (&[(OptionNumber::IF_MATCH, other.as_slice()), (OptionNumber::IF_MATCH, tag.as_slice())], true, false),
        (&[(OptionNumber::IF_MATCH, other.as_slice())], false, false),
    ];
    for (options, with_state, without) in cases {
        let datagram = compose(Type::Confirmable, Code::PUT, 1, options, &[]);
        let request = fogmux_coap::Request::parse(Message::decode(&datagram).unwrap()).unwrap();
        assert_eq!(request.precondition_holds(Some(&tag)), *with_state, "{options:?}");
        assert_eq!(request.precondition_holds(None), *without, "{options:?}");
    }
}

#[test]
fn rfc8768_s3_a_hop_limit_of_nought_is_a_bad_request() {
    let mut bench = Bench::new(ServerConfig::default());
    assert_eq!(bench.ask(Code::GET, &[PATH, (OptionNumber::HOP_LIMIT, &[0])], &[]).code(), Code::BAD_REQUEST);
    assert_eq!(bench.ask(Code::GET, &[PATH, (OptionNumber::HOP_LIMIT, &[1])], &[]).code(), Code::CONTENT);
}

#[test]
fn paths_keep_empty_levels_and_percent_signs() {
    let levels = ["ps", "a%2Fb", "", ""];
    let path = levels.map(|level| (OptionNumber::URI_PATH, level.as_bytes()));
    let datagram = compose(Type::Confirmable, Code::GET, 1, &path, &[]);
    let request = fogmux_coap::Request::parse(Message::decode(&datagram).unwrap()).unwrap();
    assert_eq!(request.path().collect::<Vec<_>>(), levels);
}
