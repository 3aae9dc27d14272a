//! The server machine, clause by clause, and against our own client over a network that loses datagrams.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

#[path = "server/blockwise.rs"]
mod blockwise;
#[path = "server/convergence.rs"]
mod convergence;
#[path = "server/events.rs"]
mod events;
#[path = "server/exchange.rs"]
mod exchange;
#[path = "server/lossy.rs"]
mod lossy;
#[path = "server/moved.rs"]
mod moved;
#[path = "server/names.rs"]
mod names;
#[path = "server/observe.rs"]
mod observe;
#[path = "server/options.rs"]
mod options;
#[path = "server/protection.rs"]
mod protection;
#[path = "server/room.rs"]
mod room;

use std::net::SocketAddr;
use std::time::Duration;

use fogmux_coap::server::{Event, GoneReason, Notification, Notified, RelationId};
use fogmux_coap::{
    Code, ETag, Encoder, Incoming, Message, OptionNumber, Outbox, Payload, Response, Server, ServerConfig, Ticket,
    Timestamp, Token, Type,
};

/// A server with one resource, and a clock.
struct Bench {
    server: Server<SocketAddr>,
    now: Timestamp,
    peer: SocketAddr,
    next_id: u16,
    state: Option<Vec<u8>>,
    format: Option<u16>,
    relation: Option<RelationId>,
    /// The newest notification that could not be sent, as the application of a real server would look it up.
    waiting: Option<(Vec<u8>, bool)>,
    /// The state of observers.
    ended: std::collections::VecDeque<GoneReason>,
    asked: usize,
}

/// A sent message, decoded.
#[derive(Debug, Clone, PartialEq)]
struct Sent {
    bytes: Vec<u8>,
}

impl Sent {
    fn message(&self) -> Message<'_> {
        Message::decode(&self.bytes).unwrap()
    }
    fn code(&self) -> Code {
        self.message().code
    }
    fn kind(&self) -> Type {
        self.message().kind
    }
    fn uint(&self, number: OptionNumber) -> Option<u32> {
        self.message().option(number).and_then(|option| option.uint())
    }
}

/// An address on loopback, which is verified, or a remote one, which is not.
fn address(verified: bool) -> SocketAddr {
    if verified { "127.0.0.1:40000" } else { "198.51.100.7:40000" }.parse().unwrap()
}

impl Bench {
    fn new(config: ServerConfig) -> Self {
        let key = |input: &[u8]| {
            let sum = input.iter().fold(3_u64, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(*byte)));
            sum.to_be_bytes()
        };
        Self {
            server: Server::new(config, 42, Box::new(key)),
            now: Timestamp::from_millis(1_000_000),
            peer: address(true),
            next_id: 100,
            state: Some(b"state".to_vec()),
            format: Some(0),
            relation: None,
            waiting: None,
            ended: std::collections::VecDeque::new(),
            asked: 0,
        }
    }

    fn raw(&mut self, datagram: &[u8]) -> Vec<Sent> {
        let mut out = Outbox::default();
        if let Some(incoming) = self.server.handle(self.now, self.peer, datagram, &mut out) {
            self.answer(incoming, &mut out);
        }
        self.attend(&mut out);
        sent(&out)
    }

    /// Handles events as an application does: notifies observers that may be notified again of the newest state.
    fn attend(&mut self, out: &mut Outbox<SocketAddr>) {
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::ObserverGone { reason, .. } => self.ended.push_back(reason),
                Event::Ready { relation } => {
                    if let Some((payload, confirmable)) = self.waiting.take() {
                        let response = self.content(&payload);
                        let notification = Notification { response, confirmable, encoded: None, event: false };
                        if self.server.notify(self.now, relation, &notification, out) == Notified::Later {
                            self.waiting = Some((payload, confirmable));
                        }
                    }
                }
            }
        }
    }

    fn answer(&mut self, incoming: Incoming<'_, SocketAddr>, out: &mut Outbox<SocketAddr>) {
        let Incoming { request, mut ticket } = incoming;
        self.asked += 1;
        if request.method == Code::PUT {
            self.state = Some(request.body.as_slice().to_vec());
            self.server.respond(self.now, ticket, &Response::new(Code::CHANGED), out);
            return;
        }
        if let Ok(registered) = self.server.observe(self.now, &mut ticket) {
            self.relation = Some(registered.relation());
        }
        let state = self.state.clone();
        let response = match &state {
            Some(state) => Response {
                // No tag says that there is no value yet.
                etag: (!state.is_empty()).then(|| etag(state)),
                content_format: self.format,
                payload: Payload::Slice(state),
                ..Response::new(Code::CONTENT)
            },
            None => Response::new(Code::NOT_FOUND),
        };
        self.server.respond(self.now, ticket, &response, out);
    }

    /// Sends a Confirmable with these options and gives the one answer.
    fn ask(&mut self, code: Code, options: &[(OptionNumber, &[u8])], payload: &[u8]) -> Sent {
        let datagram = self.compose(Type::Confirmable, code, options, payload);
        let mut sent = self.raw(&datagram);
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    fn compose(&mut self, kind: Type, code: Code, options: &[(OptionNumber, &[u8])], payload: &[u8]) -> Vec<u8> {
        self.next_id += 1;
        compose(kind, code, self.next_id, options, payload)
    }

    /// A notification of the format that the first answer had.
    fn content<'a>(&self, payload: &'a [u8]) -> Response<'a> {
        Response { content_format: self.format, payload: Payload::Slice(payload), ..Response::new(Code::CONTENT) }
    }

    fn notify(&mut self, payload: &[u8], confirmable: bool) -> (Notified, Vec<Sent>) {
        let response = self.content(payload);
        let (notified, sent) = self.notify_with(response, confirmable);
        self.waiting = (notified == Notified::Later).then(|| (payload.to_vec(), confirmable));
        (notified, sent)
    }

    fn notify_with(&mut self, response: Response<'_>, confirmable: bool) -> (Notified, Vec<Sent>) {
        let mut out = Outbox::default();
        let notification = Notification { response, confirmable, encoded: None, event: false };
        let notified = self.server.notify(self.now, self.relation.unwrap(), &notification, &mut out);
        (notified, sent(&out))
    }

    fn empty(&mut self, kind: Type, message_id: u16) -> Vec<Sent> {
        self.raw(&compose(kind, Code::EMPTY, message_id, &[], &[]))
    }

    fn wait(&mut self, span: Duration) -> Vec<Sent> {
        self.now = self.now + span;
        let mut out = Outbox::default();
        self.server.handle_timeout(self.now, &mut out);
        self.attend(&mut out);
        sent(&out)
    }

    fn gone(&mut self) -> Option<GoneReason> {
        self.attend(&mut Outbox::default());
        self.ended.pop_front()
    }
}

fn compose(kind: Type, code: Code, id: u16, options: &[(OptionNumber, &[u8])], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let token = if code == Code::EMPTY { Token::EMPTY } else { Token::new(b"tk").unwrap() };
    let mut encoder = Encoder::new(&mut bytes, kind, code, id, &token);
    options.iter().for_each(|(number, value)| encoder.push(*number, value));
    encoder.payload(payload);
    bytes
}

fn sent(out: &Outbox<SocketAddr>) -> Vec<Sent> {
    out.iter().map(|(_, bytes)| Sent { bytes: bytes.to_vec() }).collect()
}

fn etag(state: &[u8]) -> ETag {
    ETag::from_u64(state.iter().fold(9, |sum, byte| sum * 7 % 1_000_003 + u64::from(*byte)))
}

const PATH: (OptionNumber, &[u8]) = (OptionNumber::URI_PATH, b"ps");
const REGISTER: (OptionNumber, &[u8]) = (OptionNumber::OBSERVE, &[]);
