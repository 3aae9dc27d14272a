//! Cipher suites of TLS 1.3 (RFC 8446 §B.4) that have AES-128 and SHA-256.

use crate::suite::Aead;

/// A cipher suite of DTLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite13 {
    /// Every implementation has it (RFC 8446 §9.1).
    Aes128Gcm,
    /// With tags of 16 bytes.
    Aes128Ccm,
    /// With tags of 8 bytes, as small devices have it. Keys are changed when records were forged under them (RFC 9147
    /// §4.5.3).
    Aes128Ccm8,
}

impl Suite13 {
    /// All, in the order we prefer: longer tags before shorter.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes128Ccm, Self::Aes128Ccm8];

    /// Its number in the IANA registry.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Aes128Gcm => 0x1301,
            Self::Aes128Ccm => 0x1304,
            Self::Aes128Ccm8 => 0x1305,
        }
    }

    /// Its name in the IANA registry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
            Self::Aes128Ccm => "TLS_AES_128_CCM_SHA256",
            Self::Aes128Ccm8 => "TLS_AES_128_CCM_8_SHA256",
        }
    }

    pub(crate) fn parse(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.number() == number)
    }

    pub(crate) const fn aead(self) -> Aead {
        match self {
            Self::Aes128Gcm => Aead::Gcm,
            Self::Aes128Ccm => Aead::Ccm,
            Self::Aes128Ccm8 => Aead::Ccm8,
        }
    }
}
