//! Sessions that outlive the process: what was in flight is sent again under its identifier (§4.4), and identifiers
//! that the caller chooses are never in use twice.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::collections::BTreeSet;

use fogmux_mqtt::{
    Acknowledged, Limits, Outbound, OutboundConfig, Outgoing, Packet, PacketId, Qos, ReasonCode, Sent, Unfinished,
    Version, decode,
};
use proptest::{collection::vec, prelude::*};

const CONFIG: OutboundConfig =
    OutboundConfig { version: Version::V5, window: 3, packet_bytes_max: 1000, topic_alias_maximum: 0 };

fn id(number: u16) -> PacketId {
    PacketId::new(number).unwrap()
}

fn message(qos: Qos) -> Outgoing<'static> {
    Outgoing { topic: "t", qos, ..Outgoing::default() }
}

/// The packets in `out`: the identifier, and how it was sent.
fn packets(mut out: &[u8]) -> Vec<(u16, &'static str)> {
    let mut list = Vec::new();
    while let Some((packet, used)) = decode(out, Version::V5, &Limits::PROTOCOL).unwrap() {
        #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is sent here")]
        list.push(match packet {
            Packet::Publish(publish) => (publish.packet_id.unwrap().get(), if publish.dup { "again" } else { "new" }),
            Packet::Pubrel(ack) => (ack.packet_id.get(), "pubrel"),
            other => panic!("{other:?}"),
        });
        out = &out[used..];
    }
    list
}

#[test]
fn s4_4_a_restored_session_goes_on_with_its_identifiers() {
    let mut outbound = Outbound::new(CONFIG);
    for (number, exchange) in [
        (65_533, Unfinished::Publish(Qos::AtLeastOnce, "a")),
        // 65 534 is over, and the identifiers go round.
        (65_535, Unfinished::Release),
        (2, Unfinished::Publish(Qos::ExactlyOnce, "b")),
    ] {
        outbound.restore(id(number), exchange).unwrap();
    }
    assert_eq!(outbound.messages().copied().collect::<Vec<_>>(), ["a", "b"]);
    outbound.resume(CONFIG);
    let mut out = Vec::new();
    assert!(!outbound.skip_to(id(3)) && !outbound.has_room(), "what is sent again goes first");
    outbound.resend(1000, |_| message(Qos::AtLeastOnce), &mut out);
    assert_eq!(packets(&out), [(65_533, "again"), (65_535, "pubrel"), (2, "again")]);
    out.clear();
    // 3 belongs to a message that was dropped.
    assert!(outbound.skip_to(id(4)));
    assert_eq!(outbound.publish(&message(Qos::AtLeastOnce), || "c", &mut out), Sent::Sent(Some(id(4))));
    assert_eq!(packets(&out), [(4, "new")]);
    assert_eq!(outbound.handle_puback(id(65_533)), Ok(Acknowledged::Over(Some("a"))));
    assert_eq!(outbound.handle_pubcomp(id(65_535)), Ok(Acknowledged::Over(None)));
    let released = outbound.handle_pubrec(id(2), ReasonCode::SUCCESS, &mut out);
    assert_eq!(released, Ok(Acknowledged::Released(Some("b"))));
    assert_eq!(outbound.handle_pubcomp(id(2)), Ok(Acknowledged::Over(None)));
    assert_eq!(outbound.handle_puback(id(4)), Ok(Acknowledged::Over(Some("c"))));
    assert_eq!(outbound.in_flight(), 0);
}

#[test]
fn s2_2_1_what_would_have_an_identifier_twice_is_not_restored() {
    let mut outbound = Outbound::new(CONFIG);
    outbound.restore(id(10), Unfinished::Publish(Qos::AtLeastOnce, 0)).unwrap();
    outbound.restore(id(9), Unfinished::Publish(Qos::AtLeastOnce, 1)).unwrap();
    // All 65 535 are between them now.
    assert!(outbound.restore(id(10), Unfinished::Publish(Qos::AtLeastOnce, 2)).is_err());
    assert!(outbound.restore(id(11), Unfinished::Release).is_err());
    assert_eq!(outbound.messages().copied().collect::<Vec<_>>(), [0, 1]);
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Publish,
    /// So many messages are dropped before they are sent.
    Drop(u32),
    /// The client acknowledges the message at this place of those in flight.
    Acknowledge(u8),
    /// The client comes back.
    Resume,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => Just(Op::Publish),
        2 => prop_oneof![1_u32..5, 1_000_u32..2_000, 60_000_u32..140_000].prop_map(Op::Drop),
        5 => any::<u8>().prop_map(Op::Acknowledge),
        1 => Just(Op::Resume),
    ]
}

proptest! {
    #[test]
    fn s2_2_1_identifiers_that_follow_from_numbers_are_never_in_use_twice(ops in vec(op(), 0..200)) {
        let identifier = |number: u64| id(u16::try_from(number % 65_535).unwrap() + 1);
        let mut outbound = Outbound::new(CONFIG);
        let (mut number, mut in_flight) = (0_u64, BTreeSet::new());
        for op in ops {
            let mut out = Vec::new();
            match op {
                Op::Publish => {
                    let may_skip = outbound.skip_to(identifier(number));
                    prop_assert!(may_skip || !in_flight.is_empty(), "nothing would ever be sent");
                    let used: BTreeSet<_> = in_flight.iter().map(|number| identifier(*number)).collect();
                    if may_skip && outbound.has_room() {
                        let sent = outbound.publish(&message(Qos::AtLeastOnce), || number, &mut out);
                        prop_assert_eq!(sent, Sent::Sent(Some(identifier(number))));
                        prop_assert!(!used.contains(&identifier(number)));
                        in_flight.insert(number);
                        number += 1;
                    }
                }
                Op::Drop(count) => number += u64::from(count),
                Op::Acknowledge(place) if !in_flight.is_empty() => {
                    let place = usize::from(place) % in_flight.len();
                    let acknowledged = *in_flight.iter().nth(place).unwrap();
                    in_flight.remove(&acknowledged);
                    let over = outbound.handle_puback(identifier(acknowledged));
                    prop_assert_eq!(over, Ok(Acknowledged::Over(Some(acknowledged))));
                }
                Op::Acknowledge(_) => {}
                Op::Resume => {
                    outbound.resume(CONFIG);
                    outbound.resend(10_000, |_| message(Qos::AtLeastOnce), &mut out);
                    let again: Vec<_> = in_flight.iter().map(|number| (identifier(*number).get(), "again")).collect();
                    prop_assert_eq!(packets(&out), again);
                }
            }
        }
    }
}
