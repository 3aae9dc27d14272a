//! Revocation lists (RFC 5280 §5) as their file has them.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use rustls::{DistinguishedName, pki_types::CertificateRevocationListDer};

use crate::{error::TlsError, pem};

/// A revocation list in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    /// The distinguished name of the authority.
    pub issuer: String,
    /// The number of certificates that it revokes.
    pub revoked: usize,
    /// When it was issued, in seconds since 1970.
    pub this_update_unix_s: u64,
    /// When it is to be followed by another (`nextUpdate`, RFC 5280 §5.1.2.5), in seconds since 1970; `None` if it does
    /// not say.
    pub next_update_unix_s: Option<u64>,
}

impl RevocationList {
    /// Reads a list; `None` if it is none.
    pub(super) fn parse(der: &[u8]) -> Option<Self> {
        let (_, list) = x509_parser::parse_x509_crl(der).ok()?;
        let unix_s = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or_default();
        Some(Self {
            issuer: list.issuer().to_string(),
            revoked: list.iter_revoked_certificates().count(),
            this_update_unix_s: unix_s(list.last_update()),
            next_update_unix_s: list.next_update().map(unix_s),
        })
    }
}

/// The lists in a file; none where there is no file.
pub(super) fn read(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    Ok(pem::revocation_lists(file)?.unwrap_or_default())
}

/// Whether a list was issued by one of these authorities.
pub(super) fn is_of(list: &[u8], authorities: &[DistinguishedName]) -> bool {
    let Ok((_, list)) = x509_parser::parse_x509_crl(list) else { return false };
    authorities.iter().any(|authority| authority.as_ref() == list.issuer().as_raw())
}

/// When a list is to be followed by another (`nextUpdate`, RFC 5280 §5.1.2.5).
pub(super) fn next_update(list: &[u8]) -> Option<SystemTime> {
    let (_, list) = x509_parser::parse_x509_crl(list).ok()?;
    let seconds = u64::try_from(list.next_update()?.timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
