//! Certificates as servers show them: a chain, its key, and the files that both are read from again.

use std::{
    fmt,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use ring::digest;
use rustls::{
    Error, InconsistentKeys,
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::CertifiedKey,
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use crate::{dates::Dates, error::TlsError, pem, provider::provider};

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
    dates: Box<[Dates]>,
}

impl Certificate {
    /// The certificate itself.
    #[must_use]
    pub fn leaf(&self) -> &[u8] {
        self.chain.first().map(AsRef::as_ref).unwrap_or_default()
    }

    /// When the certificates of the chain are valid, leaf first.
    #[must_use]
    pub fn dates(&self) -> &[Dates] {
        &self.dates
    }

    /// `tls-server-end-point` (RFC 5929 §4.1).
    pub(crate) fn end_point(&self) -> Option<Box<[u8]>> {
        self.end_point.clone()
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

/// Reads a chain and its key.
pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Arc<Certificate>, TlsError> {
    let (certificate_file, key_file) = (certificate, key);
    let failed = |file: &Path, why: String| TlsError::File { file: file.into(), why };
    let chain = pem::certificates(certificate_file)?;
    let key = pem::key(key_file)?;
    let signs =
        provider().key_provider.load_private_key(key.clone_key()).map_err(|_| failed(key_file, KINDS.into()))?;
    let certified = CertifiedKey::new(chain.clone(), signs);
    match certified.keys_match() {
        // A kind of key that does not tell its public half.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(Error::InconsistentKeys(_)) => {
            let why = format!("the private key in {} is that of another certificate", key_file.display());
            return Err(failed(certificate_file, why));
        }
        Err(error) => {
            let leaf = chain.first().map(AsRef::as_ref).unwrap_or_default();
            return Err(failed(certificate_file, pem::why_unusable(leaf, &error)));
        }
    }
    let end_point = chain.first().and_then(|leaf| end_point(leaf));
    let dates = Dates::of_all(&chain);
    Ok(Arc::new(Certificate { chain, key, certified: Arc::new(certified), end_point, dates }))
}

const KINDS: &str = "the private key is of a kind that cannot be used; it must be ECDSA on P-256 or P-384, RSA of 2048 \
                     to 8192 bits, or Ed25519";

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
