//! The properties that every parser here has, and a second opinion by `coap-lite`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use fogmux_coap::{
    Code, Encoder, Message, OptionNumber, Outbox, Request, Server, ServerConfig, Timestamp, Token, Type,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn kinds() -> impl Strategy<Value = Type> {
    prop_oneof![Just(Type::Confirmable), Just(Type::NonConfirmable)]
}

type Options = Vec<(u16, Vec<u8>)>;

fn options() -> impl Strategy<Value = Options> {
    let value = prop_oneof![vec(any::<u8>(), 0..14), vec(any::<u8>(), 260..300)];
    vec((any::<u16>(), value), 0..6).prop_map(|mut options| {
        options.sort_by_key(|(number, _)| *number);
        options
    })
}

fn encode(kind: Type, code: u8, id: u16, token: &[u8], options: &Options, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let token = Token::new(token).unwrap();
    let mut encoder = Encoder::new(&mut bytes, kind, Code::from_byte(code), id, &token);
    options.iter().for_each(|(number, value)| encoder.push(OptionNumber::new(*number), value));
    encoder.payload(payload);
    bytes
}

fn encode_again(message: &Message<'_>) -> Vec<u8> {
    let options = message.options().map(|option| (option.number.get(), option.value.to_vec())).collect();
    let Message { kind, code, message_id, token, .. } = *message;
    encode(kind, code.as_byte(), message_id, token.as_slice(), &options, message.payload())
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        kind in kinds(), code in 1_u8..32, id: u16, token in vec(any::<u8>(), 0..=8), options in options(),
        payload in vec(any::<u8>(), 0..40),
    ) {
        let bytes = encode(kind, code, id, &token, &options, &payload);
        let message = Message::decode(&bytes).unwrap();
        prop_assert_eq!((message.kind, message.code.as_byte(), message.message_id), (kind, code, id));
        prop_assert_eq!(message.token.as_slice(), &token[..]);
        prop_assert_eq!(message.payload(), &payload[..]);
        let read: Options = message.options().map(|option| (option.number.get(), option.value.to_vec())).collect();
        prop_assert_eq!(read, options);
    }

    #[test]
    fn what_is_read_and_written_is_read_the_same(bytes in vec(any::<u8>(), 0..64), first in 0x40_u8..0x80) {
        let bytes = [&[first], &bytes[..]].concat();
        if let Ok(message) = Message::decode(&bytes) {
            let again = encode_again(&message);
            prop_assert_eq!(encode_again(&Message::decode(&again).unwrap()), again);
        }
    }

    /// A datagram comes whole; what can be cut is its end: then it is another message or none, and never a panic.
    #[test]
    fn a_cut_message_never_shows_bytes_that_are_not_there(
        options in options(), payload in vec(any::<u8>(), 0..20), keep in 0.0..1.0_f64,
    ) {
        let bytes = encode(Type::Confirmable, 3, 7, &[1, 2], &options, &payload);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share of a length")]
        let cut = &bytes[..(bytes.len() as f64 * keep) as usize];
        if let Ok(message) = Message::decode(cut) {
            let length: usize = message.options().map(|option| option.value.len()).sum();
            prop_assert!(length + message.payload().len() + 6 <= cut.len());
        }
    }

    #[test]
    fn any_bytes_leave_the_server_whole_and_bounded(datagrams in vec(vec(any::<u8>(), 0..48), 1..40)) {
        let config = ServerConfig { body_bytes_max: 64, upload_bytes_max: 64, ..ServerConfig::default() };
        let mut server: Server<std::net::SocketAddr> = Server::new(config, 1, Box::new(|_: &[u8]| [0; 8]));
        let peer = "127.0.0.1:9".parse().unwrap();
        let mut out = Outbox::default();
        for (millis, mut datagram) in (0..).zip(datagrams) {
            if let Some(first) = datagram.first_mut() {
                *first = 0x40 | (*first & 0x33);
            }
            let now = Timestamp::from_millis(millis);
            if let Some(incoming) = server.handle(now, peer, &datagram, &mut out) {
                prop_assert!(incoming.request.body.as_slice().len() <= 64);
                let mut ticket = incoming.ticket;
                let _ = server.observe(now, &mut ticket);
                server.respond(now, ticket, &fogmux_coap::Response::new(Code::CONTENT), &mut out);
            }
            server.handle_timeout(now, &mut out);
        }
        prop_assert!(server.peers() <= 1);
    }

    #[test]
    fn coap_lite_reads_what_we_write(
        kind in kinds(), id: u16, token in vec(any::<u8>(), 0..=8), options in options(), payload in vec(any::<u8>(), 0..40),
    ) {
        let bytes = encode(kind, 1, id, &token, &options, &payload);
        let packet = coap_lite::Packet::from_bytes(&bytes).unwrap();
        prop_assert_eq!(packet.header.message_id, id);
        prop_assert_eq!(packet.get_token(), &token[..]);
        prop_assert_eq!(&packet.payload, &payload);
        let theirs: Vec<_> = packet.options().flat_map(|(number, values)| values.iter().map(move |value| (*number, value.clone()))).collect();
        prop_assert_eq!(theirs, options);
    }

    /// We refuse more than `coap-lite` does, and nothing that it refuses.
    #[test]
    fn coap_lite_reads_all_that_we_read(bytes in vec(any::<u8>(), 0..64), first in 0x40_u8..0x80) {
        let bytes = [&[first], &bytes[..]].concat();
        if let Ok(message) = Message::decode(&bytes) {
            let packet = coap_lite::Packet::from_bytes(&bytes).unwrap();
            prop_assert_eq!(&packet.payload[..], message.payload());
        }
    }

    #[test]
    fn any_options_make_a_request_or_a_fault(options in options()) {
        let bytes = encode(Type::Confirmable, 1, 7, &[], &options, &[]);
        let message = Message::decode(&bytes).unwrap();
        if let Ok(request) = Request::parse(message) {
            request.path().count();
            request.queries().count();
            let _ = request.precondition_holds(None);
        }
    }
}
