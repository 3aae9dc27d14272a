//! RFC 7252 §3, §4: what is no message, clause by clause, and what the peer hears of it.

use fogmux_coap::message::Fault;
use fogmux_coap::{Message, Remedy};

const IGNORE: Remedy = Remedy::Ignore;
const RESET: Remedy = Remedy::Reset(0x1234);

/// Name, datagram, fault, remedy.
type Case = (&'static str, &'static [u8], Fault, Remedy);

#[test]
fn every_malformed_message_has_its_remedy() {
    let cases: &[Case] = &[
        ("s3 nothing", &[], Fault::Truncated, IGNORE),
        ("s3 half a header", &[0x40, 0x01, 0x12], Fault::Truncated, IGNORE),
        ("s3 version 0", &[0x00, 0x01, 0x12, 0x34], Fault::Version, IGNORE),
        ("s3 version 2", &[0x80, 0x01, 0x12, 0x34], Fault::Version, IGNORE),
        ("s3 version 3", &[0xc0, 0x01, 0x12, 0x34], Fault::Version, IGNORE),
        ("s3 token of 9", &[0x49, 0x01, 0x12, 0x34, 1, 2, 3, 4, 5, 6, 7, 8, 9], Fault::TokenLength, RESET),
        ("s3 token of 15", &[0x4f, 0x01, 0x12, 0x34], Fault::TokenLength, RESET),
        ("s3 token of 9, Non-confirmable", &[0x59, 0x01, 0x12, 0x34], Fault::TokenLength, IGNORE),
        ("s3 token cut short", &[0x44, 0x01, 0x12, 0x34, 1, 2, 3], Fault::Truncated, RESET),
        ("s3 marker without payload", &[0x40, 0x01, 0x12, 0x34, 0xff], Fault::MarkerWithoutPayload, RESET),
        (
            "s3 marker without payload behind an option",
            &[0x40, 0x01, 0x12, 0x34, 0xb1, b'a', 0xff],
            Fault::MarkerWithoutPayload,
            RESET,
        ),
        (
            "s3 marker without payload in an acknowledgement",
            &[0x60, 0x45, 0x12, 0x34, 0xff],
            Fault::MarkerWithoutPayload,
            IGNORE,
        ),
        ("s3.1 delta 15", &[0x40, 0x01, 0x12, 0x34, 0xf1, b'a'], Fault::OptionNibble, RESET),
        ("s3.1 length 15", &[0x40, 0x01, 0x12, 0x34, 0xbf, b'a'], Fault::OptionNibble, RESET),
        ("s3.1 value cut short", &[0x40, 0x01, 0x12, 0x34, 0xb2, b'a'], Fault::Truncated, RESET),
        ("s3.1 delta extension cut short", &[0x40, 0x01, 0x12, 0x34, 0xe0, 0], Fault::Truncated, RESET),
        ("s3.1 length extension cut short", &[0x40, 0x01, 0x12, 0x34, 0xbd], Fault::Truncated, RESET),
        ("s3.1 length that lies", &[0x40, 0x01, 0x12, 0x34, 0xbe, 0xff, 0xff, 0], Fault::Truncated, RESET),
        ("s3.1 one number beyond 65535", &[0x40, 0x01, 0x12, 0x34, 0xe0, 0xff, 0xff], Fault::OptionOverflow, RESET),
        (
            "s3.1 two numbers beyond 65535",
            &[0x40, 0x01, 0x12, 0x34, 0xe0, 0xfe, 0xf2, 0x10],
            Fault::OptionOverflow,
            RESET,
        ),
        ("s4.1 Empty with token", &[0x41, 0x00, 0x12, 0x34, 0xaa], Fault::EmptyWithContent, RESET),
        ("s4.1 Empty with payload", &[0x40, 0x00, 0x12, 0x34, 0xff, 1], Fault::EmptyWithContent, RESET),
        ("s4.1 Empty acknowledgement with option", &[0x60, 0x00, 0x12, 0x34, 0x11, 1], Fault::EmptyWithContent, IGNORE),
        ("s4.1 reset with content", &[0x70, 0x00, 0x12, 0x34, 0xff, 1], Fault::EmptyWithContent, IGNORE),
        ("s4.2 class 1", &[0x40, 0x21, 0x12, 0x34], Fault::CodeForType, RESET),
        ("s4.2 class 3", &[0x40, 0x61, 0x12, 0x34], Fault::CodeForType, RESET),
        ("s4.2 class 6", &[0x40, 0xc1, 0x12, 0x34], Fault::CodeForType, RESET),
        ("s4.2 class 7 over UDP", &[0x40, 0xe1, 0x12, 0x34], Fault::CodeForType, RESET),
        ("s4.2 acknowledgement with request", &[0x60, 0x01, 0x12, 0x34], Fault::CodeForType, IGNORE),
        ("s4.2 reset with code", &[0x70, 0x45, 0x12, 0x34], Fault::CodeForType, IGNORE),
        ("s4.3 Empty Non-confirmable", &[0x50, 0x00, 0x12, 0x34], Fault::CodeForType, IGNORE),
        ("s4.3 class 1, Non-confirmable", &[0x50, 0x21, 0x12, 0x34], Fault::CodeForType, IGNORE),
    ];
    for (name, datagram, fault, remedy) in cases {
        let malformed = Message::decode(datagram).expect_err(name);
        assert_eq!((malformed.fault, malformed.remedy()), (*fault, *remedy), "{name}");
    }
}

#[test]
fn the_longest_legal_forms_pass() {
    let token = [0x48, 0x01, 0x12, 0x34, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(Message::decode(&token).unwrap().token.as_slice(), &token[4..]);
    let last_number = [0x40, 0x01, 0x12, 0x34, 0xe0, 0xfe, 0xf2];
    assert_eq!(Message::decode(&last_number).unwrap().options().next().unwrap().number.get(), 65535);
    assert!(Message::decode(&[0x40, 0x00, 0x12, 0x34]).is_ok());
    assert!(Message::decode(&[0x60, 0x45, 0x12, 0x34, 0xff, 0xff]).is_ok());
}
