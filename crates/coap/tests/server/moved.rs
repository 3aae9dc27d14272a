//! Peers that have moved to an address at which they are not known to receive (RFC 9146 §6).

use super::*;

impl Bench {
    fn moves(&mut self, validated: bool) -> Vec<Sent> {
        let mut out = Outbox::default();
        self.server.moved(self.now, &self.peer, validated, &mut out);
        self.attend(&mut out);
        sent(&out)
    }

    fn withheld(&mut self) -> Vec<Sent> {
        let mut out = Outbox::default();
        self.server.withheld(self.now, &self.peer, &mut out);
        sent(&out)
    }
}

/// An observer that has been notified once and has acknowledged that.
fn observing() -> Bench {
    let mut bench = Bench::new(ServerConfig::default());
    bench.ask(Code::GET, &[REGISTER, PATH], &[]);
    let (_, sent) = bench.notify(b"0", true);
    bench.empty(Type::Acknowledgement, sent[0].message().message_id);
    bench
}

fn is_ping(sent: &Sent) -> bool {
    (sent.kind(), sent.code()) == (Type::Confirmable, Code::EMPTY)
}

/// An observer that has moved, for which a value waits, and the identifier of the ping to it.
fn waiting() -> (Bench, u16) {
    let mut bench = observing();
    assert_eq!(bench.moves(false), [], "nothing waits");
    let (notified, sent) = bench.notify(b"1", false);
    assert_eq!((notified, sent.len()), (Notified::Later, 1));
    assert!(is_ping(&sent[0]), "{sent:?}");
    let id = sent[0].message().message_id;
    (bench, id)
}

#[test]
fn the_newest_value_follows_the_answer_to_a_ping() {
    for answer in [Type::Reset, Type::Acknowledgement] {
        let (mut bench, id) = waiting();
        assert_eq!(bench.notify(b"2", false), (Notified::Later, Vec::new()), "one ping at a time");
        let sent = bench.empty(answer, id);
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].message().payload(), b"2");
        assert_eq!((bench.server.poll_validated(), bench.server.poll_validated()), (Some(bench.peer), None));
        assert_eq!(bench.notify(b"3", false).0, Notified::Sent);
        assert_eq!(bench.gone(), None, "a Reset of a ping rejects no notification");
    }
}

#[test]
fn s4_2_a_ping_is_repeated_then_given_up_and_tried_again_when_something_is_heard() {
    let (mut bench, id) = waiting();
    let mut pings = 1;
    for _ in 0..40 {
        let sent = bench.wait(Duration::from_secs(3));
        assert!(sent.iter().all(|sent| is_ping(sent) && sent.message().message_id == id), "{sent:?}");
        pings += sent.len();
    }
    assert_eq!(pings, 5, "RFC 7252 §4.8: MAX_RETRANSMIT");
    assert_eq!(bench.empty(Type::Reset, id), [], "too late");
    assert_eq!(bench.gone(), None, "the observation stays");
    let datagram = bench.compose(Type::Confirmable, Code::GET, &[PATH], &[]);
    let sent = bench.raw(&datagram);
    let ping = sent.iter().find(|sent| is_ping(sent)).expect("a ping beside the answer");
    let sent = bench.empty(Type::Reset, ping.message().message_id);
    assert_eq!(sent[0].message().payload(), b"1");
}

#[test]
fn a_ping_that_was_guessed_at_counts_for_nothing() {
    let (mut bench, id) = waiting();
    for guess in 1..=9 {
        assert_eq!(bench.empty(Type::Reset, id.wrapping_add(guess)), []);
    }
    assert_eq!(bench.empty(Type::Reset, id), []);
    assert_eq!(bench.server.poll_validated(), None);
    // A few are answers that are late.
    let (mut bench, id) = waiting();
    for guess in 1..=8 {
        assert_eq!(bench.empty(Type::Acknowledgement, id.wrapping_add(guess)), []);
    }
    assert_eq!(bench.empty(Type::Reset, id).len(), 1);
}

#[test]
fn a_ping_validates_the_address_that_it_was_sent_to() {
    let (mut bench, id) = waiting();
    let sent = bench.moves(false);
    assert!(is_ping(&sent[0]), "{sent:?}");
    let newer = sent[0].message().message_id;
    assert_ne!(id, newer);
    assert_eq!(bench.empty(Type::Reset, id), []);
    assert_eq!(bench.empty(Type::Reset, newer).len(), 1);
}

#[test]
fn back_at_a_good_address_nothing_waits() {
    let (mut bench, _) = waiting();
    let sent = bench.moves(true);
    assert_eq!(sent[0].message().payload(), b"1");
    assert_eq!(bench.wait(Duration::from_secs(100)).iter().filter(|sent| is_ping(sent)).count(), 0);
}

#[test]
fn a_notification_that_may_have_gone_to_the_address_before_is_repeated() {
    let mut bench = observing();
    assert_eq!(bench.notify(b"1", false).0, Notified::Sent);
    bench.waiting = Some((b"1".to_vec(), false));
    let sent = bench.moves(false);
    assert!(is_ping(&sent[0]), "{sent:?}");
    let sent = bench.empty(Type::Reset, sent[0].message().message_id);
    assert_eq!(sent[0].message().payload(), b"1");
}

#[test]
fn a_confirmable_begins_again_at_the_new_address() {
    let mut bench = observing();
    let (_, first) = bench.notify(b"1", true);
    // As often as it is repeated.
    for _ in 0..12 {
        bench.wait(Duration::from_secs(3));
    }
    bench.moves(false);
    let ping = bench.withheld();
    let sent = bench.empty(Type::Reset, ping[0].message().message_id);
    assert_eq!(sent, first);
    for _ in 0..14 {
        bench.wait(Duration::from_secs(3));
        assert_eq!(bench.gone(), None, "given up for what went to the address before");
    }
}

#[test]
fn what_was_withheld_is_a_reason_to_ping() {
    let mut bench = Bench::new(ServerConfig::default());
    bench.ask(Code::GET, &[PATH], &[]);
    let sent = bench.withheld();
    assert!(is_ping(&sent[0]), "{sent:?}");
    assert_eq!(bench.withheld(), [], "one at a time");
    bench.empty(Type::Reset, sent[0].message().message_id);
    assert_eq!(bench.server.poll_validated(), Some(bench.peer));
}
