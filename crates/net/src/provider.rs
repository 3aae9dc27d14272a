//! The crypto provider of rustls (ring), limited to the suites and versions of an offer, and the names of suites.

use std::sync::Arc;

use rustls::{
    NamedGroup, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
    version::{TLS12, TLS13},
};

use crate::profile::{Group, Offer, Version};

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// With the suites of an offer and no others, and all groups or one.
#[must_use]
pub fn provider_of(offer: &Offer, group: Option<Group>) -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    if !offer.suites.is_empty() {
        provider.cipher_suites.retain(|suite| {
            let name = iana_name(&format!("{:?}", suite.suite()));
            offer.suites.contains(&name.as_str())
        });
    }
    if let Some(group) = group {
        let name = match group {
            Group::X25519 => NamedGroup::X25519,
            Group::Secp256r1 => NamedGroup::secp256r1,
            Group::Secp384r1 => NamedGroup::secp384r1,
        };
        provider.kx_groups.retain(|known| known.name() == name);
    }
    Arc::new(provider)
}

/// The versions, as rustls has them.
#[must_use]
pub fn supported(versions: &[Version]) -> Vec<&'static SupportedProtocolVersion> {
    let version = |version: &Version| match version {
        Version::Tls12 => &TLS12,
        Version::Tls13 => &TLS13,
    };
    versions.iter().map(version).collect()
}

/// rustls writes `TLS13_AES_…` where IANA has `TLS_AES_…`.
#[must_use]
pub fn iana_name(name: &str) -> String {
    name.replacen("TLS13_", "TLS_", 1)
}
