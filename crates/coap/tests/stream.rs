//! CoAP on streams (RFC 8323): whatever comes, in whatever pieces.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use fogmux_coap::stream::{Due, Frame, Framing, Heard, Session, SessionConfig};
use fogmux_coap::{Code, Timestamp, Token};
use proptest::prelude::*;

const CONFIG: SessionConfig = SessionConfig {
    message_bytes_max: 4096,
    settings_timeout: Duration::from_secs(10),
    message_timeout: Duration::from_secs(30),
    idle_timeout: Duration::from_secs(300),
    pong_timeout: Duration::from_secs(30),
};

/// Returns the messages of a stream that arrives in pieces of `piece` bytes, and how it ends.
fn heard(bytes: &[u8], piece: usize) -> Vec<String> {
    let mut said = Vec::new();
    let mut session = Session::open(CONFIG, Framing::Stream, Timestamp::ZERO, &mut said);
    let (mut input, mut heard) = (Vec::new(), Vec::new());
    for part in bytes.chunks(piece.max(1)) {
        input.extend_from_slice(part);
        loop {
            let used = match session.take(Timestamp::ZERO, &input) {
                Ok(None) => break,
                Ok(Some((news, used))) => {
                    heard.push(match news {
                        Heard::Message(message) => format!("{message:?}"),
                        news @ (Heard::Settings(_)
                        | Heard::Ping { .. }
                        | Heard::Nothing
                        | Heard::Released(_)
                        | Heard::Aborted(_)) => format!("{news:?}"),
                    });
                    used
                }
                Err(abort) => {
                    heard.push(abort.to_string());
                    return heard;
                }
            };
            input.drain(..used);
        }
        // No more is ever kept than a message that is taken, and what was read behind it.
        assert!(input.len() < CONFIG.message_bytes_max + piece.max(1));
    }
    heard
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let frame =
        (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..9), 0_usize..600).prop_map(|(code, token, length)| {
            let body: Vec<u8> = if length == 0 { Vec::new() } else { [vec![0xff], vec![7; length]].concat() };
            let mut bytes = Vec::new();
            Frame { code: Code::from_byte(code), token: Token::new(&token).unwrap(), body: &body }
                .write(Framing::Stream, &mut bytes);
            bytes
        });
    proptest::collection::vec(frame, 0..8).prop_map(|frames| [vec![0x00, 0xe1], frames.concat()].concat())
}

proptest! {
    #[test]
    fn any_bytes_are_heard_the_same_in_any_pieces(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        piece in 1_usize..40,
    ) {
        prop_assert_eq!(heard(&bytes, piece), heard(&bytes, bytes.len()));
    }

    #[test]
    fn messages_are_heard_the_same_in_any_pieces(bytes in frames(), piece in 1_usize..700) {
        prop_assert_eq!(heard(&bytes, piece), heard(&bytes, bytes.len()));
    }

    #[test]
    fn what_is_split_is_written_the_same(bytes in frames()) {
        let mut rest = &bytes[..];
        while let Some((frame, used)) = Frame::split(rest, usize::MAX).unwrap() {
            let mut again = Vec::new();
            frame.write(Framing::Stream, &mut again);
            prop_assert_eq!(&again[..], &rest[..used]);
            rest = &rest[used..];
        }
        prop_assert!(rest.is_empty());
    }
}

#[test]
fn s5_3_settings_add_up() {
    let mut out = Vec::new();
    let mut session = Session::open(CONFIG, Framing::Stream, Timestamp::ZERO, &mut out);
    assert_eq!(session.limits().message_bytes_max, 1152);
    // CSM with Block-Wise-Transfer alone: blocks, but no BERT; with more than the base size, both (§5.3.2).
    for (csm, bytes, bert) in [
        (&[0x10, 0xe1, 0x40][..], 1152, false),
        (&[0x30, 0xe1, 0x22, 0x10, 0x00], 4096, true),
        (&[0x00, 0xe1], 4096, true),
    ] {
        assert!(session.take(Timestamp::ZERO, csm).unwrap().is_some());
        let limits = session.limits();
        assert_eq!((limits.message_bytes_max, limits.bert), (bytes, bert));
    }
}

#[test]
fn no_deadline_runs_while_nothing_is_read() {
    let (mut out, second) = (Vec::new(), Duration::from_secs(1));
    let mut session = Session::open(CONFIG, Framing::Stream, Timestamp::ZERO, &mut out);
    session.excuse(second);
    assert_eq!(session.next_timeout(), Timestamp::ZERO + CONFIG.settings_timeout + second, "CSM");
    // CSM without options.
    session.take(Timestamp::ZERO, &[0, 0xe1]).unwrap();
    session.set_incomplete(Timestamp::ZERO, true);
    session.excuse(second);
    assert_eq!(session.next_timeout(), Timestamp::ZERO + CONFIG.message_timeout + second, "a message that has begun");
    session.set_incomplete(Timestamp::ZERO, false);
    let silent = Timestamp::ZERO + CONFIG.idle_timeout + second;
    assert_eq!(session.next_timeout(), silent, "silence");
    assert_eq!(session.handle_timeout(silent, &mut out), Due::Pinged);
    session.excuse(second);
    assert_eq!(session.next_timeout(), silent + CONFIG.pong_timeout + second, "Pong");
}
