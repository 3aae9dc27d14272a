//! Cipher suites: the four of RFC 7252 §9.1.3 and RFC 7925 §4.2, their GCM sisters, those of pre-shared keys with a key
//! exchange (RFC 8442), and one for RSA certificates. All have AES-128 and SHA-256.

/// A cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite {
    /// RFC 8442.
    EcdhePskAes128Gcm,
    /// RFC 8442.
    EcdhePskAes128Ccm,
    /// RFC 8442.
    EcdhePskAes128Ccm8,
    /// RFC 5487.
    PskAes128Gcm,
    /// RFC 6655; mandatory for CoAP with pre-shared keys (RFC 7252 §9.1.3.1).
    PskAes128Ccm8,
    /// RFC 6655.
    PskAes128Ccm,
    /// RFC 5289.
    EcdheEcdsaAes128Gcm,
    /// RFC 7251; mandatory for CoAP with certificates (RFC 7252 §9.1.3.2).
    EcdheEcdsaAes128Ccm8,
    /// RFC 7251.
    EcdheEcdsaAes128Ccm,
    /// RFC 5289, for whoever gives us an RSA certificate.
    EcdheRsaAes128Gcm,
}

/// How a suite agrees on a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    Psk,
    EcdhePsk,
    EcdheEcdsa,
    EcdheRsa,
}

/// How a suite protects records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aead {
    Gcm,
    Ccm,
    Ccm8,
}

/// How much the keys of a session are used up (RFC 9147 §4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wear {
    /// Nothing has to be done.
    Fresh,
    /// A key has to be changed.
    Worn,
    /// The session has to end.
    Spent,
}

impl Suite {
    /// All, in the order we prefer. Pre-shared keys first: who offers them has one, and with a certificate suite would
    /// be nobody in particular. With a key exchange before without: whoever learns a key later cannot read what was
    /// recorded before. Longer tags before shorter.
    pub const ALL: [Self; 10] = [
        Self::EcdhePskAes128Gcm,
        Self::EcdhePskAes128Ccm,
        Self::EcdhePskAes128Ccm8,
        Self::PskAes128Gcm,
        Self::PskAes128Ccm,
        Self::PskAes128Ccm8,
        Self::EcdheEcdsaAes128Gcm,
        Self::EcdheEcdsaAes128Ccm,
        Self::EcdheEcdsaAes128Ccm8,
        Self::EcdheRsaAes128Gcm,
    ];

    /// Its number in the IANA registry.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::EcdhePskAes128Gcm => 0xd001,
            Self::EcdhePskAes128Ccm8 => 0xd003,
            Self::EcdhePskAes128Ccm => 0xd005,
            Self::PskAes128Gcm => 0x00a8,
            Self::PskAes128Ccm => 0xc0a4,
            Self::PskAes128Ccm8 => 0xc0a8,
            Self::EcdheEcdsaAes128Gcm => 0xc02b,
            Self::EcdheEcdsaAes128Ccm => 0xc0ac,
            Self::EcdheEcdsaAes128Ccm8 => 0xc0ae,
            Self::EcdheRsaAes128Gcm => 0xc02f,
        }
    }

    /// Its name in the IANA registry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EcdhePskAes128Gcm => "TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256",
            Self::EcdhePskAes128Ccm => "TLS_ECDHE_PSK_WITH_AES_128_CCM_SHA256",
            Self::EcdhePskAes128Ccm8 => "TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256",
            Self::PskAes128Gcm => "TLS_PSK_WITH_AES_128_GCM_SHA256",
            Self::PskAes128Ccm => "TLS_PSK_WITH_AES_128_CCM",
            Self::PskAes128Ccm8 => "TLS_PSK_WITH_AES_128_CCM_8",
            Self::EcdheEcdsaAes128Gcm => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            Self::EcdheEcdsaAes128Ccm => "TLS_ECDHE_ECDSA_WITH_AES_128_CCM",
            Self::EcdheEcdsaAes128Ccm8 => "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8",
            Self::EcdheRsaAes128Gcm => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        }
    }

    /// Whether it is for pre-shared keys; the others are for certificates.
    #[must_use]
    pub const fn is_psk(self) -> bool {
        matches!(self.exchange(), Exchange::Psk | Exchange::EcdhePsk)
    }

    pub(super) const fn exchange(self) -> Exchange {
        match self {
            Self::PskAes128Gcm | Self::PskAes128Ccm | Self::PskAes128Ccm8 => Exchange::Psk,
            Self::EcdhePskAes128Gcm | Self::EcdhePskAes128Ccm | Self::EcdhePskAes128Ccm8 => Exchange::EcdhePsk,
            Self::EcdheEcdsaAes128Gcm | Self::EcdheEcdsaAes128Ccm | Self::EcdheEcdsaAes128Ccm8 => Exchange::EcdheEcdsa,
            Self::EcdheRsaAes128Gcm => Exchange::EcdheRsa,
        }
    }

    pub(super) const fn aead(self) -> Aead {
        match self {
            Self::EcdhePskAes128Gcm | Self::PskAes128Gcm | Self::EcdheEcdsaAes128Gcm | Self::EcdheRsaAes128Gcm => {
                Aead::Gcm
            }
            Self::EcdhePskAes128Ccm | Self::PskAes128Ccm | Self::EcdheEcdsaAes128Ccm => Aead::Ccm,
            Self::EcdhePskAes128Ccm8 | Self::PskAes128Ccm8 | Self::EcdheEcdsaAes128Ccm8 => Aead::Ccm8,
        }
    }
}

/// 2^24.5, the records of full size that AES-128-GCM may protect under a key.
const GCM_SEALED_MAX: u64 = 23_726_566;
/// 2^23.5, the records that AES-128-CCM may refuse under a key.
const CCM_FORGED_MAX: u64 = 11_863_283;

impl Aead {
    /// The most records that may be protected under a key (RFC 9147 §4.5.3).
    pub(super) const fn sealed_max(self) -> u64 {
        match self {
            Self::Gcm => GCM_SEALED_MAX,
            Self::Ccm | Self::Ccm8 => 1 << 23,
        }
    }

    /// The most records under a key that may be forged (RFC 9147 §4.5.3). For CCM_8 the standard leaves the limit to
    /// us: one that kept the probability of a forgery as low as elsewhere (2^7, appendix B.3) would let anybody who can
    /// forge an address end sessions. With this one it is 2^-44; in DTLS 1.3, keys are changed long before.
    pub(super) const fn forged_max(self) -> u64 {
        match self {
            Self::Gcm => 1 << 36,
            Self::Ccm => CCM_FORGED_MAX,
            Self::Ccm8 => 1 << 20,
        }
    }

    /// Bytes of a tag: 8 for CCM_8 (RFC 6655 §3).
    pub(super) const fn tag(self) -> usize {
        match self {
            Self::Gcm | Self::Ccm => 16,
            Self::Ccm8 => 8,
        }
    }
}
