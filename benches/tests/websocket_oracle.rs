//! Differential tests of the WebSocket framing (RFC 6455 §5) against `tungstenite` (ADR 0040): equal bytes out, equal
//! messages in, and where only one of the two accepts an input, a known clause decides.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::io::Cursor;

use bytes::BytesMut;
use fogmux_benches::Wire;
use fogmux_http::websocket::{CloseCode, Incoming, Opcode, Receiver, Role, Violation, push_close, push_frame};
use proptest::{collection::vec, prelude::*};
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tungstenite::protocol::frame::{Frame, FrameHeader};
use tungstenite::protocol::{self, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};

const MESSAGE_BYTES_MAX: usize = 100_000;
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
/// Lengths around the bounds of the three length forms (RFC 6455 §5.2).
const LENGTHS: [usize; 10] = [0, 1, 124, 125, 126, 127, 65_534, 65_535, 65_536, 65_537];

/// A message that a receiver delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<(u16, String)>),
}

/// Returns the messages that our receiver delivers up to a Close or a violation, reading `piece` bytes at a time.
fn ours(role: Role, bytes: &[u8], piece: usize) -> (Vec<Seen>, Option<Violation>) {
    let mut receiver = Receiver::new(role, MESSAGE_BYTES_MAX as u64);
    let (mut buffer, mut seen, mut message) = (BytesMut::new(), Vec::new(), Vec::new());
    for part in bytes.chunks(piece) {
        buffer.extend_from_slice(part);
        loop {
            let (bytes, end, whole): (_, _, fn(Vec<u8>) -> Seen) = match receiver.receive(&mut buffer) {
                Ok(None) => break,
                Err(violation) => return (seen, Some(violation)),
                Ok(Some(Incoming::Text { bytes, end })) => (bytes, end, Seen::Text),
                Ok(Some(Incoming::Binary { bytes, end })) => (bytes, end, Seen::Binary),
                Ok(Some(Incoming::Ping(bytes))) => {
                    seen.push(Seen::Ping(bytes.to_vec()));
                    continue;
                }
                Ok(Some(Incoming::Pong(bytes))) => {
                    seen.push(Seen::Pong(bytes.to_vec()));
                    continue;
                }
                Ok(Some(Incoming::Close(frame))) => {
                    seen.push(Seen::Close(frame.map(|frame| (frame.code, frame.reason.into()))));
                    return (seen, None);
                }
            };
            message.extend_from_slice(&bytes);
            if end {
                seen.push(whole(std::mem::take(&mut message)));
            }
        }
    }
    (seen, None)
}

/// Returns the messages that tungstenite delivers up to a Close or an error.
fn theirs(role: Role, bytes: &[u8]) -> (Vec<Seen>, Option<Error>) {
    let role = match role {
        Role::Server => protocol::Role::Server,
        Role::Client => protocol::Role::Client,
    };
    let limit = Some(MESSAGE_BYTES_MAX);
    let config = WebSocketConfig::default().max_message_size(limit).max_frame_size(limit);
    let mut socket = WebSocket::from_raw_socket(Wire(Cursor::new(bytes.to_vec())), role, Some(config));
    let mut seen = Vec::new();
    loop {
        seen.push(match socket.read() {
            Ok(Message::Text(text)) => Seen::Text(text.as_bytes().to_vec()),
            Ok(Message::Binary(bytes)) => Seen::Binary(bytes.to_vec()),
            Ok(Message::Ping(bytes)) => Seen::Ping(bytes.to_vec()),
            Ok(Message::Pong(bytes)) => Seen::Pong(bytes.to_vec()),
            Ok(Message::Close(frame)) => {
                seen.push(Seen::Close(frame.map(|frame| (frame.code.into(), frame.reason.to_string()))));
                return (seen, None);
            }
            Ok(Message::Frame(frame)) => panic!("a raw frame: {frame}"),
            // The input has ended.
            Err(Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)) => {
                return (seen, None);
            }
            Err(error) => return (seen, Some(error)),
        });
    }
}

fn opcode(opcode: Opcode) -> OpCode {
    match opcode {
        Opcode::Continuation => OpCode::Data(Data::Continue),
        Opcode::Text => OpCode::Data(Data::Text),
        Opcode::Binary => OpCode::Data(Data::Binary),
        Opcode::Close => OpCode::Control(Control::Close),
        Opcode::Ping => OpCode::Control(Control::Ping),
        Opcode::Pong => OpCode::Control(Control::Pong),
    }
}

/// Writes a frame with tungstenite.
fn their_frame(kind: Opcode, payload: &[u8], mask: Option<[u8; 4]>, last: bool) -> Vec<u8> {
    let header = FrameHeader { is_final: last, opcode: opcode(kind), mask, ..FrameHeader::default() };
    let mut out = Vec::new();
    Frame::from_payload(header, payload.to_vec().into()).format(&mut out).unwrap();
    out
}

/// The mask of a frame that an end with this role receives (§5.1).
fn mask_towards(role: Role) -> Option<[u8; 4]> {
    match role {
        Role::Server => Some(MASK),
        Role::Client => None,
    }
}

#[test]
fn s5_2_frames_of_every_length_are_written_and_read_alike() {
    for role in [Role::Server, Role::Client] {
        let mask = mask_towards(role);
        for length in LENGTHS {
            let payload: Vec<u8> = (b'a'..=b'z').cycle().take(length).collect();
            for kind in [Opcode::Text, Opcode::Binary, Opcode::Ping, Opcode::Pong] {
                let is_control = matches!(kind, Opcode::Ping | Opcode::Pong);
                if is_control && length > 125 {
                    continue;
                }
                let mut written = Vec::new();
                push_frame(kind, &payload, mask, &mut written);
                assert_eq!(written, their_frame(kind, &payload, mask, true), "{kind:?} of {length} bytes");
                let (seen, error) = theirs(role, &written);
                assert!(error.is_none(), "{kind:?} of {length} bytes: {error:?}");
                assert_eq!(seen.len(), 1);
                assert_eq!(ours(role, &written, usize::MAX), (seen.clone(), None));
                assert_eq!(ours(role, &written, 1 + length / 3), (seen, None));
            }
        }
    }
}

#[test]
fn s5_5_a_control_frame_of_126_bytes_is_refused_by_both() {
    for kind in [Opcode::Ping, Opcode::Pong, Opcode::Close] {
        let frame = their_frame(kind, &[b'a'; 126], Some(MASK), true);
        assert_eq!(ours(Role::Server, &frame, usize::MAX), (Vec::new(), Some(Violation::Control)));
        let (seen, error) = theirs(Role::Server, &frame);
        assert!(seen.is_empty() && error.is_some(), "{seen:?}");
    }
}

#[test]
fn s7_4_close_codes_are_accepted_alike() {
    let mut differing = Vec::new();
    for code in (0..=5010).chain([u16::MAX]) {
        for reason in ["", "ä reason"] {
            let payload = [&code.to_be_bytes(), reason.as_bytes()].concat();
            let mut frame = Vec::new();
            push_frame(Opcode::Close, &payload, Some(MASK), &mut frame);
            let (seen, violation) = ours(Role::Server, &frame, usize::MAX);
            let (their_seen, error) = theirs(Role::Server, &frame);
            // tungstenite delivers a forbidden code as 1002 with a reason of its own.
            let replaced = [Seen::Close(Some((1002, "Protocol violation".to_owned())))];
            let refused = error.is_some() || their_seen == replaced;
            if violation.is_none() {
                assert_eq!(seen, [Seen::Close(Some((code, reason.to_owned())))]);
                assert!(refused || seen == their_seen, "{code}: {their_seen:?}");
            }
            if violation.is_some() != refused {
                differing.push((code, violation));
            }
        }
    }
    // 1014 (Bad Gateway) is in IANA's registry, and unknown to tungstenite.
    assert_eq!(differing, [(1014, None), (1014, None)]);
    let one_byte = their_frame(Opcode::Close, b"x", Some(MASK), true);
    assert_eq!(ours(Role::Server, &one_byte, usize::MAX).1, Some(Violation::Close));
    assert!(theirs(Role::Server, &one_byte).1.is_some());
    let empty = their_frame(Opcode::Close, b"", Some(MASK), true);
    assert_eq!(ours(Role::Server, &empty, usize::MAX).0, theirs(Role::Server, &empty).0);
}

#[test]
fn s5_5_1_each_close_that_we_write_is_read() {
    for code in [
        CloseCode::Normal,
        CloseCode::GoingAway,
        CloseCode::ProtocolError,
        CloseCode::Unsupported,
        CloseCode::InvalidPayload,
        CloseCode::PolicyViolation,
        CloseCode::TooBig,
        CloseCode::InternalError,
        CloseCode::TryAgainLater,
    ] {
        let mut frame = Vec::new();
        push_close(code, &"ä".repeat(100), None, &mut frame);
        let (seen, error) = theirs(Role::Client, &frame);
        assert!(error.is_none(), "{code:?}: {error:?}");
        assert_eq!(seen, [Seen::Close(Some((code.code(), "ä".repeat(61))))]);
    }
}

#[test]
fn s8_1_text_is_utf8_wherever_it_is_cut() {
    let texts: [&[u8]; 9] = [
        "aäß€😀".as_bytes(),
        b"\xed\x9f\xbf",     // U+D7FF
        b"\xed\xa0\x80",     // a surrogate
        b"\xc0\xaf",         // an overlong form
        b"\xf4\x8f\xbf\xbf", // U+10FFFF
        b"\xf4\x90\x80\x80", // beyond it
        b"a\xff",
        b"\xe2\x82", // incomplete
        b"\x80",
    ];
    for text in texts {
        for cut in 0..=text.len() {
            let (first, second) = text.split_at(cut);
            let bytes = [
                their_frame(Opcode::Text, first, Some(MASK), false),
                their_frame(Opcode::Continuation, second, Some(MASK), true),
            ];
            let bytes = bytes.concat();
            let (seen, violation) = ours(Role::Server, &bytes, usize::MAX);
            let (their_seen, error) = theirs(Role::Server, &bytes);
            assert_eq!(violation.is_some(), error.is_some(), "{text:x?} at {cut}: {violation:?}, {error:?}");
            assert_eq!(seen, their_seen);
            assert_eq!(violation.is_none(), std::str::from_utf8(text).is_ok());
            assert!(violation.is_none_or(|violation| violation == Violation::Utf8));
        }
    }
}

#[derive(Clone, Debug)]
enum Sent {
    Data { text: bool, parts: Vec<String> },
    Control { ping: bool, payload: Vec<u8> },
}

fn sent() -> impl Strategy<Value = Sent> {
    let text = prop_oneof![4 => "[a-zä€😀]{0,40}", 1 => "[a-z]{120,130}"];
    prop_oneof![
        3 => (any::<bool>(), vec(text, 1..4)).prop_map(|(text, parts)| Sent::Data { text, parts }),
        1 => (any::<bool>(), vec(any::<u8>(), 0..=125)).prop_map(|(ping, payload)| Sent::Control { ping, payload }),
    ]
}

/// Writes messages as frames with our writer, each part of a message as a fragment, with `ping` between fragments.
fn written(messages: &[Sent], role: Role, ping: bool) -> Vec<u8> {
    let (mask, mut out) = (mask_towards(role), Vec::new());
    for message in messages {
        match message {
            Sent::Control { ping, payload } => {
                push_frame(if *ping { Opcode::Ping } else { Opcode::Pong }, payload, mask, &mut out);
            }
            Sent::Data { text, parts } => {
                for (index, part) in parts.iter().enumerate() {
                    let kind = match (index, text) {
                        (0, true) => Opcode::Text,
                        (0, false) => Opcode::Binary,
                        _ => Opcode::Continuation,
                    };
                    let start = out.len();
                    push_frame(kind, part.as_bytes(), mask, &mut out);
                    if index + 1 < parts.len() {
                        out[start] &= 0x7f;
                        if ping {
                            push_frame(Opcode::Ping, b"between", mask, &mut out);
                        }
                    }
                }
            }
        }
    }
    out
}

proptest! {
    #[test]
    fn s5_4_messages_in_fragments_are_the_same_to_both(
        messages in vec(sent(), 0..6), server in any::<bool>(), ping in any::<bool>(), piece in 1_usize..200,
    ) {
        let role = if server { Role::Server } else { Role::Client };
        let bytes = written(&messages, role, ping);
        let (seen, error) = theirs(role, &bytes);
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert_eq!(ours(role, &bytes, piece), (seen, None));
    }

    #[test]
    fn any_bytes_are_the_same_to_both_but_for_known_clauses(
        messages in vec(sent(), 1..4), ping in any::<bool>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3), cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = written(&messages, Role::Server, ping);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let bytes = &bytes[..=cut.index(bytes.len())];
        let (seen, violation) = ours(Role::Server, bytes, usize::MAX);
        let (their_seen, error) = theirs(Role::Server, bytes);
        match (violation, error) {
            // tungstenite accepts lengths not in their shortest form (§5.2), and replaces forbidden close codes.
            (Some(Violation::Length | Violation::Close), _) => {
                prop_assert!(their_seen.starts_with(&seen), "{:?} but {:?}", seen, their_seen);
            }
            (None, None) | (Some(_), Some(_)) => prop_assert_eq!(seen, their_seen),
            (None, Some(error)) => prop_assert!(false, "{:?} but {:?}", seen, error),
            // Ours refuses a frame by its first bytes, tungstenite once all of it has arrived.
            (Some(violation), None) => {
                let (their_seen, error) = theirs(Role::Server, &[bytes, &[0; MESSAGE_BYTES_MAX]].concat());
                prop_assert!(error.is_some() && seen == their_seen, "{violation:?} after {seen:?} but {their_seen:?}");
            }
        }
    }
}
