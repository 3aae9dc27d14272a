//! Client certificates that are refused: one line in the log whatever the transport and its version, with what the
//! certificate claims and a reason in the same words.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{tcp, tls};
use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::{X509, X509Builder, X509NameBuilder};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::PATIENCE;
use super::refused_log::lines;

/// Only clients with a certificate are let in, over TLS, QUIC and DTLS.
const REQUIRED: [&str; 3] = [
    "listeners.mqtts.client_certificates=\"required\"",
    "listeners.https.client_certificates=\"required\"",
    "listeners.coaps.client_certificates=\"required\"",
];
/// The reason of a certificate whose key is none that we verify signatures of.
const KIND: &str = "reason=\"the certificate's key or algorithm is not accepted\"";

/// Without it `openssl req` makes authorities.
const CONFIGURATION: &str = "[req]\ndistinguished_name = dn\nx509_extensions = device\n[dn]\n\
                             [device]\nbasicConstraints = critical, CA:FALSE\n";

/// A client of OpenSSL's at a listener, by the version of its protocol.
struct Transport {
    listener: &'static str,
    door: &'static str,
    version: &'static str,
}

const TRANSPORTS: [Transport; 3] = [
    Transport { listener: "coaps", door: "door=coap", version: "-dtls1_2" },
    Transport { listener: "mqtts", door: "door=mqtt", version: "-tls1_2" },
    Transport { listener: "mqtts", door: "door=mqtt", version: "-tls1_3" },
];

/// A listener with a profile that OpenSSL serves.
const BY_OPENSSL: Transport = Transport { listener: "xmpps", door: "door=xmpp", version: "-tls1_2" };

/// A directory with certificates that `openssl` has made.
pub(super) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(super) fn new() -> Result<Self> {
        let made = Self(tempfile::tempdir()?);
        fs::write(made.file("req.cnf"), CONFIGURATION)?;
        Ok(made)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A certificate `NAME.pem` with its key `NAME.key`, signed by the gateway's authority, or by itself if there is
    /// none. `key` is what `openssl req -newkey` is told.
    pub(super) fn make(&self, name: &str, subject: &str, key: &[&str], authority: Option<&Path>) -> Result<()> {
        let (certificate, secret) = (self.file(&format!("{name}.pem")), self.file(&format!("{name}.key")));
        let mut request = Command::new("openssl");
        request.args(["req", "-x509", "-nodes", "-days", "2", "-subj", subject]).args(key);
        request.arg("-config").arg(self.file("req.cnf"));
        request.arg("-keyout").arg(&secret).arg("-out").arg(&certificate);
        if let Some(pki) = authority {
            request.arg("-CA").arg(pki.join("ca.pem")).arg("-CAkey").arg(pki.join("ca.key"));
        }
        let made = request.output()?;
        ensure!(made.status.success(), "openssl req: {}", String::from_utf8_lossy(&made.stderr));
        Ok(())
    }

    /// The claim in the log of a certificate without a usable name.
    fn fingerprint(&self, name: &str) -> Result<String> {
        let pem = fs::read(self.file(&format!("{name}.pem")))?;
        let digest = X509::from_pem(&pem)?.digest(MessageDigest::sha256())?;
        let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("claimed=\"sha256:{digits}\""))
    }

    /// The options of `s_client` that show it.
    fn shown(&self, name: &str) -> Vec<String> {
        let file = |kind: &str| self.file(&format!("{name}.{kind}")).display().to_string();
        vec!["-cert".to_owned(), file("pem"), "-key".to_owned(), file("key")]
    }
}

/// Lets OpenSSL shake hands with a listener.
fn shake(gateway: &Gateway, transport: &Transport, more: &[String]) -> Result<()> {
    let address = gateway.address(transport.listener)?.to_string();
    let mut client = Command::new("timeout");
    client.args(["20", "openssl", "s_client", "-quiet", "-cipher", "ALL:@SECLEVEL=0", transport.version, "-connect"]);
    // Over TLS 1.3 the client is done before it is refused: it reads until then.
    client.arg(address).args(["-ign_eof", "-CAfile"]).arg(gateway.ca()).args(more);
    let output = client.stdin(Stdio::null()).output().context("openssl s_client")?;
    let said = String::from_utf8_lossy(&output.stderr);
    // OpenSSL as a server is done before its client is judged: then the connection ends without an alert.
    let refused = said.contains("alert") || said.contains("unexpected eof");
    ensure!(refused, "{} of {} was not refused: {said}", transport.version, transport.listener);
    Ok(())
}

/// Waits for a line behind the first `before`, and checks that it has all of these words and is the only one.
fn one_line(gateway: &Gateway, before: usize, words: &[&str]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while lines(gateway).len() <= before {
        ensure!(Instant::now() < deadline, "no line with {words:?}: {}", gateway.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let new: Vec<_> = lines(gateway).split_off(before);
    let [line] = &*new else { bail!("not one line: {new:#?}") };
    ensure!(words.iter().all(|word| line.contains(word)), "not with {words:?}: {line}");
    Ok(())
}

/// Certificates with keys that we do not verify signatures of, and none where one is required.
pub(super) fn keys() -> Result<String> {
    let by_openssl = ["listeners.xmpps.profile=\"pki\"", "listeners.xmpps.client_certificates=\"required\""];
    let settings = [&REQUIRED[..], &by_openssl, &["log.refused_logins_per_address=1000"]].concat();
    let mut gateway = Gateway::start(&settings)?;
    let made = Certificates::new()?;
    let pki = gateway.data().join("pki");
    for curve in ["P-521", "secp256k1", "P-256"] {
        let group = format!("ec_paramgen_curve:{curve}");
        made.make(curve, &format!("/CN=device on {curve}"), &["-newkey", "ec", "-pkeyopt", &group], Some(&pki))?;
    }
    made.make("rsa:1024", "/CN=device on rsa:1024", &["-newkey", "rsa:1024"], Some(&pki))?;
    made.make("ed448", "/CN=device on ed448", &["-newkey", "ed448"], Some(&pki))?;
    for transport in TRANSPORTS.iter().chain([&BY_OPENSSL]) {
        let before = lines(&gateway).len();
        shake(&gateway, transport, &[])?;
        let words =
            ["peer=127.0.0.1", transport.door, "by=certificate", "claimed=\"\"", "reason=\"no certificate shown\""];
        one_line(&gateway, before, &words)?;
        // In TLS 1.3 a client shows no certificate that goes with no algorithm of ours (RFC 8446 §4.4.2.2).
        if transport.version == "-tls1_3" {
            continue;
        }
        for key in ["P-521", "secp256k1", "rsa:1024"] {
            let before = lines(&gateway).len();
            shake(&gateway, transport, &made.shown(key))?;
            let claimed = format!("claimed=\"device on {key}\"");
            let words = ["peer=127.0.0.1", transport.door, "by=certificate", &claimed, KIND];
            one_line(&gateway, before, &words)?;
        }
        // A client may know by itself that these are not accepted.
        shake(&gateway, transport, &made.shown("ed448"))?;
        let sha1 = ["-client_sigalgs", "ECDSA+SHA1"].map(str::to_owned);
        shake(&gateway, transport, &[&made.shown("P-256")[..], &sha1].concat())?;
    }
    gateway.settle()?;
    Ok(format!("{} lines", lines(&gateway).len()))
}

/// Keys of the accepted kinds, at listeners of both stacks.
pub(super) fn accepted() -> Result<String> {
    let p256 = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    for profile in ["modern", "pki"] {
        let setting = format!("listeners.mqtts.profile=\"{profile}\"");
        let gateway = Gateway::start(&[&setting, REQUIRED[0], "auth.backoff.free_failures=1000"])?;
        let made = Certificates::new()?;
        let pki = gateway.data().join("pki");
        for (name, key) in
            [("p256", &p256[..]), ("rsa", &["-newkey", "rsa:2048"]), ("ed25519", &["-newkey", "ed25519"])]
        {
            made.make(name, &format!("/CN={name}"), key, Some(&pki))?;
            let port = gateway.address("mqtts")?.port().to_string();
            let mut client = Command::new("mosquitto_pub");
            client.args(["-h", "localhost", "-p", &port, "-q", "1", "-t", "a", "-m", "x", "--cafile"]);
            client.arg(gateway.ca()).arg("--cert").arg(made.file(&format!("{name}.pem")));
            let output =
                client.arg("--key").arg(made.file(&format!("{name}.key"))).output().context("mosquitto_pub")?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{profile} refuses {name}: {said} {:?}", lines(&gateway));
        }
    }
    Ok(String::new())
}

/// Certificates that name the gateway's authority and are signed by somebody else, one of which has expired as well.
pub(super) fn forged() -> Result<String> {
    let by_openssl = ["listeners.xmpps.profile=\"pki\"", "listeners.xmpps.client_certificates=\"required\""];
    let settings = [&REQUIRED[..], &by_openssl, &["log.refused_logins_per_address=1000"]].concat();
    let mut gateway = Gateway::start(&settings)?;
    let made = Certificates::new()?;
    let authority = X509::from_pem(&fs::read(gateway.ca())?)?;
    for (name, first_day, last_day) in [("fresh", -1, 1), ("expired", -3, -1), ("early", 1, 3)] {
        let (key, forger) = (p256()?, p256()?);
        let mut subject = X509NameBuilder::new()?;
        subject.append_entry_by_text("CN", "sha256:0123456789abcdef")?;
        let day = |number: i64| -> Result<Asn1Time> {
            let now = i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs())?;
            Ok(Asn1Time::from_unix(now + number * 86_400)?)
        };
        let mut certificate = X509Builder::new()?;
        certificate.set_version(2)?;
        certificate.set_subject_name(&subject.build())?;
        certificate.set_issuer_name(authority.subject_name())?;
        certificate.set_pubkey(&key)?;
        certificate.set_not_before(&*day(first_day)?)?;
        certificate.set_not_after(&*day(last_day)?)?;
        certificate.sign(&forger, MessageDigest::sha256())?;
        fs::write(made.file(&format!("{name}.pem")), certificate.build().to_pem()?)?;
        fs::write(made.file(&format!("{name}.key")), key.private_key_to_pem_pkcs8()?)?;
    }
    for transport in TRANSPORTS.iter().chain([&BY_OPENSSL]) {
        for name in ["fresh", "expired", "early"] {
            let before = lines(&gateway).len();
            shake(&gateway, transport, &made.shown(name))?;
            // Nobody can claim the fingerprint of another either.
            let claimed = made.fingerprint(name)?;
            let reason = "reason=\"the certificate's signature is not its authority's\"";
            one_line(&gateway, before, &["peer=127.0.0.1", transport.door, "by=certificate", &claimed, reason])?;
        }
    }
    gateway.settle()?;
    Ok(format!("{} lines", lines(&gateway).len()))
}

fn p256() -> Result<PKey<Private>> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    Ok(PKey::from_ec_key(EcKey::generate(&group)?)?)
}

/// A certificate of ours under another key, over TLS of both stacks.
pub(super) fn stolen() -> Result<String> {
    let by_openssl = ["listeners.xmpps.profile=\"pki\"", "listeners.xmpps.client_certificates=\"required\""];
    let mut gateway = Gateway::start(&[&REQUIRED[..2], &by_openssl].concat())?;
    let made = Certificates::new()?;
    let pki = gateway.data().join("pki");
    for name in ["owner", "thief"] {
        let group = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
        made.make(name, &format!("/CN={name}"), &group, Some(&pki))?;
    }
    let provider = rustls::crypto::ring::default_provider();
    let chain = CertificateDer::pem_file_iter(made.file("owner.pem"))?.collect::<Result<Vec<_>, _>>()?;
    let key = provider.key_provider.load_private_key(PrivateKeyDer::from_pem_file(made.file("thief.key"))?)?;
    let mut config = ClientConfig::clone(&*tls::config(gateway.ca())?);
    config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)));
    let config = Arc::new(config);
    for (listener, door) in [("mqtts", "door=mqtt"), ("xmpps", "door=xmpp")] {
        let before = lines(&gateway).len();
        let mut stream = tls::over(&config, tcp::connect(gateway.address(listener)?)?)?;
        ensure!(stream.read(&mut [0]).is_err(), "{listener}: a stolen certificate was taken");
        drop(stream);
        let reason = "reason=\"the certificate's key was not proven\"";
        one_line(&gateway, before, &["peer=127.0.0.1", door, "by=certificate", "claimed=\"owner\"", reason])?;
    }
    gateway.settle()?;
    Ok(String::new())
}

/// A profile that OpenSSL serves, and that takes certificates of clients.
const LOW: [&str; 3] = [
    "listeners.xmpps.profile=\"low\"",
    "listeners.xmpps.allow_weak=true",
    "listeners.xmpps.client_certificates=\"optional\"",
];

/// Certificates of another authority with a name, without, and with one that would write into the log.
pub(super) fn claims() -> Result<String> {
    let settings = [&REQUIRED[..], &LOW, &["log.refused_logins_per_address=1000"]].concat();
    let mut gateway = Gateway::start(&settings)?;
    let made = Certificates::new()?;
    let hostile = "/CN=x\" reason=\"y\u{202e}z";
    let of_p256 = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    for (name, subject) in [("named", "/CN=pump"), ("nameless", "/O=works"), ("hostile", hostile)] {
        made.make(name, subject, &["-utf8"].into_iter().chain(of_p256).collect::<Vec<_>>(), None)?;
    }
    made.make("twofold", "/CN=x\u{1b}[31m\nWARN", &["-utf8"].into_iter().chain(of_p256).collect::<Vec<_>>(), None)?;
    let before = gateway.whole_log().lines().count();
    for transport in TRANSPORTS.iter().chain([&BY_OPENSSL]) {
        for (name, claimed) in [
            ("named", "claimed=\"pump\"".to_owned()),
            ("nameless", made.fingerprint("nameless")?),
            ("hostile", "claimed=\"x\\\" reason=\\\"y\\u{202e}z\"".to_owned()),
            ("twofold", made.fingerprint("twofold")?),
        ] {
            let before = lines(&gateway).len();
            shake(&gateway, transport, &made.shown(name))?;
            let reason = "reason=\"unknown certificate authority\"";
            one_line(&gateway, before, &["peer=127.0.0.1", transport.door, "by=certificate", &claimed, reason])?;
        }
    }
    let log = gateway.whole_log();
    ensure!(!log.contains('\u{1b}') && !log.contains('\u{202e}'), "the log holds control characters");
    let added = log.lines().count() - before;
    ensure!(added == 4 * 4, "{added} lines for {} refusals", 4 * 4);
    gateway.settle()?;
    Ok(format!("{} lines", lines(&gateway).len()))
}
