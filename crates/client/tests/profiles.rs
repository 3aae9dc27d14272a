//! A client offers what its profile says and nothing else, counts what goes through its socket, and writes down the
//! secrets that a capture is read with: against the listeners of `fogmux_net`.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fogmux_client::{Connector, Dialer, Options, Own, Psk, Trust};
use fogmux_net::channel::Zeroizing;
use fogmux_net::listener::{self, PortSharing};
use fogmux_net::pki::{self, Authority, Purpose, Wanted};
use fogmux_net::profile::{self, Profile};
use fogmux_net::{ClientTrust, KeyKind, KeyLogFile, PskSource, Security, TlsConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const KEY: &[u8] = b"0123456789abcdef";

struct Keys(HashMap<&'static [u8], &'static [u8]>);

impl PskSource for Keys {
    fn secret(&self, identity: &[u8]) -> Option<fogmux_net::Psk> {
        self.0.get(identity).map(|key| fogmux_net::Psk { key: Zeroizing::new(key.to_vec()), mark: 1 })
    }
}

/// A listener of a profile with everything that it needs, which gives back what it is sent.
struct Listener {
    directory: tempfile::TempDir,
    address: SocketAddr,
    own: Own,
}

impl Listener {
    fn of(profile: &'static Profile) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = pki::ensure(directory.path(), &[], SystemTime::now()).unwrap();
        let authority = Authority::open(directory.path()).unwrap();
        let trust = ClientTrust::load(&made.ca, &authority.revocation_list()).unwrap();
        let issue = |purpose, name: &str, kind| {
            let (certificate, key) = (directory.path().join(format!("{name}.crt")), directory.path().join(name));
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let wanted = Wanted { names: vec!["localhost".try_into().unwrap()], ..Wanted::new(purpose, name) };
            authority.issue(&wanted, kind, now).unwrap().write(&certificate, &key).unwrap();
            (certificate, key)
        };
        let (certificate, key): (PathBuf, PathBuf) =
            issue(Purpose::Server, "server", profile.server_key.unwrap_or(KeyKind::EcdsaP256));
        let own = issue(Purpose::Client, "client", profile.client_key.unwrap_or(KeyKind::EcdsaP256));
        let mut tls = TlsConfig::load(&certificate, &key).unwrap().with_clients(trust, false);
        if profile.psk {
            tls = tls.with_psk(Arc::new(Keys(HashMap::from([(&b"meter"[..], KEY)]))));
        }
        let acceptor = tls.acceptor(&Security::of(profile), &[b"mqtt"]).unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::from_std(listener::tcp(any, PortSharing::Exclusive).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((socket, from)) = listener.accept().await {
                let Ok((mut stream, _)) = acceptor.accept(socket, from.ip()).await else { continue };
                while let Ok(byte) = stream.read_u8().await {
                    stream.write_all(&[byte]).await.unwrap();
                    stream.flush().await.unwrap();
                }
            }
        });
        Self { directory, address, own: Own { certificate: own.0, key: own.1 } }
    }

    fn options(&self, profile: &'static Profile) -> Options {
        Options {
            profile: Some(profile),
            trust: Trust::File(self.directory.path().join("ca.pem")),
            own: profile.client_key.map(|_| self.own.clone()),
            psk: Some(Psk { identity: "meter".to_owned(), key: Zeroizing::new(KEY.to_vec()) }),
            key_log: Some(Arc::new(KeyLogFile::open(&self.keys()).unwrap())),
            ..Options::default()
        }
    }

    fn keys(&self) -> PathBuf {
        self.directory.path().join("keys")
    }
}

fn labels(keys: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(keys).unwrap();
    text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Connects twice, says a byte each time, and tells the suite, the bytes of both handshakes and what was written down.
async fn twice(profile: &'static Profile) -> (String, [u64; 2], Vec<String>) {
    let listener = Listener::of(profile);
    let connector = Connector::new(&listener.options(profile), &[b"mqtt"]).unwrap();
    let dialer = Dialer::new("127.0.0.1", listener.address.port(), "localhost", Some(connector));
    let mut cipher = String::new();
    let mut bytes = [0; 2];
    for bytes in &mut bytes {
        let (mut stream, counter) = dialer.dial().await.unwrap();
        stream.write_all(b"x").await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        cipher = stream.cipher();
        assert!(counter.up() > 100, "{}", counter.up());
        *bytes = counter.down();
    }
    (cipher, bytes, labels(&listener.keys()))
}

#[tokio::test]
async fn each_profile_agrees_on_its_suite_and_every_handshake_is_a_whole_one() {
    let table: [(&'static Profile, &str, &[&str]); 4] = [
        (&profile::HIGH, "TLS_AES_256_GCM_SHA384", &["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_TRAFFIC_SECRET_0"]),
        (&profile::LOW, "TLS_RSA_WITH_AES_128_GCM_SHA256", &["CLIENT_RANDOM"]),
        (&profile::PSK, "TLS_PSK_WITH_AES_128_CCM_8", &["CLIENT_RANDOM"]),
        (&profile::PKI, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", &["CLIENT_RANDOM"]),
    ];
    for (profile, wanted, secrets) in table {
        let (cipher, [first, second], labels) = twice(profile).await;
        assert_eq!(cipher, wanted);
        // Signatures with ECDSA vary by some bytes.
        assert!(first.abs_diff(second) < 16, "{}: {first} and {second}", profile.name);
        for secret in secrets {
            let times = labels.iter().filter(|label| label == secret).count();
            assert_eq!(times, 2, "{}: {labels:?}", profile.name);
        }
    }
}

#[tokio::test]
async fn who_is_not_trusted_is_not_talked_to_unless_it_does_not_matter() {
    for profile in [&profile::MODERN, &profile::LOW, &profile::PKI] {
        let (listener, other) = (Listener::of(profile), Listener::of(profile));
        let attempt = async |trust| {
            let connector = Connector::new(&Options { trust, ..listener.options(profile) }, &[b"mqtt"]).unwrap();
            Dialer::new("127.0.0.1", listener.address.port(), "localhost", Some(connector)).dial().await.map(drop)
        };
        attempt(Trust::File(other.directory.path().join("ca.pem"))).await.unwrap_err();
        attempt(Trust::Insecure).await.unwrap();
    }
}

#[tokio::test]
async fn what_a_profile_cannot_do_is_said_before_anything_is_sent() {
    let needs_a_key = Options { profile: Some(&profile::PSK), ..Options::default() };
    let no_tls = Options { profile: Some(&profile::NONE), ..Options::default() };
    let no_authority = Options { profile: Some(&profile::LOW), ..Options::default() };
    for options in [needs_a_key, no_tls, no_authority] {
        assert!(Connector::new(&options, &[]).is_err());
    }
    let no_dtls = Options { profile: Some(&profile::HIGH), trust: Trust::Insecure, ..Options::default() };
    assert!(fogmux_client::dtls::config("localhost", &no_dtls).is_err());
}
