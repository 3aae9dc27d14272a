//! Sessions whose permission is taken back, and datagrams told apart before they are opened.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustls::{pki_types::CertificateDer, server::danger::ClientCertVerifier, sign::CertifiedKey};

use super::{
    super::*,
    keys::{Keys, platform, psk_keys},
    net::{Net, address, endpoint, older},
};
use crate::{
    ProvenPsk, Psk, Watch,
    client::{ClientConfig, ClientEvent},
};

/// The keys of others, and one permission for all.
struct Revoking {
    keys: Arc<Keys>,
    revoked: Arc<AtomicBool>,
    /// The mark of the key that the identity has by the end of a handshake.
    mark: u64,
}

impl Credentials for Revoking {
    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        self.keys.certified_key()
    }

    fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        self.keys.client_verifier()
    }

    fn has_psk(&self) -> bool {
        self.keys.has_psk()
    }

    fn psk(&self, from: IpAddr, identity: &[u8]) -> Option<Psk> {
        self.keys.psk(from, identity)
    }

    fn watch(&self, _: &[CertificateDer<'static>]) -> Option<Watch> {
        let revoked = Arc::clone(&self.revoked);
        Some(Watch::new(move || revoked.load(Ordering::Relaxed)))
    }

    fn holds(&self, psk: &ProvenPsk) -> bool {
        assert_eq!(&*psk.identity, b"device");
        psk.mark == self.mark
    }
}

/// The offers of a client, by version.
fn configs() -> [ClientConfig; 2] {
    [older(ClientConfig::psk(b"device", b"secret")), ClientConfig::psk(b"device", b"secret")]
}

fn is_revoked(net: &Net) -> bool {
    matches!(net.inbox.events().last(), Some(Event::Ended { end: End::Revoked, .. }))
}

#[test]
fn a_session_that_is_revoked_hears_and_says_nothing_more() {
    for config in configs() {
        let revoked = Arc::new(AtomicBool::new(false));
        let mut net = Net::of_any(revoking(1, &revoked), config);
        assert!(net.shake());
        net.exchange();
        let association = net.association();
        revoked.store(true, Ordering::Relaxed);
        let out = &mut net.to_server;
        net.client.send(b"after all", &mut |bytes| out.push_back(bytes.to_vec()));
        assert_eq!(net.server.send(net.now, address(5000), association, b"no", &mut |_, _| ()), Sent::Ended);
        net.travel();
        assert!(is_revoked(&net));
        assert!(!net.inbox.events().any(|event| matches!(event, Event::Data { data: b"after all", .. })));
        assert!(matches!(net.events.last(), Some(ClientEvent::Ended(_))), "{:?}", net.events);
        assert_eq!((net.server.sessions(), net.server.peers()), (0, 0));
    }
}

fn revoking(mark: u64, revoked: &Arc<AtomicBool>) -> Endpoint<SocketAddr> {
    let keys = Revoking { keys: psk_keys(), revoked: Arc::clone(revoked), mark };
    let cookies = Arc::new(CookieKey::new(&[3; 32]));
    Endpoint::new(EndpointConfig::default(), Arc::new(keys), platform(), cookies)
}

#[test]
fn a_handshake_whose_key_was_replaced_before_its_end_fails_as_with_a_wrong_key() {
    for config in configs() {
        let mut net = Net::of_any(revoking(2, &Arc::default()), config);
        assert!(!net.shake());
        let replaced = Refused::Replaced(b"device"[..].into());
        let mut events = net.inbox.events();
        let refused = events.find_map(|event| if let Event::Failed { refused, .. } = event { refused } else { None });
        assert_eq!(refused, Some(&replaced));
        assert!(!net.inbox.events().any(|event| matches!(event, Event::Established { .. })));
        assert_eq!((net.server.handshakes(), net.server.sessions()), (0, 0));
        assert_eq!(net.events, [ClientEvent::Ended(Alert::DecryptError)]);
    }
}

#[test]
fn a_review_ends_what_does_not_hold_and_tells_the_peer() {
    for config in configs() {
        let mut net = Net::of_any(endpoint(psk_keys(), EndpointConfig::default()), config);
        assert!(net.shake());
        net.exchange();
        let association = net.association();
        let mut asked = Vec::new();
        let mut review = |net: &mut Net, holds: bool| {
            let out = &mut net.to_client;
            let holds = &mut |association| {
                asked.push(association);
                holds
            };
            net.server.review(0, holds, &mut net.inbox, &mut |_, bytes| out.push_back(bytes.to_vec()))
        };
        assert_eq!(review(&mut net, true), None);
        net.exchange();
        assert_eq!(review(&mut net, false), None);
        assert_eq!(asked, [association; 2]);
        assert!(is_revoked(&net));
        net.travel();
        assert!(matches!(net.events.last(), Some(ClientEvent::Ended(_))), "{:?}", net.events);
    }
}

#[test]
fn datagrams_of_sessions_are_told_from_those_of_handshakes() {
    for config in configs() {
        let mut net = Net::of_any(endpoint(psk_keys(), EndpointConfig::default()), config);
        let hello = net.to_server.front().cloned().unwrap();
        let takes = |net: &mut Net, peer, datagram: &[u8]| {
            net.server.handle_of_session(net.now, peer, datagram, &mut net.inbox, &mut |_, _| ())
        };
        assert!(!takes(&mut net, address(5000), &hello));
        assert!(net.shake());
        // The last flight may still be under way.
        (0..20).for_each(|_| {
            net.travel();
            net.wait();
        });
        let mut data = Vec::new();
        net.client.send(b"question", &mut |bytes| data = bytes.to_vec());
        net.inbox.clear();
        assert!(!takes(&mut net, address(5001), &data), "of nobody");
        assert!(!takes(&mut net, address(5000), &hello), "the next handshake");
        for end in 0..data.len().min(5) {
            assert!(!takes(&mut net, address(5000), &data[..end]), "{end} bytes");
        }
        assert!(net.inbox.is_empty(), "nothing of these was handled");
        assert!(takes(&mut net, address(5000), &data));
        let heard = net.inbox.events().any(|event| matches!(event, Event::Data { data: b"question", .. }));
        assert!(heard, "data of the session");
    }
}
