//! The dates of certificates and revocation lists, for those who watch them.

use std::{fs, path::Path};

use rustls::pki_types::{CertificateRevocationListDer, pem::PemObject as _};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use super::PkiError;
use crate::certificate::read_certificates;

/// When a certificate is valid (RFC 5280 §4.1.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dates {
    /// The subject's distinguished name, such as `CN=gateway`.
    pub subject: String,
    /// The first second, since 1970; 0 for one before that.
    pub not_before_unix_s: u64,
    /// The last second, since 1970.
    pub not_after_unix_s: u64,
}

/// Returns the dates of all certificates of a PEM file, in its order.
///
/// # Errors
/// The file cannot be read, or one of them is no valid certificate.
pub fn dates(file: &Path) -> Result<Vec<Dates>, PkiError> {
    let parse = |der: &[u8]| {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let validity = certificate.validity();
        Some(Dates {
            subject: certificate.subject().to_string(),
            not_before_unix_s: u64::try_from(validity.not_before.timestamp()).unwrap_or_default(),
            not_after_unix_s: u64::try_from(validity.not_after.timestamp()).unwrap_or_default(),
        })
    };
    let chain = read_certificates(file)?;
    let parsed = chain.iter().map(|der| parse(der));
    parsed.collect::<Option<Vec<_>>>().ok_or_else(|| PkiError::Name(file.display().to_string()))
}

/// Returns when the revocation lists of a PEM file are to be replaced (nextUpdate, RFC 5280 §5.1.2.5), in seconds since
/// 1970, in its order; `None` for a list that does not say.
///
/// # Errors
/// The file cannot be read, or one of them is no valid list.
pub fn next_updates(file: &Path) -> Result<Vec<Option<u64>>, PkiError> {
    let text = fs::read(file).map_err(|source| PkiError::Io { file: file.into(), source })?;
    let parse = |der: CertificateRevocationListDer<'_>| {
        let (_, list) = x509_parser::parse_x509_crl(&der).ok()?;
        Some(list.next_update().map(|time| u64::try_from(time.timestamp()).unwrap_or_default()))
    };
    let lists = CertificateRevocationListDer::pem_slice_iter(&text);
    let parsed: Option<Vec<_>> = lists.map(|der| der.ok().and_then(parse)).collect();
    parsed.ok_or_else(|| PkiError::Revocations(file.into()))
}
