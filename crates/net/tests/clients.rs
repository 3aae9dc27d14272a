//! Client authentication by certificates, revoked ones included, and by pre-shared keys, with clients of rustls and
//! OpenSSL over loopback.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use fogmux_net::{
    Channel, ClientCertificates, ClientTrust, KeyKind, RefusedCertificate, Security, Stream, TlsAcceptor, TlsConfig,
    channel::EXPORTER_LABEL,
    listener::{self, PortSharing},
    pki::{self, Authority, Purpose, Wanted},
    profile::{self, Profile},
    quic,
};
use rustls::{
    ClientConfig, HandshakeKind, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A directory with an authority and a server's certificate.
struct House {
    directory: tempfile::TempDir,
    authority: Authority,
    tls: TlsConfig,
}

impl House {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = pki::ensure(directory.path(), &[], SystemTime::now()).unwrap();
        let authority = Authority::open(directory.path()).unwrap();
        let trust = ClientTrust::load(&made.ca, &authority.revocation_list()).unwrap();
        let tls = TlsConfig::load(&made.certificate, &made.key).unwrap().with_clients(trust, true);
        Self { directory, authority, tls }
    }

    fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    fn acceptor(&self, profile: &'static Profile, client_certificates: ClientCertificates) -> TlsAcceptor {
        self.tls.acceptor(&Security { client_certificates, ..Security::of(profile) }, &[b"mqtt"]).unwrap()
    }

    fn issue(&self, name: &str, kind: KeyKind) -> (PathBuf, PathBuf) {
        let wanted = Wanted { xmpp_addresses: vec![format!("{name}@localhost")], ..Wanted::new(Purpose::Client, name) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let base = self.directory.path().join(name);
        let (certificate, key) = (base.with_extension("pem"), base.with_extension("key"));
        self.authority.issue(&wanted, kind, now).unwrap().write(&certificate, &key).unwrap();
        (certificate, key)
    }

    fn renew_server(&self) {
        let names = vec!["localhost".try_into().unwrap()];
        let wanted = Wanted { names, ..Wanted::new(Purpose::Server, "renewed") };
        let issued =
            self.authority.issue(&wanted, KeyKind::EcdsaP256, SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
        let [certificate, key] = ["server.pem", "server.key"].map(|name| self.directory.path().join(name));
        for file in [&certificate, &key] {
            std::fs::remove_file(file).unwrap();
        }
        issued.unwrap().write(&certificate, &key).unwrap();
    }

    fn revoke(&self, certificate: &Path) {
        assert!(self.authority.revoke(&pki::inspect(certificate).unwrap().serial, SystemTime::now()).unwrap());
    }

    fn client(&self, own: Option<&(PathBuf, PathBuf)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.ca()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match own {
            Some((certificate, key)) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_file(certificate).unwrap()],
                    PrivateKeyDer::from_pem_file(key).unwrap(),
                )
                .unwrap(),
            None => builder.with_no_client_auth(),
        })
    }
}

/// Accepts one connection after the other, gives back what is sent, and tells what each handshake said.
fn serve(acceptor: TlsAcceptor) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<Result<Arc<Channel>, String>>) {
    let listener = TcpListener::from_std(listener::tcp(ANY_PORT, PortSharing::Exclusive).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (said, hears) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, from) = listener.accept().await.unwrap();
            match acceptor.accept(stream, from.ip()).await {
                Ok((stream, channel)) => {
                    said.send(Ok(channel)).unwrap();
                    drop(echo(stream));
                }
                Err(error) => said.send(Err(error.to_string())).unwrap(),
            }
        }
    });
    (address, hears)
}

fn echo(mut stream: Stream) -> JoinHandle<std::io::Result<()>> {
    tokio::spawn(async move {
        loop {
            let byte = stream.read_u8().await?;
            stream.write_all(&[byte]).await?;
            stream.flush().await?;
        }
    })
}

async fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let mut stream = TlsConnector::from(config).connect("localhost".try_into().unwrap(), stream).await?;
    // With TLS 1.3 only an answer says that we were let in; tickets come with it.
    stream.write_all(b"x").await?;
    stream.read_u8().await?;
    Ok(stream)
}

#[tokio::test]
async fn a_client_is_whom_its_certificate_names() {
    let house = House::new();
    let own = house.issue("boiler", KeyKind::EcdsaP256);
    let (address, mut hears) = serve(house.acceptor(&profile::MODERN, ClientCertificates::Optional));
    let stream = connect(address, house.client(Some(&own))).await.unwrap();
    let channel = hears.recv().await.unwrap().unwrap();
    let certificate = channel.certificate.as_ref().unwrap();
    assert_eq!(certificate.common_name.as_deref(), Some("boiler"));
    assert_eq!(certificate.xmpp_addresses, ["boiler@localhost".into()]);
    assert_eq!((channel.protocol, &*channel.cipher), ("TLSv1.3", "TLS_AES_256_GCM_SHA384"));
    let ours = stream.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, Some(&[])).unwrap();
    assert_eq!(channel.exporter, Some(Box::new(ours)), "RFC 9266: both ends have the same");
    assert_eq!(channel.end_point.as_deref().map(<[u8]>::len), Some(32));
    connect(address, house.client(None)).await.unwrap();
    assert_eq!(hears.recv().await.unwrap().unwrap().certificate, None);
}

#[tokio::test]
async fn nobody_gets_in_without_one_where_it_is_required_or_with_one_of_somebody_else() {
    let (house, other) = (House::new(), House::new());
    let (address, mut hears) = serve(house.acceptor(&profile::MODERN, ClientCertificates::Required));
    assert!(connect(address, house.client(None)).await.is_err());
    assert!(hears.recv().await.unwrap().is_err());
    let foreign = other.issue("boiler", KeyKind::EcdsaP256);
    assert!(connect(address, house.client(Some(&foreign))).await.is_err());
    assert!(hears.recv().await.unwrap().is_err());
    let server = (house.directory.path().join("server.pem"), house.directory.path().join("server.key"));
    assert!(connect(address, house.client(Some(&server))).await.is_err(), "a server's certificate is no client's");
}

#[tokio::test]
async fn a_revocation_holds_at_once_for_new_for_resumed_and_for_open_connections() {
    let house = House::new();
    let own = house.issue("boiler", KeyKind::EcdsaP256);
    let good = house.issue("lamp", KeyKind::EcdsaP256);
    let (address, mut hears) = serve(house.acceptor(&profile::MODERN, ClientCertificates::Optional));
    let config = house.client(Some(&own));
    let mut open = connect(address, Arc::clone(&config)).await.unwrap();
    let mut other = connect(address, house.client(Some(&good))).await.unwrap();
    let resumed = connect(address, Arc::clone(&config)).await.unwrap();
    assert_eq!(resumed.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));
    for name in ["boiler", "lamp", "boiler"] {
        let channel = hears.recv().await.unwrap().unwrap();
        assert_eq!(
            channel.certificate.as_ref().unwrap().common_name.as_deref(),
            Some(name),
            "who resumes is who began"
        );
    }
    house.revoke(&own.0);
    assert!(connect(address, Arc::clone(&config)).await.is_err(), "it would have been resumed");
    assert!(hears.recv().await.unwrap().unwrap_err().contains("evoked"));
    assert!(connect(address, house.client(Some(&own))).await.is_err());
    assert_eq!(house.tls.clients().unwrap().cut_revoked(), 2, "the first and the resumed one");
    assert!(open.read_u8().await.is_err());
    other.write_all(b"y").await.unwrap();
    assert_eq!(other.read_u8().await.unwrap(), b'y');
    assert_eq!(house.tls.clients().unwrap().cut_revoked(), 0);
}

#[tokio::test]
async fn a_list_that_cannot_be_read_revokes_nothing_back_and_holds_up_nothing_else() {
    let house = House::new();
    let own = house.issue("boiler", KeyKind::EcdsaP256);
    let (address, _hears) = serve(house.acceptor(&profile::MODERN, ClientCertificates::Required));
    house.revoke(&own.0);
    assert!(connect(address, house.client(Some(&own))).await.is_err());
    std::fs::write(house.authority.revocation_list(), "nothing").unwrap();
    assert!(connect(address, house.client(Some(&own))).await.is_err());
    assert!(house.tls.reload().is_err(), "nothing is read in part");
    std::fs::remove_file(house.authority.revocation_list()).unwrap();
    let before = house.tls.certificate(&profile::MODERN).unwrap();
    house.renew_server();
    house.tls.reload().unwrap();
    let renewed = house.tls.certificate(&profile::MODERN).unwrap();
    assert_ne!(renewed.leaf(), before.leaf(), "the gateway's own certificate is read all the same");
    assert!(connect(address, house.client(Some(&own))).await.is_err(), "a list that was there does not just vanish");
    assert!(connect(address, house.client(Some(&house.issue("pump", KeyKind::EcdsaP256)))).await.is_ok());
}

#[test]
fn profiles_say_what_they_miss() {
    let house = House::new();
    let security = Security::of(&profile::HIGH);
    assert!(house.tls.acceptor(&security, &[]).unwrap_err().to_string().contains("rsa4096"));
    assert!(house.tls.acceptor(&Security::of(&profile::NONE), &[]).is_err());
    let nobody =
        TlsConfig::load(&house.directory.path().join("server.pem"), &house.directory.path().join("server.key"));
    let nobody = nobody.unwrap();
    let asks = |client_certificates| Security { client_certificates, ..Security::default() };
    assert!(nobody.acceptor(&asks(ClientCertificates::Required), &[]).is_err());
    assert!(nobody.acceptor(&asks(ClientCertificates::Optional), &[]).is_ok(), "nobody is asked then");
}

#[cfg(feature = "tls-openssl")]
mod openssl {
    use std::{collections::HashMap, time::Duration};

    use fogmux_net::{
        HandshakeError, Psk, PskSource,
        channel::Zeroizing,
        openssl::Client,
        profile::{Offer, Version},
    };

    use super::*;

    struct Keys(HashMap<&'static [u8], &'static [u8]>);

    impl PskSource for Keys {
        fn secret(&self, identity: &[u8]) -> Option<Psk> {
            self.0.get(identity).map(|key| Psk { key: Zeroizing::new(key.to_vec()), mark: 1 })
        }
    }

    async fn try_key(address: SocketAddr, offer: &Offer, identity: &str, key: &[u8]) -> std::io::Result<()> {
        let psk = Some((identity.as_bytes(), key));
        let client = Client { offer, alpn: &[b"mqtt"], psk, ca: None, certificate: None, group: None, key_log: None };
        let mut stream = client.connector()?.connect(TcpStream::connect(address).await?, "localhost").await?;
        stream.write_all(b"x").await?;
        stream.read_u8().await.map(drop)
    }

    #[tokio::test]
    async fn who_knows_the_key_is_whom_it_says_and_nobody_else_is() {
        let house = House::new();
        let keys = Keys(HashMap::from([(&b"meter"[..], &b"0123456789abcdef"[..])]));
        let tls = house.tls.clone().with_psk(Arc::new(keys));
        let (address, mut hears) = serve(tls.acceptor(&Security::of(&profile::PSK), &[b"mqtt"]).unwrap());
        let only = |suites| Offer { versions: &[Version::Tls12], suites };
        let new = Offer { versions: &[Version::Tls13], suites: &["TLS_AES_128_GCM_SHA256"] };
        let offers = [
            (profile::PSK.offer, "TLSv1.2", "TLS_PSK_WITH_AES_128_CCM_8"),
            (only(&["TLS_PSK_WITH_AES_128_GCM_SHA256"]), "TLSv1.2", "TLS_PSK_WITH_AES_128_GCM_SHA256"),
            (new, "TLSv1.3", "TLS_AES_128_GCM_SHA256"),
        ];
        for (offer, protocol, cipher) in offers {
            try_key(address, &offer, "meter", b"0123456789abcdef").await.unwrap();
            let channel = hears.recv().await.unwrap().unwrap();
            assert_eq!((channel.protocol, &*channel.cipher), (protocol, cipher));
            assert_eq!(channel.psk.as_ref().map(|psk| &*psk.identity), Some(&b"meter"[..]));
            for (identity, key) in [("meter", "0123456789abcdeX"), ("nobody", "0123456789abcdef"), ("", "0")] {
                assert!(try_key(address, &offer, identity, key.as_bytes()).await.is_err());
                assert!(hears.recv().await.unwrap().is_err(), "{identity}");
            }
        }
        // RFC 8446 §4.2.11: the key is one of SHA-256; with another hash the name would be left without a proof.
        let other = Offer { versions: &[Version::Tls13], suites: &["TLS_AES_256_GCM_SHA384"] };
        assert!(try_key(address, &other, "meter", b"0123456789abcdef").await.is_err());
        assert!(hears.recv().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn certificates_are_verified_alike_by_the_other_stack() {
        let house = House::new();
        let own = house.issue("boiler", KeyKind::EcdsaP256);
        let (address, mut hears) = serve(house.acceptor(&profile::PKI, ClientCertificates::Required));
        let ca = house.ca();
        let certificate = Some((own.0.as_path(), own.1.as_path()));
        let offer = &profile::PKI.offer;
        let client =
            Client { offer, alpn: &[b"mqtt"], psk: None, ca: Some(&ca), certificate, group: None, key_log: None };
        let connect = async || {
            let mut stream = client.connector()?.connect(TcpStream::connect(address).await?, "localhost").await?;
            stream.write_all(b"x").await?;
            stream.read_u8().await
        };
        connect().await.unwrap();
        let channel = hears.recv().await.unwrap().unwrap();
        assert_eq!(&*channel.cipher, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8");
        assert_eq!(channel.certificate.as_ref().unwrap().common_name.as_deref(), Some("boiler"));
        house.revoke(&own.0);
        assert!(connect().await.is_err());
        assert!(hears.recv().await.unwrap().is_err());
        let (address, mut hears) = serve(house.acceptor(&profile::PKI, ClientCertificates::Required));
        let without = Client { certificate: None, ..client };
        let stream = TcpStream::connect(address).await.unwrap();
        assert!(without.connector().unwrap().connect(stream, "localhost").await.is_err());
        assert!(hears.recv().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn rsa_on_both_sides_is_what_high_is_about_and_its_signatures_hold_up_nobody() {
        let house = House::new();
        let made = pki::ensure_server(house.directory.path(), KeyKind::Rsa4096, &[], SystemTime::now()).unwrap();
        let tls = house.tls.clone().with_certificate(&made.certificate, &made.key).unwrap();
        let (address, mut hears) = serve(tls.acceptor(&Security::of(&profile::HIGH), &[b"mqtt"]).unwrap());
        let small = house.issue("small", KeyKind::Rsa2048);
        assert!(connect(address, house.client(Some(&small))).await.is_err());
        assert!(hears.recv().await.unwrap().is_err());
        let large = house.issue("large", KeyKind::Rsa4096);
        // The connection has come back from the thread of handshakes and works here.
        connect(address, house.client(Some(&large))).await.unwrap();
        let channel = hears.recv().await.unwrap().unwrap();
        assert_eq!(&*channel.cipher, "TLS_AES_256_GCM_SHA384");
        assert_eq!(channel.certificate.as_ref().unwrap().common_name.as_deref(), Some("large"));
        let silent = tls.acceptor(&Security::of(&profile::HIGH), &[]).unwrap();
        let silent = silent.with_deadline(Duration::from_millis(200));
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(&[22, 3, 1]).await.unwrap();
        let (stream, from) = listener.accept().await.unwrap();
        assert!(matches!(silent.accept(stream, from.ip()).await, Err(HandshakeError::TooSlow)));
        assert!(client.read_u8().await.is_err(), "and it is closed");
    }
}

/// The certificate that a handshake over QUIC refuses, as far as it tells.
async fn refused_by_quic(house: &House, own: Option<&(PathBuf, PathBuf)>) -> Option<RefusedCertificate> {
    let security = Security { client_certificates: ClientCertificates::Required, ..Security::default() };
    let socket = listener::udp(ANY_PORT, PortSharing::Exclusive).unwrap();
    let limits = quic::QuicLimits::default();
    let endpoint = quic::server(socket, &house.tls, &security, &[b"h3"], &limits).unwrap();
    let address = endpoint.local_addr().unwrap();
    let mut config = ClientConfig::clone(&house.client(own));
    config.alpn_protocols = vec![b"h3".to_vec()];
    let config = quinn::crypto::rustls::QuicClientConfig::try_from(config).unwrap();
    let mut client = quinn::Endpoint::client(ANY_PORT).unwrap();
    client.set_default_client_config(quinn::ClientConfig::new(Arc::new(config)));
    let connecting = client.connect(address, "localhost").unwrap();
    let (made, _) = tokio::join!(quic::shake_hands(endpoint.accept().await.unwrap()), connecting);
    made.unwrap_err().certificate
}

#[tokio::test]
async fn quic_tells_which_certificate_was_refused_and_why() {
    let (house, other) = (House::new(), House::new());
    let refused = |claimed: &str, reason| Some(RefusedCertificate { claimed: claimed.into(), reason });
    let foreign = other.issue("pump", KeyKind::EcdsaP256);
    assert_eq!(refused_by_quic(&house, Some(&foreign)).await, refused("pump", "unknown certificate authority"));
    let revoked = house.issue("meter", KeyKind::EcdsaP256);
    house.revoke(&revoked.0);
    assert_eq!(refused_by_quic(&house, Some(&revoked)).await, refused("meter", "certificate revoked"));
    assert_eq!(refused_by_quic(&house, None).await, refused("", "no certificate shown"));
}
