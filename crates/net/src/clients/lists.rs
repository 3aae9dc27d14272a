//! Revocation lists (RFC 5280 §5) as their file has them.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use rustls::{DistinguishedName, pki_types::CertificateRevocationListDer};

use crate::{error::TlsError, pem};

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
