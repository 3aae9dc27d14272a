//! Key exchange and signatures: curves, signature schemes, and what goes wrong with certificates.

use rustls::{
    CertificateError, NamedGroup, SignatureScheme,
    crypto::ActiveKeyExchange,
    pki_types::{CertificateDer, SignatureVerificationAlgorithm},
};
use zeroize::Zeroizing;

use super::{Alert, Platform, suite::Exchange, wire::Reader};

/// A named group (RFC 8422 §5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// NIST P-256; mandatory for CoAP (RFC 7252 §9.1.3.2).
    Secp256r1,
    /// RFC 7748.
    X25519,
}

impl Group {
    /// Both, in the order that a client prefers.
    pub const ALL: [Self; 2] = [Self::X25519, Self::Secp256r1];

    pub(super) const fn number(self) -> u16 {
        match self {
            Self::Secp256r1 => 23,
            Self::X25519 => 29,
        }
    }

    pub(super) fn parse(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.number() == number)
    }

    /// The first of the offered that we have. Who offers none has the one that CoAP makes mandatory (RFC 7252
    /// §9.1.3.2).
    pub(super) fn choose(offered: Option<&[u8]>) -> Option<Self> {
        match offered {
            Some(offered) => Reader(offered).numbers().find_map(Self::parse),
            None => Some(Self::Secp256r1),
        }
    }

    const fn name(self) -> NamedGroup {
        match self {
            Self::Secp256r1 => NamedGroup::secp256r1,
            Self::X25519 => NamedGroup::X25519,
        }
    }
}

/// A key of one handshake.
pub(super) struct Ephemeral(Box<dyn ActiveKeyExchange>);

impl Ephemeral {
    /// Makes a key. The platform's cryptography draws the random numbers.
    pub(super) fn generate(platform: &Platform, group: Group) -> Result<Self, Alert> {
        let exchange = platform.crypto.kx_groups.iter().find(|known| known.name() == group.name());
        let started = exchange.and_then(|exchange| exchange.start().ok());
        started.map(Self).ok_or(Alert::InternalError)
    }

    pub(super) fn public(&self) -> &[u8] {
        self.0.pub_key()
    }

    /// The premaster secret with the point of the other end, which is checked to be on the curve.
    pub(super) fn agree(self, point: &[u8]) -> Result<Zeroizing<Vec<u8>>, Alert> {
        let secret = self.0.complete(point).map_err(|_| Alert::IllegalParameter)?;
        Ok(Zeroizing::new(secret.secret_bytes().to_vec()))
    }
}

/// Signature schemes that we accept, best first. In TLS 1.2 an ECDSA scheme names the hash and not the curve.
pub(super) const SCHEMES: [SignatureScheme; 7] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
];

/// A client without the extension has SHA-256 with ECDSA: RFC 5246 would have SHA-1, CoAP does not (RFC 7252 §9.1.3.2).
pub(super) fn schemes(offered: Option<&[u8]>) -> Vec<SignatureScheme> {
    match offered {
        Some(offered) => Reader(offered).numbers().map(SignatureScheme::from).collect(),
        None => vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PKCS1_SHA256],
    }
}

/// The algorithms of a scheme: a hash, and with ECDSA a curve of which it says nothing.
fn algorithms(scheme: u16) -> [Option<&'static dyn SignatureVerificationAlgorithm>; 2] {
    use webpki::ring as with;
    match scheme {
        0x0403 => [Some(with::ECDSA_P256_SHA256), Some(with::ECDSA_P384_SHA256)],
        0x0503 => [Some(with::ECDSA_P384_SHA384), Some(with::ECDSA_P256_SHA384)],
        0x0807 => [Some(with::ED25519), None],
        0x0804 => [Some(with::RSA_PSS_2048_8192_SHA256_LEGACY_KEY), None],
        0x0805 => [Some(with::RSA_PSS_2048_8192_SHA384_LEGACY_KEY), None],
        0x0401 => [Some(with::RSA_PKCS1_2048_8192_SHA256), None],
        0x0501 => [Some(with::RSA_PKCS1_2048_8192_SHA384), None],
        _ => [None, None],
    }
}

/// Whether a scheme is of the kind that the suite names (RFC 5246 §7.4.3; Ed25519 goes with ECDSA, RFC 8422 §5.10).
pub(super) const fn goes_with(scheme: u16, exchange: Exchange) -> bool {
    match exchange {
        Exchange::EcdheEcdsa => matches!(scheme, 0x0403 | 0x0503 | 0x0807),
        Exchange::EcdheRsa => matches!(scheme, 0x0804 | 0x0805 | 0x0401 | 0x0501),
        Exchange::Psk | Exchange::EcdhePsk => false,
    }
}

/// Whether the key of the certificate has signed the message.
pub(super) fn verify(leaf: &CertificateDer<'_>, scheme: u16, message: &[u8], signature: &[u8]) -> Result<(), Alert> {
    let leaf = webpki::EndEntityCert::try_from(leaf).map_err(|_| Alert::BadCertificate)?;
    // RFC 5246 §7.4.3, §7.4.8: the scheme was offered, and goes with the key.
    let mut alert = Alert::IllegalParameter;
    for algorithm in algorithms(scheme).into_iter().flatten() {
        match leaf.verify_signature(algorithm, message, signature).map_err(|error| alert_of_signature(&error)) {
            Ok(()) => return Ok(()),
            Err(Alert::IllegalParameter) => {}
            Err(other) => alert = other,
        }
    }
    Err(alert)
}

/// The alert for a signature that does not hold.
pub(super) const fn alert_of_signature(error: &webpki::Error) -> Alert {
    use webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext as OfAnotherKind;
    if let OfAnotherKind(_) = error { Alert::IllegalParameter } else { Alert::DecryptError }
}

/// A chain as a Certificate message has it (RFC 5246 §7.4.2).
pub(super) fn chain(body: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let mut reader = Reader(body);
    let mut list = Reader(reader.vector24()?);
    let mut chain = Vec::new();
    while !list.is_empty() {
        chain.push(CertificateDer::from(list.vector24()?.to_vec()));
    }
    reader.is_empty().then_some(chain)
}

/// The alert for a certificate that was rejected.
pub(super) fn alert_of(error: &rustls::Error) -> Alert {
    use rustls::Error::InvalidCertificate as Invalid;
    if let Invalid(CertificateError::Revoked) = error {
        return Alert::CertificateRevoked;
    }
    if let Invalid(CertificateError::UnknownIssuer) = error {
        return Alert::UnknownCa;
    }
    if let Invalid(
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. },
    ) = error
    {
        return Alert::CertificateExpired;
    }
    Alert::BadCertificate
}
