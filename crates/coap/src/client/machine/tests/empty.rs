//! Requests without a token, one after the other (RFC 7252 §5.3.1).

use super::*;
use crate::token::Token;

/// A client without tokens that has sent a request, and its message ID.
fn asked() -> (Machine, u16) {
    let config = ClientConfig { tokens: TokenForm::Empty, ..ClientConfig::default() };
    let mut machine = Machine::new(config, 7, None);
    let get = Template::new(Type::Confirmable, Code::GET, |_| {});
    machine.request(&get, &[], 1).unwrap();
    assert!(matches!(machine.request(&get, &[], 2), Err(RequestError::TooMany)));
    let sent = machine.front().unwrap().to_vec();
    machine.sent(Timestamp::ZERO, &mut Ends::default());
    let message = Message::decode(&sent).unwrap();
    assert_eq!((message.token.length(), sent.len()), (0, 4));
    let id = message.message_id;
    (machine, id)
}

fn content(kind: Type, id: u16, token: &Token) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes, kind, Code::CONTENT, id, token).payload(&[9]);
    bytes
}

#[test]
fn the_answer_belongs_to_the_only_request() {
    let (mut machine, id) = asked();
    let mut ends = Ends::default();
    machine.handle(Timestamp::ZERO, &content(Type::Acknowledgement, id, &Token::EMPTY), &mut ends);
    assert_eq!(ends.over.get(&1), Some(&"answered"));
    machine.request(&Template::new(Type::Confirmable, Code::GET, |_| {}), &[], 2).unwrap();
}

#[test]
fn a_separate_answer_does_too_and_one_with_a_token_does_not() {
    let (mut machine, id) = asked();
    let mut ends = Ends::default();
    machine.handle(Timestamp::ZERO, &content(Type::Acknowledgement, id, &Token::from_u64(3)), &mut ends);
    machine.handle(Timestamp::ZERO, &content(Type::Acknowledgement, id.wrapping_add(1), &Token::EMPTY), &mut ends);
    assert!(ends.over.is_empty(), "neither is the answer: {:?}", ends.over);
    let mut acknowledgement = Vec::new();
    crate::encode::empty(&mut acknowledgement, Type::Acknowledgement, id);
    machine.handle(Timestamp::ZERO, &acknowledgement, &mut ends);
    machine.handle(Timestamp::ZERO, &content(Type::Confirmable, 77, &Token::EMPTY), &mut ends);
    assert_eq!(ends.over.get(&1), Some(&"answered"));
}

#[test]
fn nothing_is_observed_without_a_token() {
    let config = ClientConfig { tokens: TokenForm::Empty, ..ClientConfig::default() };
    let mut machine: Machine = Machine::new(config, 7, None);
    let observe = Template::new(Type::Confirmable, Code::GET, |encoder| {
        encoder.push(OptionNumber::OBSERVE, UintValue::new(0).as_slice());
    });
    assert!(matches!(machine.request(&observe, &[], 1), Err(RequestError::TooMany)));
}
