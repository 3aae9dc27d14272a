//! Revocation lists (RFC 5280 §5): read so that they can be written again with one more. A file has one list of each
//! authority; lists of others than ours stay as they are.

use std::{
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use rcgen::{CertificateRevocationListParams, Issuer, KeyIdMethod, RevokedCertParams, SerialNumber};
use rustls::pki_types::{CertificateRevocationListDer, pem::PemObject as _};
use x509_parser::{prelude::FromDer as _, revocation_list::CertificateRevocationList};

use super::{
    Authority, CA_VALIDITY, PkiError, believable, ca_params,
    files::{Access, lock, write},
};
use crate::channel::hex;

/// The last line of a list (RFC 7468 §6).
const END: &str = "-----END X509 CRL-----";

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

/// A list in a file.
struct List {
    text: String,
    /// The common name of its authority.
    issuer: Option<String>,
    revocations: Revocations,
}

impl Revocations {
    /// Reads the lists of a PEM file as one; a file that is not there is an empty one.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn load(file: &Path) -> Result<Self, PkiError> {
        Ok(List::load(file)?.into_iter().fold(Self::default(), |mut all, list| {
            all.number = all.number.max(list.revocations.number);
            all.revoked.extend(list.revocations.revoked);
            all
        }))
    }

    /// Whether a serial number is on the list.
    #[must_use]
    pub fn contains(&self, serial: &str) -> bool {
        self.revoked.iter().any(|revoked| revoked.serial.eq_ignore_ascii_case(serial))
    }
}

impl List {
    /// Reads the lists of a file in its order.
    fn load(file: &Path) -> Result<Vec<Self>, PkiError> {
        let text = match fogmux_file::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(PkiError::Io { file: file.into(), source }),
        };
        let whole = text.split_inclusive(END).filter(|part| part.ends_with(END));
        let lists: Option<Vec<_>> = whole.map(|part| Self::parse(part.trim_start())).collect();
        // A file that has something in it, but no list, is damaged.
        lists.filter(|lists| !lists.is_empty()).ok_or_else(|| PkiError::Revocations(file.into()))
    }

    fn parse(text: &str) -> Option<Self> {
        let der = CertificateRevocationListDer::from_pem_slice(text.as_bytes()).ok()?;
        let (_, list) = CertificateRevocationList::from_der(&der).ok()?;
        let number = list.crl_number().and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
        let revoked = list.iter_revoked_certificates().map(|revoked| Revoked {
            serial: hex(revoked.raw_serial()),
            unix_s: u64::try_from(revoked.revocation_date.timestamp()).unwrap_or_default(),
        });
        let revocations = Revocations { number, revoked: revoked.collect() };
        let issuer = list.issuer().iter_common_name().next().and_then(|name| name.as_str().ok()).map(str::to_owned);
        Some(Self { text: format!("{text}\n"), issuer, revocations })
    }
}

impl Authority {
    /// Adds a certificate's serial number to the list of this authority, in hexadecimal digits; whether it was not on
    /// it yet. Waits for others who do the same, so that two at once lose nothing.
    ///
    /// # Errors
    /// [`PkiError`]; the list stays as it was.
    pub fn revoke(&self, serial: &str, now: SystemTime) -> Result<bool, PkiError> {
        self.change_list(|own| {
            if own.as_ref().is_some_and(|list| list.contains(serial)) {
                return Ok(Change::None);
            }
            let mut list = own.unwrap_or_default();
            let now = believable(now);
            list.revoked.push(Revoked { serial: serial.to_ascii_lowercase(), unix_s: now.as_secs() });
            list.number = list.number.saturating_add(1);
            Ok(Change::To(self.sign(&list, now)?))
        })
    }

    /// Adds an empty list of this authority to a file that has lists of others only.
    ///
    /// # Errors
    /// [`PkiError`]; the file stays as it was.
    pub(super) fn list_if_others_have(&self, now: SystemTime) -> Result<(), PkiError> {
        if !self.revocation_list().exists() {
            return Ok(());
        }
        let change = |own: Option<Revocations>| match own {
            Some(_) => Ok(Change::None),
            None => Ok(Change::To(self.sign(&Revocations { number: 1, ..Revocations::default() }, believable(now))?)),
        };
        self.change_list(change).map(drop)
    }

    /// Takes the list of this authority out, unless it is the only one: a file of lists must not disappear.
    ///
    /// # Errors
    /// [`PkiError`]; the file stays as it was.
    pub(super) fn remove_list(&self) -> Result<(), PkiError> {
        if !self.revocation_list().exists() {
            return Ok(());
        }
        self.change_list(|own| Ok(if own.is_some() { Change::Removal } else { Change::None })).map(drop)
    }

    /// Changes the list of this authority, of which there need not be one, and no other; returns whether it did.
    fn change_list(
        &self,
        change: impl FnOnce(Option<Revocations>) -> Result<Change, PkiError>,
    ) -> Result<bool, PkiError> {
        let file = self.revocation_list();
        let _lock = lock(&file)?;
        let mut lists = List::load(&file)?;
        let name = self.name();
        let at = lists.iter().position(|list| list.issuer.as_ref() == Some(&name));
        let own = at.and_then(|at| lists.get(at)).map(|list| list.revocations.clone());
        let place = at.unwrap_or(lists.len());
        match change(own)? {
            Change::None => return Ok(false),
            Change::Removal if lists.len() == 1 => return Ok(false),
            Change::Removal => drop(lists.remove(place)),
            Change::To(text) => {
                let list = List::parse(text.trim()).ok_or_else(|| PkiError::Revocations(file.clone()))?;
                match lists.get_mut(place) {
                    Some(before) => *before = list,
                    None => lists.push(list),
                }
            }
        }
        let text: String = lists.into_iter().map(|list| list.text).collect();
        write(&file, &text, Access::Everybody)?;
        Ok(true)
    }

    fn sign(&self, list: &Revocations, now: Duration) -> Result<String, PkiError> {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let revoked = list.revoked.iter().map(|revoked| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&revoked.bytes()),
            revocation_time: epoch + Duration::from_secs(revoked.unix_s),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: epoch + now,
            // As long as the authority: a gateway without a network must not stop believing its own list.
            next_update: epoch + now.saturating_add(CA_VALIDITY),
            crl_number: SerialNumber::from(list.number),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let issuer_params = ca_params(&self.key, now);
        let made = params.signed_by(&Issuer::from_params(&issuer_params, &self.key));
        let made = made.and_then(|list| list.pem());
        made.map_err(|source| PkiError::Key { file: self.revocation_list(), source })
    }
}

/// The fate of a list.
enum Change {
    None,
    To(String),
    Removal,
}

impl Revoked {
    fn bytes(&self) -> Vec<u8> {
        let digits = self.serial.as_bytes().chunks_exact(2);
        digits.filter_map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect()
    }
}
