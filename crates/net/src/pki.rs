//! A certificate authority of our own: made on first start, so that TLS works before anybody has thought about it.
//!
//! ```text
//! DIR/ca.pem       what clients trust            DIR/ca.key       0600
//! DIR/server.pem   the gateway's certificate     DIR/server.key   0600
//! ```
//!
//! ECDSA P-256 throughout. RFC 5280: the authority is a CA of path length 0, the server certificate is none.

use std::{
    fs, io,
    io::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{ServerName, UnixTime},
};

use crate::tls::{TlsError, provider, read_certificates};

const DAY: Duration = Duration::from_secs(86_400);
const CA_VALIDITY: Duration = DAY.saturating_mul(3650);
/// Apple's systems refuse more than 825 days even from authorities the user added.
const SERVER_VALIDITY: Duration = DAY.saturating_mul(820);
/// A server certificate with less than this left is replaced at the next start.
const RENEW_BEFORE: Duration = DAY.saturating_mul(30);
/// 2025-01-01: a clock before this is one of a machine without a battery, and is not believed.
const EARLIEST: Duration = Duration::from_secs(1_735_689_600);

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

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The authority's key is no key, or signing failed.
    #[error("{}: {source}", file.display())]
    Key {
        /// Which.
        file: PathBuf,
        /// What rcgen says.
        source: rcgen::Error,
    },
    /// The authority's certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] TlsError),
    /// The authority's certificate is there without its key, or the other way round.
    #[error("{} is there but {} is not; put it back, or remove both to start with a new authority", present.display(), missing.display())]
    Half {
        /// What is there.
        present: PathBuf,
        /// What is not.
        missing: PathBuf,
    },
    /// The authority that is there does not fit its key or has expired.
    #[error("the authority in {} has expired or does not fit its key; remove ca.pem and ca.key to start with a new one", .0.display())]
    Authority(PathBuf),
}

/// Makes what is missing in `directory`, replaces a server certificate that is about to expire or does not cover its names,
/// and leaves the rest as it is.
///
/// The certificate is for localhost, 127.0.0.1, ::1, this host's name (also with `.local`) and `names`, which are DNS names or
/// addresses.
///
/// # Errors
/// [`PkiError`].
pub fn ensure(directory: &Path, names: &[String], now: SystemTime) -> Result<Pki, PkiError> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().max(EARLIEST);
    fs::create_dir_all(directory).map_err(|source| PkiError::Io { file: directory.into(), source })?;
    let file = |name: &str| directory.join(name);
    let pki = Pki { ca: file("ca.pem"), certificate: file("server.pem"), key: file("server.key"), renewed: false };
    let ca_key = authority(&pki.ca, &file("ca.key"), now)?;
    let names = subject_names(names);
    if pki.key.exists() && is_good(&pki, &names, now)? {
        return Ok(pki);
    }
    issue(&pki, ca_key, &names, now)?;
    if is_good(&pki, &names, now)? { Ok(Pki { renewed: true, ..pki }) } else { Err(PkiError::Authority(pki.ca)) }
}

/// The authority's key, made together with its certificate when neither is there.
fn authority(certificate: &Path, key: &Path, now: Duration) -> Result<KeyPair, PkiError> {
    let half = |present: &Path, missing: &Path| PkiError::Half { present: present.into(), missing: missing.into() };
    match (certificate.exists(), key.exists()) {
        (true, true) => {
            let text = fs::read_to_string(key).map_err(|source| PkiError::Io { file: key.into(), source })?;
            KeyPair::from_pem(&text).map_err(|source| PkiError::Key { file: key.into(), source })
        }
        (true, false) => Err(half(certificate, key)),
        (false, true) => Err(half(key, certificate)),
        (false, false) => {
            let failed = |source| PkiError::Key { file: key.into(), source };
            let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
            let made = ca_params(&pair, now).self_signed(&pair).map_err(failed)?;
            write(key, &pair.serialize_pem(), Access::Owner)?;
            write(certificate, &made.pem(), Access::Everybody)?;
            Ok(pair)
        }
    }
}

/// The authority's name tells by its key which authority it is, so that clients can trust several.
fn ca_params(key: &KeyPair, now: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let id: String = params.key_identifier(key).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "fogmux");
    params.distinguished_name.push(DnType::CommonName, format!("fogmux authority {id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    validity(&mut params, now, CA_VALIDITY);
    params
}

/// Valid since yesterday: clocks of devices are not ours.
fn validity(params: &mut CertificateParams, now: Duration, length: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(DAY);
    params.not_after = epoch + now.saturating_add(length);
}

fn issue(pki: &Pki, ca_key: KeyPair, names: &[ServerName<'static>], now: Duration) -> Result<(), PkiError> {
    let failed = |source| PkiError::Key { file: pki.key.clone(), source };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "fogmux");
    params.distinguished_name.push(DnType::CommonName, "fogmux gateway");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.subject_alt_names = names.iter().filter_map(alternative).collect();
    validity(&mut params, now, SERVER_VALIDITY);
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let issuer = Issuer::new(ca_params(&ca_key, now), ca_key);
    let made = params.signed_by(&pair, &issuer).map_err(failed)?;
    // What was there may be somebody's: it is kept under another name.
    for file in [&pki.certificate, &pki.key] {
        if file.exists() {
            let old = file.with_added_extension("old");
            fs::rename(file, &old).map_err(|source| PkiError::Io { file: old, source })?;
        }
    }
    write(&pki.key, &pair.serialize_pem(), Access::Owner)?;
    write(&pki.certificate, &made.pem(), Access::Everybody)
}

fn alternative(name: &ServerName<'static>) -> Option<SanType> {
    match name {
        ServerName::DnsName(name) => Some(SanType::DnsName(name.as_ref().try_into().ok()?)),
        ServerName::IpAddress(address) => Some(SanType::IpAddress((*address).into())),
        _ => None,
    }
}

/// Whether the server's certificate comes from the authority, covers every name and will for a while.
fn is_good(pki: &Pki, names: &[ServerName<'static>], now: Duration) -> Result<bool, PkiError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(&pki.ca)? {
        roots.add(certificate).map_err(|_| PkiError::Authority(pki.ca.clone()))?;
    }
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build() else {
        return Err(PkiError::Authority(pki.ca.clone()));
    };
    let Ok(chain) = read_certificates(&pki.certificate) else {
        return Ok(false);
    };
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Ok(false);
    };
    let then = UnixTime::since_unix_epoch(now.saturating_add(RENEW_BEFORE));
    Ok(names.iter().all(|name| verifier.verify_server_cert(leaf, intermediates, name, &[], then).is_ok()))
}

/// The names the certificate is for, without duplicates; what is no name is left out.
fn subject_names(more: &[String]) -> Vec<ServerName<'static>> {
    let mut names = vec![
        ServerName::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST).into()),
        ServerName::IpAddress(IpAddr::V6(Ipv6Addr::LOCALHOST).into()),
    ];
    let host = hostname();
    let local = host.as_ref().filter(|host| !host.contains('.')).map(|host| format!("{host}.local"));
    for name in ["localhost".to_owned()].into_iter().chain(host).chain(local).chain(more.iter().cloned()) {
        if let Ok(name) = ServerName::try_from(name)
            && !names.contains(&name)
        {
            names.push(name);
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

#[derive(Clone, Copy)]
enum Access {
    Owner,
    Everybody,
}

/// Writes a file as a whole or not at all; a private one is never readable by others, not even for a moment.
fn write(file: &Path, text: &str, access: Access) -> Result<(), PkiError> {
    let temporary = file.with_added_extension("new");
    let attempt = || {
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut options = fs::File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(match access {
                Access::Owner => 0o600,
                Access::Everybody => 0o644,
            });
        }
        let mut open = options.open(&temporary)?;
        open.write_all(text.as_bytes())?;
        open.sync_all()?;
        fs::rename(&temporary, file)
    };
    attempt().map_err(|source| PkiError::Io { file: file.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: u32) -> SystemTime {
        UNIX_EPOCH + EARLIEST + DAY * (100 + days)
    }

    #[test]
    fn it_is_made_once_reused_and_renewed_in_time() {
        let directory = tempfile::tempdir().unwrap();
        let make = |names: &[String], days| ensure(directory.path(), names, at(days)).unwrap();
        let read = |file: &Path| fs::read_to_string(file).unwrap();
        let first = make(&[], 0);
        assert!(first.renewed);
        let (ca, certificate) = (read(&first.ca), read(&first.certificate));
        assert!(!make(&[], 700).renewed);
        assert_eq!(read(&first.certificate), certificate);
        assert!(make(&[], 800).renewed, "20 days were left");
        assert_ne!(read(&first.certificate), certificate);
        assert_eq!(read(&first.ca), ca, "clients go on trusting the same authority");
        assert!(make(&["fog.example".into(), "192.0.2.7".into()], 800).renewed, "a new name");
        assert!(!make(&["fog.example".into()], 800).renewed);
        assert!(!make(&["not a name".into()], 800).renewed);
    }

    #[test]
    fn a_wrong_clock_still_makes_a_certificate() {
        let directory = tempfile::tempdir().unwrap();
        assert!(ensure(directory.path(), &[], UNIX_EPOCH).unwrap().renewed);
        assert!(!ensure(directory.path(), &[], at(0)).unwrap().renewed);
    }

    #[test]
    fn keys_are_private_and_half_an_authority_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let pki = ensure(directory.path(), &[], at(0)).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            for key in [&pki.key, &directory.path().join("ca.key")] {
                assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
            }
        }
        fs::remove_file(directory.path().join("ca.key")).unwrap();
        assert!(matches!(ensure(directory.path(), &[], at(0)), Err(PkiError::Half { .. })));
        let other = tempfile::tempdir().unwrap();
        ensure(other.path(), &[], at(0)).unwrap();
        fs::copy(other.path().join("ca.key"), directory.path().join("ca.key")).unwrap();
        fs::remove_file(&pki.certificate).unwrap();
        assert!(matches!(ensure(directory.path(), &[], at(0)), Err(PkiError::Authority(_))));
    }
}
