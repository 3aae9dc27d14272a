//! A CoAP client whose requests are protected (RFC 8613 §8.1, §8.4).

use std::time::Duration;

use crate::support::{Ends, decode, parameters};
use fogmux_coap::client::{CallFailed, ClientEvent};
use fogmux_coap::{Call, Client, ClientConfig, Code, Encoder, Message, OptionNumber, Outbox, Timestamp, Token, Type};
use fogmux_oscore::{Exchange, Opened, RequestProtection};

const NOW: Timestamp = Timestamp::from_millis(1000);
const BLOCK: &[u8] = b"0123456789abcdef";

/// A client, the server's end of its context, and the message that was sent last.
struct Bench {
    ends: Ends,
    client: Client<RequestProtection>,
    out: Outbox<()>,
    sent: Vec<u8>,
    notifications: u16,
}

impl Bench {
    fn new() -> Self {
        let ends = Ends::new(&parameters("", "01"));
        let protection = RequestProtection(ends.client.clone());
        let client = Client::with(ClientConfig::default(), 7, Some(protection));
        Self { ends, client, out: Outbox::default(), sent: Vec::new(), notifications: 40_000 }
    }

    fn ask(&mut self, call: Call) {
        self.client.request(NOW, call, &mut self.out).unwrap();
        self.note();
    }

    /// The number of datagrams since the last time.
    fn note(&mut self) -> usize {
        let count = self.out.len();
        if let Some(((), last)) = self.out.iter().last() {
            self.sent = last.to_vec();
        }
        self.out.clear();
        count
    }

    /// The server's end of the request that was sent last, and its Observe.
    fn opened(&self) -> (Exchange, Option<u32>) {
        let mut inner = Vec::new();
        match self.ends.server.open_request(Timestamp::ZERO, &decode(&self.sent), &mut inner) {
            Ok(Opened::Request(exchange)) => {
                (exchange, decode(&inner).option(OptionNumber::OBSERVE).and_then(|option| option.uint()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn hear(&mut self, datagram: &[u8]) -> usize {
        self.client.handle(NOW, datagram, &mut self.out);
        self.note()
    }

    /// Has the client hear what `write` puts behind the head of a protected message.
    fn tell(&mut self, exchange: &Exchange, head: (Type, u16, Token), code: Code, write: impl FnOnce(Encoder<'_>)) {
        let (mut plain, mut sealed) = (Vec::new(), Vec::new());
        write(Encoder::new(&mut plain, head.0, code, head.1, &head.2));
        exchange.seal(&decode(&plain), &mut sealed).unwrap();
        self.hear(&sealed);
    }

    /// A piggybacked answer to the last request.
    fn answer(&mut self, exchange: &Exchange, code: Code, write: impl FnOnce(Encoder<'_>)) {
        let request = decode(&self.sent);
        self.tell(exchange, (Type::Acknowledgement, request.message_id, request.token), code, write);
    }

    fn notify(&mut self, exchange: &Exchange, token: Token, write: impl FnOnce(Encoder<'_>)) {
        self.notifications += 1;
        self.tell(exchange, (Type::NonConfirmable, self.notifications, token), Code::CONTENT, write);
    }

    fn payloads(&mut self) -> Vec<Vec<u8>> {
        let events = std::iter::from_fn(|| self.client.poll_event());
        let payload = |event| match event {
            ClientEvent::Answered { answer, .. } | ClientEvent::Notified { answer, .. } => answer.payload.to_vec(),
            ClientEvent::Failed { reason, .. } => panic!("{reason}"),
        };
        events.map(payload).collect()
    }
}

#[test]
fn s8_1_a_request_is_sent_again_as_it_was_sealed() {
    let mut bench = Bench::new();
    bench.ask(Call::new(Code::GET, "a"));
    let first = bench.sent.clone();
    assert!(decode(&first).option(OptionNumber::URI_PATH).is_none());
    bench.client.handle_timeout(NOW + Duration::from_secs(3), &mut bench.out);
    assert_eq!((bench.note(), &bench.sent), (1, &first));
    let (exchange, _) = bench.opened();
    bench.answer(&exchange, Code::CONTENT, |answer| answer.payload(b"1"));
    assert_eq!(bench.payloads(), [b"1"]);
}

#[test]
fn s8_4_nothing_is_read_that_is_not_protected_but_an_error() {
    let mut bench = Bench::new();
    bench.ask(Call::new(Code::GET, "a"));
    let (id, token) = (decode(&bench.sent).message_id, decode(&bench.sent).token);
    let message = |kind, id, token: &Token, code, text: &[u8]| {
        let mut bytes = Vec::new();
        Encoder::new(&mut bytes, kind, code, id, token).payload(text);
        bytes
    };
    bench.hear(&message(Type::Acknowledgement, id, &token, Code::CONTENT, b"forged"));
    assert_eq!(bench.client.poll_event(), None);
    // An answer to what was not asked, or is forgotten: only a Confirmable is rejected (RFC 7252 §4.2).
    for (kind, answers) in [(Type::Confirmable, 1), (Type::Acknowledgement, 0), (Type::NonConfirmable, 0)] {
        let other = Token::new(b"forgot").unwrap();
        assert_eq!(bench.hear(&message(kind, 0xabcd, &other, Code::CONTENT, b"forged")), answers);
    }
    assert_eq!(bench.client.poll_event(), None);
    bench.hear(&message(Type::Acknowledgement, id, &token, Code::UNAUTHORIZED, b"Replay detected"));
    let reason = CallFailed::Unprotected { code: Code::UNAUTHORIZED, text: "Replay detected".to_owned() };
    assert_eq!(reason.to_string(), "4.01 without protection: Replay detected");
    assert!(matches!(bench.client.poll_event(), Some(ClientEvent::Failed { reason: failed, .. }) if failed == reason));
}

#[test]
fn s7_4_1_notifications_go_on_under_the_newest_registration() {
    let mut bench = Bench::new();
    bench.ask(Call { observe: true, ..Call::new(Code::GET, "a") });
    let token = decode(&bench.sent).token;
    let (first, observe) = bench.opened();
    assert_eq!(observe, Some(0));
    let state = |payload: &'static [u8]| move |to: Encoder<'_>| to.uint(OptionNumber::OBSERVE, 1).payload(payload);
    bench.answer(&first, Code::CONTENT, state(b"1"));
    for payload in [b"2", b"3", b"4"] {
        bench.notify(&first, token, state(payload));
    }
    // A large state that is gone before its second block is fetched: the observation is registered again.
    bench.notify(&first, token, |to| {
        to.uint(OptionNumber::OBSERVE, 1).uint(OptionNumber::BLOCK2, 8).payload(BLOCK);
    });
    let (rest, _) = bench.opened();
    bench.answer(&rest, Code::NOT_FOUND, |to| to.finish());
    let (again, observe) = bench.opened();
    assert_eq!((decode(&bench.sent).token, observe), (token, Some(0)));
    let head = (Type::Acknowledgement, decode(&bench.sent).message_id, token);
    // One of the old registration comes before the answer, and another behind it.
    bench.notify(&first, token, state(b"5"));
    bench.tell(&again, head, Code::CONTENT, state(b"6"));
    bench.notify(&first, token, state(b"old"));
    for payload in [b"7", b"8"] {
        bench.notify(&again, token, state(payload));
    }
    assert_eq!(bench.payloads(), [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"]);
    assert!(Message::decode(&bench.sent).is_ok());
}
