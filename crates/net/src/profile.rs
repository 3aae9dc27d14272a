//! Security profiles as data: which TLS a listener speaks, and which a client of the traffic generator offers.
//!
//! Some are those of published experiments, so that these can be run again exactly; a listener may still take better
//! suites with the same credentials ([`Profile::accept`]). What is dangerous says so ([`Profile::weak`]), and has to be
//! allowed by name in the configuration.

use x509_parser::{certificate::X509Certificate, prelude::FromDer as _, public_key::PublicKey};

/// Versions of TLS; of DTLS where that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// The versions and cipher suites that one end offers or accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The versions in ascending order; empty without TLS.
    pub versions: &'static [Version],
    /// Cipher suites by their IANA names, the preferred one first; empty for all safe suites of the stack.
    pub suites: &'static [&'static str],
}

/// A TLS stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// No TLS.
    Plain,
    /// rustls.
    Rustls,
    /// OpenSSL, for versions and suites that rustls does not support.
    OpenSsl,
}

/// Groups for the exchange of keys (RFC 8422 §5.1.1, RFC 8446 §4.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// RFC 7748.
    X25519,
    /// NIST P-256.
    Secp256r1,
    /// NIST P-384.
    Secp384r1,
}

/// The part of its profile that a client offers, for measurements; `None` is all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Only {
    /// Versions and suites.
    pub offer: Option<&'static Offer>,
    /// The one group.
    pub group: Option<Group>,
}

/// Kinds of keys, some of which a profile can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// ECDSA on secp256r1.
    EcdsaP256,
    /// ECDSA on secp384r1.
    EcdsaP384,
    /// RSA of 2048 bits.
    Rsa2048,
    /// RSA of 3072 bits.
    Rsa3072,
    /// RSA of 4096 bits.
    Rsa4096,
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not.
    #[default]
    No,
    /// Asked for, and verified when there is one.
    Optional,
    /// Nobody gets in without one.
    Required,
}

/// A named security profile of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name in configuration and reports.
    pub name: &'static str,
    /// The stack that does the handshake.
    pub stack: Stack,
    /// The offer of a fogmux client: only the versions and suites that the profile is named for.
    pub offer: Offer,
    /// The versions and suites that a listener accepts.
    pub accept: Offer,
    /// The kind of the server's key; `None` for any.
    pub server_key: Option<KeyKind>,
    /// The required kind of a client's key; `None` for any.
    pub client_key: Option<KeyKind>,
    /// Whether clients are asked for a certificate, unless the listener overrides it.
    pub client_certificates: ClientCertificates,
    /// Whether both ends use a pre-shared key instead of a server certificate.
    pub psk: bool,
    /// The reason why the profile is weak; `None` if it is not.
    pub weak: Option<&'static str>,
}

/// The security settings of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Security {
    /// The profile.
    pub profile: &'static Profile,
    /// Whether clients are asked for a certificate.
    pub client_certificates: ClientCertificates,
    /// The versions that a DTLS listener accepts, limited to those of the profile.
    pub dtls_versions: &'static [Version],
}

const TLS12: &[Version] = &[Version::Tls12];
const TLS13: &[Version] = &[Version::Tls13];
const BOTH: &[Version] = &[Version::Tls12, Version::Tls13];

/// TLS 1.3 and 1.2 with ECDHE: ours.
pub const MODERN: Profile = Profile {
    name: "modern",
    stack: Stack::Rustls,
    offer: Offer { versions: BOTH, suites: &[] },
    accept: Offer { versions: BOTH, suites: &[] },
    server_key: None,
    client_key: None,
    client_certificates: ClientCertificates::No,
    psk: false,
    weak: None,
};

/// No TLS at all.
pub const NONE: Profile = Profile {
    name: "none",
    stack: Stack::Plain,
    offer: Offer { versions: &[], suites: &[] },
    accept: Offer { versions: &[], suites: &[] },
    weak: Some("nothing is encrypted, and nobody shows who they are"),
    ..MODERN
};

/// TLS 1.3 with RSA-4096 on both sides.
pub const HIGH: Profile = Profile {
    name: "high",
    stack: Stack::Rustls,
    offer: Offer { versions: TLS13, suites: &["TLS_AES_256_GCM_SHA384"] },
    accept: Offer { versions: TLS13, suites: &["TLS_AES_256_GCM_SHA384"] },
    server_key: Some(KeyKind::Rsa4096),
    client_key: Some(KeyKind::Rsa4096),
    client_certificates: ClientCertificates::Required,
    ..MODERN
};

/// TLS 1.2 with RSA key exchange; clients bring a user and a password.
pub const LOW: Profile = Profile {
    name: "low",
    stack: Stack::OpenSsl,
    offer: Offer { versions: TLS12, suites: &["TLS_RSA_WITH_AES_128_GCM_SHA256"] },
    accept: Offer { versions: TLS12, suites: &["TLS_RSA_WITH_AES_128_GCM_SHA256"] },
    server_key: Some(KeyKind::Rsa2048),
    weak: Some("RSA key exchange: who gets the server's key later reads everything recorded before"),
    ..MODERN
};

/// A pre-shared key: TLS 1.2 with AES-128-CCM-8 as measured; a listener also takes longer tags and TLS 1.3 (RFC 8446
/// §4.2.11, with ECDHE). Suites of TLS 1.3 are those of SHA-256, the hash of an external key that names none
/// (§4.2.11).
pub const PSK: Profile = Profile {
    name: "psk",
    stack: Stack::OpenSsl,
    offer: Offer { versions: TLS12, suites: &["TLS_PSK_WITH_AES_128_CCM_8"] },
    accept: Offer {
        versions: BOTH,
        suites: &[
            "TLS_AES_128_GCM_SHA256",
            "TLS_AES_128_CCM_SHA256",
            "TLS_AES_128_CCM_8_SHA256",
            "TLS_PSK_WITH_AES_128_CCM_8",
            "TLS_PSK_WITH_AES_128_CCM",
            "TLS_PSK_WITH_AES_128_GCM_SHA256",
        ],
    },
    psk: true,
    ..MODERN
};

/// Certificates as small devices have them (RFC 7925 §4.4): ECDHE and ECDSA on secp256r1, AES-128-CCM-8; a listener
/// also takes longer tags.
pub const PKI: Profile = Profile {
    name: "pki",
    stack: Stack::OpenSsl,
    offer: Offer { versions: TLS12, suites: &["TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8"] },
    accept: Offer {
        versions: TLS12,
        suites: &[
            "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8",
            "TLS_ECDHE_ECDSA_WITH_AES_128_CCM",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        ],
    },
    server_key: Some(KeyKind::EcdsaP256),
    ..MODERN
};

/// Every profile there is.
pub const PROFILES: [&Profile; 6] = [&MODERN, &NONE, &HIGH, &LOW, &PSK, &PKI];

impl Version {
    /// The versions that are asked for, in rising order.
    #[must_use]
    pub const fn list(is_tls12: bool, is_tls13: bool) -> &'static [Self] {
        match (is_tls12, is_tls13) {
            (true, true) => BOTH,
            (true, false) => TLS12,
            (false, true) => TLS13,
            (false, false) => &[],
        }
    }
}

impl Profile {
    /// The profile of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PROFILES.into_iter().find(|profile| profile.name == name)
    }

    /// Whether there is a handshake at all.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.stack != Stack::Plain
    }
}

impl Security {
    /// `profile` with clients asked for what it wants of them.
    #[must_use]
    pub const fn of(profile: &'static Profile) -> Self {
        Self { profile, client_certificates: profile.client_certificates, dtls_versions: BOTH }
    }
}

impl Default for Security {
    fn default() -> Self {
        Self::of(&MODERN)
    }
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::X25519, Self::Secp256r1, Self::Secp384r1];

    /// Its name in the IANA registry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X25519 => "x25519",
            Self::Secp256r1 => "secp256r1",
            Self::Secp384r1 => "secp384r1",
        }
    }
}

impl KeyKind {
    /// Bits of the modulus of RSA; none of ECDSA.
    #[must_use]
    pub const fn rsa_bits(self) -> Option<u32> {
        match self {
            Self::EcdsaP256 | Self::EcdsaP384 => None,
            Self::Rsa2048 => Some(2048),
            Self::Rsa3072 => Some(3072),
            Self::Rsa4096 => Some(4096),
        }
    }

    /// Whether a profile that asks for this kind takes a key of another: a longer one of RSA.
    #[must_use]
    pub fn admits(self, other: Self) -> bool {
        self == other || matches!((self.rsa_bits(), other.rsa_bits()), (Some(least), Some(bits)) if bits >= least)
    }

    /// Its name on the command line and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ecdsa",
            Self::EcdsaP384 => "ecdsa-p384",
            Self::Rsa3072 => "rsa3072",
            Self::Rsa2048 => "rsa2048",
            Self::Rsa4096 => "rsa4096",
        }
    }

    /// Whether the key in a certificate is of this kind; an RSA key may be longer.
    #[must_use]
    pub fn is_in(self, certificate: &[u8]) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        let Ok(key) = certificate.public_key().parsed() else { return false };
        // A point of two coordinates behind a byte that says it is not compressed (SEC 1 §2.3.3).
        let is_point = |bytes: usize| matches!(&key, PublicKey::EC(point) if point.data().len() == 1 + 2 * bytes);
        match (self, self.rsa_bits(), &key) {
            (Self::EcdsaP256, ..) => is_point(32),
            (Self::EcdsaP384, ..) => is_point(48),
            (_, Some(least), PublicKey::RSA(key)) => key.key_size() >= usize::try_from(least).unwrap_or(usize::MAX),
            (Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096, ..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_to_their_profile() {
        for profile in PROFILES {
            assert_eq!(Profile::named(profile.name), Some(profile));
        }
        assert_eq!(Profile::named("High"), None);
    }

    #[test]
    fn a_listener_takes_what_a_client_of_the_same_profile_offers() {
        for Profile { offer, accept, name, .. } in PROFILES {
            assert!(offer.versions.iter().all(|version| accept.versions.contains(version)), "{name}");
            assert!(offer.suites.iter().all(|suite| accept.suites.contains(suite)), "{name}");
        }
    }

    #[test]
    fn a_key_is_of_its_kind_or_longer() {
        let all = [KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::Rsa2048, KeyKind::Rsa3072, KeyKind::Rsa4096];
        let admitted = |kind: KeyKind| all.into_iter().filter(|other| kind.admits(*other)).count();
        assert_eq!(all.map(admitted), [1, 1, 3, 2, 1]);
        for (curve, kind) in
            [(&rcgen::PKCS_ECDSA_P256_SHA256, KeyKind::EcdsaP256), (&rcgen::PKCS_ECDSA_P384_SHA384, KeyKind::EcdsaP384)]
        {
            let key = rcgen::KeyPair::generate_for(curve).unwrap();
            let made = rcgen::CertificateParams::default().self_signed(&key).unwrap();
            let kinds: Vec<KeyKind> = all.into_iter().filter(|kind| kind.is_in(made.der())).collect();
            assert_eq!(kinds, [kind]);
        }
    }

    #[test]
    fn what_has_neither_forward_secrecy_nor_the_blessing_of_rfc_7925_is_weak() {
        let weak: Vec<_> = PROFILES.iter().filter(|profile| profile.weak.is_some()).map(|p| p.name).collect();
        assert_eq!(weak, ["none", "low"]);
    }
}
