//! Handshakes that end with a refusal, and what each end hears of it.

use rustls::CertificateError;

use super::*;

#[test]
fn a_client_of_another_authority_is_refused_and_told_why() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let own = other.certified("dev1");
    let config = ClientConfig { certified_key: Some(Arc::clone(&own)), ..authority.client() };
    let mut net = Net::new(endpoint(authority.server(), EndpointConfig::default()), config);
    assert!(!net.shake());
    assert_eq!(net.events, [ClientEvent::Ended(Alert::UnknownCa)]);
    let leaf = own.cert.first().cloned().unwrap();
    let unknown = CertificateError::UnknownIssuer.into();
    assert_eq!(refused(&net), [(Alert::UnknownCa, Some(Refused::Certificate(leaf, unknown)))]);
    assert_eq!((net.server.handshakes(), net.server.sessions()), (0, 0));
}

/// The handshakes that the server has refused, and their credentials.
fn refused(net: &Net) -> Vec<(Alert, Option<Refused>)> {
    let of = |event| match event {
        Event::Failed { alert, refused, .. } => Some((alert, refused.cloned())),
        Event::Established { .. } | Event::Data { .. } | Event::Moved { .. } | Event::Ended { .. } => None,
    };
    net.inbox.events().filter_map(of).collect()
}

#[test]
fn a_server_of_another_authority_is_not_believed() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let mut net = Net::new(endpoint(authority.server(), EndpointConfig::default()), other.client());
    assert!(!net.shake());
    assert_eq!(net.events, [ClientEvent::Ended(Alert::UnknownCa)]);
}

#[test]
fn a_wrong_key_and_an_unknown_identity_look_the_same() {
    for (identity, key) in [(&b"device"[..], &b"wrong"[..]), (b"nobody", b"secret")] {
        let mut net = Net::new(endpoint(psk_keys(), EndpointConfig::default()), ClientConfig::psk(identity, key));
        assert!(!net.shake());
        assert_eq!(net.events, [ClientEvent::Ended(Alert::DecryptError)]);
        let events: Vec<_> = net.inbox.events().collect();
        let refused = Refused::Identity(identity.into());
        let failed = Event::Failed { peer: address(5000), alert: Alert::DecryptError, refused: Some(&refused) };
        assert_eq!(events, [failed]);
        assert_eq!((net.server.handshakes(), net.server.sessions()), (0, 0));
    }
}

#[test]
fn who_comes_too_early_hears_nothing_and_it_counts_as_no_attempt() {
    let keys = psk_keys();
    keys.wait.store(true, Ordering::Relaxed);
    let config = psk(Suite::PskAes128Ccm8);
    let mut net = Net::new(endpoint(Arc::clone(&keys) as _, EndpointConfig::default()), config.clone());
    net.travel();
    assert!(!net.client.is_established() && net.events.is_empty(), "{:?}", net.events);
    assert!(net.inbox.is_empty(), "nothing to be counted");
    assert_eq!((net.server.handshakes(), net.server.peers(), net.server.counters().failed), (0, 0, 1));
    keys.wait.store(false, Ordering::Relaxed);
    net.reboot(config);
    assert!(net.shake());
    net.exchange();
}

#[test]
fn s7_4_8_a_client_must_have_the_key_of_its_certificate() {
    let authority = Authority::new("ours");
    let config = ClientConfig { certified_key: Some(authority.stolen("dev1")), ..authority.client() };
    let mut net = Net::new(endpoint(authority.server(), EndpointConfig::default()), config);
    assert!(!net.shake());
    assert_eq!(net.events, [ClientEvent::Ended(Alert::DecryptError)]);
    assert!(matches!(&*refused(&net), [(Alert::DecryptError, Some(Refused::Unproven(_)))]));
    assert_eq!((net.server.handshakes(), net.server.sessions()), (0, 0));
}

#[test]
fn s7_4_3_a_server_must_have_the_key_of_its_certificate() {
    let authority = Authority::new("ours");
    let verifier = authority.server().verifier.clone().unwrap();
    let keys = certificate_keys(authority.stolen("fog.example"), verifier);
    let mut net = Net::new(endpoint(keys, EndpointConfig::default()), authority.client());
    assert!(!net.shake());
    assert_eq!(net.events, [ClientEvent::Ended(Alert::DecryptError)]);
    assert_eq!(net.server.sessions(), 0);
}

#[test]
fn a_certificate_that_is_required_must_come() {
    let authority = Authority::new("ours");
    let mut net = Net::new(endpoint(authority.strict_server(), EndpointConfig::default()), authority.client());
    assert!(!net.shake());
    assert_eq!(net.events, [ClientEvent::Ended(Alert::HandshakeFailure)]);
    assert_eq!(refused(&net), [(Alert::HandshakeFailure, Some(Refused::NoCertificate))]);
    assert_eq!((net.server.handshakes(), net.server.sessions()), (0, 0));
    let config = ClientConfig { certified_key: Some(authority.certified("dev1")), ..authority.client() };
    net.reboot(config);
    assert!(net.shake());
}

#[test]
fn nothing_in_common_is_said_without_keeping_anything() {
    let authority = Authority::new("ours");
    let mut net = Net::new(endpoint(psk_keys(), EndpointConfig::default()), authority.client());
    assert!(!net.shake());
    assert_eq!(net.events, [ClientEvent::Ended(Alert::HandshakeFailure)]);
    assert_eq!(refused(&net), [(Alert::HandshakeFailure, None)], "no credential was judged");
    assert!(net.server.peers() == 0);
}
