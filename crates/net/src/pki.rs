//! A certificate authority of our own: made on first start, so that TLS works before anybody has thought about it.
//!
//! ```text
//! DIR/ca.pem               what clients trust            DIR/ca.key               0600
//! DIR/server.pem           the gateway's certificate     DIR/server.key           0600
//! DIR/server-rsa4096.pem   the same with an RSA key, for profiles that want one   .key
//! DIR/clients/NAME.pem     certificates of clients       DIR/clients/NAME.key     0600
//! DIR/crl.pem              what has been revoked
//! ```
//!
//! In a [rollover] there are two authorities: `ca.pem` and `crl.pem` are of both.
//!
//! ECDSA P-256 unless asked otherwise. RFC 5280: the authority is a CA of path length 0, other certificates are none.

mod authority;
mod bundle;
mod files;
mod names;
mod revocation;
pub mod rollover;

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256,
};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use zeroize::Zeroizing;

#[cfg(unix)]
pub use self::files::{inherit, make_directory};
pub use self::{
    authority::{Authority, Issued, Purpose, Wanted, inspect, inspect_all},
    names::server_name,
    revocation::{Revocations, Revoked},
    rollover::Rollover,
};
pub use crate::dates::{Dates, dates, next_updates};
use crate::{channel::ClientCertificate, error::TlsError, pem, profile::KeyKind, provider::provider, tls::TlsConfig};

/// The name of the files of the gateway's certificate and key.
const SERVER: &str = "server";
const DAY: Duration = Duration::from_secs(86_400);
const CA_VALIDITY: Duration = DAY.saturating_mul(3650);
/// Apple's systems refuse more than 825 days even from authorities the user added.
const SERVER_VALIDITY: Duration = DAY.saturating_mul(820);
/// A server certificate with less than this left is replaced at the next start.
const RENEW_BEFORE: Duration = DAY.saturating_mul(30);
/// 2026-11-01, before the first release: a clock before this is one of a machine without a battery, and is not
/// believed.
const EARLIEST: Duration = Duration::from_secs(1_793_491_200);
/// RFC 5280 §4.1.2.5: the end of the year 9999 is the last time that a certificate can have.
const LATEST: Duration = Duration::from_secs(253_402_300_799);

/// Where everything is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pki {
    /// The authority's certificate: what clients are to trust.
    pub ca: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// The server's key.
    pub key: PathBuf,
    /// Whether the server's certificate was made by this call.
    pub renewed: bool,
}

impl Pki {
    /// The files of the gateway's certificate with a key of this kind, which need not be there.
    #[must_use]
    pub fn of(directory: &Path, kind: KeyKind) -> Self {
        let name = match kind {
            KeyKind::EcdsaP256 => SERVER.to_owned(),
            KeyKind::EcdsaP384 | KeyKind::Rsa2048 | KeyKind::Rsa3072 | KeyKind::Rsa4096 => {
                format!("{SERVER}-{}", kind.name())
            }
        };
        Self {
            ca: directory.join("ca.pem"),
            certificate: directory.join(format!("{name}.pem")),
            key: directory.join(format!("{name}.key")),
            renewed: false,
        }
    }

    /// Whether the certificate can be used now, whatever becomes of it: it and its key are whole, and so is that of the
    /// authority.
    #[must_use]
    pub fn is_usable(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let is_valid = |dates: &Dates| (dates.not_before_unix_s..=dates.not_after_unix_s).contains(&now);
        TlsConfig::load(&self.certificate, &self.key).is_ok()
            && dates(&self.certificate).is_ok_and(|dates| dates.first().is_some_and(is_valid))
            && dates(&self.ca).is_ok()
    }
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The authority's key is no key, or signing failed.
    #[error("{}: {source}", file.display())]
    Key {
        /// The file of the key.
        file: PathBuf,
        /// The error of rcgen.
        source: rcgen::Error,
    },
    /// A file to be created exists already.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// A name cannot be put into a certificate, or no client would accept it there.
    #[error("{0:?} cannot be a name of this kind in a certificate")]
    Name(String),
    /// The revocation list that is there cannot be read.
    #[error("{}: the revocation list cannot be read", .0.display())]
    Revocations(PathBuf),
    /// The key cannot be made by this build.
    #[error("keys of the kind {} need a build with the feature tls-openssl", .0.name())]
    Kind(KeyKind),
    /// OpenSSL could not make the key.
    #[error("the key cannot be made: {0}")]
    Generate(String),
    /// The authority's certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] TlsError),
    /// Either the authority's certificate or its key is missing.
    #[error("{} is there but {} is not; put it back, or remove both to start with a new authority", present.display(), missing.display())]
    Half {
        /// The file that exists.
        present: PathBuf,
        /// The file that is missing.
        missing: PathBuf,
    },
    /// A step of a rollover that cannot be done now.
    #[error(transparent)]
    OutOfOrder(#[from] rollover::OutOfOrder),
    /// The existing authority has expired or does not match its key.
    #[error("the authority in {} has expired or does not fit its key; remove ca.pem and ca.key to start with a new one", .0.display())]
    Authority(PathBuf),
}

/// Makes what is missing in `directory`, replaces a server certificate that is about to expire or does not cover its
/// names, and leaves the rest as it is.
///
/// The certificate is for localhost, 127.0.0.1, ::1, this host's name (also with `.local`) and `names`, which are DNS
/// names or addresses; and for the names of the one that it replaces, which devices may know the gateway by.
///
/// # Errors
/// [`PkiError`].
pub fn ensure(directory: &Path, names: &[String], now: SystemTime) -> Result<Pki, PkiError> {
    ensure_server(directory, KeyKind::EcdsaP256, names, now)
}

/// [`ensure`] for a key of another kind, in files of its own. Its certificate has the names of that of [`ensure`] too.
///
/// # Errors
/// [`PkiError`].
pub fn ensure_server(directory: &Path, kind: KeyKind, names: &[String], now: SystemTime) -> Result<Pki, PkiError> {
    let pki = Pki::of(directory, kind);
    let mut names = subject_names(names);
    let older = [directory.join(SERVER).with_added_extension("pem"), pki.certificate.clone()];
    older.iter().flat_map(|file| names::of_file(file)).for_each(|name| names::add(&mut names, name));
    let trust = || Trust::read(&pki.ca, rollover::retired(directory)?.as_deref(), believable(now));
    // The authority's key is not touched while there is nothing to be signed.
    if Authority::exists(directory)? && pki.key.exists() && is_good(&pki, &trust()?, &names) {
        return Ok(pki);
    }
    Authority::open_or_make(directory, now)?;
    // Meanwhile no rollover goes on, which would have another authority sign. Where files cannot be locked the
    // certificate is made all the same: a gateway has to start there.
    let _held = hold(directory);
    let authority = Authority::open(directory)?;
    let wanted =
        Wanted { names: names.clone(), validity: SERVER_VALIDITY, ..Wanted::new(Purpose::Server, "fogmux gateway") };
    let issued = authority.issue(&wanted, kind, believable(now))?;
    // One that clients would refuse does not take the place of another.
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).collect();
    let chain = chain.unwrap_or_default();
    match trust()?.refused(&chain, &names) {
        // Every certificate has the address of this host: the fault is not that of a name.
        Some(ServerName::IpAddress(_)) => return Err(PkiError::Authority(pki.ca)),
        Some(name) => return Err(PkiError::Name(name.to_str().into_owned())),
        None => {}
    }
    // The old files may belong to the operator, so they are kept. They also stay where they are until they are
    // replaced: the names of the next certificate are in this one.
    files::keep_copy(&pki.certificate)?;
    files::keep_copy(&pki.key)?;
    issued.write(&pki.certificate, &pki.key)?;
    Ok(Pki { renewed: true, ..pki })
}

/// Replaces the certificates with keys of other kinds that are in `directory` and lack a name of that of [`ensure`].
///
/// # Errors
/// [`PkiError`].
pub fn ensure_others(directory: &Path, now: SystemTime) -> Result<(), PkiError> {
    let others = [KeyKind::EcdsaP384, KeyKind::Rsa2048, KeyKind::Rsa3072, KeyKind::Rsa4096].into_iter();
    let mut there = others.filter(|kind| Pki::of(directory, *kind).certificate.exists());
    there.try_for_each(|kind| ensure_server(directory, kind, &[], now).map(drop))
}

/// Keeps commands and renewals from changing the files of a directory for as long as the result is kept. `None` where
/// nothing can be locked: there is no authority, or the directory cannot be written.
#[must_use]
pub fn hold(directory: &Path) -> Option<fs::File> {
    let file = directory.join("ca.pem");
    file.exists().then(|| files::lock(&file).ok()).flatten()
}

/// Whether a clock shows a time at which this program existed: a board without a battery starts in 1970.
#[must_use]
pub fn is_believable(now: SystemTime) -> bool {
    now.duration_since(UNIX_EPOCH).is_ok_and(|since| since >= EARLIEST)
}

/// A clock before [`EARLIEST`] is not believed.
fn believable(now: SystemTime) -> Duration {
    now.duration_since(UNIX_EPOCH).unwrap_or_default().max(EARLIEST)
}

/// A new key.
fn new_key(kind: KeyKind) -> Result<KeyPair, PkiError> {
    let file = || PathBuf::from("a new key");
    let failed = |source| PkiError::Key { file: file(), source };
    match kind {
        KeyKind::EcdsaP256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed),
        KeyKind::EcdsaP384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).map_err(failed),
        KeyKind::Rsa2048 | KeyKind::Rsa3072 | KeyKind::Rsa4096 => {
            let der = new_rsa_key(kind)?;
            let der = PrivatePkcs8KeyDer::from(der.as_slice());
            KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_RSA_SHA256).map_err(failed)
        }
    }
}

/// ring signs with RSA but does not make keys for it.
#[cfg(feature = "tls-openssl")]
fn new_rsa_key(kind: KeyKind) -> Result<Zeroizing<Vec<u8>>, PkiError> {
    let made = crate::openssl::rsa_key(kind).map_err(|error| PkiError::Generate(error.to_string()))?;
    made.ok_or(PkiError::Kind(kind))
}

#[cfg(not(feature = "tls-openssl"))]
fn new_rsa_key(kind: KeyKind) -> Result<Zeroizing<Vec<u8>>, PkiError> {
    Err(PkiError::Kind(kind))
}

/// The authority's name tells by its key which authority it is, so that clients can trust several.
fn ca_name(key: &KeyPair) -> String {
    let id: String =
        CertificateParams::default().key_identifier(key).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("fogmux authority {id}")
}

fn ca_params(key: &KeyPair, now: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "fogmux");
    params.distinguished_name.push(DnType::CommonName, ca_name(key));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    validity(&mut params, now, CA_VALIDITY);
    params
}

/// Valid since yesterday: clocks of devices are not ours.
fn validity(params: &mut CertificateParams, now: Duration, length: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(DAY).min(LATEST);
    params.not_after = epoch + now.saturating_add(length).min(LATEST);
}

/// The authorities of a file that are not retired, and a time at which what they sign has to be valid.
struct Trust {
    verifier: Arc<WebPkiServerVerifier>,
    then: UnixTime,
}

impl Trust {
    fn read(file: &Path, retired: Option<&str>, now: Duration) -> Result<Self, PkiError> {
        let mut roots = RootCertStore::empty();
        for certificate in pem::certificates(file)? {
            // Clients that have heard of its end do not trust it any more.
            let name = ClientCertificate::parse(&certificate).ok().and_then(|certificate| certificate.common_name);
            if retired.is_some() && name.as_deref() == retired {
                continue;
            }
            let added = roots.add(certificate.clone());
            added
                .map_err(|error| TlsError::File { file: file.into(), why: pem::why_unusable(&certificate, &error) })?;
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier = verifier.map_err(|_| PkiError::Authority(file.into()))?;
        Ok(Self { verifier, then: UnixTime::since_unix_epoch(now.saturating_add(RENEW_BEFORE)) })
    }

    /// The first name for which a client refuses the certificate.
    fn refused<'a>(
        &self,
        chain: &[CertificateDer<'_>],
        names: &'a [ServerName<'static>],
    ) -> Option<&'a ServerName<'static>> {
        let Some((leaf, more)) = chain.split_first() else { return names.first() };
        let accepts =
            |name: &ServerName<'_>| self.verifier.verify_server_cert(leaf, more, name, &[], self.then).is_ok();
        names.iter().find(|name| !accepts(name))
    }
}

/// Whether the server's certificate comes from the authority, and not from one that is retired, covers every name and
/// will for a while, and its key is whole. A key that cannot be read at all is not replaced.
fn is_good(pki: &Pki, trust: &Trust, names: &[ServerName<'static>]) -> bool {
    let Ok(chain) = pem::certificates(&pki.certificate) else {
        return false;
    };
    if fogmux_file::read(&pki.key).is_ok() && TlsConfig::load(&pki.certificate, &pki.key).is_err() {
        return false;
    }
    trust.refused(&chain, names).is_none()
}

/// The names the certificate is for, the addresses of this host first, without duplicates; what is no name is left out.
fn subject_names(more: &[String]) -> Vec<ServerName<'static>> {
    let mut names = vec![
        ServerName::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST).into()),
        ServerName::IpAddress(IpAddr::V6(Ipv6Addr::LOCALHOST).into()),
    ];
    let host = hostname();
    let local = host.as_ref().filter(|host| !host.contains('.')).map(|host| format!("{host}.local"));
    for name in ["localhost".to_owned()].into_iter().chain(host).chain(local).chain(more.iter().cloned()) {
        if let Ok(name) = server_name(&name) {
            names::add(&mut names, name);
        }
    }
    names
}

/// The host's name, in lower case, where the system tells without a C library.
#[must_use]
pub fn hostname() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| fs::read_to_string("/etc/hostname")).ok()?;
    let name = text.trim().to_ascii_lowercase();
    (!name.is_empty() && name != "(none)").then_some(name)
}

#[cfg(test)]
mod tests;
