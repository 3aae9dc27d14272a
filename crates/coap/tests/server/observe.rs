//! RFC 7641.

use fogmux_coap::server::Amplification;

use super::*;

fn observing() -> Bench {
    // From behind a network, where pace matters.
    let mut bench = Bench::new(ServerConfig { amplification: Amplification::Off, ..ServerConfig::default() });
    bench.peer = address(false);
    let answer = bench.ask(Code::GET, &[REGISTER, PATH], &[]);
    assert!(answer.uint(OptionNumber::OBSERVE).is_some());
    bench
}

/// Lets the server learn the round trip, which is too short to matter.
fn settled() -> Bench {
    let mut bench = observing();
    bench.notify(b"0", false);
    let (_, sent) = bench.notify(b"0", false);
    bench.empty(Type::Acknowledgement, sent[0].message().message_id);
    bench
}

#[test]
fn s3_4_sequence_numbers_rise() {
    let mut bench = settled();
    let mut last = 0;
    for _ in 0..50 {
        let (notified, sent) = bench.notify(b"x", false);
        assert_eq!((notified, sent[0].kind()), (Notified::Sent, Type::NonConfirmable));
        let sequence = sent[0].uint(OptionNumber::OBSERVE).unwrap();
        assert!(sequence > last);
        last = sequence;
    }
}

#[test]
fn s4_4_sequence_numbers_rise_over_registrations_with_one_token() {
    let mut bench = observing();
    let mut last = 0;
    for _ in 0..50 {
        bench.wait(Duration::from_millis(10));
        let answer = bench.ask(Code::GET, &[REGISTER, PATH], &[]);
        let sequence = answer.uint(OptionNumber::OBSERVE).unwrap();
        assert!(sequence > last, "{sequence} after {last}");
        last = bench.notify(b"x", false).1[0].uint(OptionNumber::OBSERVE).unwrap();
        bench.ask(Code::GET, &[(OptionNumber::OBSERVE, &[1]), PATH], &[]);
        assert_eq!(bench.gone(), Some(GoneReason::Deregistered));
    }
}

#[test]
fn s4_4_sequence_numbers_rise_over_restarts() {
    // A process of five seconds, and the next one a second later.
    let mut before = Bench::new(ServerConfig::default());
    before.server.set_origin(1_795_000_000_000);
    before.wait(Duration::from_secs(5));
    before.ask(Code::GET, &[REGISTER, PATH], &[]);
    let last = before.notify(b"x", false).1[0].uint(OptionNumber::OBSERVE).unwrap();
    let mut after = Bench::new(ServerConfig::default());
    after.server.set_origin(1_795_000_006_000);
    let first = after.ask(Code::GET, &[REGISTER, PATH], &[]).uint(OptionNumber::OBSERVE).unwrap();
    // §3.4.
    let is_newer = (last < first && first - last < 1 << 23) || (last > first && last - first > 1 << 23);
    assert!(is_newer, "{first} after {last}");
}

#[test]
fn s3_6_cancelled_by_get() {
    let mut bench = observing();
    let answer = bench.ask(Code::GET, &[(OptionNumber::OBSERVE, &[1]), PATH], &[]);
    assert_eq!((answer.code(), answer.uint(OptionNumber::OBSERVE)), (Code::CONTENT, None));
    assert_eq!(bench.gone(), Some(GoneReason::Deregistered));
    assert_eq!(bench.notify(b"x", false).0, Notified::Gone);
}

#[test]
fn s3_6_cancelled_by_reset_of_a_non_confirmable_though_late() {
    let mut bench = settled();
    let (_, first) = bench.notify(b"1", false);
    bench.notify(b"2", false);
    bench.empty(Type::Reset, first[0].message().message_id.wrapping_sub(9));
    assert_eq!(bench.gone(), None);
    bench.empty(Type::Reset, first[0].message().message_id);
    assert_eq!(bench.gone(), Some(GoneReason::Reset));
}

#[test]
fn s3_6_cancelled_by_reset_of_a_confirmable() {
    let mut bench = observing();
    let (_, sent) = bench.notify(b"1", true);
    bench.empty(Type::Reset, sent[0].message().message_id);
    assert_eq!(bench.gone(), Some(GoneReason::Reset));
}

#[test]
fn s4_7_of_rfc_7252_the_place_of_a_cancelled_confirmable_goes_to_the_next() {
    let mut bench = settled();
    let (_, first) = bench.notify(b"1", false);
    let (_, under_way) = bench.notify(b"2", true);
    assert_eq!(under_way[0].kind(), Type::Confirmable);
    let mut register = Vec::new();
    let mut encoder = Encoder::new(&mut register, Type::Confirmable, Code::GET, 7, &Token::new(b"other").unwrap());
    [REGISTER, PATH].iter().for_each(|(number, value)| encoder.push(*number, value));
    encoder.payload(&[]);
    bench.raw(&register);
    assert_eq!(bench.notify(b"3", true).0, Notified::Later, "NSTART is 1");
    // The client has forgotten the first observation, and so never acknowledges what is under way.
    bench.empty(Type::Reset, first[0].message().message_id);
    assert_eq!(bench.gone(), Some(GoneReason::Reset));
    assert!(bench.server.next_timeout() <= Some(bench.now));
    let sent = bench.wait(Duration::ZERO);
    assert_eq!((sent.len(), sent[0].kind(), sent[0].message().payload()), (1, Type::Confirmable, &b"3"[..]));
}

#[test]
fn s4_1_the_same_token_is_the_same_observer() {
    let mut bench = observing();
    bench.ask(Code::GET, &[REGISTER, PATH], &[]);
    assert_eq!((bench.server.observers(), bench.gone()), (1, None));
    bench.ask(Code::GET, &[REGISTER, (OptionNumber::URI_PATH, b"other")], &[]);
    assert_eq!((bench.server.observers(), bench.gone()), (1, Some(GoneReason::Replaced)));
}

#[test]
fn s4_1_an_error_registers_nobody() {
    let mut bench = Bench::new(ServerConfig::default());
    bench.state = None;
    let answer = bench.ask(Code::GET, &[REGISTER, PATH], &[]);
    assert_eq!((answer.code(), answer.uint(OptionNumber::OBSERVE)), (Code::NOT_FOUND, None));
    assert_eq!(bench.server.observers(), 0);
}

#[test]
fn s4_2_an_error_is_the_last_notification() {
    let mut bench = settled();
    let (_, sent) = bench.notify_with(Response::new(Code::NOT_FOUND), false);
    assert_eq!((sent[0].kind(), sent[0].code()), (Type::Confirmable, Code::NOT_FOUND));
    assert_eq!(sent[0].uint(OptionNumber::OBSERVE), None);
    assert_eq!(bench.notify(b"x", false).0, Notified::Gone);
    let repeats: Vec<_> = (0..100).flat_map(|_| bench.wait(Duration::from_secs(1))).collect();
    assert_eq!(repeats.len(), 4);
}

#[test]
fn s4_5_now_and_then_one_is_confirmable() {
    let mut bench = settled();
    let kinds: Vec<_> = (0..101).map(|_| bench.notify(b"x", false).1[0].kind()).collect();
    assert!(kinds[..100].iter().all(|kind| *kind == Type::NonConfirmable));
    assert_eq!(kinds[100], Type::Confirmable);
}

#[test]
fn s4_5_who_never_acknowledges_is_forgotten() {
    let mut bench = observing();
    bench.notify(b"x", true);
    for _ in 0..100 {
        bench.wait(Duration::from_secs(1));
    }
    assert_eq!(bench.gone(), Some(GoneReason::TimedOut));
}

#[test]
fn s4_5_1_while_one_is_not_acknowledged_only_the_newest_waits() {
    let mut bench = observing();
    let (_, first) = bench.notify(b"1", true);
    for state in [b"2", b"3", b"4"] {
        assert_eq!(bench.notify(state, true), (Notified::Later, Vec::new()));
    }
    assert_eq!(bench.server.counters().conflated, 2);
    let next = bench.empty(Type::Acknowledgement, first[0].message().message_id);
    assert_eq!((next.len(), next[0].message().payload()), (1, &b"4"[..]));
}

#[test]
fn s4_5_1_non_confirmables_go_on_until_a_confirmable_has_to_be_repeated() {
    let mut bench = settled();
    let (_, probe) = bench.notify(b"1", true);
    assert_eq!(bench.notify(b"2", false).0, Notified::Sent);
    assert_eq!(bench.notify(b"3", true).0, Notified::Later);
    let newest = bench.wait(Duration::from_secs(3));
    assert_eq!((newest[0].kind(), newest[0].message().payload()), (Type::Confirmable, &b"3"[..]));
    assert_eq!(bench.notify(b"4", false).0, Notified::Later);
    bench.empty(Type::Acknowledgement, probe[0].message().message_id);
    assert_eq!(bench.notify(b"5", false).0, Notified::Later);
    let next = bench.empty(Type::Acknowledgement, newest[0].message().message_id);
    assert_eq!((next[0].kind(), next[0].message().payload()), (Type::NonConfirmable, &b"5"[..]));
}

#[test]
fn s4_5_1_while_one_is_overdue_non_confirmables_go_out_slowly_and_the_newest() {
    let mut bench = Bench::new(ServerConfig::default());
    bench.ask(Code::GET, &[REGISTER, PATH], &[]);
    let (_, probe) = bench.notify(b"0", true);
    // Not yet: it may be on its way.
    assert_eq!(bench.notify(b"1", false).0, Notified::Sent);
    assert_eq!(bench.notify(b"2", false).0, Notified::Sent);
    let mut sent = bench.wait(Duration::from_millis(10)).len();
    for _ in 0..1000 {
        sent += bench.notify(b"x", false).1.len();
        sent += bench.wait(Duration::from_millis(1)).len();
    }
    assert!((5..=6).contains(&sent), "{sent} in a second");
    assert_eq!(bench.notify(b"newest", false).0, Notified::Later);
    let next = bench.empty(Type::Acknowledgement, probe[0].message().message_id);
    assert_eq!((next[0].kind(), next[0].message().payload()), (Type::NonConfirmable, &b"newest"[..]));
    assert!((0..50).all(|_| bench.notify(b"x", false).0 == Notified::Sent));
}

#[test]
fn s4_5_1_who_acknowledges_as_late_as_ever_is_not_slowed() {
    let mut bench = observing();
    let (_, first) = bench.notify(b"0", true);
    bench.wait(Duration::from_millis(80));
    bench.empty(Type::Acknowledgement, first[0].message().message_id);
    let (_, probe) = bench.notify(b"1", true);
    for _ in 0..3 {
        assert_eq!(bench.notify(b"x", false).0, Notified::Sent);
        bench.wait(Duration::from_millis(80));
    }
    bench.empty(Type::Acknowledgement, probe[0].message().message_id);
    assert_eq!(bench.notify(b"x", false).0, Notified::Sent);
}

#[test]
fn s4_5_1_without_a_round_trip_non_confirmables_are_three_seconds_apart() {
    let mut bench = observing();
    assert_eq!(bench.notify(b"1", false).1[0].kind(), Type::NonConfirmable);
    bench.wait(Duration::from_secs(3));
    assert_eq!(bench.notify(b"2", false).1[0].kind(), Type::NonConfirmable);
    assert_eq!(bench.notify(b"3", false).1[0].kind(), Type::Confirmable);
}

#[test]
fn s4_5_1_where_there_is_no_network_there_is_no_pace() {
    let mut bench = Bench::new(ServerConfig::default());
    bench.ask(Code::GET, &[REGISTER, PATH], &[]);
    assert!((0..100).all(|_| bench.notify(b"x", false).1[0].kind() == Type::NonConfirmable));
    assert_eq!(bench.notify(b"x", false).1[0].kind(), Type::Confirmable);
}

#[test]
fn s4_5_1_with_a_round_trip_there_is_one_in_each() {
    let mut bench = observing();
    let (_, sent) = bench.notify(b"1", true);
    bench.wait(Duration::from_millis(80));
    bench.empty(Type::Acknowledgement, sent[0].message().message_id);
    assert_eq!(bench.notify(b"2", false).0, Notified::Sent);
    assert_eq!(bench.notify(b"3", false).0, Notified::Later);
    assert!(bench.wait(Duration::from_millis(79)).is_empty());
    let paced = bench.wait(Duration::from_millis(1));
    assert_eq!(paced[0].message().payload(), b"3");
}

#[test]
fn s4_5_2_a_newer_state_takes_the_place_of_a_retransmission_and_its_back_off() {
    let mut bench = observing();
    let (_, first) = bench.notify(b"1", true);
    bench.notify(b"2", true);
    let replaced = bench.wait(Duration::from_secs(3));
    assert_eq!((replaced[0].kind(), replaced[0].message().payload()), (Type::Confirmable, &b"2"[..]));
    assert_ne!(replaced[0].message().message_id, first[0].message().message_id);
    let repeats: Vec<_> = (0..100).flat_map(|_| bench.wait(Duration::from_secs(1))).collect();
    assert_eq!(repeats.len(), 3);
    assert_eq!(bench.gone(), Some(GoneReason::TimedOut));
}

#[test]
fn s4_2_the_content_format_of_the_first_answer_is_kept_or_4_06_ends_the_observation() {
    for (first, then, kept) in [
        (Some(0), Some(0), true),
        (Some(0), Some(50), false),
        (Some(0), None, false),
        (None, None, true),
        (None, Some(42), false),
    ] {
        let mut bench = Bench::new(ServerConfig::default());
        bench.format = first;
        bench.ask(Code::GET, &[REGISTER, PATH], &[]);
        let response = Response { content_format: then, payload: Payload::Slice(b"x"), ..Response::new(Code::CONTENT) };
        let (_, sent) = bench.notify_with(response, false);
        let expected = if kept { Code::CONTENT } else { Code::NOT_ACCEPTABLE };
        assert_eq!((sent.len(), sent[0].code()), (1, expected), "{first:?} then {then:?}");
        assert_eq!(bench.gone(), (!kept).then_some(GoneReason::Refused));
    }
}

#[test]
fn s4_2_without_a_value_the_first_notification_fixes_the_content_format_as_accept_wants_it() {
    for (accept, first, taken) in
        [(None, Some(50), true), (Some(&[50_u8][..]), Some(50), true), (Some(&[50]), None, false)]
    {
        let mut bench = Bench::new(ServerConfig::default());
        (bench.state, bench.format) = (Some(Vec::new()), None);
        let options = [Some(REGISTER), Some(PATH), accept.map(|accept| (OptionNumber::ACCEPT, accept))];
        let options: Vec<_> = options.into_iter().flatten().collect();
        assert_eq!(bench.ask(Code::GET, &options, &[]).code(), Code::CONTENT);
        let response =
            Response { content_format: first, payload: Payload::Slice(b"x"), ..Response::new(Code::CONTENT) };
        let (_, sent) = bench.notify_with(response, false);
        assert_eq!(sent[0].code() == Code::CONTENT, taken);
        if taken {
            let other = Response { content_format: Some(0), ..response };
            assert_eq!(bench.notify_with(other, false).1[0].code(), Code::NOT_ACCEPTABLE);
        }
    }
}

#[test]
fn s4_2_an_error_that_may_not_go_out_yet_goes_out_as_soon_as_it_may_and_only_that() {
    let mut bench = observing();
    let (_, first) = bench.notify(b"1", true);
    bench.notify(b"2", true);
    let (_, none) = bench.notify_with(Response::unavailable(Duration::from_secs(10)), false);
    assert!(none.is_empty());
    assert_eq!(bench.notify(b"3", false).0, Notified::Gone);
    let last = bench.empty(Type::Acknowledgement, first[0].message().message_id);
    assert_eq!((last.len(), last[0].code(), last[0].kind()), (1, Code::SERVICE_UNAVAILABLE, Type::Confirmable));
    assert_eq!(last[0].uint(OptionNumber::MAX_AGE), Some(10));
    assert_eq!(bench.gone(), Some(GoneReason::Refused));
}

#[test]
fn s4_2_an_error_takes_the_place_of_a_retransmission() {
    let mut bench = observing();
    bench.notify(b"1", true);
    bench.notify_with(Response::new(Code::NOT_FOUND), false);
    let last = bench.wait(Duration::from_secs(3));
    assert_eq!((last.len(), last[0].code()), (1, Code::NOT_FOUND));
}

#[test]
fn s4_5_a_burst_that_may_have_been_too_much_is_confirmed_when_it_is_over() {
    let mut bench = Bench::new(ServerConfig::default());
    bench.ask(Code::GET, &[REGISTER, PATH], &[]);
    for value in 0..50_u8 {
        assert_eq!(bench.notify(&[value], false).1[0].kind(), Type::NonConfirmable);
    }
    // The application looks the newest up when it is asked to.
    bench.waiting = Some((vec![49], false));
    assert!(bench.wait(Duration::from_millis(900)).is_empty());
    let again = bench.wait(Duration::from_millis(100));
    assert_eq!((again.len(), again[0].kind(), again[0].message().payload()), (1, Type::Confirmable, &[49][..]));
    bench.empty(Type::Acknowledgement, again[0].message().message_id);
    assert!((0..100).all(|_| bench.wait(Duration::from_secs(1)).is_empty()));
}

#[test]
fn s4_5_a_few_now_and_then_are_not_confirmed() {
    let mut bench = Bench::new(ServerConfig::default());
    bench.ask(Code::GET, &[REGISTER, PATH], &[]);
    for value in 0..50_u8 {
        bench.waiting = None;
        assert_eq!(bench.notify(&[value], false).1[0].kind(), Type::NonConfirmable);
        bench.waiting = Some((vec![value], false));
        assert!(bench.wait(Duration::from_millis(500)).is_empty(), "{value}");
    }
    let mut confirmed = 0;
    for _ in 0..1_000 {
        for sent in bench.wait(Duration::from_secs(1)) {
            confirmed += 1;
            bench.empty(Type::Acknowledgement, sent.message().message_id);
        }
    }
    assert_eq!(confirmed, 1, "once in the interval");
}

#[test]
fn observers_are_bounded_and_the_rest_is_served_without() {
    let mut bench = Bench::new(ServerConfig { observers_per_host_max: 100, ..ServerConfig::default() });
    for port in 1000..2000 {
        bench.peer.set_port(port);
        let answer = bench.ask(Code::GET, &[REGISTER, PATH], &[]);
        assert_eq!(answer.code(), Code::CONTENT);
        assert_eq!(answer.uint(OptionNumber::OBSERVE).is_some(), port < 1100);
    }
    assert_eq!((bench.server.observers(), bench.server.counters().observers_refused), (100, 900));
}
