//! Certificates as servers show them: a chain, its key, and the files that both are read from again.

use std::{
    fmt,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use ring::digest;
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use crate::{error::TlsError, provider::provider};

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
    /// Reads both files.
    pub(crate) fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let read = read(certificate, key)?;
        Ok(Self(Arc::new(IdentityFiles {
            certificate_file: certificate.into(),
            key_file: key.into(),
            certificate: RwLock::new(read),
        })))
    }

    /// Reads the files again.
    pub(crate) fn read(&self) -> Result<Arc<Certificate>, TlsError> {
        read(&self.0.certificate_file, &self.0.key_file)
    }

    /// Replaces the certificate that new handshakes use.
    pub(crate) fn replace(&self, certificate: Arc<Certificate>) {
        *self.0.certificate.write().unwrap_or_else(PoisonError::into_inner) = certificate;
    }

    /// Of the chain and of the key.
    pub(crate) fn files(&self) -> [&Path; 2] {
        [&self.0.certificate_file, &self.0.key_file]
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
