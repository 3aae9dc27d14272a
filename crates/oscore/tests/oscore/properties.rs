//! Any bytes: no panic. Any message: what is opened is what was sealed, and one changed bit is one too many.

use crate::support::{Ends, content, decode, get, parameters};
use fogmux_coap::{Call, Client, ClientConfig, Code, Encoder, Message, OptionNumber, Outbox, Timestamp, Token, Type};
use fogmux_oscore::{
    Opened, OscoreOption, RequestProtection,
    file::{aiocoap, libcoap, toml},
};
use proptest::{collection::vec, prelude::*};

/// A request with any options but OSCORE and Proxy-Uri.
fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let options = vec((0_u16..300, vec(any::<u8>(), 0..20)), 0..12);
    (1_u8..32, vec(any::<u8>(), 0..=8), options, vec(any::<u8>(), 0..200)).prop_map(
        |(code, token, mut options, payload)| {
            options.retain(|(number, _)| ![9, 35].contains(number));
            options.sort_by_key(|(number, _)| *number);
            let mut bytes = Vec::new();
            let token = Token::new(&token).unwrap();
            let mut encoder = Encoder::new(&mut bytes, Type::Confirmable, Code::from_byte(code), 7, &token);
            options.iter().for_each(|(number, value)| encoder.push(OptionNumber::new(*number), value));
            encoder.payload(&payload);
            bytes
        },
    )
}

proptest! {
    #[test]
    fn a_request_is_opened_as_it_was_sealed(plain in any_request()) {
        let ends = Ends::new(&parameters("", "01"));
        let (mut sealed, mut inner) = (Vec::new(), Vec::new());
        ends.client.seal_request(&decode(&plain), &mut sealed).unwrap();
        prop_assert!(matches!(ends.server.open_request(Timestamp::ZERO, &decode(&sealed), &mut inner), Ok(Opened::Request(_))));
        prop_assert_eq!(inner, plain);
    }

    #[test]
    fn a_changed_bit_opens_nothing(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let ends = Ends::new(&parameters("", "01"));
        let (mut sealed, mut inner) = (Vec::new(), Vec::new());
        ends.client.seal_request(&decode(&get("a", None)), &mut sealed).unwrap();
        let payload = decode(&sealed).payload().len();
        let at = sealed.len() - payload + at.index(payload);
        sealed[at] ^= 1 << bit;
        prop_assert!(ends.server.open_request(Timestamp::ZERO, &decode(&sealed), &mut inner).is_err());
        prop_assert!(inner.is_empty());
    }

    #[test]
    fn any_bytes_as_messages(bytes in vec(any::<u8>(), 0..64), option in vec(any::<u8>(), 0..24), code in any::<u8>()) {
        let ends = Ends::new(&parameters("", "01"));
        let protection = RequestProtection(ends.client.clone());
        let mut client = Client::with(ClientConfig::default(), 7, Some(protection));
        let (mut out, mut inner) = (Outbox::default(), Vec::new());
        client.request(Timestamp::ZERO, Call { observe: true, ..Call::new(Code::GET, "a") }, &mut out);
        client.handle(Timestamp::ZERO, &bytes, &mut out);
        let mut message = Vec::new();
        let token = out.iter().next().map(|(_, sent)| decode(sent).token).unwrap();
        Encoder::new(&mut message, Type::NonConfirmable, Code::from_byte(code), 7, &token)
            .option(OptionNumber::OSCORE, &option)
            .payload(&bytes);
        if let Ok(message) = Message::decode(&message) {
            prop_assert!(ends.server.open_request(Timestamp::ZERO, &message, &mut inner).is_err());
        }
        client.handle(Timestamp::ZERO, &message, &mut out);
    }

    /// Somebody authentic sends nonsense.
    #[test]
    fn any_answer_of_the_true_server(answer in any_request(), code in 64_u8..192) {
        let ends = Ends::new(&parameters("", "01"));
        let (mut sealed, mut inner) = (Vec::new(), Vec::new());
        let mut pending = ends.client.seal_request(&decode(&get("a", Some(0))), &mut sealed).unwrap();
        let Ok(Opened::Request(exchange)) = ends.server.open_request(Timestamp::ZERO, &decode(&sealed), &mut inner) else {
            return Err(TestCaseError::fail("not opened"));
        };
        let mut answer = answer;
        answer[1] = code;
        let Ok(answer) = Message::decode(&answer) else { return Ok(()) };
        let mut protected = Vec::new();
        exchange.seal(&answer, &mut protected).unwrap();
        let _ = pending.open(&decode(&protected), &mut Vec::new());
        let _ = exchange.seal(&decode(&content(b"x", None)), &mut protected);
    }

    #[test]
    fn an_option_is_read_as_it_is_written(value in vec(any::<u8>(), 0..40)) {
        if let Ok(option) = OscoreOption::decode(&value) {
            let mut written = Vec::new();
            option.encode(&mut written);
            prop_assert_eq!(written, value);
        }
    }

    #[test]
    fn any_text_as_a_file(text in "\\PC*", lines in vec("[a-z_0-9]{0,16},(hex|ascii|integer),\"?[0-9a-f]{0,20}\"?", 0..6)) {
        for text in [text, lines.join("\n")] {
            let _ = (toml::read(&text), libcoap::read(&text), aiocoap::read([text.as_str()]));
        }
    }
}
