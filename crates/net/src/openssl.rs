//! TLS by OpenSSL, for what rustls leaves out on purpose: pre-shared keys, CCM_8 suites, RSA key exchange (ADR 0004).
//!
//! The security level is 0 here, because OpenSSL counts the suites of RFC 7925 as weaker than that; what may be
//! negotiated is therefore named one by one by the profile. There are no tickets, no session cache and no
//! renegotiation: every handshake proves anew who is there.

mod keys;
mod refused;

use std::{
    io,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use openssl::{
    error::ErrorStack,
    nid::Nid,
    pkcs12::Pkcs12,
    pkey::PKey,
    rsa::Rsa,
    ssl::{
        AlpnError, Ssl, SslContext, SslContextBuilder, SslFiletype, SslMethod, SslOptions, SslRef, SslSessionCacheMode,
        SslVerifyMode, SslVersion, cipher_name,
    },
    stack::Stack,
    x509::{X509, X509Name, X509Ref},
};
use rustls::{DistinguishedName, pki_types::CertificateDer};
use tokio::io::{AsyncRead, AsyncWrite};
pub use tokio_openssl::SslStream;

use self::keys::{Shown, shown_index, take_keys};
use crate::{
    certificate::{Certificate, ServerIdentity},
    channel::{Channel, ClientCertificate, EXPORTER_LABEL, ProvenPsk, PskGuard, PskSource, Zeroizing},
    clients::{ClientTrust, hints::are_same},
    error::TlsError,
    key_log::KeyLogFile,
    profile::{ClientCertificates, Group, KeyKind, Offer, Security, Version},
    stream::Socket,
};

impl From<ErrorStack> for TlsError {
    fn from(error: ErrorStack) -> Self {
        Self::OpenSsl(error.to_string())
    }
}

/// The settings that all handshakes of a listener share.
pub(crate) struct Settings {
    pub(crate) security: Security,
    pub(crate) psk: Option<Arc<dyn PskSource>>,
    /// Names the authorities for the certificate request (RFC 5246 §7.4.4, RFC 8446 §4.2.4): a browser asks its user
    /// for a certificate only if it has one of theirs.
    pub(crate) trust: Option<ClientTrust>,
    /// Application protocols, each with its length before it (RFC 7301 §3.1).
    pub(crate) alpn: Arc<[u8]>,
}

/// Makes handshakes for one listener.
pub(crate) struct Server {
    settings: Settings,
    identity: ServerIdentity,
    /// Made anew when the certificate or the authorities of clients have been replaced.
    made: Mutex<(Made, SslContext)>,
}

impl Server {
    pub(crate) fn new(settings: Settings, identity: ServerIdentity) -> Result<Self, TlsError> {
        let made = Made::of(&settings, &identity);
        let context = context(&settings, &made)?;
        Ok(Self { settings, identity, made: Mutex::new((made, context)) })
    }

    /// Takes a connection through its handshake; also gives the client's chain, which is yet to be verified. `guard`
    /// admits attempts at pre-shared keys.
    pub(crate) async fn accept(
        &self,
        socket: Socket,
        guard: Option<Arc<dyn PskGuard>>,
    ) -> io::Result<(SslStream<Socket>, Channel, Vec<CertificateDer<'static>>)> {
        let context = self.context().map_err(io::Error::other)?;
        let mut ssl = Ssl::new(&context)?;
        ssl.set_ex_data(shown_index()?, Shown { guard, key: None });
        let mut stream = SslStream::new(ssl, socket)?;
        let handshake = Pin::new(&mut stream).accept().await;
        handshake.map_err(|error| refused::error(stream.ssl(), error))?;
        let chain = chain(stream.ssl())?;
        let channel = channel(stream.ssl(), &chain)?;
        Ok((stream, channel, chain))
    }

    /// Whether clients prove themselves by a pre-shared key.
    pub(crate) const fn takes_keys(&self) -> bool {
        self.settings.psk.is_some()
    }

    fn context(&self) -> Result<SslContext, TlsError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Made::of(&self.settings, &self.identity);
        if !made.0.is(&now) {
            let fresh = context(&self.settings, &now)?;
            *made = (now, fresh);
        }
        Ok(made.1.clone())
    }
}

/// The contents of files that a context is made of.
struct Made {
    certificate: Arc<Certificate>,
    authorities: Arc<[DistinguishedName]>,
}

impl Made {
    fn of(settings: &Settings, identity: &ServerIdentity) -> Self {
        let authorities = settings.trust.as_ref().map(ClientTrust::authorities).unwrap_or_default();
        Self { certificate: identity.loaded(), authorities }
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.certificate, &other.certificate) && are_same(&self.authorities, &other.authorities)
    }
}

fn context(settings: &Settings, made: &Made) -> Result<SslContext, TlsError> {
    let (Settings { security, psk, alpn, .. }, Made { certificate, authorities }) = (settings, made);
    let mut builder = SslContext::builder(SslMethod::tls_server())?;
    restrict(&mut builder, &security.profile.accept, None)?;
    builder.set_options(SslOptions::CIPHER_SERVER_PREFERENCE);
    match psk {
        // Without a certificate there is no handshake that would not prove the key: a client that names an identity and
        // then chooses a suite the key does not fit (RFC 8446 §4.2.11) gets none.
        Some(psk) => take_keys(&mut builder, Arc::clone(psk))?,
        None => {
            let (leaf, rest) = certificate.chain.split_first().ok_or(TlsError::Stack(security.profile.name))?;
            builder.set_certificate(&*X509::from_der(leaf)?)?;
            for more in rest {
                builder.add_extra_chain_cert(X509::from_der(more)?)?;
            }
            let key = PKey::private_key_from_der(certificate.key.secret_der())?;
            builder.set_private_key(&key)?;
        }
    }
    let ask = match security.client_certificates {
        ClientCertificates::No => SslVerifyMode::NONE,
        ClientCertificates::Optional => SslVerifyMode::PEER,
        ClientCertificates::Required => SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT,
    };
    // That the client has the key is seen to here; what its certificate is worth is decided in one place for all
    // stacks, [`crate::clients::ClientTrust`].
    builder.set_verify_callback(ask, |_, _| true);
    if security.client_certificates != ClientCertificates::No {
        let mut names = Stack::new()?;
        for name in &**authorities {
            names.push(X509Name::from_der(name.as_ref())?)?;
        }
        builder.set_client_ca_list(names);
    }
    if !alpn.is_empty() {
        let ours = Arc::clone(alpn);
        builder.set_alpn_select_callback(move |_, theirs| chosen(&ours, theirs).ok_or(AlpnError::ALERT_FATAL));
    }
    Ok(builder.build())
}

/// The signature algorithms that rustls verifies as well. In TLS 1.2 the groups below limit ECDSA certificates to
/// secp256r1 (RFC 8422 §5.1).
const SIGNATURES: &str = "ECDSA+SHA256:ECDSA+SHA384:ed25519:rsa_pss_rsae_sha256:rsa_pss_rsae_sha384:\
                          rsa_pss_rsae_sha512:RSA+SHA256:RSA+SHA384:RSA+SHA512";

/// Versions, suites and signatures of an offer, the group or all groups, and nothing that outlives a connection.
fn restrict(builder: &mut SslContextBuilder, offer: &Offer, group: Option<Group>) -> Result<(), ErrorStack> {
    let version = |version: &Version| match version {
        Version::Tls12 => SslVersion::TLS1_2,
        Version::Tls13 => SslVersion::TLS1_3,
    };
    builder.set_security_level(0);
    builder.set_min_proto_version(offer.versions.first().map(version))?;
    builder.set_max_proto_version(offer.versions.last().map(version))?;
    let is_new = |suite: &&&str| suite.starts_with("TLS_AES_") || suite.starts_with("TLS_CHACHA20_");
    let new: Vec<_> = offer.suites.iter().filter(is_new).copied().collect();
    let old: Vec<_> = offer.suites.iter().filter(|suite| !is_new(suite)).map(|suite| cipher_name(suite)).collect();
    if !new.is_empty() {
        builder.set_ciphersuites(&new.join(":"))?;
    }
    if !old.is_empty() {
        builder.set_cipher_list(&old.join(":"))?;
    }
    builder.set_sigalgs_list(SIGNATURES)?;
    // secp256r1 first: it is what the profiles of small devices name (RFC 7925 §4.4).
    builder.set_groups_list(match group {
        None => "P-256:X25519",
        Some(Group::Secp256r1) => "P-256",
        Some(Group::X25519) => "X25519",
        Some(Group::Secp384r1) => "P-384",
    })?;
    builder.set_options(SslOptions::NO_COMPRESSION | SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION);
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    builder.set_num_tickets(0)
}

/// The client's chain, leaf first.
fn chain(ssl: &SslRef) -> Result<Vec<CertificateDer<'static>>, ErrorStack> {
    let Some(leaf) = ssl.peer_certificate() else { return Ok(Vec::new()) };
    let mut chain = vec![CertificateDer::from(leaf.to_der()?)];
    for more in ssl.peer_cert_chain().into_iter().flatten() {
        chain.push(CertificateDer::from(X509Ref::to_der(more)?));
    }
    Ok(chain)
}

fn channel(ssl: &SslRef, chain: &[CertificateDer<'_>]) -> io::Result<Channel> {
    let newest = ssl.version_str() == "TLSv1.3";
    let cipher = ssl.current_cipher().and_then(|cipher| cipher.standard_name()).unwrap_or_default();
    // With TLS 1.3 a key was used exactly when the session counts as resumed, for there are no others (RFC 8446 §2.2).
    let by_key = if newest { ssl.session_reused() } else { cipher.contains("_PSK_") };
    let shown = if by_key { ssl.ex_data(shown_index()?).and_then(|shown| shown.key.as_ref()) } else { None };
    if let Some(attempt) = shown.and_then(|key| key.attempt.as_ref()) {
        attempt.proven();
    }
    let psk = shown.map(|key| ProvenPsk { identity: key.identity.clone(), mark: key.mark });
    let mut exporter = [0; 32];
    let label = std::str::from_utf8(EXPORTER_LABEL).unwrap_or_default();
    let exported = newest && ssl.export_keying_material(&mut exporter, label, Some(&[])).is_ok();
    let certificate = chain.first().map(|leaf| ClientCertificate::parse(leaf)).transpose().map_err(io::Error::other)?;
    Ok(Channel {
        protocol: if newest { "TLSv1.3" } else { "TLSv1.2" },
        cipher: cipher.into(),
        certificate: certificate.map(Arc::new),
        psk,
        exporter: exported.then(|| Box::new(exporter)),
        end_point: None,
    })
}

/// How a client of ours connects.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    /// The versions and cipher suites to offer.
    pub offer: &'a Offer,
    /// The group to offer; `None`: all that a listener has.
    pub group: Option<Group>,
    /// Application protocols.
    pub alpn: &'a [&'a [u8]],
    /// The identity and the key that both ends share.
    pub psk: Option<(&'a [u8], &'a [u8])>,
    /// The PEM file of the authorities by one of which the server must have been certified; none: the server is not
    /// looked at, which is in order with a shared key only.
    pub ca: Option<&'a Path>,
    /// PEM files of the client's certificate and its key.
    pub certificate: Option<(&'a Path, &'a Path)>,
    /// Where secrets are written down.
    pub key_log: Option<&'a Arc<KeyLogFile>>,
}

impl Client<'_> {
    /// Reads the files; what comes of it makes any number of connections.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn connector(&self) -> io::Result<Connector> {
        Ok(Connector(self.context()?))
    }

    fn context(&self) -> Result<SslContext, ErrorStack> {
        let mut builder = SslContext::builder(SslMethod::tls_client())?;
        restrict(&mut builder, self.offer, self.group)?;
        if !self.alpn.is_empty() {
            builder.set_alpn_protos(&wire(self.alpn))?;
        }
        if let Some((identity, key)) = self.psk {
            let (identity, secret) = (identity.to_vec(), Zeroizing::new(key.to_vec()));
            builder.set_psk_client_callback(move |_, _, name, key| {
                // The identity ends with a zero.
                let fits = identity.len() < name.len() && secret.len() <= key.len();
                if !fits {
                    return Ok(0);
                }
                name.iter_mut().zip(identity.iter().chain([&0])).for_each(|(to, from)| *to = *from);
                key.iter_mut().zip(secret.iter()).for_each(|(to, from)| *to = *from);
                Ok(secret.len())
            });
        }
        match self.ca {
            Some(file) => {
                builder.set_ca_file(file)?;
                builder.set_verify(SslVerifyMode::PEER);
            }
            None => builder.set_verify(SslVerifyMode::NONE),
        }
        if let Some((certificate, key)) = self.certificate {
            builder.set_certificate_chain_file(certificate)?;
            builder.set_private_key_file(key, SslFiletype::PEM)?;
        }
        if let Some(log) = self.key_log.cloned() {
            builder.set_keylog_callback(move |_, line| log.line(line));
        }
        Ok(builder.build())
    }
}

/// Connects clients of ours.
pub struct Connector(SslContext);

impl Connector {
    /// A TLS stream over another one to `host`.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn connect<S>(&self, stream: S, host: &str) -> io::Result<SslStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut ssl = Ssl::new(&self.0)?;
        ssl.set_connect_state();
        match host.parse() {
            Ok(address) => ssl.param_mut().set_ip(address)?,
            Err(_) => {
                ssl.set_hostname(host)?;
                ssl.param_mut().set_host(host)?;
            }
        }
        let mut stream = SslStream::new(ssl, stream)?;
        let handshake = Pin::new(&mut stream).connect().await;
        handshake.map_err(|error| error.into_io_error().unwrap_or_else(io::Error::other))?;
        Ok(stream)
    }
}

/// The suite that was agreed on, as IANA names it.
#[must_use]
pub fn cipher<S>(stream: &SslStream<S>) -> &'static str {
    stream.ssl().current_cipher().and_then(|cipher| cipher.standard_name()).unwrap_or_default()
}

/// The first of our protocols that the other end has as well.
fn chosen<'a>(ours: &[u8], theirs: &'a [u8]) -> Option<&'a [u8]> {
    names(ours).find_map(|name| names(theirs).find(|theirs| *theirs == name))
}

fn names(mut wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = wire.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(*length))?;
        wire = rest;
        Some(name)
    })
}

/// Names with their lengths before them (RFC 7301 §3.1).
pub(crate) fn wire(alpn: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in alpn {
        if let Ok(length) = u8::try_from(name.len()) {
            bytes.push(length);
            bytes.extend_from_slice(name);
        }
    }
    bytes
}

/// A new RSA key as PKCS #8, which ring cannot make.
pub(crate) fn rsa_key(kind: KeyKind) -> Result<Option<Zeroizing<Vec<u8>>>, ErrorStack> {
    let Some(bits) = kind.rsa_bits() else { return Ok(None) };
    let key = PKey::from_rsa(Rsa::generate(bits)?)?;
    Ok(Some(Zeroizing::new(key.private_key_to_pkcs8()?)))
}

/// A certificate with its key and its authority in one file under a password (PKCS #12, RFC 7292), as phones and
/// browsers take them.
///
/// # Errors
/// OpenSSL rejects the certificate, the key or the authority; the message is OpenSSL's.
pub fn pkcs12(name: &str, certificate: &str, key: &str, ca: &str, password: &str) -> Result<Vec<u8>, TlsError> {
    let mut authorities = Stack::new()?;
    for authority in X509::stack_from_pem(ca.as_bytes())? {
        authorities.push(authority)?;
    }
    let certificate = X509::from_pem(certificate.as_bytes())?;
    let key = PKey::private_key_from_pem(key.as_bytes())?;
    let mut builder = Pkcs12::builder();
    builder.name(name).cert(&certificate).pkey(&key).ca(authorities);
    // RFC 8018's PBES2, which everything made in the last ten years reads.
    builder.key_algorithm(Nid::AES_256_CBC).cert_algorithm(Nid::AES_256_CBC);
    Ok(builder.build2(password)?.to_der()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{LOW, PKI, PSK};

    #[test]
    fn our_order_decides_and_what_is_cut_off_is_no_name() {
        assert_eq!(chosen(&wire(&[b"h2", b"http/1.1"]), &wire(&[b"http/1.1", b"h2"])), Some(&b"h2"[..]));
        assert_eq!(chosen(&wire(&[b"mqtt"]), b"\x04mqt"), None);
        assert_eq!(chosen(&wire(&[b"mqtt"]), b""), None);
    }

    #[test]
    fn every_suite_has_a_name_here() {
        for profile in [&LOW, &PSK, &PKI] {
            let old = profile.accept.suites.iter().filter(|suite| !suite.starts_with("TLS_AES_"));
            old.for_each(|suite| assert_ne!(cipher_name(suite), "(NONE)", "{suite}"));
        }
    }
}
