//! Limits of keys (RFC 9147 §4.5.3, §8): changed in time, or the association ends.

use super::{
    device,
    net::Net,
    peer::{Heard, Offer},
};
use crate::{
    Alert, Association, End, Event, Sent,
    tests::{MS, address},
    v13::{Content, Suite13, session::Session},
};

fn net(suite: Suite13) -> Net {
    let mut net = Net::psk(Offer { suite, ..device() });
    assert!(net.shake());
    net.exchange();
    net
}

fn session(net: &mut Net) -> &mut Session {
    net.server.session_of_13(address(5000)).unwrap()
}

fn forge(net: &mut Net) {
    let mut forged = net.client.seal(Content::ApplicationData, b"forged");
    *forged.last_mut().unwrap() ^= 1;
    net.arrive(&forged);
}

/// As if so many records had been sent and received.
fn sent_so_far(net: &mut Net, sent: u64) {
    session(net).sent_so_far(3, sent);
    net.client.jump(sent - 1);
}

fn is_spent(net: &Net) -> bool {
    net.inbox.events().any(|event| matches!(event, Event::Ended { end: End::Spent, .. }))
}

fn told_so(net: &mut Net) {
    net.travel();
    assert!(is_spent(net));
    assert_eq!(net.client.heard.last(), Some(&Heard::Alert(Alert::CloseNotify)));
    assert_eq!((net.server.sessions(), net.server.peers()), (0, 0));
}

#[test]
fn s4_5_3_forged_records_count_until_the_key_is_changed_and_end_the_association_at_the_limit() {
    for (suite, worn, max) in [
        (Suite13::Aes128Gcm, 1 << 22, 1 << 36),
        (Suite13::Aes128Ccm, 1 << 22, 11_863_283),
        (Suite13::Aes128Ccm8, 1 << 7, 1 << 20),
    ] {
        let mut net = net(suite);
        // The client never hears that it is asked for another key.
        net.client.deaf = true;
        session(&mut net).forged_so_far(worn - 2);
        forge(&mut net);
        assert!(net.to_client.is_empty(), "{suite:?}");
        forge(&mut net);
        assert_eq!(net.to_client.len(), 1, "it is asked for another key");
        net.to_client.clear();
        session(&mut net).forged_so_far(max - 2);
        forge(&mut net);
        assert!(net.to_client.is_empty() && !is_spent(&net), "once");
        net.exchange();
        forge(&mut net);
        told_so(&mut net);
    }
}

#[test]
fn s4_5_3_with_another_key_the_count_begins_anew() {
    let mut net = net(Suite13::Aes128Ccm8);
    for _ in 0..3 {
        session(&mut net).forged_so_far((1 << 20) - 2);
        forge(&mut net);
        net.travel();
        net.exchange();
        assert_eq!(session(&mut net).forged(), 0);
    }
    assert!(!is_spent(&net));
    // Records that come twice are not forged.
    let genuine = net.client.seal(Content::ApplicationData, b"once");
    for _ in 0..200 {
        net.arrive(&genuine);
    }
    assert_eq!(session(&mut net).forged(), 0);
}

#[test]
fn s4_5_3_keys_that_have_sealed_much_are_changed_without_anything_being_heard() {
    for suite in Suite13::ALL {
        let mut net = net(suite);
        let association = association(&net);
        sent_so_far(&mut net, (1 << 22) - 1);
        say(&mut net, association, b"one more");
        // A server that only notifies hears nothing: the alarm does it.
        assert!(net.server.next_timeout().is_some_and(|at| at <= net.now), "{suite:?}");
        net.wait();
        net.travel();
        assert_eq!(session(&mut net).epochs().1, 4, "acknowledged, and in use");
        net.exchange();
    }
}

#[test]
fn s4_5_3_a_key_that_cannot_be_changed_ends_the_association_at_its_limit() {
    for (suite, max) in
        [(Suite13::Aes128Gcm, 23_726_566), (Suite13::Aes128Ccm, 1 << 23), (Suite13::Aes128Ccm8, 1 << 23)]
    {
        let mut net = net(suite);
        net.client.deaf = true;
        let association = association(&net);
        sent_so_far(&mut net, max - 2);
        assert!(say(&mut net, association, b"worn"));
        net.wait();
        // The KeyUpdate was the last that is allowed; this is refused, and the alarm ends it.
        assert!(!say(&mut net, association, b"refused"), "{suite:?}");
        net.wait();
        told_so(&mut net);
    }
}

#[test]
fn s8_an_unanswered_key_update_ends_the_association_of_a_peer_that_goes_on_speaking() {
    let mut net = net(Suite13::Aes128Ccm8);
    net.client.deaf = true;
    session(&mut net).forged_so_far(1 << 7);
    forge(&mut net);
    let mut repeats = 0;
    for _ in 0..400 {
        net.now += 500 * MS;
        let mut sent = 0;
        net.server.handle_timeout(net.now, &mut net.inbox, &mut |_, _| sent += 1);
        repeats += sent;
    }
    assert_eq!(repeats, 7, "a peer that sleeps is not spoken to for ever, and keeps its association");
    assert_eq!(net.server.sessions(), 1);
    net.to_client.clear();
    for _ in 0..8 {
        net.say(Content::ApplicationData, b"data");
        assert_eq!(net.to_client.len(), 1, "it is asked again when it speaks");
        net.to_client.clear();
        assert!(!is_spent(&net));
    }
    net.say(Content::ApplicationData, b"data");
    told_so(&mut net);
}

#[test]
fn s8_a_peer_that_slept_answers_the_key_update_when_it_wakes() {
    let mut net = net(Suite13::Aes128Ccm8);
    session(&mut net).forged_so_far(1 << 7);
    forge(&mut net);
    net.to_client.clear();
    for _ in 0..400 {
        net.now += 500 * MS;
        net.server.handle_timeout(net.now, &mut net.inbox, &mut |_, _| ());
    }
    net.say(Content::ApplicationData, b"awake");
    net.travel();
    assert_eq!(session(&mut net).epochs(), (4, 4));
    net.exchange();
}

#[test]
fn s8_epochs_do_not_wrap() {
    let mut net = net(Suite13::Aes128Gcm);
    session(&mut net).sent_so_far((1 << 48) - 1, 1 << 22);
    // A request that would lead past the last epoch is ignored (§8), and we do not begin one.
    net.client.update(net.now, true);
    net.travel();
    assert_eq!(session(&mut net).epochs().1, (1 << 48) - 1);
    assert_eq!(net.server.sessions(), 1);
    session(&mut net).sent_so_far((1 << 48) - 1, 23_726_566);
    let datagram = net.client.seal(Content::ApplicationData, b"data");
    net.arrive(&datagram);
    assert!(is_spent(&net));
}

#[test]
fn numbers_of_messages_do_not_wrap() {
    let mut net = net(Suite13::Aes128Gcm);
    session(&mut net).message_numbers(u16::MAX, u16::MAX);
    sent_so_far(&mut net, 1 << 22);
    net.exchange();
    assert_eq!(session(&mut net).epochs().1, 3, "no number is left for a KeyUpdate");
    assert_eq!(net.server.sessions(), 1);
    // And none for the one behind this.
    net.client.number(u16::MAX);
    net.client.update(net.now, false);
    net.travel();
    assert_eq!(net.client.heard.last(), Some(&Heard::Alert(Alert::UnexpectedMessage)));
    assert_eq!(net.server.sessions(), 0);
}

fn association(net: &Net) -> Association {
    let of = |event| if let Event::Established { association, .. } = event { Some(association) } else { None };
    net.inbox.events().find_map(of).unwrap()
}

fn say(net: &mut Net, association: Association, data: &[u8]) -> bool {
    let out = &mut net.to_client;
    let send = &mut |to, bytes: &[u8]| out.push_back((to, bytes.to_vec()));
    net.server.send(net.now, address(5000), association, data, send) == Sent::Yes
}
