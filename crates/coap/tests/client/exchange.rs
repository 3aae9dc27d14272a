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
