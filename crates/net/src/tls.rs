//! TLS for servers: certificates that every listener uses and that can be replaced while they run, and what makes of
//! them an acceptor for a listener's [`Security`].
//!
//! rustls with ring for all that it does; what it leaves out on purpose (PSK, CCM_8, RSA key exchange) is OpenSSL's
//! business and only that of listeners that ask for it.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use ring::digest;
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring as rustls_ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use crate::{
    acceptor::{ServerStack, TlsAcceptor},
    channel::PskSource,
    clients::ClientTrust,
    handshakes::Elsewhere,
    profile::{ClientCertificates, KeyKind, Offer, Profile, Security, Stack, Version},
};

/// Everything that handshakes need. Clones share it, and see when it is replaced.
#[derive(Clone)]
pub struct TlsConfig {
    /// At least one; the first is for profiles that do not care.
    identities: Vec<ServerIdentity>,
    trust: Option<ClientTrust>,
    cut_revoked: bool,
    psk: Option<Arc<dyn PskSource>>,
    elsewhere: Elsewhere,
}

/// Why TLS cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or is not the PEM it should be.
    #[error("{}: {why}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Certificate and key do not belong together, or the key is of a kind we cannot use.
    #[error("{}: {source}", file.display())]
    Unusable {
        /// The file of the certificate.
        file: PathBuf,
        /// What rustls says.
        source: rustls::Error,
    },
    /// No certificate has the key that the profile is about.
    #[error("the profile {profile:?} needs a certificate with a key of the kind {}", kind.name())]
    NoKey {
        /// Which profile.
        profile: &'static str,
        /// Which kind.
        kind: KeyKind,
    },
    /// Clients are to be asked for certificates, and nobody said whose.
    #[error("there is no authority whose client certificates would be believed")]
    NoAuthority,
    /// There are no pre-shared keys.
    #[error("there is nobody to ask for pre-shared keys")]
    NoPsk,
    /// The profile is of another stack than this.
    #[error("the profile {0:?} needs what this build or this transport does not have")]
    Stack(&'static str),
    /// OpenSSL refuses what it was told.
    #[error("OpenSSL: {0}")]
    OpenSsl(String),
}

impl TlsConfig {
    /// Reads a chain (leaf first) and its key (PKCS #8, SEC 1 or PKCS #1) from PEM files.
    ///
    /// # Errors
    /// [`TlsError`], with the file.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        Ok(Self {
            identities: vec![ServerIdentity::load(certificate, key)?],
            trust: None,
            cut_revoked: false,
            psk: None,
            elsewhere: Elsewhere::default(),
        })
    }

    /// With one more certificate, for profiles that want its kind of key.
    ///
    /// # Errors
    /// [`TlsError`], with the file.
    pub fn with_certificate(mut self, certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        self.identities.push(ServerIdentity::load(certificate, key)?);
        Ok(self)
    }

    /// Believing client certificates; with `cut_revoked`, open connections end when theirs is revoked.
    #[must_use]
    pub fn with_clients(self, trust: ClientTrust, cut_revoked: bool) -> Self {
        Self { trust: Some(trust), cut_revoked, ..self }
    }

    /// Knowing pre-shared keys.
    #[must_use]
    pub fn with_psk(self, psk: Arc<dyn PskSource>) -> Self {
        Self { psk: Some(psk), ..self }
    }

    /// Whose client certificates are believed.
    #[must_use]
    pub const fn clients(&self) -> Option<&ClientTrust> {
        self.trust.as_ref()
    }

    /// Whether open connections end when their certificate is revoked.
    #[must_use]
    pub const fn cuts_revoked(&self) -> bool {
        self.cut_revoked
    }

    /// The chain (leaf first) and the private key for a profile, for stacks that are not made here.
    ///
    /// # Errors
    /// There is none with the kind of key it is about.
    pub fn certificate(&self, profile: &'static Profile) -> Result<Arc<Certificate>, TlsError> {
        Ok(self.identity(profile)?.loaded())
    }

    /// The secret of an identity.
    #[must_use]
    pub fn psk(&self) -> Option<&Arc<dyn PskSource>> {
        self.psk.as_ref()
    }

    /// Reads the same files again; new handshakes use what they hold now.
    ///
    /// # Errors
    /// [`TlsError`]; everything stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh: Result<Vec<_>, _> = self.identities.iter().map(ServerIdentity::read).collect();
        let fresh = fresh?;
        if let Some(trust) = &self.trust {
            trust.reload()?;
        }
        for (identity, fresh) in self.identities.iter().zip(fresh) {
            *identity.0.certificate.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
        Ok(())
    }

    /// The files that [`reload`](Self::reload) reads.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let own = self.identities.iter().flat_map(|identity| [&identity.0.certificate_file, &identity.0.key_file]);
        let clients = self.trust.iter().flat_map(ClientTrust::files);
        own.map(|file| file.to_path_buf()).chain(clients.map(Path::to_path_buf)).collect()
    }

    /// Does handshakes for a TCP listener that speaks one of `alpn`; a client that offers no protocol is served as
    /// well.
    ///
    /// # Errors
    /// [`TlsError`]: something that `security` needs is not there.
    pub fn acceptor(&self, security: &Security, alpn: &[&[u8]]) -> Result<TlsAcceptor, TlsError> {
        let identity = self.identity(security.profile)?;
        let stack = match security.profile.stack {
            Stack::Rustls => ServerStack::Rustls(Arc::new(self.rustls(security, &identity, alpn, None)?)),
            #[cfg(feature = "tls-openssl")]
            Stack::OpenSsl => ServerStack::OpenSsl(Arc::new(self.openssl(security, identity.clone(), alpn)?)),
            #[cfg(not(feature = "tls-openssl"))]
            Stack::OpenSsl => return Err(TlsError::Stack(security.profile.name)),
            Stack::Plain => return Err(TlsError::Stack(security.profile.name)),
        };
        let expensive = !security.profile.psk && KeyKind::Rsa2048.is_in(identity.loaded().leaf());
        let mut acceptor = TlsAcceptor::new(stack, identity);
        acceptor.trust.clone_from(&self.trust);
        acceptor.cut_revoked = self.cut_revoked;
        acceptor.requires_certificate = security.client_certificates == ClientCertificates::Required;
        acceptor.elsewhere = expensive.then(|| self.elsewhere.clone());
        Ok(acceptor)
    }

    /// A configuration for QUIC, which has TLS 1.3 only (RFC 9001 §4.2).
    pub(crate) fn quic_server(&self, security: &Security, alpn: &[&[u8]]) -> Result<ServerConfig, TlsError> {
        match security.profile.stack {
            Stack::Rustls => self.rustls(security, &self.identity(security.profile)?, alpn, Some(&[Version::Tls13])),
            Stack::OpenSsl | Stack::Plain => Err(TlsError::Stack(security.profile.name)),
        }
    }

    fn identity(&self, profile: &'static Profile) -> Result<ServerIdentity, TlsError> {
        let fits = |identity: &&ServerIdentity| match profile.server_key {
            Some(kind) => kind.is_in(identity.loaded().leaf()),
            None => true,
        };
        let Some(kind) = profile.server_key else {
            return self.identities.iter().find(fits).cloned().ok_or(TlsError::Stack(profile.name));
        };
        self.identities.iter().find(fits).cloned().ok_or(TlsError::NoKey { profile: profile.name, kind })
    }

    fn rustls(
        &self,
        security: &Security,
        identity: &ServerIdentity,
        alpn: &[&[u8]],
        versions: Option<&[Version]>,
    ) -> Result<ServerConfig, TlsError> {
        let Security { profile, client_certificates } = security;
        let versions = supported(versions.unwrap_or(profile.accept.versions));
        let builder = ServerConfig::builder_with_provider(provider_of(&profile.accept))
            .with_protocol_versions(&versions)
            .map_err(|_| TlsError::Stack(profile.name))?;
        let trust = || self.trust.as_ref().ok_or(TlsError::NoAuthority);
        let builder = match client_certificates {
            ClientCertificates::No => builder.with_no_client_auth(),
            ClientCertificates::Optional => {
                builder.with_client_cert_verifier(trust()?.for_rustls(false, profile.client_key))
            }
            ClientCertificates::Required => {
                builder.with_client_cert_verifier(trust()?.for_rustls(true, profile.client_key))
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(identity.clone()));
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        // Stateless tickets: a reconnect storm resumes without signatures, and an idle session costs us nothing. A
        // client's certificate travels inside, so that who resumes is who began.
        if let Ok(ticketer) = rustls_ring::Ticketer::new() {
            config.ticketer = ticketer;
        }
        config.send_tls13_tickets = 1;
        // 0-RTT can be replayed (RFC 8446 §8): a publish would happen twice.
        config.max_early_data_size = 0;
        Ok(config)
    }

    #[cfg(feature = "tls-openssl")]
    fn openssl(
        &self,
        security: &Security,
        identity: ServerIdentity,
        alpn: &[&[u8]],
    ) -> Result<crate::openssl::Server, TlsError> {
        if security.client_certificates != ClientCertificates::No && self.trust.is_none() {
            return Err(TlsError::NoAuthority);
        }
        let psk = match (security.profile.psk, &self.psk) {
            (true, None) => return Err(TlsError::NoPsk),
            (true, Some(psk)) => Some(Arc::clone(psk)),
            (false, _) => None,
        };
        crate::openssl::Server::new(*security, identity, psk, alpn)
    }
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig").field("identities", &self.identities).finish_non_exhaustive()
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls_ring::default_provider())
}

/// With the suites of an offer and no others.
#[must_use]
pub fn provider_of(offer: &Offer) -> Arc<CryptoProvider> {
    let mut provider = rustls_ring::default_provider();
    if !offer.suites.is_empty() {
        provider.cipher_suites.retain(|suite| {
            let name = iana_name(&format!("{:?}", suite.suite()));
            offer.suites.contains(&name.as_str())
        });
    }
    Arc::new(provider)
}

/// The versions, as rustls has them.
#[must_use]
pub fn supported(versions: &[Version]) -> Vec<&'static SupportedProtocolVersion> {
    let version = |version: &Version| match version {
        Version::Tls12 => &TLS12,
        Version::Tls13 => &TLS13,
    };
    versions.iter().map(version).collect()
}

/// rustls writes `TLS13_AES_…` where IANA has `TLS_AES_…`.
#[must_use]
pub fn iana_name(name: &str) -> String {
    name.replacen("TLS13_", "TLS_", 1)
}

/// A certificate with its key and the files they came from. Clones are the same.
#[derive(Clone)]
pub(crate) struct ServerIdentity(Arc<IdentityFiles>);

struct IdentityFiles {
    certificate_file: Box<Path>,
    key_file: Box<Path>,
    certificate: RwLock<Arc<Certificate>>,
}

/// A certificate as it was read.
pub struct Certificate {
    /// Leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// PKCS #8, SEC 1 or PKCS #1.
    pub key: PrivateKeyDer<'static>,
    certified: Arc<CertifiedKey>,
    end_point: Option<Box<[u8]>>,
}

impl Certificate {
    /// The certificate itself.
    #[must_use]
    pub fn leaf(&self) -> &[u8] {
        self.chain.first().map(AsRef::as_ref).unwrap_or_default()
    }

    /// As rustls has it.
    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }
}

impl ServerIdentity {
    fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let read = read(certificate, key)?;
        Ok(Self(Arc::new(IdentityFiles {
            certificate_file: certificate.into(),
            key_file: key.into(),
            certificate: RwLock::new(read),
        })))
    }

    fn read(&self) -> Result<Arc<Certificate>, TlsError> {
        read(&self.0.certificate_file, &self.0.key_file)
    }

    /// As it is at this moment.
    pub(crate) fn loaded(&self) -> Arc<Certificate> {
        Arc::clone(&self.0.certificate.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// `tls-server-end-point` (RFC 5929 §4.1).
    pub(crate) fn end_point(&self) -> Option<Box<[u8]>> {
        self.loaded().end_point.clone()
    }
}

impl ResolvesServerCert for ServerIdentity {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.loaded().certified))
    }
}

impl fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerIdentity").field(&self.0.certificate_file).finish()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

/// The certificates of a PEM file, at least one.
pub(crate) fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |why: String| TlsError::File { file: file.into(), why };
    let chain = CertificateDer::pem_file_iter(file).map_err(|error| failed(error.to_string()))?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(|error| failed(error.to_string()))?;
    if chain.is_empty() { Err(failed("there is no certificate in it".into())) } else { Ok(chain) }
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<Certificate>, TlsError> {
    let chain = read_certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| TlsError::File { file: key.into(), why: error.to_string() })?;
    let certified = CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider())
        .map_err(|source| TlsError::Unusable { file: certificate.into(), source })?;
    let end_point = chain.first().and_then(|leaf| end_point(leaf));
    Ok(Arc::new(Certificate { chain, key, certified: Arc::new(certified), end_point }))
}

/// RFC 5929 §4.1: the hash of the certificate, by the hash of its signature but at least SHA-256; none where the
/// signature has none of its own.
fn end_point(certificate: &[u8]) -> Option<Box<[u8]>> {
    let (_, read) = X509Certificate::from_der(certificate).ok()?;
    // RFC 5758 §3.2, RFC 8017 appendix A.2.4
    let hash = match read.signature_algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.10045.4.3.3" | "1.2.840.113549.1.1.12" => &digest::SHA384,
        "1.2.840.10045.4.3.4" | "1.2.840.113549.1.1.13" => &digest::SHA512,
        // RSASSA-PSS names its hash elsewhere, Ed25519 and Ed448 have none.
        "1.2.840.113549.1.1.10" | "1.3.101.112" | "1.3.101.113" => return None,
        _ => &digest::SHA256,
    };
    Some(digest::digest(hash, certificate).as_ref().into())
}
