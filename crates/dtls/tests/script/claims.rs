//! The claims that hold for every script.

use std::{collections::HashSet, time::Duration};

use fogmux_dtls::Event;

use super::toys::{HANDSHAKES_MAX, SESSIONS_MAX};
use super::{World, toys};

impl World {
    /// Checks the events so far.
    pub(super) fn look(&mut self) {
        for event in self.inbox.events() {
            match event {
                Event::Established { peer, association, channel } => {
                    let by_certificate = channel.certificate.as_ref().map(|leaf| {
                        assert_eq!(*leaf, toys::certificate());
                        b"one".to_vec()
                    });
                    let identity =
                        by_certificate.or(channel.psk.as_ref().map(|psk| &*psk.identity).map(<[u8]>::to_vec));
                    let identity = identity.unwrap_or_default();
                    assert!([&b"one"[..], b"two"].contains(&&identity[..]), "{identity:?}");
                    let before = self.owners.insert(association, (identity, HashSet::new()));
                    assert!(before.is_none(), "an association twice");
                    self.last = Some((peer, association));
                }
                Event::Data { peer, association, data } => {
                    self.asked = Some((peer, association));
                    let Some((owner, seen)) = self.owners.get_mut(&association) else {
                        panic!("data of no association")
                    };
                    assert!(data.starts_with(owner), "{data:?} in an association of {owner:?}");
                    assert!(seen.insert(data.to_vec()), "{data:?} came twice");
                }
                Event::Moved { .. } | Event::Ended { .. } | Event::Failed { .. } => {}
            }
        }
        self.inbox.clear();
        assert!(self.endpoint.sessions() <= SESSIONS_MAX, "{} sessions", self.endpoint.sessions());
        assert!(self.endpoint.handshakes() <= HANDSHAKES_MAX, "{} handshakes", self.endpoint.handshakes());
    }

    /// The enemy lets go: whoever begins now gets a session, an answer, and nothing else.
    pub(super) fn recovers(&mut self) {
        self.incoming.clear();
        let address = self.port();
        if let Some(party) = self.parties.first_mut() {
            party.address = address;
            party.incoming.clear();
        }
        self.begin_again(0, 0);
        // Handshakes that the enemy began take their places for 90 s, and the client waits longer each time.
        let end = self.now + Duration::from_secs(300);
        while !self.parties.first().is_some_and(|party| party.client.is_established()) {
            assert!(self.now < end, "no session in five minutes of peace");
            self.settle();
            self.wait(Duration::from_millis(500));
            self.look();
            // RFC 9147 §5.1: a cookie that has become old while there was no room ends the attempt.
            if self.parties.first().is_some_and(|party| party.over) {
                self.begin_again(0, 0);
            }
        }
        let answers = self.parties.first().map_or(0, |party| party.received.len());
        self.send(0);
        self.settle();
        self.look();
        self.last = self.asked;
        self.answer();
        self.settle();
        let now = self.parties.first().map_or(0, |party| party.received.len());
        assert_eq!(now, answers + 1, "no answer in a new session");
    }

    pub(super) fn settle(&mut self) {
        while !self.incoming.is_empty() || self.parties.iter().any(|party| !party.incoming.is_empty()) {
            self.deliver();
            (0..self.parties.len()).for_each(|at| self.hear(at));
            self.look();
        }
    }
}
