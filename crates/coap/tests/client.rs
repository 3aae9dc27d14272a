//! The client role against messages of a server that are written by hand: reordering, and states that change while
//! their blocks are fetched (RFC 7641 §3.4, RFC 7959 §2.4).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[path = "client/exchange.rs"]
mod exchange;
#[path = "client/order.rs"]
mod order;

use std::time::Duration;

use fogmux_coap::{
    Call, Client, ClientConfig, ClientEvent, Code, Encoder, Message, OptionNumber, Outbox, Timestamp, Token, Type,
    client::CallFailed,
};

const NOW: Timestamp = Timestamp::from_millis(1000);

/// A client with one observation, and the server that it talks to.
struct Bench {
    client: Client,
    out: Outbox<()>,
    sent: Vec<Request>,
    message_id: u16,
}

/// A request of the client.
#[derive(Clone, Debug)]
struct Request {
    message_id: u16,
    token: Token,
    path: String,
    observe: Option<u32>,
    /// The number of the block that it asks for.
    block: Option<u32>,
    /// The number of the block that it brings.
    brings: u32,
    /// Bytes of the payload.
    payload: usize,
    confirmable: bool,
}

/// A message of the server.
#[derive(Clone, Copy, Default)]
struct Reply<'a> {
    sequence: Option<u8>,
    etag: u8,
    location: &'a str,
    /// Number, and whether more follow; of 16 bytes.
    block: Option<(u8, bool)>,
    payload: &'a [u8],
}

const BLOCK: &[u8; 16] = b"0123456789abcdef";

impl Bench {
    fn observing(path: &str) -> Self {
        let client = Client::new(ClientConfig::default(), 7);
        let mut bench = Self { client, out: Outbox::default(), sent: Vec::new(), message_id: 100 };
        let call = Call { observe: true, ..Call::new(Code::GET, path) };
        bench.client.request(NOW, call, &mut bench.out).unwrap();
        bench.note();
        bench
    }

    fn note(&mut self) {
        for (_, datagram) in self.out.iter() {
            let message = Message::decode(datagram).unwrap();
            if message.code == Code::EMPTY {
                continue;
            }
            let uint = |number| message.option(number).and_then(|option| option.uint());
            let levels = message.options().filter(|option| option.number == OptionNumber::URI_PATH);
            self.sent.push(Request {
                message_id: message.message_id,
                token: message.token,
                path: levels.filter_map(|option| option.text()).collect::<Vec<_>>().join("/"),
                observe: uint(OptionNumber::OBSERVE),
                block: uint(OptionNumber::BLOCK2).map(|block| block >> 4),
                brings: uint(OptionNumber::BLOCK1).map_or(0, |block| block >> 4),
                payload: message.payload().len(),
                confirmable: message.kind == Type::Confirmable,
            });
        }
        self.out.clear();
    }

    fn last(&self) -> Request {
        self.sent.last().unwrap().clone()
    }

    /// The registration: its token is that of the notifications.
    fn first(&self) -> Request {
        self.sent[0].clone()
    }

    /// A piggybacked response to a request.
    fn answer(&mut self, to: &Request, code: Code, reply: Reply<'_>) {
        self.deliver(Type::Acknowledgement, to.message_id, &to.token, code, reply);
    }

    /// A piggybacked response to a block of 1024 bytes.
    fn answer_block1(&mut self, to: &Request, code: Code, more: bool) {
        let mut datagram = Vec::new();
        let encoder = Encoder::new(&mut datagram, Type::Acknowledgement, code, to.message_id, &to.token);
        encoder.uint(OptionNumber::BLOCK1, to.brings << 4 | u32::from(more) << 3 | 6).finish();
        self.client.handle(NOW, &datagram, &mut self.out);
        self.note();
    }

    /// A notification.
    fn notify(&mut self, kind: Type, reply: Reply<'_>) {
        self.message_id += 1;
        let (message_id, token) = (self.message_id, self.first().token);
        self.deliver(kind, message_id, &token, Code::CONTENT, reply);
    }

    fn deliver(&mut self, kind: Type, message_id: u16, token: &Token, code: Code, reply: Reply<'_>) {
        let mut datagram = Vec::new();
        let mut encoder = Encoder::new(&mut datagram, kind, code, message_id, token);
        if reply.etag > 0 {
            encoder.push(OptionNumber::ETAG, &[reply.etag]);
        }
        if let Some(sequence) = reply.sequence {
            encoder.push(OptionNumber::OBSERVE, &[sequence]);
        }
        for level in reply.location.split('/').filter(|level| !level.is_empty()) {
            encoder.push(OptionNumber::LOCATION_PATH, level.as_bytes());
        }
        if let Some((number, more)) = reply.block {
            encoder.push(OptionNumber::BLOCK2, &[number << 4 | u8::from(more) << 3]);
        }
        encoder.payload(reply.payload);
        self.client.handle(NOW + Duration::from_millis(5), &datagram, &mut self.out);
        self.note();
    }

    /// The messages that the client reports: code, location and payload of each.
    fn told(&mut self) -> Vec<(Code, String, Vec<u8>)> {
        let mut told = Vec::new();
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Answered { answer, .. } | ClientEvent::Notified { answer, .. } => {
                    told.push((answer.code, answer.location.join("/"), answer.payload.to_vec()));
                }
                ClientEvent::Failed { reason, .. } => panic!("{reason}"),
            }
        }
        told
    }
}

fn content(location: &str, payload: &[u8]) -> (Code, String, Vec<u8>) {
    (Code::CONTENT, location.to_owned(), payload.to_vec())
}

/// The first block of a state of several.
fn large(sequence: u8, etag: u8) -> Reply<'static> {
    Reply { sequence: Some(sequence), etag, block: Some((0, true)), payload: BLOCK, ..Reply::default() }
}

fn small(sequence: u8, payload: &[u8]) -> Reply<'_> {
    Reply { sequence: Some(sequence), payload, ..Reply::default() }
}

#[test]
fn s3_4_a_late_notification_is_older_also_before_the_first_answer() {
    let mut bench = Bench::observing("ps/a");
    // The answer to the registration is lost; the second notification comes first.
    bench.notify(Type::Confirmable, small(3, b"new"));
    bench.notify(Type::NonConfirmable, small(2, b"old"));
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b"oldest"));
    assert_eq!(bench.told(), [content("", b"new")]);
}

#[test]
fn s3_4_a_late_notification_does_not_end_the_fetch_of_a_newer_one() {
    let mut bench = Bench::observing("ps/a");
    bench.notify(Type::Confirmable, large(3, 9));
    assert_eq!(bench.last().block, Some(1));
    bench.notify(Type::NonConfirmable, small(2, b"old"));
    let fetch = bench.last();
    bench.answer(&fetch, Code::CONTENT, Reply { etag: 9, block: Some((1, false)), payload: b"!", ..Reply::default() });
    assert_eq!(bench.told(), [content("", b"0123456789abcdef!")]);
    // It goes on.
    bench.notify(Type::NonConfirmable, small(4, b"newer"));
    assert_eq!(bench.told(), [content("", b"newer")]);
}

#[test]
fn s3_4_notifications_of_many_resources_are_told_in_order_also_before_the_first_answer() {
    let mut bench = Bench::observing("ps");
    let named = |sequence, location, payload| Reply { location, ..small(sequence, payload) };
    bench.notify(Type::NonConfirmable, named(5, "ps/a", b"new"));
    bench.notify(Type::NonConfirmable, named(2, "ps/a", b"old"));
    bench.notify(Type::NonConfirmable, named(3, "ps/b", b"other"));
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b""));
    assert_eq!(bench.told(), [content("ps/a", b"new"), content("ps/b", b"other")]);
}

#[test]
fn the_rest_of_an_older_state_is_forgotten_also_before_the_first_answer() {
    let mut bench = Bench::observing("ps");
    bench.notify(Type::NonConfirmable, Reply { location: "ps/a", ..large(2, 9) });
    let fetch = bench.last();
    assert_eq!((fetch.path.as_str(), fetch.block), ("ps/a", Some(1)));
    bench.notify(Type::NonConfirmable, Reply { location: "ps/a", ..small(3, b"new") });
    bench.answer(&fetch, Code::CONTENT, Reply { etag: 9, block: Some((1, false)), payload: b"!", ..Reply::default() });
    assert_eq!(bench.told(), [content("ps/a", b"new")]);
}

#[test]
fn a_state_that_has_fewer_blocks_meanwhile_is_asked_for_anew_and_the_observation_goes_on() {
    let mut bench = Bench::observing("ps/a");
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b"first"));
    bench.notify(Type::NonConfirmable, large(2, 9));
    let fetch = bench.last();
    bench.answer(&fetch, Code::BAD_REQUEST, Reply::default());
    // RFC 7641 §3.3.1: registered again, with the same token, so that the answer has a sequence number.
    let again = bench.last();
    assert_eq!((again.token, again.observe, again.block), (first.token, Some(0), None));
    bench.answer(&again, Code::CONTENT, small(4, b"newest"));
    bench.notify(Type::NonConfirmable, small(3, b"overtaken"));
    bench.notify(Type::NonConfirmable, small(5, b"next"));
    assert_eq!(bench.told(), [content("", b"first"), content("", b"newest"), content("", b"next")]);
}

#[test]
fn a_server_that_has_forgotten_the_observer_may_count_from_the_start() {
    let mut bench = Bench::observing("ps/a");
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(4, b"first"));
    bench.notify(Type::NonConfirmable, large(5, 9));
    let fetch = bench.last();
    bench.answer(&fetch, Code::NOT_FOUND, Reply::default());
    let again = bench.last();
    bench.answer(&again, Code::CONTENT, small(1, b"newest"));
    bench.notify(Type::NonConfirmable, small(2, b"next"));
    assert_eq!(bench.told(), [content("", b"first"), content("", b"newest"), content("", b"next")]);
}

#[test]
fn a_notification_may_overtake_the_answer_to_another_registration() {
    let mut bench = Bench::observing("ps/a");
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b"first"));
    bench.notify(Type::NonConfirmable, large(2, 9));
    let fetch = bench.last();
    bench.answer(&fetch, Code::BAD_REQUEST, Reply::default());
    let again = bench.last();
    bench.notify(Type::NonConfirmable, small(4, b"newest"));
    bench.answer(&again, Code::CONTENT, small(3, b"overtaken"));
    assert_eq!(bench.told(), [content("", b"first"), content("", b"newest")]);
}

#[test]
fn a_changed_state_is_asked_for_anew_once() {
    let mut bench = Bench::observing("ps/a");
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, large(1, 9));
    let changed = |etag| Reply { etag, block: Some((1, true)), payload: BLOCK, ..Reply::default() };
    let fetch = bench.last();
    bench.answer(&fetch, Code::CONTENT, changed(8));
    let again = bench.last();
    assert_eq!((again.observe, again.block), (Some(0), None));
    bench.answer(&again, Code::CONTENT, large(2, 8));
    let fetch = bench.last();
    bench.answer(&fetch, Code::CONTENT, changed(7));
    assert!(matches!(bench.client.poll_event(), Some(ClientEvent::Failed { reason: CallFailed::Blocks, .. })));
    assert!(bench.client.is_idle());
}

#[test]
fn a_state_of_many_that_changes_meanwhile_keeps_its_location() {
    let whole = [BLOCK.as_slice(), b"!"].concat();
    for shrinks in [true, false] {
        let mut bench = Bench::observing("ps");
        let first = bench.first();
        bench.answer(&first, Code::CONTENT, small(1, b""));
        bench.notify(Type::NonConfirmable, Reply { location: "ps/a", ..large(2, 9) });
        let fetch = bench.last();
        let changed = Reply { etag: 8, block: Some((1, true)), payload: BLOCK, ..Reply::default() };
        let code = if shrinks { Code::BAD_REQUEST } else { Code::CONTENT };
        bench.answer(&fetch, code, if shrinks { Reply::default() } else { changed });
        let again = bench.last();
        assert_eq!((again.path.as_str(), again.observe, again.block), ("ps/a", None, Some(0)));
        let expected = if shrinks {
            bench.answer(&again, Code::CONTENT, Reply { etag: 7, payload: b"small", ..Reply::default() });
            b"small".to_vec()
        } else {
            bench.answer(&again, Code::CONTENT, Reply { sequence: None, ..large(0, 8) });
            let fetch = bench.last();
            let last = Reply { etag: 8, block: Some((1, false)), payload: b"!", ..Reply::default() };
            bench.answer(&fetch, Code::CONTENT, last);
            whole.clone()
        };
        assert_eq!(bench.told(), [content("", b""), content("ps/a", &expected)], "{shrinks}");
    }
}

#[test]
fn a_state_that_is_gone_meanwhile_ends_nothing_of_many() {
    let mut bench = Bench::observing("ps");
    let first = bench.first();
    bench.answer(&first, Code::CONTENT, small(1, b""));
    bench.notify(Type::NonConfirmable, Reply { location: "ps/a", ..large(2, 9) });
    for _ in 0..2 {
        let fetch = bench.last();
        bench.answer(&fetch, Code::NOT_FOUND, Reply::default());
    }
    bench.notify(Type::NonConfirmable, Reply { location: "ps/b", ..small(3, b"next") });
    assert_eq!(bench.told(), [content("", b""), content("ps/b", b"next")]);
}
