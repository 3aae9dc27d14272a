//! TLS and QUIC against rustls and quinn clients over loopback.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use fogmux_net::{
    Admission, AdmissionLimits, HandshakeError, Security, TlsConfig,
    listener::{self, PortSharing},
    pki, quic,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsConnector;

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn certificates(directory: &Path) -> (TlsConfig, pki::Pki) {
    let pki = pki::ensure(directory, &[], SystemTime::now()).unwrap();
    (TlsConfig::load(&pki.certificate, &pki.key).unwrap(), pki)
}

fn client(ca: &Path, alpn: &[&[u8]]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::from_std(listener::tcp(ANY_PORT, PortSharing::Exclusive).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn leaf(address: SocketAddr, config: ClientConfig) -> CertificateDer<'static> {
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap().first().unwrap().clone().into_owned()
}

#[tokio::test]
async fn clients_that_trust_the_authority_are_served_with_the_protocol_both_know() {
    let directory = tempfile::tempdir().unwrap();
    let (tls, pki) = certificates(directory.path());
    let acceptor = tls.acceptor(&Security::default(), &[b"h2", b"http/1.1"]).unwrap();
    let (listener, address) = listen();
    let server = tokio::spawn(async move {
        let (stream, from) = listener.accept().await.unwrap();
        let (mut stream, _) = acceptor.accept(stream, from.ip()).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
        stream.alpn().map(<[u8]>::to_vec)
    });
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(client(&pki.ca, &[b"http/1.1"])));
    let mut stream = connector.connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "hello");
    assert_eq!(server.await.unwrap().as_deref(), Some(&b"http/1.1"[..]));
}

#[tokio::test]
async fn silent_and_foolish_peers_do_not_hold_up_others() {
    let directory = tempfile::tempdir().unwrap();
    let (tls, pki) = certificates(directory.path());
    let acceptor = tls.acceptor(&Security::default(), &[]).unwrap().with_deadline(Duration::from_millis(300));
    let (listener, address) = listen();
    let server = tokio::spawn(async move {
        let mut handshakes = Vec::new();
        for _ in 0..4 {
            let (stream, from) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            handshakes.push(tokio::spawn(async move { acceptor.accept(stream, from.ip()).await.map(drop) }));
        }
        let mut results = Vec::new();
        for handshake in handshakes {
            results.push(handshake.await.unwrap());
        }
        results
    });
    let _silent = TcpStream::connect(address).await.unwrap();
    let mut foolish = TcpStream::connect(address).await.unwrap();
    foolish.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(&[22, 3, 1]).await.unwrap();
    leaf(address, client(&pki.ca, &[])).await;
    let results = server.await.unwrap();
    assert!(matches!(results[0], Err(HandshakeError::TooSlow)));
    assert!(matches!(results[1], Err(HandshakeError::Failed(_))));
    assert!(matches!(results[2], Err(HandshakeError::TooSlow)));
    assert!(results[3].is_ok());
}

#[tokio::test]
async fn a_reloaded_certificate_is_used_at_once_and_a_broken_one_never() {
    let directory = tempfile::tempdir().unwrap();
    let (tls, pki) = certificates(directory.path());
    let acceptor = tls.acceptor(&Security::default(), &[]).unwrap();
    let (listener, address) = listen();
    tokio::spawn(async move {
        loop {
            let (stream, from) = listener.accept().await.unwrap();
            let _ = acceptor.accept(stream, from.ip()).await;
        }
    });
    let before = leaf(address, client(&pki.ca, &[])).await;
    std::fs::write(&pki.certificate, "nothing").unwrap();
    assert!(tls.reload().unwrap_err().to_string().contains("server.pem"));
    assert_eq!(leaf(address, client(&pki.ca, &[])).await, before);
    assert!(pki::ensure(directory.path(), &[], SystemTime::now()).unwrap().renewed);
    tls.reload().unwrap();
    assert_ne!(leaf(address, client(&pki.ca, &[])).await, before);
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, pki) = certificates(one.path());
    let (_, foreign) = certificates(other.path());
    assert!(TlsConfig::load(&pki.certificate, &foreign.key).is_err());
    assert!(TlsConfig::load(&pki.certificate, Path::new("/nonexistent")).is_err());
}

fn quic_client(ca: &Path) -> quinn::Endpoint {
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(client(ca, &[b"h3"])).unwrap();
    let mut endpoint = quinn::Endpoint::client(ANY_PORT).unwrap();
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
    endpoint
}

#[tokio::test]
async fn quic_serves_retries_when_busy_and_refuses_when_full() {
    let directory = tempfile::tempdir().unwrap();
    let (tls, pki) = certificates(directory.path());
    let limits = quic::QuicLimits { retry_from_connections: 1, ..quic::QuicLimits::default() };
    let socket = listener::udp(ANY_PORT, PortSharing::Exclusive).unwrap();
    let endpoint = quic::server(socket, &tls, &Security::default(), &[b"h3"], &limits).unwrap();
    let address = endpoint.local_addr().unwrap();
    let admission = Admission::new(AdmissionLimits { connections_max: 2, per_address_max: 2 });
    let server = tokio::spawn(async move {
        let (mut held, mut retried) = (Vec::new(), 0);
        while let Some(incoming) = endpoint.accept().await {
            let unproven = !incoming.remote_address_validated();
            match quic::admit(incoming, &admission, &limits) {
                Some((connecting, admitted)) => held.push((connecting.await.unwrap(), admitted)),
                None if unproven => retried += 1,
                None => return (held.len(), retried),
            }
        }
        (held.len(), retried)
    });
    let endpoint = quic_client(&pki.ca);
    let first = endpoint.connect(address, "localhost").unwrap().await.unwrap();
    let second = endpoint.connect(address, "localhost").unwrap().await.unwrap();
    let third = endpoint.connect(address, "localhost").unwrap().await;
    assert!(third.is_err());
    let (held, retried) = server.await.unwrap();
    assert_eq!(held, 2);
    assert!(retried >= 2, "the second and the third had to prove their address");
    drop((first, second));
}

/// A client that asks for a name, and the leaf and the protocol that it is served with.
async fn shown(address: SocketAddr, mut config: ClientConfig, name: &str) -> Option<(CertificateDer<'static>, bool)> {
    let provider = Arc::new(ring::default_provider());
    config.dangerous().set_certificate_verifier(Arc::new(Everything(provider)));
    let stream = TcpStream::connect(address).await.unwrap();
    let name = name.to_owned().try_into().unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let connection = stream.get_ref().1;
    let leaf = connection.peer_certificates().unwrap().first().unwrap().clone().into_owned();
    Some((leaf, connection.alpn_protocol() == Some(b"acme-tls/1")))
}

/// Verifies nothing: what is shown is what these tests look at.
#[derive(Debug)]
struct Everything(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for Everything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[tokio::test]
async fn a_certificate_by_name_is_for_clients_that_ask_for_its_names_and_replaced_while_it_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let (tls, pki) = certificates(directory.path());
    let file = directory.path().join("named");
    let tls = tls.with_named(&file);
    let issue = || {
        let other = tempfile::tempdir().unwrap();
        let authority = pki::Authority::open_or_make(other.path(), SystemTime::now()).unwrap();
        let names = vec!["fog.example".try_into().unwrap()];
        let wanted = pki::Wanted { names, ..pki::Wanted::new(pki::Purpose::Server, "fog.example") };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let issued = authority.issue(&wanted, fogmux_net::KeyKind::EcdsaP256, now).unwrap();
        std::fs::write(&file, format!("{}{}", *issued.key, issued.certificate)).unwrap();
    };
    let acceptor = tls.acceptor(&Security::default(), &[]).unwrap();
    let (listener, address) = listen();
    tokio::spawn(async move {
        loop {
            let (stream, from) = listener.accept().await.unwrap();
            let _ = acceptor.accept(stream, from.ip()).await;
        }
    });
    let asked = async |name: &str| shown(address, client(&pki.ca, &[]), name).await.unwrap().0;
    let own = asked("fog.example").await;
    assert!(tls.named().is_none());
    issue();
    tls.reload().unwrap();
    let named = asked("FOG.example").await;
    assert_ne!(named, own);
    for other in ["localhost", "a.fog.example", "127.0.0.1"] {
        assert_eq!(asked(other).await, own, "{other}");
    }
    std::fs::write(&file, "nothing").unwrap();
    tls.reload().unwrap();
    assert!(tls.reload_named().is_err());
    assert_eq!(asked("fog.example").await, named, "what cannot be used replaces nothing");
    issue();
    tls.reload_named().unwrap();
    assert_ne!(asked("fog.example").await, named);
    std::fs::remove_file(&file).unwrap();
    tls.reload().unwrap();
    assert!(tls.named().is_some());
}

/// RFC 8737 §3.
#[tokio::test]
async fn a_handshake_of_an_acme_server_is_answered_while_its_challenge_is_under_way() {
    let directory = tempfile::tempdir().unwrap();
    let (tls, pki) = certificates(directory.path());
    let acceptor = tls.acceptor(&Security::default(), &[b"h2"]).unwrap();
    let (listener, address) = listen();
    let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, from) = listener.accept().await.unwrap();
            ended.send(acceptor.accept(stream, from.ip()).await.map(drop)).unwrap();
        }
    });
    let validation: &[&[u8]] = &[b"acme-tls/1"];
    let asked = async |name: &str, alpn: &[&[u8]]| shown(address, client(&pki.ca, alpn), name).await;
    assert_eq!(asked("fog.example", validation).await, None);
    assert!(matches!(ends.recv().await.unwrap(), Err(HandshakeError::Failed(_))));
    let under_way = tls.challenges().begin_tls_alpn("fog.example", &[7; 32]).unwrap();
    let (leaf, is_validation) = asked("fog.example", validation).await.unwrap();
    assert!(is_validation);
    assert!(matches!(ends.recv().await.unwrap(), Err(HandshakeError::Validation)), "no connection follows");
    // id-pe-acmeIdentifier, critical, with the digest in an OCTET STRING.
    let extension = [&[0x06, 8, 0x2b, 6, 1, 5, 5, 7, 1, 31, 1, 1, 0xff, 4, 34, 4, 32][..], &[7; 32]].concat();
    assert!(leaf.windows(extension.len()).any(|window| window == extension));
    for (name, alpn) in [("other.example", validation), ("127.0.0.1", validation)] {
        assert_eq!(asked(name, alpn).await, None, "{name}");
        assert!(matches!(ends.recv().await.unwrap(), Err(HandshakeError::Failed(_))));
    }
    let (leaf_of_others, is_validation) = asked("fog.example", &[b"h2", b"acme-tls/1"]).await.unwrap();
    assert!(!is_validation && leaf_of_others != leaf, "a client that can do more is no ACME server");
    assert!(ends.recv().await.unwrap().is_ok());
    drop(under_way);
    assert_eq!(asked("fog.example", validation).await, None);
}
