//! Several identities in one ClientHello: none of them tells more than another (RFC 8446 appendix E.6).

use super::{
    net::Net,
    peer::{Heard, Offer},
};
use crate::{Alert, Event, Refused};

const RIGHT: (&[u8], &[u8]) = (b"device", b"secret");
const WRONG: (&[u8], &[u8]) = (b"device", b"guess");
const NOBODY: (&[u8], &[u8]) = (b"nobody", b"guess");

fn net(offered: &[(&'static [u8], &'static [u8])]) -> Net {
    let (last, before) = offered.split_last().unwrap();
    Net::psk(Offer { before: before.to_vec(), ..Offer::psk(last.0, last.1) })
}

/// Identities that count as guessed at, in order.
fn guessed(net: &Net) -> Vec<Vec<u8>> {
    let of = |event| match event {
        Event::Failed { alert: Alert::DecryptError, refused: Some(Refused::Identity(identity)), .. } => {
            Some(identity.to_vec())
        }
        Event::Failed { .. }
        | Event::Established { .. }
        | Event::Data { .. }
        | Event::Moved { .. }
        | Event::Ended { .. } => None,
    };
    net.inbox.events().filter_map(of).collect()
}

#[test]
fn a_key_of_ones_own_does_not_tell_whether_another_identity_is_known() {
    for other in [WRONG, NOBODY] {
        for offered in [vec![other, RIGHT], vec![other, other, RIGHT], vec![other, NOBODY, other, RIGHT]] {
            let mut net = net(&offered);
            assert!(net.shake(), "{offered:?}");
            net.exchange();
            let expected = offered.iter().filter(|at| **at != RIGHT).map(|(identity, _)| identity.to_vec());
            assert_eq!(guessed(&net), expected.collect::<Vec<_>>(), "each counts as a guess, known or not");
        }
    }
}

#[test]
fn wherever_a_known_identity_stands_a_wrong_key_is_answered_the_same() {
    let mut answers = Vec::new();
    for at in 0..6 {
        let mut offered = [NOBODY; 6];
        offered[at] = WRONG;
        let mut net = net(&offered);
        assert!(!net.shake());
        assert_eq!(net.client.heard, [Heard::Alert(Alert::DecryptError)]);
        answers.push(guessed(&net).len());
        assert_eq!((net.server.handshakes(), net.server.peers()), (0, 0));
    }
    assert_eq!(answers, [4; 6], "no more than four are looked at");
}

#[test]
fn the_fifth_identity_is_not_looked_at() {
    let mut net = net(&[NOBODY, NOBODY, NOBODY, NOBODY, RIGHT]);
    assert!(!net.shake());
    assert_eq!(net.client.heard, [Heard::Alert(Alert::DecryptError)]);
}

#[test]
fn s4_2_9_a_key_exchange_is_made_wherever_the_client_can() {
    use crate::exchange::Group;
    for (modes, share, exchanged) in [(vec![0, 1], Some(Group::X25519), true), (vec![0], Some(Group::X25519), false)] {
        let mut net = Net::psk(Offer { modes, share, ..Offer::psk(RIGHT.0, RIGHT.1) });
        assert!(net.shake());
        assert_eq!(net.client.exchanged, exchanged);
    }
}
