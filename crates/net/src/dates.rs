//! The dates of certificates and revocation lists, for those who watch them.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use crate::{error::TlsError, pem};

/// When a certificate is valid (RFC 5280 §4.1.2.5), and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dates {
    /// The subject's distinguished name, such as `CN=gateway`.
    pub subject: String,
    /// The issuer's distinguished name.
    pub issuer: String,
    /// The first second, since 1970; 0 for one before that.
    pub not_before_unix_s: u64,
    /// The last second, since 1970.
    pub not_after_unix_s: u64,
}

impl Dates {
    /// Reads a certificate; `None` if it is none.
    pub(crate) fn parse(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let validity = certificate.validity();
        Some(Self {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            not_before_unix_s: u64::try_from(validity.not_before.timestamp()).unwrap_or_default(),
            not_after_unix_s: u64::try_from(validity.not_after.timestamp()).unwrap_or_default(),
        })
    }

    /// Those of certificates that a TLS stack has accepted. One that only the stack can read is left out.
    pub(crate) fn of_all(certificates: &[CertificateDer<'_>]) -> Box<[Self]> {
        certificates.iter().filter_map(|der| Self::parse(der)).collect()
    }
}

/// Returns the dates of all certificates of a PEM file, in its order.
///
/// # Errors
/// The file cannot be read, or one of them is no valid certificate.
pub fn dates(file: &Path) -> Result<Vec<Dates>, TlsError> {
    let parsed: Option<Vec<_>> = pem::certificates(file)?.iter().map(|der| Dates::parse(der)).collect();
    parsed.ok_or_else(|| TlsError::File { file: file.into(), why: pem::NO_CERTIFICATE.to_owned() })
}

/// Returns when the revocation lists of a PEM file are to be replaced (nextUpdate, RFC 5280 §5.1.2.5), in seconds since
/// 1970, in its order; `None` for a list that does not say. Without a file there are none.
///
/// # Errors
/// The file cannot be read, or one of them is no valid list.
pub fn next_updates(file: &Path) -> Result<Vec<Option<u64>>, TlsError> {
    let lists = pem::revocation_lists(file)?.unwrap_or_default();
    let parsed = lists.iter().map(|der| {
        let (_, list) = x509_parser::parse_x509_crl(der).ok()?;
        Some(list.next_update().map(|time| u64::try_from(time.timestamp()).unwrap_or_default()))
    });
    let parsed: Option<Vec<_>> = parsed.collect();
    parsed.ok_or_else(|| TlsError::File { file: file.into(), why: pem::NO_LIST.to_owned() })
}
