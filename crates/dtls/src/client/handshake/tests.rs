//! A Finished that is wrong inside: its record opens, for the keys are right.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use zeroize::Zeroizing;

use super::*;
use crate::{
    CookieKey, Credentials, Endpoint, EndpointConfig, Event, Inbox,
    tests::{older, platform},
};

struct Psk;

impl Credentials for Psk {
    fn certified_key(&self) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn client_verifier(&self) -> Option<Arc<dyn rustls::server::danger::ClientCertVerifier>> {
        None
    }

    fn has_psk(&self) -> bool {
        true
    }

    fn psk(&self, _from: IpAddr, _identity: &[u8]) -> Option<crate::Psk> {
        Some(crate::Psk { key: Zeroizing::new(b"secret".to_vec()), mark: 1 })
    }
}

/// A client that has just sent its Finished, what it has sent, and the server that has not seen it yet.
struct Stage {
    client: Handshake,
    server: Endpoint<SocketAddr>,
    inbox: Inbox<SocketAddr>,
    sent: Vec<Vec<u8>>,
}

impl Stage {
    fn set() -> Self {
        let client = Handshake::new(older(ClientConfig::psk(b"device", b"secret")), platform()).unwrap();
        let server =
            Endpoint::new(EndpointConfig::default(), Arc::new(Psk), platform(), Arc::new(CookieKey::new(&[3; 32])));
        let mut this = Self { client, server, inbox: Inbox::default(), sent: Vec::new() };
        this.send_again();
        while !matches!(this.client.state, State::Finished(_)) {
            let answers = this.carry_up();
            this.carry_down(&answers);
        }
        this
    }

    /// The client's last flight, as it is now.
    fn send_again(&mut self) {
        self.sent.clear();
        self.client.send(Duration::ZERO, &mut |bytes| self.sent.push(bytes.to_vec()));
    }

    fn carry_up(&mut self) -> Vec<Vec<u8>> {
        let mut answers = Vec::new();
        for datagram in self.sent.drain(..) {
            let from = SocketAddr::from(([192, 0, 2, 1], 5000));
            let send = &mut |_, bytes: &[u8]| answers.push(bytes.to_vec());
            self.server.handle(Duration::ZERO, from, &datagram, &mut self.inbox, send);
        }
        answers
    }

    fn carry_down(&mut self, datagrams: &[Vec<u8>]) -> Step {
        let mut last = Step::Waiting;
        for datagram in datagrams {
            let mut rest = &datagram[..];
            while let Some((record, after)) = Record::split(rest) {
                rest = after;
                last = self.client.handle(Duration::ZERO, &record, &mut |bytes| self.sent.push(bytes.to_vec()));
            }
        }
        last
    }
}

#[test]
fn s7_4_9_a_finished_of_another_transcript_is_refused_by_the_server() {
    for flip in [0, 1] {
        let mut stage = Stage::set();
        let State::Finished(sent) = &mut stage.client.state else { panic!() };
        *sent.finished.last_mut().unwrap() ^= flip;
        stage.send_again();
        let answers = stage.carry_up();
        let step = stage.carry_down(&answers);
        if flip == 0 {
            assert!(matches!(step, Step::Done(..)), "it is the flip that makes the difference");
            continue;
        }
        assert!(matches!(step, Step::Failed(Alert::DecryptError)));
        assert!(matches!(stage.inbox.events().last(), Some(Event::Failed { alert: Alert::DecryptError, .. })));
        assert_eq!((stage.server.sessions(), stage.server.handshakes()), (0, 0));
    }
}

#[test]
fn s7_4_9_a_finished_of_another_transcript_is_refused_by_the_client() {
    let mut stage = Stage::set();
    let answers = stage.carry_up();
    // As if something had been changed on its way to us.
    *stage.client.transcript.last_mut().unwrap() ^= 1;
    assert!(matches!(stage.carry_down(&answers), Step::Failed(Alert::DecryptError)));
}

#[test]
fn s7_4_1_4_extensions_of_a_server_are_those_that_were_asked_for() {
    // Without a key exchange, so that nothing is said of curves.
    let suites = vec![Suite::PskAes128Ccm8];
    let config = ClientConfig { suites, ..ClientConfig::psk(b"device", b"secret") };
    let mut client = Handshake::new(older(config), platform()).unwrap();
    assert_eq!(client.extensions(Reader(&[])), Ok(false));
    let mut extensions = |list: &[(u16, &[u8])], behind: &[u8]| {
        let (mut bytes, mut body) = (Vec::new(), Vec::new());
        list.iter().for_each(|(number, body)| wire::put_extension(&mut bytes, *number, body));
        wire::put_vector16(&mut body, &bytes);
        body.extend(behind);
        client.extensions(Reader(&body))
    };
    let ems: (u16, &[u8]) = (23, &[]);
    let renegotiation: (u16, &[u8]) = (0xff01, &[0]);
    assert_eq!(extensions(&[renegotiation], &[]), Ok(false));
    assert_eq!(extensions(&[renegotiation, ems], &[]), Ok(true));
    assert_eq!(extensions(&[ems, ems], &[]), Err(Alert::IllegalParameter));
    assert_eq!(extensions(&[ems, (11, &[1, 0])], &[]), Err(Alert::UnsupportedExtension));
    assert_eq!(extensions(&[(0xff01, &[1, 7])], &[]), Err(Alert::HandshakeFailure));
    assert_eq!(extensions(&[ems], &[0]), Err(Alert::DecodeError));
    assert_eq!(client.extensions(Reader(&[0, 4, 0, 23])), Err(Alert::DecodeError), "cut, and not without");
}

#[test]
fn s7_4_3_a_signature_is_of_the_kind_that_the_suite_names() {
    let client = Handshake::new(older(ClientConfig::psk(b"device", b"secret")), platform()).unwrap();
    let refused = |suite, scheme: u16| {
        let leaf = Some(CertificateDer::from(vec![0]));
        let agreed = Agreed { suite, extended_master_secret: true, leaf, ephemeral: None, asked: None };
        let mut body = vec![3, 0, 29];
        wire::put_vector8(&mut body, &[9; 32]);
        body.extend(scheme.to_be_bytes());
        wire::put_vector16(&mut body, &[1; 64]);
        client.server_key(&agreed, &body).unwrap_err()
    };
    let (ecdsa, rsa) = (Suite::EcdheEcdsaAes128Ccm8, Suite::EcdheRsaAes128Gcm);
    // The right kind is refused too, but only where the certificate is looked at, which is none.
    assert_eq!([refused(ecdsa, 0x0403), refused(rsa, 0x0401)], [Alert::BadCertificate; 2]);
    assert_eq!([refused(ecdsa, 0x0401), refused(rsa, 0x0403)], [Alert::IllegalParameter; 2]);
}
