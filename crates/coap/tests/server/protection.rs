//! The hook for requests that are protected from end to end, with a protection that only turns bytes around.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use fogmux_coap::server::{Exchange, Opened, Protection, Role, Room, Unsealed};

use super::*;

/// `OSCORE: <scope>`, and a payload that is the inner message with every bit turned.
struct Turned;

#[derive(Debug)]
struct Turning {
    user: Arc<str>,
    scope: u64,
    sealed: Cell<u8>,
}

/// A token that no context of these tests protects.
const UNSAYABLE: &[u8] = b"unsayable";

fn turned(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

impl Protection for Turned {
    fn open(&mut self, _now: Timestamp, outer: &Message<'_>, inner: &mut Vec<u8>) -> Opened {
        let scope = outer.option(OptionNumber::OSCORE).and_then(|option| option.uint()).unwrap();
        let exchange = Turning { user: format!("user {scope}").into(), scope: scope.into(), sealed: Cell::new(0) };
        match turned(outer.payload()) {
            empty if empty.is_empty() => Opened::Refused { code: Code::BAD_REQUEST, text: "nothing inside" },
            message => {
                inner.extend_from_slice(&message);
                inner[2..4].copy_from_slice(&outer.message_id.to_be_bytes());
                Opened::Request(Rc::new(exchange))
            }
        }
    }
}

impl Exchange for Turning {
    fn user(&self) -> &Arc<str> {
        &self.user
    }

    fn scope(&self) -> u64 {
        self.scope
    }

    fn seal(&self, _now: Timestamp, plain: &Message<'_>, role: Role, out: &mut Vec<u8>) -> Result<(), Unsealed> {
        if self.sealed.get() == u8::MAX {
            return Err(Unsealed::NotNow);
        }
        if plain.payload() == UNSAYABLE {
            return Err(Unsealed::Never);
        }
        // Each has a number of its own, so that one that was made again can be told from one that was sent again.
        self.sealed.set(self.sealed.get() + 1);
        let number = [self.sealed.get(), u8::from(role == Role::Notification)];
        let mut body = Vec::new();
        let mut encoder = Encoder::new(&mut body, plain.kind, plain.code, plain.message_id, &plain.token);
        plain.options().for_each(|option| encoder.push(option.number, option.value));
        encoder.payload(plain.payload());
        Encoder::new(out, plain.kind, Code::CHANGED, plain.message_id, &plain.token)
            .option(OptionNumber::OSCORE, &number)
            .payload(&turned(&body));
        Ok(())
    }
}

struct Guarded {
    server: Server<SocketAddr>,
    now: Timestamp,
    asked: usize,
    relation: Option<RelationId>,
}

fn state() -> Vec<u8> {
    (0..3000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

impl Guarded {
    fn new() -> Self {
        let mut server = Server::new(ServerConfig::default(), 1, Box::new(|_: &[u8]| [0; 8]));
        server.set_protection(Box::new(Turned));
        Self { server, now: Timestamp::from_millis(1000), asked: 0, relation: None }
    }

    /// The response to a datagram: 2.05 with 3000 bytes to GET, 2.04 to all else.
    fn hand_in(&mut self, datagram: &[u8]) -> Vec<Sent> {
        let (mut out, room) = (Outbox::default(), Room::default());
        let peer = address(true);
        if let Some(Incoming { request, mut ticket }) =
            self.server.handle_in(self.now, peer, datagram, Some(&room), &mut out)
        {
            self.asked += 1;
            let body = state();
            let response = match request.method {
                Code::GET => Response { payload: Payload::Slice(&body), ..Response::new(Code::CONTENT) },
                _ => Response::new(Code::CHANGED),
            };
            if let Ok(registered) = self.server.observe(self.now, &mut ticket) {
                self.relation = Some(registered.relation());
            }
            self.server.respond(self.now, ticket, &response, &mut out);
        }
        sent(&out)
    }
}

fn sent(out: &Outbox<SocketAddr>) -> Vec<Sent> {
    out.iter().map(|(_, bytes)| Sent { bytes: bytes.to_vec() }).collect()
}

/// The inner message, with its number and role.
fn open(sent: &Sent) -> (Sent, Vec<u8>) {
    let message = sent.message();
    let number = message.option(OptionNumber::OSCORE).expect("it is not protected").value.to_vec();
    (Sent { bytes: turned(message.payload()) }, number)
}

fn protected(id: u16, scope: u32, method: Code, options: &[(OptionNumber, u32)], payload: &[u8]) -> Vec<u8> {
    let token = Token::new(b"tk").unwrap();
    let mut inner = Vec::new();
    let encoder = Encoder::new(&mut inner, Type::Confirmable, method, 0, &token);
    options.iter().fold(encoder, |encoder, (number, value)| encoder.uint(*number, *value)).payload(payload);
    let mut outer = Vec::new();
    Encoder::new(&mut outer, Type::Confirmable, Code::POST, id, &token)
        .uint(OptionNumber::OSCORE, scope)
        .payload(&turned(&inner));
    outer
}

#[test]
fn rfc_8613_s8_answers_and_errors_go_back_the_way_the_request_came() {
    let mut bench = Guarded::new();
    let done = bench.hand_in(&protected(1, 7, Code::PUT, &[], b"x"));
    assert_eq!((open(&done[0]).0.code(), done[0].message().message_id), (Code::CHANGED, 1));
    // An error of the request layer: a critical option that nobody knows, inside.
    let refused = bench.hand_in(&protected(2, 7, Code::GET, &[(OptionNumber::new(9999), 1)], b""));
    assert_eq!(open(&refused[0]).0.code(), Code::BAD_OPTION);
    // OSCORE inside of OSCORE is nothing that there is.
    let refused = bench.hand_in(&protected(3, 7, Code::GET, &[(OptionNumber::OSCORE, 1)], b""));
    assert_eq!(open(&refused[0]).0.code(), Code::BAD_OPTION);
    assert_eq!(bench.asked, 1);
    // A message that cannot be opened is answered without protection, with Max-Age 0 (§8.2).
    let mut nothing = Vec::new();
    Encoder::new(&mut nothing, Type::Confirmable, Code::POST, 4, &Token::EMPTY).uint(OptionNumber::OSCORE, 7).finish();
    let refused = bench.hand_in(&nothing);
    assert_eq!((refused[0].code(), refused[0].uint(OptionNumber::MAX_AGE)), (Code::BAD_REQUEST, Some(0)));
    // A machine that has no protection does not know the option, which is critical.
    let mut out = Outbox::default();
    let mut plain = Server::new(ServerConfig::default(), 1, Box::new(|_: &[u8]| [0; 8]));
    let request = protected(5, 7, Code::GET, &[], b"");
    assert!(plain.handle(bench.now, address(true), &request, &mut out).is_none());
    assert_eq!(sent(&out)[0].code(), Code::BAD_OPTION);
}

#[test]
fn rfc_7252_s4_5_a_repeat_gets_the_same_bytes_and_is_not_opened_again() {
    let mut bench = Guarded::new();
    let request = protected(1, 7, Code::GET, &[], b"");
    let (first, second) = (bench.hand_in(&request), bench.hand_in(&request));
    // Long as it is, and to a safe method: made again it would be a replay.
    assert!(first[0].bytes.len() > 1000);
    assert_eq!((first, bench.asked), (second, 1));
}

#[test]
fn rfc_7959_blocks_of_one_context_are_not_anothers() {
    let mut bench = Guarded::new();
    let block = |number: u32, more: u32| (number << 4) | (more << 3) | 6;
    let first = bench.hand_in(&protected(1, 7, Code::GET, &[(OptionNumber::BLOCK2, block(0, 0))], b""));
    assert_eq!(open(&first[0]).0.message().payload(), &state()[..1024]);
    let second = bench.hand_in(&protected(2, 7, Code::GET, &[(OptionNumber::BLOCK2, block(1, 0))], b""));
    assert_eq!(open(&second[0]).0.message().payload(), &state()[1024..2048]);
    let upload = |id, scope, number, more| {
        protected(id, scope, Code::PUT, &[(OptionNumber::BLOCK1, block(number, more))], &[1; 1024])
    };
    assert_eq!(open(&bench.hand_in(&upload(3, 7, 0, 1))[0]).0.code(), Code::CONTINUE);
    // Same address, same token, same resource – another context, and none.
    assert_eq!(open(&bench.hand_in(&upload(4, 8, 1, 0))[0]).0.code(), Code::REQUEST_ENTITY_INCOMPLETE);
    let mut plain = Vec::new();
    Encoder::new(&mut plain, Type::Confirmable, Code::PUT, 5, &Token::new(b"tk").unwrap())
        .uint(OptionNumber::BLOCK1, block(1, 0))
        .payload(&[1; 1024]);
    assert_eq!(bench.hand_in(&plain)[0].code(), Code::REQUEST_ENTITY_INCOMPLETE);
    assert_eq!(open(&bench.hand_in(&upload(6, 7, 1, 0))[0]).0.code(), Code::CHANGED);
}

#[test]
fn rfc_7959_blocks_around_the_protection_are_joined_before_it_is_opened() {
    let mut bench = Guarded::new();
    let whole = protected(0, 7, Code::PUT, &[], &[1; 100]);
    let whole = Message::decode(&whole).unwrap();
    let parts: Vec<&[u8]> = whole.payload().chunks(64).collect();
    let mut answers = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let more = number + 1 < parts.len();
        let block = (u32::try_from(number).unwrap() << 4) | (u32::from(more) << 3) | 2;
        let mut outer = Vec::new();
        let id = 10 + u16::try_from(number).unwrap();
        Encoder::new(&mut outer, Type::Confirmable, Code::POST, id, &whole.token)
            .uint(OptionNumber::OSCORE, 7)
            .uint(OptionNumber::BLOCK1, block)
            .payload(part);
        answers.extend(bench.hand_in(&outer));
    }
    assert_eq!(answers[0].code(), Code::CONTINUE);
    assert_eq!(open(&answers[1]).0.code(), Code::CHANGED);
    assert!(answers[1].uint(OptionNumber::BLOCK1).is_some(), "the outer block is acknowledged outside");
}

#[test]
fn rfc_8613_s7_2_1_an_observer_to_whom_nothing_can_be_said_is_gone_and_not_tried_again() {
    let mut bench = Guarded::new();
    bench.hand_in(&protected(1, 7, Code::GET, &[(OptionNumber::OBSERVE, 0)], b""));
    let relation = bench.relation.unwrap();
    let notification = Notification {
        response: Response { payload: Payload::Slice(UNSAYABLE), ..Response::new(Code::CONTENT) },
        confirmable: false,
        encoded: None,
        event: false,
    };
    let mut out = Outbox::default();
    bench.server.notify(bench.now, relation, &notification, &mut out);
    assert!(sent(&out).is_empty());
    assert_eq!((bench.server.observers(), bench.server.is_ready(bench.now, relation)), (0, false));
}

#[test]
fn rfc_7641_s4_5_notifications_are_sealed_once_and_sent_again_as_they_were() {
    let mut bench = Guarded::new();
    let registered = bench.hand_in(&protected(1, 7, Code::GET, &[(OptionNumber::OBSERVE, 0)], b""));
    assert_eq!(open(&registered[0]).1, [1, 0]);
    // Another context with the same token from the same address is another observer.
    let first = bench.relation.unwrap();
    bench.hand_in(&protected(2, 8, Code::GET, &[(OptionNumber::OBSERVE, 0)], b""));
    assert_ne!(bench.relation.unwrap(), first);
    assert_eq!(bench.server.observers(), 2);
    let notification = Notification {
        response: Response { payload: Payload::Slice(b"new"), ..Response::new(Code::CONTENT) },
        confirmable: true,
        encoded: None,
        event: false,
    };
    let mut out = Outbox::default();
    assert_eq!(bench.server.notify(bench.now, first, &notification, &mut out), Notified::Sent);
    let told = sent(&out);
    let (inner, number) = open(&told[0]);
    assert_eq!((inner.message().payload(), number), (&b"new"[..], vec![2, 1]));
    assert!(inner.uint(OptionNumber::OBSERVE).is_some());
    out.clear();
    bench.server.handle_timeout(bench.server.next_timeout().unwrap() + Duration::from_secs(4), &mut out);
    assert_eq!(sent(&out), told, "sent again, not sealed again");
    // A Deregister of the other context takes only that one away.
    bench.hand_in(&protected(3, 8, Code::GET, &[(OptionNumber::OBSERVE, 1)], b""));
    assert_eq!(bench.server.observers(), 1);
    // The association is over: nothing is left.
    bench.server.forget(&address(true));
    assert_eq!((bench.server.observers(), bench.server.peers()), (0, 0));
}

/// A peer that may only ask with protection learns so from the first block, and leaves nothing behind (RFC 7252
/// §5.9.2.2).
#[test]
fn where_protection_is_demanded_the_first_block_without_it_is_unauthorized() {
    let mut guarded = Guarded::new();
    guarded.server.demand_protection(0);
    let more = [0x0e];
    let block = (OptionNumber::BLOCK1, &more[..]);
    let bad = (OptionNumber::new(9999), &b"critical"[..]);
    let register = (OptionNumber::OBSERVE, &[][..]);
    for (id, (code, options)) in [
        (Code::PUT, vec![PATH, block]),
        (Code::GET, vec![PATH]),
        (Code::GET, vec![register, PATH]),
        (Code::PUT, vec![PATH, bad]),
    ]
    .into_iter()
    .enumerate()
    {
        let request = compose(Type::Confirmable, code, u16::try_from(id).unwrap(), &options, &[7; 1024]);
        let answers = guarded.hand_in(&request);
        assert_eq!(answers.iter().map(Sent::code).collect::<Vec<_>>(), [Code::UNAUTHORIZED], "{code:?} {options:?}");
    }
    assert_eq!((guarded.asked, guarded.server.uploads_bytes()), (0, 0));
    assert_eq!(guarded.server.counters().unprotected, 4);
    // A connection that ends takes nothing of this away.
    guarded.server.forget(&address(true));
    let request = compose(Type::Confirmable, Code::PUT, 9, &[PATH, block], &[7; 1024]);
    assert_eq!(guarded.hand_in(&request)[0].code(), Code::UNAUTHORIZED);
}
