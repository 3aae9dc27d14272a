//! RFC 7252 §4: messages; RFC 7967; RFC 9175 §2.4.

use super::*;

#[test]
fn s4_2_a_repeat_is_answered_and_not_done_again() {
    let mut bench = Bench::new(ServerConfig::default());
    let put = bench.compose(Type::Confirmable, Code::PUT, &[PATH], b"new");
    let first = bench.raw(&put);
    let again = bench.raw(&put);
    assert_eq!(first[0].bytes, again[0].bytes);
    assert_eq!(bench.asked, 1);
    bench.now = bench.now + Duration::from_secs(247);
    bench.raw(&put);
    assert_eq!(bench.asked, 2);
}

#[test]
fn s4_3_a_repeated_non_confirmable_is_ignored() {
    let mut bench = Bench::new(ServerConfig::default());
    let put = bench.compose(Type::NonConfirmable, Code::PUT, &[PATH], b"new");
    let answer = bench.raw(&put);
    assert_eq!((answer[0].kind(), answer[0].code()), (Type::NonConfirmable, Code::CHANGED));
    assert!(bench.raw(&put).is_empty());
    assert_eq!(bench.asked, 1);
}

#[test]
fn s4_3_a_ping_is_reset() {
    let mut bench = Bench::new(ServerConfig::default());
    let pong = bench.empty(Type::Confirmable, 7);
    assert_eq!((pong[0].kind(), pong[0].message().message_id), (Type::Reset, 7));
    assert!(bench.empty(Type::Reset, 7).is_empty());
    assert!(bench.empty(Type::Acknowledgement, 7).is_empty());
}

#[test]
fn s5_2_2_a_late_answer_is_separate_and_confirmable_and_sent_until_acknowledged() {
    let mut bench = Bench::new(ServerConfig::default());
    let put = bench.compose(Type::Confirmable, Code::PUT, &[PATH], b"new");
    let mut out = Outbox::default();
    let incoming = bench.server.handle(bench.now, bench.peer, &put, &mut out).unwrap();
    bench.server.defer(bench.now, &incoming.ticket);
    let acknowledgement = bench.wait(Duration::from_millis(500));
    assert_eq!((acknowledgement[0].kind(), acknowledgement[0].code()), (Type::Acknowledgement, Code::EMPTY));
    assert_eq!(bench.raw(&put)[0].bytes, acknowledgement[0].bytes);
    bench.server.respond(bench.now, incoming.ticket, &Response::new(Code::CHANGED), &mut out);
    let answer = sent(&out).remove(0);
    assert_eq!((answer.kind(), answer.code()), (Type::Confirmable, Code::CHANGED));
    assert_eq!(answer.message().token, Token::new(b"tk").unwrap());
    let repeats: Vec<_> = (0..100).flat_map(|_| bench.wait(Duration::from_secs(1))).collect();
    assert_eq!(repeats.len(), 4);
    assert!(repeats.iter().all(|repeat| repeat.bytes == answer.bytes));
    assert_eq!(bench.server.counters().timed_out, 1);
}

#[test]
fn s4_7_one_separate_response_at_a_time() {
    let mut bench = Bench::new(ServerConfig::default());
    let mut out = Outbox::default();
    let mut tickets = Vec::new();
    for _ in 0..3 {
        let put = bench.compose(Type::Confirmable, Code::PUT, &[PATH], b"new");
        let incoming = bench.server.handle(bench.now, bench.peer, &put, &mut out).unwrap();
        bench.server.defer(bench.now, &incoming.ticket);
        tickets.push(incoming.ticket);
    }
    assert_eq!(bench.wait(Duration::from_secs(1)).len(), 3);
    for ticket in tickets {
        bench.server.respond(bench.now, ticket, &Response::new(Code::CHANGED), &mut out);
    }
    let mut id = sent(&out)[0].message().message_id;
    assert_eq!(out.len(), 1);
    for _ in 0..2 {
        let next = bench.empty(Type::Acknowledgement, id);
        assert_eq!(next[0].code(), Code::CHANGED);
        id = next[0].message().message_id;
    }
    assert!(bench.empty(Type::Acknowledgement, id).is_empty());
}

#[test]
fn rfc7967_answers_that_nobody_wants_are_only_acknowledged() {
    let mut bench = Bench::new(ServerConfig::default());
    let answer = bench.ask(Code::PUT, &[PATH, (OptionNumber::NO_RESPONSE, &[2])], b"new");
    assert_eq!((answer.kind(), answer.code()), (Type::Acknowledgement, Code::EMPTY));
    let put = bench.compose(Type::NonConfirmable, Code::PUT, &[PATH, (OptionNumber::NO_RESPONSE, &[26])], b"new");
    assert!(bench.raw(&put).is_empty());
    let answer = bench.ask(Code::PUT, &[PATH, (OptionNumber::NO_RESPONSE, &[8])], b"new");
    assert_eq!(answer.code(), Code::CHANGED);
}

#[test]
fn rfc9175_s2_4_a_large_answer_waits_for_an_echo_from_a_strange_address() {
    let mut bench = Bench::new(ServerConfig::default());
    bench.peer = address(false);
    bench.state = Some(vec![7; 500]);
    let get = bench.compose(Type::Confirmable, Code::GET, &[PATH], &[]);
    let refused = bench.raw(&get).remove(0);
    assert_eq!(refused.code(), Code::UNAUTHORIZED);
    assert!(refused.bytes.len() <= 3 * get.len());
    let message = refused.message();
    let echo = message.option(OptionNumber::ECHO).unwrap().value;
    let wrong = bench.ask(Code::GET, &[PATH, (OptionNumber::ECHO, b"wrongwrongwr")], &[]);
    assert_eq!(wrong.code(), Code::UNAUTHORIZED);
    let answer = bench.ask(Code::GET, &[PATH, (OptionNumber::ECHO, echo)], &[]);
    assert_eq!(answer.code(), Code::CONTENT);
    assert_eq!(bench.ask(Code::GET, &[PATH], &[]).code(), Code::CONTENT);
    bench.now = bench.now + Duration::from_secs(301);
    assert_eq!(bench.ask(Code::GET, &[PATH], &[]).code(), Code::UNAUTHORIZED);
}

#[test]
fn rfc9175_s2_4_small_answers_and_publications_need_no_echo_and_observing_does() {
    let mut bench = Bench::new(ServerConfig::default());
    bench.peer = address(false);
    assert_eq!(bench.ask(Code::PUT, &[PATH], b"on").code(), Code::CHANGED);
    bench.state = Some(b"on".to_vec());
    assert_eq!(bench.ask(Code::GET, &[PATH], &[]).code(), Code::CONTENT);
    assert_eq!(bench.ask(Code::GET, &[REGISTER, PATH], &[]).code(), Code::UNAUTHORIZED);
    assert_eq!(bench.server.observers(), 0);
}

/// Sends a request, has it answered a second later, and never acknowledges. Returns the bytes that come back.
fn late(bench: &mut Bench, request: &[u8], response: &Response<'_>) -> usize {
    let mut out = Outbox::default();
    let incoming = bench.server.handle(bench.now, bench.peer, request, &mut out).unwrap();
    bench.server.defer(bench.now, &incoming.ticket);
    let mut bytes = bench.wait(Duration::from_secs(1)).iter().map(|sent| sent.bytes.len()).sum::<usize>();
    bench.server.respond(bench.now, incoming.ticket, response, &mut out);
    bytes += sent(&out).iter().map(|sent| sent.bytes.len()).sum::<usize>();
    bytes + (0..200).flat_map(|_| bench.wait(Duration::from_secs(1))).map(|sent| sent.bytes.len()).sum::<usize>()
}

#[test]
fn rfc9175_s2_4_a_late_answer_to_a_strange_address_is_not_repeated_beyond_three_times_the_request() {
    let unavailable = Response { max_age: Some(60), ..Response::new(Code::SERVICE_UNAVAILABLE) };
    let large = [7; 500];
    let content = Response { payload: Payload::Slice(&large), ..Response::new(Code::CONTENT) };
    let explained = Response::diagnostic(Code::BAD_REQUEST, "a text that is longer than the request was");
    for (code, response) in [
        (Code::PUT, Response::new(Code::CHANGED)),
        (Code::PUT, unavailable),
        (Code::PUT, explained),
        (Code::GET, content),
        (Code::GET, Response::new(Code::NOT_FOUND)),
    ] {
        for payload in [0, 1, 7, 20, 400] {
            let mut bench = Bench::new(ServerConfig::default());
            bench.peer = address(false);
            let request = bench.compose(Type::Confirmable, code, &[PATH], &vec![1; payload]);
            let bytes = late(&mut bench, &request, &response);
            assert!(bytes > 4 && bytes <= 3 * request.len(), "{bytes} bytes for {} of {code:?}", request.len());
            assert_eq!(bench.server.counters().timed_out, 1);
        }
    }
}

#[test]
fn rfc9175_s2_4_a_short_message_does_not_fetch_the_answer_to_a_long_one() {
    let mut bench = Bench::new(ServerConfig::default());
    bench.peer = address(false);
    bench.state = Some(vec![7; 200]);
    let query = [b'q'; 100];
    let get = bench.compose(Type::Confirmable, Code::GET, &[PATH, (OptionNumber::URI_QUERY, &query)], &[]);
    let answer = bench.raw(&get).remove(0);
    assert!((200..=3 * get.len()).contains(&answer.bytes.len()));
    let id = answer.message().message_id;
    let short = compose(Type::Confirmable, Code::GET, id, &[], &[]);
    let again: usize = bench.raw(&short).iter().map(|sent| sent.bytes.len()).sum();
    assert!(again <= 3 * short.len(), "{again} bytes for {}", short.len());
    assert_eq!(bench.raw(&get), [answer], "a repeat is answered");
}

#[test]
fn rfc9175_s2_4_an_echo_has_at_most_three_times_the_bytes_of_the_request() {
    // GET with Observe; a token; a path.
    let requests: [&[u8]; 3] = [b"\x40\x01\0\x01\x60", b"\x41\x01\0\x02t\x60", b"\x40\x01\0\x03\x60\x52ps\x01a"];
    for request in requests {
        let mut bench = Bench::new(ServerConfig::default());
        bench.peer = address(false);
        let answers = bench.raw(request);
        let bytes: usize = answers.iter().map(|sent| sent.bytes.len()).sum();
        assert!((1..=3 * request.len()).contains(&bytes), "{bytes} bytes for {}", request.len());
        assert_eq!(answers[0].code(), Code::UNAUTHORIZED);
    }
}

#[test]
fn ten_thousand_ports_are_forgotten_again() {
    let mut bench = Bench::new(ServerConfig { peers_max: 1000, ..ServerConfig::default() });
    for port in 1000..11_000 {
        bench.peer.set_port(port);
        bench.ask(Code::GET, &[PATH], &[]);
        assert!(bench.server.peers() <= 1000);
    }
    (0..100).for_each(|_| drop(bench.wait(Duration::from_secs(10))));
    assert_eq!(bench.server.peers(), 0);
    assert_eq!(bench.server.next_timeout(), None);
}

/// Takes in Confirmable requests that the application does not answer yet, as many as it may have, and refuses the
/// rest.
fn under_way(bench: &mut Bench, count: usize) -> (Vec<Ticket<SocketAddr>>, usize) {
    let (mut out, mut tickets, mut refused) = (Outbox::default(), Vec::new(), 0);
    for _ in 0..count {
        let put = bench.compose(Type::Confirmable, Code::PUT, &[PATH], b"new");
        let Incoming { ticket, .. } = bench.server.handle(bench.now, bench.peer, &put, &mut out).unwrap();
        if bench.server.has_too_many_under_way(&ticket) {
            bench.server.respond(bench.now, ticket, &Response::new(Code::TOO_MANY_REQUESTS), &mut out);
            refused += 1;
        } else {
            bench.server.defer(bench.now, &ticket);
            tickets.push(ticket);
        }
    }
    assert_eq!(out.len(), refused, "each is refused at once");
    (tickets, refused)
}

#[test]
fn s5_2_2_each_request_that_was_acknowledged_is_answered_however_many_are_under_way() {
    // 16 times as many may be under way.
    let mut bench = Bench::new(ServerConfig { exchanges_per_peer_max: 2, ..ServerConfig::default() });
    let (tickets, refused) = under_way(&mut bench, 100);
    assert_eq!((tickets.len(), refused), (32, 68));
    assert_eq!(bench.wait(Duration::from_secs(1)).len(), 32, "Empty acknowledgements");
    let mut out = Outbox::default();
    for ticket in tickets {
        bench.server.respond(bench.now, ticket, &Response::new(Code::CHANGED), &mut out);
    }
    assert_eq!(under_way(&mut bench, 10).1, 9, "those that wait for NSTART count as well");
    let (mut next, mut answers) = (sent(&out), 0);
    while let Some(answer) = next.pop() {
        assert_eq!((answer.kind(), answer.code(), next.len()), (Type::Confirmable, Code::CHANGED, 0));
        answers += 1;
        next = bench.empty(Type::Acknowledgement, answer.message().message_id);
    }
    assert_eq!(answers, 32);
}

#[test]
fn s4_5_a_request_under_way_is_not_done_twice_however_many_follow() {
    for exchange_bytes_max in [0, 16 << 20] {
        let mut bench = Bench::new(ServerConfig { exchange_bytes_max, ..ServerConfig::default() });
        let mut out = Outbox::default();
        let first = bench.compose(Type::Confirmable, Code::PUT, &[PATH], b"new");
        let incoming = bench.server.handle(bench.now, bench.peer, &first, &mut out).unwrap();
        for _ in 0..200 {
            let put = bench.compose(Type::NonConfirmable, Code::PUT, &[PATH], b"new");
            assert_eq!(bench.raw(&put).len(), 1);
        }
        assert!(bench.server.handle(bench.now, bench.peer, &first, &mut out).is_none(), "a repeat");
        bench.server.respond(bench.now, incoming.ticket, &Response::new(Code::CHANGED), &mut out);
        assert_eq!(sent(&out).remove(0).code(), Code::CHANGED);
    }
}
