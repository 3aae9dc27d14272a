//! The certificate and the access rules of the gateway, where a document says what its server had.

use fogmux_net::profile::KeyKind;
use serde::{Deserialize, Serialize};

/// The key of the server's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerKey {
    /// As the profile has it, or else the gateway's own (ECDSA on P-256).
    #[default]
    #[serde(rename = "of-profile")]
    OfProfile,
    /// ECDSA on P-256.
    #[serde(rename = "ecdsa-p256")]
    EcdsaP256,
    /// ECDSA on P-384.
    #[serde(rename = "ecdsa-p384")]
    EcdsaP384,
    /// RSA of 2048 bits.
    #[serde(rename = "rsa2048")]
    Rsa2048,
    /// RSA of 3072 bits.
    #[serde(rename = "rsa3072")]
    Rsa3072,
    /// RSA of 4096 bits.
    #[serde(rename = "rsa4096")]
    Rsa4096,
}

impl ServerKey {
    /// The kind of key, if one is asked for.
    #[must_use]
    pub fn kind(self) -> Option<KeyKind> {
        match self {
            Self::OfProfile => None,
            Self::EcdsaP256 => Some(KeyKind::EcdsaP256),
            Self::EcdsaP384 => Some(KeyKind::EcdsaP384),
            Self::Rsa2048 => Some(KeyKind::Rsa2048),
            Self::Rsa3072 => Some(KeyKind::Rsa3072),
            Self::Rsa4096 => Some(KeyKind::Rsa4096),
        }
    }
}

/// The durability of the gateway (`store.durability`): the event that an acknowledgement waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// The gateway's default: retained messages, and those for sessions that last, are on the disk by then.
    #[default]
    Default,
    /// It waits for nothing, as with servers that keep all in memory.
    None,
}

/// The access rules of the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rules {
    /// Everybody may do everything.
    #[default]
    Open,
    /// The clients' identity may read and write the topics of the experiment, by a rule for each, and nobody anything
    /// else.
    ByIdentity,
}
