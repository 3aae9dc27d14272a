//! Exchanges of the client: resets, repeats, uploads, and how observations end (RFC 7252 §4, RFC 7641 §3, RFC 7959 §2).

use bytes::Bytes;
use fogmux_coap::client::CallId;

use super::*;

impl Bench {
    fn idle() -> Self {
        let client = Client::new(ClientConfig::default(), 7);
        Self { client, out: Outbox::default(), sent: Vec::new(), message_id: 100 }
    }

    fn ask(&mut self, call: Call) -> CallId {
        let id = self.client.request(NOW, call, &mut self.out).unwrap();
        self.note();
        id
    }

    /// Has the client hear an Empty message, or a response with this token, and returns what it sent on it.
    fn hear(&mut self, kind: Type, code: Code, message_id: u16, token: &Token) -> Vec<(Type, u16)> {
        let mut datagram = Vec::new();
        Encoder::new(&mut datagram, kind, code, message_id, token).finish();
        self.client.handle(NOW, &datagram, &mut self.out);
        let sent = self.out.iter().map(|(_, sent)| Message::decode(sent).unwrap());
        let sent = sent.map(|message| (message.kind, message.message_id)).collect();
        self.note();
        sent
    }
}

fn put(path: &str, bytes: usize) -> Call {
    Call { payload: Bytes::from(vec![7; bytes]), ..Call::new(Code::PUT, path) }
}

#[test]
fn rfc_7252_s4_2_a_message_that_was_answered_cannot_be_rejected() {
    let mut bench = Bench::observing("ps/a");
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b"first"));
    assert!(bench.hear(Type::Reset, Code::EMPTY, first.message_id, &Token::EMPTY).is_empty());
    bench.notify(Type::NonConfirmable, small(2, b"second"));
    assert_eq!(bench.told(), [content("", b"first"), content("", b"second")]);

    bench.ask(Call::new(Code::GET, "ps/b"));
    let open = bench.last();
    bench.hear(Type::Reset, Code::EMPTY, open.message_id, &Token::EMPTY);
    assert!(matches!(bench.client.poll_event(), Some(ClientEvent::Failed { reason: CallFailed::Reset, .. })));
}

#[test]
fn rfc_7252_s4_5_each_copy_of_a_confirmable_answer_is_acknowledged_also_when_its_request_is_over() {
    let mut bench = Bench::idle();
    bench.ask(Call::new(Code::GET, "ps/a"));
    let asked = bench.last();
    assert!(bench.hear(Type::Acknowledgement, Code::EMPTY, asked.message_id, &Token::EMPTY).is_empty());
    for _ in 0..3 {
        let sent = bench.hear(Type::Confirmable, Code::CONTENT, 900, &asked.token);
        assert_eq!(sent, [(Type::Acknowledgement, 900)]);
    }
    assert_eq!(bench.told(), [content("", b"")]);
    assert_eq!(bench.hear(Type::Confirmable, Code::CONTENT, 901, &asked.token), [(Type::Reset, 901)]);
}

#[test]
fn rfc_7641_s3_2_a_state_without_observe_is_the_last() {
    let mut bench = Bench::observing("ps/a");
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b"first"));
    bench.notify(Type::NonConfirmable, Reply { payload: b"last", ..Reply::default() });
    let events: Vec<_> = std::iter::from_fn(|| bench.client.poll_event()).collect();
    assert!(matches!(
        events.as_slice(),
        [
            ClientEvent::Answered { observed: true, .. },
            ClientEvent::Notified { answer, .. },
            ClientEvent::Failed { reason: CallFailed::Ended, .. }
        ] if *answer.payload == *b"last"
    ));
    assert!(bench.client.is_idle());
}

#[test]
fn rfc_7641_s3_6_nothing_is_told_of_an_observation_that_is_being_ended() {
    let mut bench = Bench::idle();
    let observed = bench.ask(Call { observe: true, ..Call::new(Code::GET, "ps/a") });
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b"first"));
    bench.client.cancel(NOW, observed, &mut bench.out);
    bench.note();
    let end = bench.last();
    assert_eq!((end.token, end.observe, end.path.as_str()), (first.token, Some(1), "ps/a"));
    bench.notify(Type::NonConfirmable, small(2, b"on its way"));
    assert!(!bench.client.is_idle());
    bench.answer(&end, Code::CONTENT, Reply { payload: b"the end", ..Reply::default() });
    assert_eq!(bench.told(), [content("", b"first")]);
    assert!(bench.client.is_idle());
}

#[test]
fn rfc_7252_s4_3_a_lost_block_of_a_non_confirmable_request_is_sent_again() {
    let mut bench = Bench::idle();
    bench.ask(Call { confirmable: false, ..put("ps/a", 1024) });
    assert!(!bench.last().confirmable, "what fits into one message goes as it is asked");
    let mut bench = Bench::idle();
    bench.ask(Call { confirmable: false, ..put("ps/a", 2500) });
    for (number, more, size) in [(0, true, 1024), (1, true, 1024), (2, false, 452)] {
        let first = bench.last();
        assert_eq!((first.confirmable, first.payload), (true, size), "block {number}");
        // It is lost.
        let due = bench.client.next_timeout().unwrap();
        assert!(due < NOW + Duration::from_secs(4), "{due:?}");
        bench.client.handle_timeout(due, &mut bench.out);
        bench.note();
        let again = bench.last();
        assert_eq!((again.message_id, again.payload), (first.message_id, size), "block {number}");
        bench.answer_block1(&again, if more { Code::CONTINUE } else { Code::CHANGED }, more);
    }
    assert_eq!(bench.told().len(), 1);
    assert!(bench.client.is_idle());
}

#[test]
fn rfc_7959_s2_5_a_second_body_waits_for_the_first() {
    let mut bench = Bench::idle();
    bench.ask(put("ps/a", 2000));
    bench.ask(put("ps/a", 1500));
    bench.ask(put("ps/b", 10));
    assert_eq!(bench.sent.len(), 2, "the first block, and the small one");
    let mut blocks = Vec::new();
    for (more, size) in [(true, 1024), (false, 976), (true, 1024), (false, 476)] {
        let sent = bench.sent.iter().rfind(|request| request.path == "ps/a").unwrap().clone();
        blocks.push((sent.payload, more, size));
        let code = if more { Code::CONTINUE } else { Code::CHANGED };
        bench.answer_block1(&sent, code, more);
    }
    assert!(blocks.iter().all(|(payload, _, size)| payload == size), "{blocks:?}");
    assert_eq!(bench.told().len(), 2);
}

#[test]
fn rfc_7959_s2_6_a_state_that_changes_faster_than_it_is_fetched_is_told_all_the_same() {
    let mut bench = Bench::observing("ps/a");
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b"first"));
    bench.notify(Type::NonConfirmable, large(2, 9));
    let fetch = bench.last();
    bench.notify(Type::NonConfirmable, large(3, 8));
    assert_eq!(bench.last().message_id, fetch.message_id, "what is being fetched is fetched to its end");
    bench.answer(&fetch, Code::CONTENT, Reply { etag: 9, block: Some((1, false)), payload: b"!", ..Reply::default() });
    // Then the newest is asked for.
    let again = bench.last();
    assert_eq!((again.token, again.observe, again.block), (first.token, Some(0), None));
    bench.answer(&again, Code::CONTENT, large(3, 8));
    let fetch = bench.last();
    bench.answer(&fetch, Code::CONTENT, Reply { etag: 8, block: Some((1, false)), payload: b"?", ..Reply::default() });
    let expected = [content("", b"first"), content("", b"0123456789abcdef!"), content("", b"0123456789abcdef?")];
    assert_eq!(bench.told(), expected);
}

#[test]
fn rfc_7641_s1_3_an_observation_outlives_a_state_that_cannot_be_fetched() {
    let mut bench = Bench::observing("ps/a");
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b"first"));
    bench.notify(Type::NonConfirmable, large(2, 9));
    for etag in [8, 7] {
        let fetch = bench.last();
        let changed = Reply { etag, block: Some((1, true)), payload: BLOCK, ..Reply::default() };
        bench.answer(&fetch, Code::CONTENT, changed);
        let again = bench.last();
        if etag == 8 {
            bench.answer(&again, Code::CONTENT, large(3, 8));
        }
    }
    bench.notify(Type::NonConfirmable, small(4, b"next"));
    assert_eq!(bench.told(), [content("", b"first"), content("", b"next")]);
}

#[test]
fn rfc_7967_s2_a_request_without_answer_is_over_when_it_has_arrived() {
    let mut bench = Bench::idle();
    let silent = Call { no_response: Some(2), ..put("ps/a", 1) };
    bench.ask(Call { confirmable: false, ..silent.clone() });
    assert!(bench.client.is_idle());
    bench.ask(silent);
    let sent = bench.last();
    assert!(!bench.client.is_idle());
    bench.hear(Type::Acknowledgement, Code::EMPTY, sent.message_id, &Token::EMPTY);
    assert!(bench.client.is_idle());
    assert_eq!(bench.client.poll_event(), None);
}

/// The reasons of all failures so far.
fn failed(bench: &mut Bench) -> Vec<CallFailed> {
    let failed = |event| if let ClientEvent::Failed { reason, .. } = event { Some(reason) } else { None };
    std::iter::from_fn(|| bench.client.poll_event()).filter_map(failed).collect()
}

#[test]
fn rfc_7959_s2_9_1_a_server_that_wants_more_than_there_is_is_not_believed() {
    // Without any block; with one too few, as many as there are, and more.
    for (bytes, answers) in [(10, 1), (1024, 1), (1025, 2), (2048, 2), (2049, 3)] {
        let mut bench = Bench::idle();
        bench.ask(put("ps/a", bytes));
        for number in 0..10 {
            let to = bench.last();
            let mut datagram = Vec::new();
            let encoder = Encoder::new(&mut datagram, Type::Acknowledgement, Code::CONTINUE, to.message_id, &to.token);
            encoder.uint(OptionNumber::BLOCK1, number << 4 | 0xe).finish();
            bench.client.handle(NOW, &datagram, &mut bench.out);
            bench.note();
        }
        assert_eq!((failed(&mut bench), bench.sent.len()), (vec![CallFailed::Blocks], answers), "{bytes} bytes");
        assert!(bench.client.is_idle());
    }
}

#[test]
fn rfc_7959_s2_3_a_server_acknowledges_the_block_that_was_sent_in_its_own_size_or_the_clients() {
    // Number and SZX of what the server says of the second block of 1024 bytes, and whether that fits.
    let all = [((1, 6), true), ((1, 5), true), ((2, 5), true), ((64, 0), true), ((0, 6), false), ((2, 6), false)];
    for ((number, size), fits) in all {
        let mut bench = Bench::idle();
        bench.ask(put("ps/a", 5000));
        let first = bench.last();
        bench.answer_block1(&first, Code::CONTINUE, true);
        let second = bench.last();
        let (id, mut datagram) = (second.message_id, Vec::new());
        let encoder = Encoder::new(&mut datagram, Type::Acknowledgement, Code::CONTINUE, id, &second.token);
        encoder.uint(OptionNumber::BLOCK1, number << 4 | 8 | size).finish();
        bench.client.handle(NOW, &datagram, &mut bench.out);
        bench.note();
        let expected = if fits { Vec::new() } else { vec![CallFailed::Blocks] };
        assert_eq!((failed(&mut bench), bench.sent.len()), (expected, 2 + usize::from(fits)), "{number} of {size}");
    }
}

#[test]
fn rfc_7959_s2_9_1_a_continuation_without_a_block_or_of_a_request_without_blocks_is_no_answer() {
    for bytes in [0, 10, 5000] {
        let mut bench = Bench::idle();
        bench.ask(put("ps/a", bytes));
        let to = bench.last();
        bench.answer(&to, Code::CONTINUE, Reply::default());
        assert_eq!((failed(&mut bench), bench.sent.len()), (vec![CallFailed::Blocks], 1), "{bytes} bytes");
    }
}

#[test]
fn a_server_that_sends_the_first_block_for_ever_is_asked_once_more() {
    let mut bench = Bench::idle();
    bench.ask(Call::new(Code::GET, "ps/a"));
    for _ in 0..20 {
        let to = bench.last();
        bench.answer(&to, Code::CONTENT, Reply { sequence: None, ..large(0, 9) });
    }
    assert_eq!((failed(&mut bench), bench.sent.len()), (vec![CallFailed::Blocks], 4));
    assert!(bench.client.is_idle());
}

/// Registers, and has so many resources notified, each with a first block. Returns the client and their paths.
fn many(resources: usize) -> (Bench, Vec<String>) {
    let mut bench = Bench::observing("ps");
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b""));
    let paths: Vec<_> = (0..resources).map(|number| format!("ps/{number}")).collect();
    for path in &paths {
        bench.notify(Type::NonConfirmable, Reply { location: path, ..large(2, 9) });
    }
    assert_eq!(bench.told(), [content("", b"")]);
    (bench, paths)
}

/// Answers all requests for rests, until there are no more. Returns what was told.
fn fetched(bench: &mut Bench) -> Vec<(Code, String, Vec<u8>)> {
    let mut at = 1;
    while let Some(fetch) = bench.sent.get(at).cloned() {
        at += 1;
        let first = Reply { sequence: None, ..large(0, 9) };
        let last = Reply { etag: 9, block: Some((1, false)), payload: b"!", ..Reply::default() };
        bench.answer(&fetch, Code::CONTENT, if fetch.block == Some(0) { first } else { last });
    }
    bench.told()
}

#[test]
fn large_states_of_many_resources_are_fetched_some_at_a_time_and_none_is_lost() {
    let whole = [BLOCK.as_slice(), b"!"].concat();
    for resources in [1, 15, 16, 17, 97, 1000, 16 + 1024] {
        let (mut bench, paths) = many(resources);
        assert_eq!(bench.sent.len(), 1 + resources.min(16), "{resources} resources");
        let expected: Vec<_> = paths.iter().map(|path| content(path, &whole)).collect();
        assert_eq!((fetched(&mut bench), bench.client.missed().states), (expected, 0));
        // A server that retains nothing has only the rest, for those that ask for it by number (RFC 7959 §3.4).
        assert!(bench.sent.iter().skip(1).all(|request| request.block == Some(1)));
    }
}

#[test]
fn rfc_7641_s3_2_what_was_notified_before_an_error_is_fetched_and_told_before_it() {
    let whole = [BLOCK.as_slice(), b"!"].concat();
    for resources in [1, 16, 17, 97] {
        let (mut bench, paths) = many(resources);
        let token = bench.first().token;
        bench.deliver(Type::Confirmable, 50, &token, Code::SERVICE_UNAVAILABLE, Reply::default());
        bench.notify(Type::NonConfirmable, Reply { location: "ps/late", ..small(9, b"late") });
        assert_eq!(bench.told(), [], "{resources} resources");
        let mut expected: Vec<_> = paths.iter().map(|path| content(path, &whole)).collect();
        expected.push((Code::SERVICE_UNAVAILABLE, String::new(), Vec::new()));
        assert_eq!((fetched(&mut bench), bench.client.missed().states), (expected, 0));
        assert!(bench.client.is_idle());
    }
}

#[test]
fn an_observation_that_the_server_has_ended_is_cancelled_without_a_request() {
    let mut bench = Bench::idle();
    let observed = bench.ask(Call { observe: true, ..Call::new(Code::GET, "ps") });
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b""));
    bench.notify(Type::NonConfirmable, Reply { location: "ps/a", ..large(2, 9) });
    bench.deliver(Type::Confirmable, 50, &first.token, Code::SERVICE_UNAVAILABLE, Reply::default());
    let sent = bench.sent.len();
    bench.client.cancel(NOW, observed, &mut bench.out);
    bench.note();
    assert_eq!((bench.told(), bench.sent.len()), (vec![content("", b"")], sent));
    assert!(bench.client.is_idle());
}

#[test]
fn of_more_resources_than_can_wait_the_oldest_are_missed_and_named() {
    let (mut bench, paths) = many(16 + 1024 + 3);
    let missed = bench.client.missed();
    assert_eq!((missed.states, missed.last.join("/")), (3, paths[18].clone()));
    assert_eq!(fetched(&mut bench).len(), 16 + 1024);
}

#[test]
fn a_resource_that_waits_and_changes_is_told_once_in_its_newest_state() {
    let (mut bench, paths) = many(20);
    bench.notify(Type::NonConfirmable, Reply { location: &paths[17], ..large(3, 9) });
    bench.notify(Type::NonConfirmable, Reply { location: &paths[18], ..small(3, b"small") });
    assert_eq!(bench.told(), [content(&paths[18], b"small")]);
    let told: Vec<_> = fetched(&mut bench).into_iter().map(|(_, path, _)| path).collect();
    let expected: Vec<_> = paths.iter().filter(|path| **path != paths[18]).cloned().collect();
    assert_eq!(told, expected);
}

#[test]
fn rests_that_time_out_make_room_for_others() {
    let (mut bench, paths) = many(40);
    while bench.sent.len() < 1 + 40 {
        let due = bench.client.next_timeout().unwrap();
        bench.client.handle_timeout(due, &mut bench.out);
        bench.note();
        // A request that is sent again is the same one.
        let mut known = std::collections::BTreeSet::new();
        bench.sent.retain(|request| known.insert(request.message_id));
    }
    assert_eq!(bench.last().path, paths[39]);
}

#[test]
fn all_bodies_together_have_a_bound() {
    let config = ClientConfig { bodies_bytes_max: 40, ..ClientConfig::default() };
    let mut bench = Bench::idle();
    bench.client = Client::new(config, 7);
    for path in ["ps/a", "ps/b", "ps/c"] {
        bench.ask(Call::new(Code::GET, path));
        let to = bench.last();
        bench.answer(&to, Code::CONTENT, Reply { sequence: None, ..large(0, 9) });
    }
    assert_eq!(failed(&mut bench), [CallFailed::Blocks]);
    // A request that is over makes room.
    let of_a = bench.sent[1].clone();
    let last = Reply { etag: 9, block: Some((1, false)), payload: b"!", ..Reply::default() };
    bench.answer(&of_a, Code::CONTENT, last);
    assert_eq!(bench.told().len(), 1);
    bench.ask(Call::new(Code::GET, "ps/d"));
    let to = bench.last();
    bench.answer(&to, Code::CONTENT, Reply { sequence: None, ..large(0, 9) });
    assert_eq!(failed(&mut bench), []);
}
