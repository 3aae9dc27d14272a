//! Revocation lists (RFC 5280 §5): read so that they can be written again with one more.

use std::{fs, io, path::Path};

use rustls::pki_types::{CertificateRevocationListDer, pem::PemObject as _};
use x509_parser::{prelude::FromDer as _, revocation_list::CertificateRevocationList};

use super::PkiError;
use crate::channel::hex;

/// The certificates that an authority has revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations {
    /// The CRL number, which increases with each list (RFC 5280 §5.2.3).
    pub number: u64,
    /// The certificates in order of revocation.
    pub revoked: Vec<Revoked>,
}

/// A revoked certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Its serial number in hexadecimal digits, two for each byte.
    pub serial: String,
    /// Since when, in seconds since 1970.
    pub unix_s: u64,
}

impl Revocations {
    /// Reads the first list of a PEM file; one that is not there is empty.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn load(file: &Path) -> Result<Self, PkiError> {
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(PkiError::Io { file: file.into(), source }),
        };
        Self::parse(&text).ok_or_else(|| PkiError::Revocations(file.into()))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let der = CertificateRevocationListDer::from_pem_slice(text).ok()?;
        let (_, list) = CertificateRevocationList::from_der(&der).ok()?;
        let number = list.crl_number().and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
        let revoked = list.iter_revoked_certificates().map(|revoked| Revoked {
            serial: hex(revoked.raw_serial()),
            unix_s: u64::try_from(revoked.revocation_date.timestamp()).unwrap_or_default(),
        });
        Some(Self { number, revoked: revoked.collect() })
    }

    /// Whether a serial number is on the list.
    #[must_use]
    pub fn contains(&self, serial: &str) -> bool {
        self.revoked.iter().any(|revoked| revoked.serial.eq_ignore_ascii_case(serial))
    }
}

impl Revoked {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let digits = self.serial.as_bytes().chunks_exact(2);
        digits.filter_map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect()
    }
}
