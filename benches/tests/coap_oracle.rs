//! Our CoAP codec against `coap-lite`: the same meaning both ways, and where only one of us accepts a datagram, the
//! clause of RFC 7252 that decides is among those known (ADR 0002).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use coap_lite::Packet;
use fogmux_coap::{Code, Encoder, Message, OptionNumber, Token, Type, message::Fault};
use proptest::{collection::vec, prelude::*};

#[derive(Clone, Debug)]
struct Said {
    kind: Type,
    id: u16,
    token: Vec<u8>,
    options: Vec<(u16, Vec<u8>)>,
    payload: Vec<u8>,
}

impl Said {
    fn written(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let token = Token::new(&self.token).unwrap();
        let mut encoder = Encoder::new(&mut out, self.kind, Code::PUT, self.id, &token);
        for (number, value) in &self.options {
            encoder.push(OptionNumber::new(*number), value);
        }
        encoder.payload(&self.payload);
        out
    }
}

fn said() -> impl Strategy<Value = Said> {
    let kind = prop::sample::select(vec![Type::Confirmable, Type::NonConfirmable]);
    let options = vec((0_u16..2000, vec(any::<u8>(), 0..40)), 0..8);
    (kind, any::<u16>(), vec(any::<u8>(), 0..=8), options, vec(any::<u8>(), 0..100)).prop_map(
        |(kind, id, token, mut options, payload)| {
            options.sort_by_key(|(number, _)| *number);
            Said { kind, id, token, options, payload }
        },
    )
}

// The same things in the same order, from either side.
fn assert_same(ours: &Message<'_>, theirs: &Packet) {
    assert_eq!(ours.message_id, theirs.header.message_id);
    assert_eq!(ours.token.as_slice(), theirs.get_token());
    assert_eq!(ours.payload(), theirs.payload);
    let ours: Vec<_> = ours.options().map(|option| (option.number.get(), option.value.to_vec())).collect();
    let theirs: Vec<_> =
        theirs.options().flat_map(|(number, values)| values.iter().map(|value| (*number, value.clone()))).collect();
    assert_eq!(ours, theirs);
}

proptest! {
    #[test]
    fn coap_lite_reads_what_we_write_and_writes_it_back(said in said()) {
        let bytes = said.written();
        let theirs = Packet::from_bytes(&bytes).unwrap();
        assert_same(&Message::decode(&bytes).unwrap(), &theirs);
        prop_assert_eq!(theirs.to_bytes().unwrap(), bytes);
    }

    #[test]
    fn of_any_datagram_we_think_the_same_but_for_known_clauses(
        said in said(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = said.written();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let bytes = &bytes[..=cut.index(bytes.len())];
        match (Message::decode(bytes), Packet::from_bytes(bytes)) {
            (Ok(ours), Ok(theirs)) => assert_same(&ours, &theirs),
            // They accept what §3 and §4.1 forbid, and leave it to others which code a type may carry (§4.2, §4.3).
            (Err(malformed), Ok(theirs)) => prop_assert!(
                matches!(
                    malformed.fault,
                    Fault::MarkerWithoutPayload | Fault::Version | Fault::EmptyWithContent | Fault::CodeForType
                ),
                "{malformed:?} but {theirs:?}"
            ),
            (Ok(ours), Err(error)) => prop_assert!(false, "{ours:?} but {error:?}"),
            (Err(_), Err(_)) => {}
        }
    }
}
