//! The cipher suite and the group of a handshake, where an experiment names them.

use std::fmt;
use std::str::FromStr;

use fogmux_net::profile::{self, Offer, Only, Version};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Experiment, ExperimentError};

/// How the ends of a suite prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// TLS 1.3: a certificate with any key, or a pre-shared key.
    Any,
    /// A certificate with a key of ECDSA.
    Ecdsa,
    /// A certificate with a key of RSA.
    Rsa,
    /// A certificate with a key of RSA, to which the client encrypts the secret: no group.
    RsaExchange,
    /// A pre-shared key and nothing else: no group.
    Psk,
    /// A pre-shared key and a group.
    EcdhePsk,
}

/// A cipher suite of TLS or DTLS, by its IANA name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite(&'static Entry);

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    offer: Offer,
    proof: Proof,
}

macro_rules! suites {
    ($($name:literal $version:ident $proof:ident,)+) => {
        [$(Entry {
            offer: Offer { versions: &[Version::$version], suites: &[$name] },
            proof: Proof::$proof,
        },)+]
    };
}

/// All that some door of a gateway has, under some profile.
static SUITES: [Entry; 20] = suites! {
    "TLS_AES_128_GCM_SHA256" Tls13 Any,
    "TLS_AES_256_GCM_SHA384" Tls13 Any,
    "TLS_CHACHA20_POLY1305_SHA256" Tls13 Any,
    "TLS_AES_128_CCM_SHA256" Tls13 Any,
    "TLS_AES_128_CCM_8_SHA256" Tls13 Any,
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" Tls12 Ecdsa,
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" Tls12 Ecdsa,
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" Tls12 Ecdsa,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM" Tls12 Ecdsa,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8" Tls12 Ecdsa,
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" Tls12 Rsa,
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" Tls12 Rsa,
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" Tls12 Rsa,
    "TLS_RSA_WITH_AES_128_GCM_SHA256" Tls12 RsaExchange,
    "TLS_PSK_WITH_AES_128_GCM_SHA256" Tls12 Psk,
    "TLS_PSK_WITH_AES_128_CCM" Tls12 Psk,
    "TLS_PSK_WITH_AES_128_CCM_8" Tls12 Psk,
    "TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256" Tls12 EcdhePsk,
    "TLS_ECDHE_PSK_WITH_AES_128_CCM_SHA256" Tls12 EcdhePsk,
    "TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256" Tls12 EcdhePsk,
};

impl Suite {
    /// All of them, those of TLS 1.3 first.
    pub fn all() -> impl Iterator<Item = Self> {
        SUITES.iter().map(Self)
    }

    /// Its name in the IANA registry.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.offer.suites.first().copied().unwrap_or_default()
    }

    /// How its ends prove who they are.
    #[must_use]
    pub const fn proof(self) -> Proof {
        self.0.proof
    }

    /// Whether it is of version 1.3 of TLS and DTLS, and not of 1.2.
    #[must_use]
    pub fn is_newest(self) -> bool {
        self.0.offer.versions.contains(&Version::Tls13)
    }

    /// The offer of this suite alone.
    #[must_use]
    pub const fn offer(self) -> &'static Offer {
        &self.0.offer
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Suite {
    type Err = ExperimentError;

    fn from_str(text: &str) -> Result<Self, ExperimentError> {
        let unknown = || ExperimentError::Unknown("cipher suite", text.to_owned());
        Self::all().find(|suite| suite.name() == text).ok_or_else(unknown)
    }
}

impl Serialize for Suite {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Suite {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A group for the exchange of keys, by its IANA name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(pub profile::Group);

impl Group {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        profile::Group::ALL.into_iter().map(Self)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl FromStr for Group {
    type Err = ExperimentError;

    fn from_str(text: &str) -> Result<Self, ExperimentError> {
        let unknown = || ExperimentError::Unknown("group", text.to_owned());
        Self::all().find(|group| group.0.name() == text).ok_or_else(unknown)
    }
}

impl Serialize for Group {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Experiment {
    /// The part of the profile that its clients offer.
    pub(crate) fn only(&self) -> Only {
        Only { offer: self.suite.map(Suite::offer), group: self.named_group.map(|group| group.0) }
    }

    /// Whether its clients show a pre-shared key: by their profile, or because the suite is for nothing else.
    #[must_use]
    pub fn is_by_key(&self) -> bool {
        let of_suite = |suite: Suite| matches!(suite.proof(), Proof::Psk | Proof::EcdhePsk);
        self.security.profile.psk || self.suite.is_some_and(of_suite)
    }

    pub(super) fn check_suite(&self) -> Result<(), ExperimentError> {
        let contradiction = |why: String| Err(ExperimentError::Contradiction(why));
        if self.suite.is_none() && self.named_group.is_none() {
            return Ok(());
        }
        if !self.security.is_secure() {
            return contradiction("a suite and a group are those of TLS or DTLS: with --security".to_owned());
        }
        let profile = self.security.profile;
        let accepted = profile.accept.suites;
        match self.suite.filter(|suite| !accepted.is_empty() && !accepted.contains(&suite.name())) {
            Some(suite) => contradiction(format!("profile {} does not accept {suite}", profile.name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_and_groups_are_read_as_they_are_written() {
        for suite in Suite::all() {
            assert_eq!(suite.name().parse::<Suite>(), Ok(suite));
            assert_eq!(suite.is_newest(), suite.proof() == Proof::Any, "{suite}");
        }
        for group in Group::all() {
            assert_eq!(group.to_string().parse::<Group>(), Ok(group));
        }
        assert!("TLS_NULL_WITH_NULL_NULL".parse::<Suite>().is_err() && "P-256".parse::<Group>().is_err());
    }

    #[test]
    fn every_suite_that_a_profile_names_is_here() {
        for profile in profile::PROFILES {
            for name in profile.accept.suites {
                assert!(name.parse::<Suite>().is_ok(), "{name}");
            }
        }
    }

    #[test]
    fn a_profile_that_does_not_accept_a_suite_is_named() {
        let of = |security: &str, suite: &str| {
            let (security, suite) = (security.parse().unwrap(), Some(suite.parse().unwrap()));
            Experiment { security, suite, ..Experiment::default() }.check().map_err(|error| error.to_string())
        };
        assert_eq!(of("modern", "TLS_AES_128_GCM_SHA256"), Ok(()));
        assert_eq!(of("psk", "TLS_PSK_WITH_AES_128_CCM"), Ok(()));
        assert!(of("low", "TLS_AES_128_GCM_SHA256").unwrap_err().contains("profile low does not accept"));
        assert!(of("none", "TLS_AES_128_GCM_SHA256").unwrap_err().contains("--security"));
    }
}
