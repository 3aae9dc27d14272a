//! Kinds of keys that client certificates may have: those whose signatures rustls verifies with ring.

use x509_parser::{certificate::X509Certificate, prelude::FromDer as _, public_key::PublicKey};

const RSA_ENCRYPTION: &str = "1.2.840.113549.1.1.1";
const EC_PUBLIC_KEY: &str = "1.2.840.10045.2.1";
const ED25519: &str = "1.3.101.112";
/// secp256r1 and secp384r1 (RFC 5480 §2.1.1.1).
const CURVES: [&str; 2] = ["1.2.840.10045.3.1.7", "1.3.132.0.34"];
/// Bits of an RSA key.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Whether the certificate's key is of such a kind: RSA of 2048 to 8192 bits, ECDSA on secp256r1 or secp384r1, or
/// Ed25519. A stack that knows other kinds must not accept them, so that one list holds for every transport.
pub(super) fn is_accepted(certificate: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let key = certificate.public_key();
    match key.algorithm.algorithm.to_id_string().as_str() {
        RSA_ENCRYPTION => match key.parsed() {
            Ok(PublicKey::RSA(rsa)) => RSA_BITS.contains(&rsa.key_size()),
            Ok(_) | Err(_) => false,
        },
        EC_PUBLIC_KEY => {
            let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
            curve.is_some_and(|curve| CURVES.contains(&curve.to_id_string().as_str()))
        }
        ED25519 => true,
        _ => false,
    }
}
