//! The AEAD algorithms that a context may use, by their COSE numbers (RFC 9053 §4).

use std::fmt;
use std::str::FromStr;

/// An AEAD algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// A128GCM, COSE 1.
    A128Gcm,
    /// A256GCM, COSE 3.
    A256Gcm,
    /// AES-CCM-16-64-128, COSE 10: mandatory, and what nearly everyone uses (RFC 8613 §5).
    #[default]
    AesCcm1664128,
    /// AES-CCM-16-64-256, COSE 11.
    AesCcm1664256,
    /// ChaCha20/Poly1305, COSE 24.
    ChaCha20Poly1305,
    /// AES-CCM-16-128-128, COSE 30.
    AesCcm16128128,
    /// AES-CCM-16-128-256, COSE 31.
    AesCcm16128256,
}

/// A name or number that is none of the algorithms here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the AEAD algorithm is none of {NAMES}")]
pub struct UnknownAlgorithm;

const NAMES: &str = "AES-CCM-16-64-128, AES-CCM-16-64-256, AES-CCM-16-128-128, AES-CCM-16-128-256, A128GCM, A256GCM, \
                     ChaCha20/Poly1305";

impl Algorithm {
    const ALL: [Self; 7] = [
        Self::A128Gcm,
        Self::A256Gcm,
        Self::AesCcm1664128,
        Self::AesCcm1664256,
        Self::ChaCha20Poly1305,
        Self::AesCcm16128128,
        Self::AesCcm16128256,
    ];

    /// The number in the COSE registry.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::A128Gcm => 1,
            Self::A256Gcm => 3,
            Self::AesCcm1664128 => 10,
            Self::AesCcm1664256 => 11,
            Self::ChaCha20Poly1305 => 24,
            Self::AesCcm16128128 => 30,
            Self::AesCcm16128256 => 31,
        }
    }

    /// The name in the COSE registry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::A128Gcm => "A128GCM",
            Self::A256Gcm => "A256GCM",
            Self::AesCcm1664128 => "AES-CCM-16-64-128",
            Self::AesCcm1664256 => "AES-CCM-16-64-256",
            Self::ChaCha20Poly1305 => "ChaCha20/Poly1305",
            Self::AesCcm16128128 => "AES-CCM-16-128-128",
            Self::AesCcm16128256 => "AES-CCM-16-128-256",
        }
    }

    /// The algorithm of a COSE number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| u64::from(algorithm.number()) == number)
    }

    /// Bytes of a key.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::A128Gcm | Self::AesCcm1664128 | Self::AesCcm16128128 => 16,
            Self::A256Gcm | Self::AesCcm1664256 | Self::ChaCha20Poly1305 | Self::AesCcm16128256 => 32,
        }
    }

    /// Bytes of a nonce and of the Common IV.
    #[must_use]
    pub const fn nonce_bytes(self) -> usize {
        match self {
            Self::A128Gcm | Self::A256Gcm | Self::ChaCha20Poly1305 => 12,
            Self::AesCcm1664128 | Self::AesCcm1664256 | Self::AesCcm16128128 | Self::AesCcm16128256 => 13,
        }
    }

    /// Bytes by which a ciphertext is longer than its plaintext.
    #[must_use]
    pub const fn tag_bytes(self) -> usize {
        match self {
            Self::AesCcm1664128 | Self::AesCcm1664256 => 8,
            Self::A128Gcm | Self::A256Gcm | Self::ChaCha20Poly1305 | Self::AesCcm16128128 | Self::AesCcm16128256 => 16,
        }
    }

    /// The longest Sender ID (RFC 8613 §3.3).
    #[must_use]
    pub const fn id_bytes_max(self) -> usize {
        self.nonce_bytes() - 6
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// By name, in any case, or by COSE number.
    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let by_name = Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(text));
        by_name.or_else(|| Self::from_number(text.parse().ok()?)).ok_or(UnknownAlgorithm)
    }
}
