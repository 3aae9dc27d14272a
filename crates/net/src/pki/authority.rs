//! The authority itself: a key, the certificate that belongs to it, and what it signs.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    OtherNameValue, SanType, SerialNumber,
};
use rustls::pki_types::ServerName;
use zeroize::Zeroizing;

use super::{
    PkiError, believable,
    bundle::Bundle,
    ca_name, ca_params,
    files::{Access, create, put_in_place, stage, staged, write},
    new_key, rollover, validity,
};
use crate::{channel::ClientCertificate, error::TlsError, pem, profile::KeyKind};

/// id-on-xmppAddr (RFC 6120 §13.7.1.4).
const ID_ON_XMPP_ADDR: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 8, 5];
/// Two years: devices are forgotten longer than people think, and there is a revocation list.
const CLIENT_VALIDITY: Duration = Duration::from_secs(730 * 86_400);
/// RFC 5280 §4.1.2.2: at most 20 bytes, positive.
const SERIAL_BYTES: usize = 16;

/// An authority's certificate and key, in its directory.
const FILES: [&str; 2] = ["ca.pem", "ca.key"];

/// An authority that can sign.
pub struct Authority {
    pub(super) directory: PathBuf,
    certificate: PathBuf,
    pub(super) key: KeyPair,
}

/// The purpose of a certificate (extended key usage, RFC 5280 §4.2.1.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Authentication of a server.
    Server,
    /// Authentication of a client.
    Client,
}

/// The contents of a certificate to be issued.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The purpose of the certificate.
    pub purpose: Purpose,
    /// The subject's common name.
    pub common_name: String,
    /// DNS names and addresses.
    pub names: Vec<ServerName<'static>>,
    /// Mail addresses.
    pub emails: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
    /// XMPP addresses.
    pub xmpp_addresses: Vec<String>,
    /// How long it is good.
    pub validity: Duration,
}

impl Wanted {
    /// With a common name and nothing else.
    #[must_use]
    pub fn new(purpose: Purpose, common_name: impl Into<String>) -> Self {
        Self {
            purpose,
            common_name: common_name.into(),
            names: Vec::new(),
            emails: Vec::new(),
            uris: Vec::new(),
            xmpp_addresses: Vec::new(),
            validity: CLIENT_VALIDITY,
        }
    }
}

/// A new certificate and its key, both PEM.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its key, PKCS #8.
    pub key: Zeroizing<String>,
}

impl Issued {
    /// Writes both; the key for its owner only.
    ///
    /// # Errors
    /// [`PkiError::Io`].
    pub fn write(&self, certificate: &Path, key: &Path) -> Result<(), PkiError> {
        write(key, &self.key, Access::Owner)?;
        self.write_certificate(certificate)
    }

    /// Writes the certificate alone.
    ///
    /// # Errors
    /// [`PkiError::Io`].
    pub fn write_certificate(&self, certificate: &Path) -> Result<(), PkiError> {
        write(certificate, &self.certificate, Access::Everybody)
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").finish_non_exhaustive()
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Authority {
    /// The authority of a directory, made with an ECDSA key when there is none.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn open_or_make(directory: &Path, now: SystemTime) -> Result<Self, PkiError> {
        if Self::exists(directory)? { Self::open(directory) } else { Self::make(directory, KeyKind::EcdsaP256, now) }
    }

    /// Whether a directory has one; whether it is sound is not looked at. One whose creation was interrupted is
    /// completed.
    ///
    /// # Errors
    /// [`PkiError::Half`]; [`PkiError::Io`] if it cannot be completed.
    pub(super) fn exists(directory: &Path) -> Result<bool, PkiError> {
        let [certificate, key] = FILES.map(|name| directory.join(name));
        match (certificate.exists(), key.exists()) {
            (true, false) => Err(PkiError::Half { present: certificate, missing: key }),
            (false, true) if is_interrupted(&certificate, &key) => put_in_place(&certificate).map(|()| true),
            (false, true) => Err(PkiError::Half { present: key, missing: certificate }),
            (both, _) => Ok(both),
        }
    }

    /// The authority of a directory: in a rollover, the one that signs for the gateway.
    ///
    /// # Errors
    /// [`PkiError`]; half of one is an error as well.
    pub fn open(directory: &Path) -> Result<Self, PkiError> {
        Self::exists(directory)?;
        let [certificate, key] = FILES.map(|name| directory.join(name));
        let key = read_key(&key)?;
        // The certificate is put together again from its key when something is signed, so it has to be one of ours.
        if !Bundle::read(&certificate)?.contains(&ca_name(&key)) {
            return Err(PkiError::Authority(certificate));
        }
        Ok(Self::of(directory, key))
    }

    /// The authority that signs for devices, made with an ECDSA key when there is none. It is another one than that of
    /// the gateway while a rollover has begun and not switched.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn for_devices(directory: &Path, now: SystemTime) -> Result<Self, PkiError> {
        let own = Self::open_or_make(directory, now)?;
        Ok(rollover::key_for_devices(directory)?.map_or(own, |key| Self::of(directory, key)))
    }

    /// The authorities of a directory that keep revocation lists: both in a rollover.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn all(directory: &Path) -> Result<Vec<Self>, PkiError> {
        let mut all = vec![Self::open(directory)?];
        let trusted = Bundle::read(&directory.join("ca.pem"))?;
        for name in [rollover::NEXT, rollover::OLD] {
            let file = directory.join(name);
            if !file.exists() {
                continue;
            }
            let more = Self::of(directory, read_key(&file)?);
            if trusted.contains(&more.name()) && all.iter().all(|one| one.name() != more.name()) {
                all.push(more);
            }
        }
        Ok(all)
    }

    pub(super) fn of(directory: &Path, key: KeyPair) -> Self {
        Self { directory: directory.into(), certificate: directory.join("ca.pem"), key }
    }

    /// The common name of its certificate.
    #[must_use]
    pub fn name(&self) -> String {
        ca_name(&self.key)
    }

    /// Whether a certificate names it as its issuer.
    #[must_use]
    pub fn has_signed(&self, certificate: &ClientCertificate) -> bool {
        certificate.issuer.ends_with(&format!("CN={}", self.name()))
    }

    /// A new authority.
    ///
    /// # Errors
    /// [`PkiError`]; there is one already, for example.
    pub fn make(directory: &Path, kind: KeyKind, now: SystemTime) -> Result<Self, PkiError> {
        let [certificate, key] = FILES.map(|name| directory.join(name));
        for file in [&certificate, &key] {
            if file.exists() {
                return Err(PkiError::Exists(file.clone()));
            }
        }
        create(directory)?;
        let pair = new_key(kind)?;
        let made = ca_params(&pair, believable(now)).self_signed(&pair);
        let made = made.map_err(|source| PkiError::Key { file: key.clone(), source })?;
        // The process may end at any instant, and so may the power. Without a key there is no authority; from then on
        // its certificate is on the disk, and only its name may be missing.
        stage(&certificate, &made.pem(), Access::Everybody)?;
        write(&key, &Zeroizing::new(pair.serialize_pem()), Access::Owner)?;
        put_in_place(&certificate)?;
        Ok(Self::of(directory, pair))
    }

    /// The file of its certificate.
    #[must_use]
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// The file of its revocation list, which need not be there.
    #[must_use]
    pub fn revocation_list(&self) -> PathBuf {
        self.directory.join("crl.pem")
    }

    /// Makes a key and signs a certificate for it. `now` is since 1970.
    ///
    /// # Errors
    /// [`PkiError`].
    pub fn issue(&self, wanted: &Wanted, kind: KeyKind, now: Duration) -> Result<Issued, PkiError> {
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from_slice(&serial()?));
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "fogmux");
        params.distinguished_name.push(DnType::CommonName, wanted.common_name.as_str());
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if kind.rsa_bits().is_some() && wanted.purpose == Purpose::Server {
            // RFC 5246 §7.4.2: what RSA key exchange asks for.
            params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
        }
        params.extended_key_usages = vec![match wanted.purpose {
            Purpose::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names = alternatives(wanted)?;
        validity(&mut params, now, wanted.validity);
        let pair = new_key(kind)?;
        let issuer_params = ca_params(&self.key, now);
        let issuer = Issuer::from_params(&issuer_params, &self.key);
        let made = params.signed_by(&pair, &issuer);
        let made = made.map_err(|source| PkiError::Key { file: self.certificate.clone(), source })?;
        Ok(Issued { certificate: made.pem(), key: Zeroizing::new(pair.serialize_pem()) })
    }
}

/// Whether the creation of an authority was interrupted before its certificate had its name.
fn is_interrupted(certificate: &Path, key: &Path) -> bool {
    let name = inspect(&staged(certificate)).ok().and_then(|made| made.common_name);
    name.is_some_and(|name| read_key(key).is_ok_and(|key| *name == *ca_name(&key)))
}

pub(super) fn read_key(file: &Path) -> Result<KeyPair, PkiError> {
    let text = fogmux_file::read_to_string(file).map(Zeroizing::new);
    let text = text.map_err(|source| PkiError::Io { file: file.into(), source })?;
    KeyPair::from_pem(&text).map_err(|source| PkiError::Key { file: file.into(), source })
}

/// Returns the names in the leaf of a certificate file.
///
/// # Errors
/// The file cannot be read or holds no valid certificate.
pub fn inspect(file: &Path) -> Result<ClientCertificate, PkiError> {
    let chain = pem::certificates(file)?;
    let leaf = chain.first().and_then(|leaf| ClientCertificate::parse(leaf).ok());
    leaf.ok_or_else(|| TlsError::File { file: file.into(), why: pem::NO_CERTIFICATE.to_owned() }.into())
}

/// Returns the names in all certificates of a file, at least one.
///
/// # Errors
/// The file cannot be read, or one of them is no valid certificate.
pub fn inspect_all(file: &Path) -> Result<Vec<ClientCertificate>, PkiError> {
    let parsed: Result<Vec<_>, _> = pem::certificates(file)?.iter().map(|one| ClientCertificate::parse(one)).collect();
    parsed.map_err(|_| TlsError::File { file: file.into(), why: pem::NO_CERTIFICATE.to_owned() }.into())
}

/// Random, so that nobody foresees what will be signed (RFC 5280 §4.1.2.2 leaves it open; the CA/Browser Forum asks for
/// 64 bits).
fn serial() -> Result<[u8; SERIAL_BYTES], PkiError> {
    let mut bytes = [0; SERIAL_BYTES];
    let random = ring::rand::SystemRandom::new();
    ring::rand::SecureRandom::fill(&random, &mut bytes).map_err(|_| PkiError::Generate("no random numbers".into()))?;
    // Positive and with all its bytes.
    if let Some(first) = bytes.first_mut() {
        *first = (*first & 0x3f) | 0x40;
    }
    Ok(bytes)
}

fn alternatives(wanted: &Wanted) -> Result<Vec<SanType>, PkiError> {
    let bad = |name: &str| PkiError::Name(name.to_owned());
    let mut names = Vec::new();
    for name in &wanted.names {
        match name {
            ServerName::DnsName(name) => {
                names.push(SanType::DnsName(name.as_ref().try_into().map_err(|_| bad(name.as_ref()))?));
            }
            ServerName::IpAddress(address) => names.push(SanType::IpAddress(IpAddr::from(*address))),
            other => return Err(bad(&other.to_str())),
        }
    }
    for name in &wanted.emails {
        names.push(SanType::Rfc822Name(name.as_str().try_into().map_err(|_| bad(name))?));
    }
    for name in &wanted.uris {
        names.push(SanType::URI(name.as_str().try_into().map_err(|_| bad(name))?));
    }
    for name in &wanted.xmpp_addresses {
        names.push(SanType::OtherName((ID_ON_XMPP_ADDR.to_vec(), OtherNameValue::from(name.as_str()))));
    }
    Ok(names)
}
