//! Logging in, by clause of RFC 6120 §5 and §6 and of the documents for each mechanism.

mod certificates;
mod guesses;

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use fogmux_auth::{
    CertificateRules, SourceKind, SourceSet, TokenSettings, Tokens, sasl::Bearer, scram::ChannelBinding,
    scram::ClientBinding,
};
use fogmux_net::{ClientCertificates, ClientTrust, Security};
use fogmux_xmpp::stream::StartTls;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, OtherNameValue,
    SanType,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, pki_types::PrivateKeyDer},
};

use super::*;
use crate::{
    WorkerContext, credential,
    xmpp::{XmppDoor, sasl::Logins},
};

const STARTTLS: &str = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
const SECRET: &[u8] = b"a secret of thirty-two bytes, so long as a hash";

/// An authority, and what it has signed.
struct Keys {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    authority: rcgen::Certificate,
    server: rcgen::Certificate,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let key = || KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pair = key();
    let authority = params.self_signed(&pair).expect("signed");
    let issuer = Issuer::new(params, pair);
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let pair = key();
    let server = params.signed_by(&pair, &issuer).expect("signed");
    let write = |file: &str, text: String| std::fs::write(directory.path().join(file), text).expect("written");
    write("ca.pem", authority.pem());
    write("server.pem", server.pem());
    write("server.key", pair.serialize_pem());
    Keys { directory, issuer, authority, server }
});

fn tls() -> TlsConfig {
    let file = |name: &str| KEYS.directory.path().join(name);
    let trust = ClientTrust::load(&file("ca.pem"), &file("crl.pem")).expect("an authority");
    TlsConfig::load(&file("server.pem"), &file("server.key")).expect("a certificate").with_clients(trust, false)
}

/// The identity in a client's certificate: a common name, and addresses.
struct Identity<'a> {
    common_name: &'a str,
    dns: &'a [&'a str],
    xmpp: &'a [&'a str],
    /// How long the certificate is good; without an end when nothing is said.
    seconds: Option<u64>,
}

fn named(common_name: &str) -> Identity<'_> {
    Identity { common_name, dns: &[], xmpp: &[], seconds: None }
}

fn addresses<'a>(xmpp: &'a [&'a str]) -> Identity<'a> {
    Identity { xmpp, ..named("") }
}

fn client_config(identity: Option<&Identity<'_>>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(KEYS.authority.der().clone()).expect("an authority");
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_root_certificates(roots);
    let Some(identity) = identity else { return config.with_no_client_auth() };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if !identity.common_name.is_empty() {
        params.distinguished_name.push(DnType::CommonName, identity.common_name);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if let Some(seconds) = identity.seconds {
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(credential::unix_s() + seconds);
    }
    let dns = identity.dns.iter().map(|name| SanType::DnsName((*name).try_into().expect("a name")));
    let xmpp = identity.xmpp.iter();
    let xmpp = xmpp.map(|name| SanType::OtherName((vec![1, 3, 6, 1, 5, 5, 7, 8, 5], OtherNameValue::from(*name))));
    params.subject_alt_names = dns.chain(xmpp).collect();
    let pair = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&pair, &KEYS.issuer).expect("signed");
    let key = PrivateKeyDer::try_from(pair.serialize_der()).expect("a key");
    config.with_client_auth_cert(vec![certificate.der().clone()], key).expect("a certificate")
}

fn rules() -> Rules {
    let key = STANDARD.encode(SECRET).replace('+', "-").replace('/', "_").replace('=', "");
    let set = format!(r#"{{"keys":[{{"kty":"oct","alg":"HS256","k":"{key}"}}]}}"#);
    let tokens = Tokens::with_key_set(TokenSettings::default(), set.as_bytes()).expect("a key");
    let certificates = "[[certificate]]\ncommon_name = \"mapped\"\nuser = \"ada\"\n\
                        [[certificate]]\ncommon_name = \"refused\"\nrefuse = true\n";
    let certificates = CertificateRules::parse(Path::new("certificates.toml"), certificates).expect("entries");
    Rules::new(USERS.clone(), None, AnonymousPolicy::Loopback).with_tokens(tokens).with_certificates(certificates)
}

fn secured_with(sources: SourceSet) -> RunningGateway {
    let security = Security { client_certificates: ClientCertificates::Optional, ..Security::default() };
    start(XmppConfig::default(), Listen { sources, security, ..listen() }, Some(tls()), rules())
}

fn secured() -> RunningGateway {
    secured_with(SourceSet::ALL)
}

impl Client {
    /// Connects and goes over to TLS; the features there, and what `tls-exporter` gives.
    async fn secure(gateway: &RunningGateway, identity: Option<&Identity<'_>>) -> (Self, String, [u8; 32]) {
        let address = gateway.address(Listener::Xmpp).expect("it listens");
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(format!("{OPEN}{STARTTLS}").as_bytes()).await.expect("written");
        Self::go_over(stream, identity).await
    }

    async fn go_over(mut stream: TcpStream, identity: Option<&Identity<'_>>) -> (Self, String, [u8; 32]) {
        let mut seen = Vec::new();
        while !seen.ends_with(b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>") {
            let read = stream.read_buf(&mut seen).await.expect("read");
            assert!(read > 0, "the end after {:?}", String::from_utf8_lossy(&seen));
        }
        let connector = TlsConnector::from(Arc::new(client_config(identity)));
        let name = "localhost".try_into().expect("a name");
        let stream = connector.connect(name, stream).await.expect("a handshake");
        let exporter = stream.get_ref().1.export_keying_material([0; 32], b"EXPORTER-Channel-Binding", Some(&[]));
        let mut client = Self::over(stream);
        client.send(OPEN).await;
        // Features, or an error in their place.
        let features = client.until("</stream:").await + &client.until(">").await;
        (client, features, exporter.expect("TLS 1.3"))
    }

    /// The condition of the next failure.
    async fn failure(&mut self) -> String {
        let text = self.until("</failure>").await;
        let condition = text.strip_prefix("<failure xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><");
        let condition = condition.and_then(|rest| rest.strip_suffix("/></failure>"));
        condition.unwrap_or_else(|| panic!("no failure but {text}")).to_owned()
    }

    /// The bare address after a mechanism of one message, or why not.
    async fn tried(mut self, mechanism: &str, message: &[u8]) -> Result<String, String> {
        self.auth(mechanism, message).await;
        let head = self.until("xmlns='urn:ietf:params:xml:ns:xmpp-sasl'").await;
        if head.starts_with("<failure") {
            self.seen.insert_str(0, &head);
            return Err(self.failure().await);
        }
        assert!(head.starts_with("<success"), "{head}");
        self.until("/>").await;
        self.bind().await;
        Ok(self.bare())
    }

    /// SCRAM to its end, or to the refusal.
    async fn scram(&mut self, mechanism: &str, binding: ClientBinding, password: &str) -> Result<(), String> {
        let hash = if mechanism.contains("256") { ScramHash::Sha256 } else { ScramHash::Sha1 };
        let mut scram = ScramClient::new(hash, "ada", password, "nonce").expect("prepared").bound(binding);
        self.auth(mechanism, &scram.first()).await;
        for _ in 0..2 {
            let head = self.until("xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>").await;
            self.seen.insert_str(0, &head);
            if head.starts_with("<failure") {
                return Err(self.failure().await);
            }
            if head.starts_with("<challenge") {
                let answer = scram.respond(&self.data("challenge").await).expect("a challenge");
                self.response(&answer).await;
            }
        }
        scram.verify(&self.data("success").await).expect("a proof");
        Ok(())
    }
}

/// A token for a user that ends after so many seconds.
fn token(user: &str, seconds: i64, secret: &[u8]) -> String {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    let encode = |bytes: &[u8]| STANDARD.encode(bytes).replace('+', "-").replace('/', "_").replace('=', "");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let until = now.saturating_add_signed(seconds);
    let signed = format!(
        "{}.{}",
        encode(br#"{"alg":"HS256"}"#),
        encode(format!(r#"{{"sub":"{user}","exp":{until}}}"#).as_bytes())
    );
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret).expect("any length");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", encode(&mac.finalize().into_bytes()))
}

fn mechanisms(features: &str) -> Vec<&str> {
    let names = features.split("<mechanism>").skip(1);
    names.map(|rest| rest.split_once("</mechanism>").expect("closed").0).collect()
}

#[tokio::test]
async fn rfc6120_s5_4_3_3_what_came_before_tls_does_not_count() {
    let gateway = secured();
    let address = gateway.address(Listener::Xmpp).expect("it listens");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    // Somebody in between puts words of their own behind the client's, in one segment with it.
    let theirs =
        "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='SCRAM-SHA-256'>bm90IG91cnM=</auth><message/>";
    stream.write_all(format!("{OPEN}{STARTTLS}{OPEN}{theirs}").as_bytes()).await.expect("written");
    let (mut client, features, _) = Client::go_over(stream, None).await;
    // The first words under TLS are the answer to what was said under TLS.
    assert!(features.starts_with("<?xml version='1.0'?><stream:stream "), "{features}");
    assert_eq!(features.matches("<stream:stream").count(), 1, "{features}");
    assert!(!features.contains("failure") && !features.contains("starttls"), "{features}");
    client.scram("SCRAM-SHA-256", ClientBinding::None, PASSWORD).await.expect("a login");
    client.bind().await;
    assert!(client.seen.is_empty());
}

#[tokio::test]
async fn what_is_offered_follows_from_sources_channel_and_certificate() {
    let gateway = secured();
    let mut plain = Client::connect(&gateway).await;
    let features = plain.open().await;
    assert_eq!(mechanisms(&features), ["SCRAM-SHA-256", "SCRAM-SHA-1"]);
    assert!(!features.contains("sasl-cb"));
    plain.auth("PLAIN", b"\0ada\0x").await;
    assert_eq!(plain.failure().await, "encryption-required");
    let bound = ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "SCRAM-SHA-1-PLUS", "SCRAM-SHA-1", "OAUTHBEARER", "PLAIN"];
    let (_, features, _) = Client::secure(&gateway, None).await;
    assert_eq!(mechanisms(&features), bound);
    has(&features, "<channel-binding type='tls-exporter'/><channel-binding type='tls-server-end-point'/>");
    let (_, features, _) = Client::secure(&gateway, Some(&named("ada"))).await;
    assert_eq!(mechanisms(&features)[0], "EXTERNAL");
    let (_, features, _) = Client::secure(&gateway, Some(&named("refused"))).await;
    assert_eq!(mechanisms(&features), bound);
    let certificates = secured_with([SourceKind::Certificate].into_iter().collect());
    let (_, features, _) = Client::secure(&certificates, Some(&named("ada"))).await;
    assert_eq!(mechanisms(&features), ["EXTERNAL"]);
    let (_, features, _) = Client::secure(&certificates, None).await;
    has(&features, "<stream:error><not-authorized xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>");
    let (client, ..) = Client::secure(&gateway, None).await;
    assert_eq!(client.tried("EXTERNAL", b"").await, Err("invalid-mechanism".to_owned()));
}

#[tokio::test]
async fn rfc5802_s6_channel_bindings_are_checked_and_downgrades_noticed() {
    let gateway = secured();
    let digest: [u8; 32] =
        sha2::Digest::finalize(sha2::Digest::chain_update(sha2::Sha256::default(), KEYS.server.der())).into();
    for mechanism in ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-1-PLUS"] {
        let (mut client, _, exporter) = Client::secure(&gateway, None).await;
        let binding = ClientBinding::Bound(ChannelBinding::exporter(&exporter));
        client.scram(mechanism, binding, PASSWORD).await.expect("bound to the channel");
        client.bind().await;
        assert_eq!(client.bare(), "ada@localhost");
        let (mut client, ..) = Client::secure(&gateway, None).await;
        let binding = ClientBinding::Bound(ChannelBinding::end_point(&digest));
        client.scram(mechanism, binding, PASSWORD).await.expect("bound to the certificate");
    }
    let (_, _, elsewhere) = Client::secure(&gateway, None).await;
    let refused = [
        ("SCRAM-SHA-256-PLUS", ClientBinding::Bound(ChannelBinding::exporter(&elsewhere))),
        ("SCRAM-SHA-256-PLUS", ClientBinding::Bound(ChannelBinding { kind: "tls-unique", data: vec![1] })),
        ("SCRAM-SHA-256-PLUS", ClientBinding::None),
        ("SCRAM-SHA-256", ClientBinding::NotOffered),
        ("SCRAM-SHA-1", ClientBinding::NotOffered),
    ];
    for (mechanism, binding) in refused {
        let (mut client, ..) = Client::secure(&gateway, None).await;
        let tried = client.scram(mechanism, binding.clone(), PASSWORD).await;
        assert_eq!(tried, Err("not-authorized".to_owned()), "{mechanism} {binding:?}");
        client.scram("SCRAM-SHA-256", ClientBinding::None, PASSWORD).await.expect("another attempt");
    }
}

#[tokio::test]
async fn rfc7628_tokens_log_in_and_bad_ones_are_told_why() {
    let gateway = secured();
    let bearer = |token: &str| Bearer::encode(token, "localhost", 5222);
    let (client, ..) = Client::secure(&gateway, None).await;
    let tried = client.tried("OAUTHBEARER", &bearer(&token("ada", 600, SECRET))).await;
    assert_eq!(tried.as_deref(), Ok("ada@localhost"));
    let (client, ..) = Client::secure(&gateway, None).await;
    let message = format!("n,a=bob@localhost,\x01auth=Bearer {}\x01\x01", token("bob", 600, SECRET));
    assert_eq!(client.tried("OAUTHBEARER", message.as_bytes()).await.as_deref(), Ok("bob@localhost"));
    let of_another = format!("n,a=ada@localhost,\x01auth=Bearer {}\x01\x01", token("bob", 600, SECRET));
    let cases = [
        (bearer(&token("ada", 600, b"another secret")), "not-authorized"),
        (bearer(&token("ada", -600, SECRET)), "not-authorized"),
        (of_another.into_bytes(), "invalid-authzid"),
    ];
    for (message, condition) in cases {
        let (mut client, ..) = Client::secure(&gateway, None).await;
        client.auth("OAUTHBEARER", &message).await;
        assert_eq!(client.data("challenge").await, br#"{"status":"invalid_token"}"#);
        client.response(Bearer::KISS).await;
        assert_eq!(client.failure().await, condition);
    }
    let (client, ..) = Client::secure(&gateway, None).await;
    assert_eq!(client.tried("OAUTHBEARER", b"n,,").await, Err("malformed-request".to_owned()));
}

#[tokio::test]
async fn a_login_ends_with_its_token() {
    let gateway = secured();
    let (mut client, ..) = Client::secure(&gateway, None).await;
    // A minute of leeway for clocks is over by a second from now.
    let message = Bearer::encode(&token("ada", 1 - 60, SECRET), "localhost", 5222);
    client.auth("OAUTHBEARER", &message).await;
    client.until("<success").await;
    client.bind().await;
    has(&client.until("</stream:stream>").await, "<reset xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>");
}

#[tokio::test]
async fn the_listener_says_whether_nobody_in_particular_is_let_in() {
    let gateway = secured();
    // A worker of our own beside those of the gateway: nothing is published by it.
    let ctx = WorkerContext::new(Arc::clone(&gateway.shared), fogmux_bus::WorkerId(0));
    let ctx = XmppContext::new(ctx, Arc::new(XmppDoor::new(XmppConfig::default())));
    for address in [[127, 0, 0, 1], [192, 0, 2, 7]] {
        for anonymous in [true, false] {
            let peer = Peer { secure: true, ..Peer::plain((address, 5222).into(), anonymous) };
            let offer = Logins::new(&ctx, &peer).offer(&peer, StartTls::Unavailable);
            assert_eq!(offer.mechanisms.contains(&"ANONYMOUS"), anonymous, "{address:?}");
        }
    }
}

#[tokio::test]
async fn who_is_let_in_no_more_is_told_without_a_word_of_theirs() {
    let gateway = secured();
    let (mut ada, mut bob) = (Client::login_as(&gateway, "ada").await, Client::login_as(&gateway, "bob").await);
    let mut users = USERS.clone();
    assert!(users.remove("ada"));
    gateway.shared.authority.replace(Rules::new(users, None, AnonymousPolicy::Loopback));
    has(&bob.publish("still", "1").await, "<publish node='still'>");
    has(&ada.until("</stream:stream>").await, "<reset xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>");
    let mut users = USERS.clone();
    users.set_password("bob", b"another").expect("a password");
    gateway.shared.authority.replace(Rules::new(users, None, AnonymousPolicy::Loopback));
    has(&bob.until("</stream:stream>").await, "<reset xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>");
}
