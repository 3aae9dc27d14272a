//! Exchanges that stay open while thousands of others begin and end: the window alone decides what may be sent.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails panics")]

use std::collections::VecDeque;

use fogmux_mqtt::{
    Acknowledged, Outbound, OutboundConfig, Outgoing, PacketId, Qos, ReasonCode, Sent, Unfinished, Version,
};
use proptest::prelude::*;

const WINDOW: u16 = 6;

fn config(window: u16) -> OutboundConfig {
    OutboundConfig { version: Version::V5, window, packet_bytes_max: 1000, topic_alias_maximum: 0 }
}

/// An exchange that a peer has to end.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Open {
    id: PacketId,
    number: u32,
    qos: Qos,
    released: bool,
}

fn outgoing(qos: Qos) -> Outgoing<'static> {
    Outgoing { topic: "t", qos, payload: b"m", ..Outgoing::default() }
}

/// Ends an exchange, or has it take its next step.
fn acknowledge(outbound: &mut Outbound<u32>, open: &mut VecDeque<Open>, at: usize) {
    let exchange = open[at];
    let mut out = Vec::new();
    match (exchange.qos, exchange.released) {
        (Qos::ExactlyOnce, false) => {
            let released = outbound.handle_pubrec(exchange.id, ReasonCode::SUCCESS, &mut out).unwrap();
            assert_eq!(released, Acknowledged::Released(Some(exchange.number)));
            open[at].released = true;
            return;
        }
        (Qos::ExactlyOnce, true) => {
            assert_eq!(outbound.handle_pubcomp(exchange.id).unwrap(), Acknowledged::Over(None));
        }
        _ => assert_eq!(outbound.handle_puback(exchange.id).unwrap(), Acknowledged::Over(Some(exchange.number))),
    }
    open.remove(at).unwrap();
}

/// The packets that are sent again, with DUP, or PUBREL, by identifier.
fn sent_again(bytes: &[u8]) -> Vec<(bool, u16)> {
    let (mut rest, mut all) = (bytes, Vec::new());
    while let [first, length, body @ ..] = rest {
        let (body, after) = body.split_at(usize::from(*length));
        let at = if *first == 0x62 { 0 } else { 3 };
        assert!(*first == 0x62 || first & 0xf8 == 0x38, "{first:#x}");
        all.push((*first == 0x62, u16::from_be_bytes([body[at], body[at + 1]])));
        rest = after;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any exchanges may stay open for any time: there is room whenever the window has some, no identifier is in use
    /// twice, and after a resume everything is sent again in the order of the messages.
    #[test]
    fn the_window_alone_stops_it(
        steps in prop::collection::vec((0..100_u8, any::<prop::sample::Index>(), any::<bool>()), 4000..9000),
    ) {
        let mut outbound: Outbound<u32> = Outbound::new(config(WINDOW));
        let mut open: VecDeque<Open> = VecDeque::new();
        let (mut number, mut before) = (0, 0);
        for (step, index, twice) in steps {
            if step == 0 {
                outbound.resume(config(WINDOW));
                let mut out = Vec::new();
                // The window may be smaller than what waits for PUBCOMP and for PUBACK together, not than either.
                while outbound.is_resending() {
                    let length = out.len();
                    prop_assert!(outbound.resend(usize::MAX, |_| outgoing(Qos::AtLeastOnce), &mut out).is_empty());
                    prop_assert!(out.len() > length, "nothing more is sent again");
                }
                let expected: Vec<_> = open.iter().map(|open| (open.released, open.id.get())).collect();
                prop_assert_eq!(sent_again(&out), expected);
                before = open.iter().filter(|open| open.released).count();
                continue;
            }
            // The first two are left alone for most of the time.
            let spared = if step < 98 { open.len().min(2) } else { 0 };
            let at = spared + index.index(open.len().max(1));
            if (step < 55 || open.len() == spared) && open.len() - before < usize::from(WINDOW) {
                let qos = if twice { Qos::ExactlyOnce } else { Qos::AtLeastOnce };
                prop_assert!(outbound.has_room(), "no room for {} of {WINDOW}, message {number}", open.len());
                let sent = outbound.publish(&outgoing(qos), || number, &mut Vec::new());
                let Sent::Sent(Some(id)) = sent else { return Err(TestCaseError::fail(format!("{sent:?}"))) };
                prop_assert!(open.iter().all(|open| open.id != id), "{id:?} is in use");
                open.push_back(Open { id, number, qos, released: false });
                number += 1;
            } else if at < open.len() {
                let released = open[at].released;
                acknowledge(&mut outbound, &mut open, at);
                // PUBCOMPs of before the resume free no place.
                before -= usize::from(released && before > 0);
            }
            prop_assert!(outbound.messages().copied().eq(open.iter().filter(|open| !open.released).map(|open| open.number)));
        }
    }
}

/// All identifiers are used while one stays in use.
#[test]
fn identifiers_go_round_past_one_that_is_in_use() {
    let mut outbound: Outbound<u32> = Outbound::new(config(2));
    let Sent::Sent(Some(held)) = outbound.publish(&outgoing(Qos::ExactlyOnce), || 0, &mut Vec::new()) else {
        panic!("not sent")
    };
    let mut used = 0_u32;
    for number in 1..200_000 {
        let Sent::Sent(Some(id)) = outbound.publish(&outgoing(Qos::AtLeastOnce), || number, &mut Vec::new()) else {
            panic!("message {number} is not sent")
        };
        assert_ne!(id, held);
        used += u32::from(id.get() == held.get() + 1);
        assert_eq!(outbound.handle_puback(id).unwrap(), Acknowledged::Over(Some(number)));
    }
    assert!(used >= 3 && outbound.bytes() < 200_000, "{used} rounds, {} bytes", outbound.bytes());
    assert_eq!(
        outbound.handle_pubrec(held, ReasonCode::SUCCESS, &mut Vec::new()).unwrap(),
        Acknowledged::Released(Some(0))
    );
    assert_eq!(outbound.handle_pubcomp(held).unwrap(), Acknowledged::Over(None));
    assert_eq!(outbound.in_flight(), 0);
}

/// The same where the caller chooses the identifiers, as for sessions with records.
#[test]
fn chosen_identifiers_wait_for_one_that_is_in_use_only() {
    let id = |number: u32| PacketId::new(u16::try_from((number - 1) % 65_535 + 1).unwrap()).unwrap();
    let mut outbound: Outbound<u32> = Outbound::new(config(2));
    assert!(outbound.restore(id(5), Unfinished::Publish(Qos::ExactlyOnce, 5)).is_ok());
    outbound.resend(usize::MAX, |_| outgoing(Qos::ExactlyOnce), &mut Vec::new());
    for number in 6..65_540 {
        assert!(outbound.may_skip_to(id(number)), "{number}");
        assert!(outbound.skip_to(id(number)));
        let sent = outbound.publish(&outgoing(Qos::AtLeastOnce), || number, &mut Vec::new());
        assert_eq!(sent, Sent::Sent(Some(id(number))));
        assert_eq!(outbound.handle_puback(id(number)).unwrap(), Acknowledged::Over(Some(number)));
    }
    assert!(!outbound.may_skip_to(id(65_540)), "its identifier is that of the first");
    outbound.handle_pubrec(id(5), ReasonCode::SUCCESS, &mut Vec::new()).unwrap();
    outbound.handle_pubcomp(id(5)).unwrap();
    assert!(outbound.may_skip_to(id(65_540)) && outbound.skip_to(id(65_540)));
}

/// The same when nothing was sent between: all identifiers belong to messages that were not sent.
#[test]
fn a_leap_over_all_identifiers_waits_for_the_one_that_is_in_use() {
    let first = PacketId::FIRST;
    let mut outbound: Outbound<u32> = Outbound::new(config(2));
    assert!(outbound.restore(first, Unfinished::Publish(Qos::ExactlyOnce, 1)).is_ok());
    outbound.resend(usize::MAX, |_| outgoing(Qos::ExactlyOnce), &mut Vec::new());
    assert!(!outbound.may_skip_to(first) && !outbound.skip_to(first), "a new message would have its identifier");
    outbound.handle_pubrec(first, ReasonCode::SUCCESS, &mut Vec::new()).unwrap();
    outbound.handle_pubcomp(first).unwrap();
    assert!(outbound.skip_to(first));
    assert_eq!(outbound.publish(&outgoing(Qos::AtLeastOnce), || 2, &mut Vec::new()), Sent::Sent(Some(first)));
}

proptest! {
    /// Whatever is skipped and whatever stays open, a message has the identifier that was chosen for it, and no other
    /// message in flight has that.
    #[test]
    fn a_chosen_identifier_is_had(leaps in proptest::collection::vec((1..=70_000_u32, any::<bool>()), 1..40), window in 1..40_u16) {
        let mut outbound: Outbound<u32> = Outbound::new(config(window));
        let (mut number, mut open) = (1_u32, Vec::new());
        for (leap, is_answered) in leaps {
            number += leap;
            let id = PacketId::new(u16::try_from((number - 1) % 65_535 + 1).unwrap()).unwrap();
            if !outbound.may_skip_to(id) {
                continue;
            }
            prop_assert!(outbound.skip_to(id));
            let sent = outbound.publish(&outgoing(Qos::AtLeastOnce), || number, &mut Vec::new());
            if sent == Sent::NoRoom {
                // Nothing has the identifier: the message waits, and here it is given up.
                prop_assert_eq!(open.len(), usize::from(window));
                continue;
            }
            prop_assert_eq!(sent, Sent::Sent(Some(id)));
            prop_assert!(!open.contains(&id));
            if is_answered {
                prop_assert_eq!(outbound.handle_puback(id).unwrap(), Acknowledged::Over(Some(number)));
            } else {
                open.push(id);
            }
        }
    }
}
