//! Certificates in DTLS 1.3 (RFC 8446 §4.4.2, §4.4.3): chains, and what their keys sign.

use rustls::{
    SignatureScheme,
    pki_types::{CertificateDer, SignatureVerificationAlgorithm},
};

use super::schedule::Hash;
use crate::{
    Alert, exchange,
    prf::Side,
    wire::{self, Reader},
};

/// The content that a CertificateVerify signs (RFC 8446 §4.4.3).
pub(super) fn signed(side: Side, transcript: &Hash) -> Vec<u8> {
    let context: &[u8] = match side {
        Side::Client => b"TLS 1.3, client CertificateVerify",
        Side::Server => b"TLS 1.3, server CertificateVerify",
    };
    [&[0x20; 64], context, &[0], transcript].concat()
}

/// Signature schemes that we accept, best first: in TLS 1.3 one of ECDSA names its curve (RFC 8446 §4.2.3), and what
/// RSA signs is padded by PSS.
pub(crate) const SCHEMES: [SignatureScheme; 5] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
];

fn algorithm(scheme: u16) -> Option<&'static dyn SignatureVerificationAlgorithm> {
    use webpki::ring as with;
    match scheme {
        0x0403 => Some(with::ECDSA_P256_SHA256),
        0x0503 => Some(with::ECDSA_P384_SHA384),
        0x0807 => Some(with::ED25519),
        0x0804 => Some(with::RSA_PSS_2048_8192_SHA256_LEGACY_KEY),
        0x0805 => Some(with::RSA_PSS_2048_8192_SHA384_LEGACY_KEY),
        _ => None,
    }
}

pub(super) fn verify(leaf: &CertificateDer<'_>, scheme: u16, message: &[u8], signature: &[u8]) -> Result<(), Alert> {
    let leaf = webpki::EndEntityCert::try_from(leaf).map_err(|_| Alert::BadCertificate)?;
    let algorithm = algorithm(scheme).ok_or(Alert::IllegalParameter)?;
    leaf.verify_signature(algorithm, message, signature).map_err(|error| exchange::alert_of_signature(&error))
}

/// A chain as a Certificate message has it (RFC 8446 §4.4.2).
///
/// # Errors
/// `unsupported_extension`: we ask for nothing that is said beside a certificate, and neither may that be said.
pub(super) fn chain(body: &[u8]) -> Result<Vec<CertificateDer<'static>>, Alert> {
    let mut reader = Reader(body);
    // The context of a request in a handshake is empty.
    reader.vector8().filter(|context| context.is_empty()).ok_or(Alert::DecodeError)?;
    let mut list = Reader(reader.vector24().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?);
    let mut chain = Vec::new();
    while !list.is_empty() {
        let certificate = list.vector24().filter(|certificate| !certificate.is_empty()).ok_or(Alert::DecodeError)?;
        if !list.vector16().ok_or(Alert::DecodeError)?.is_empty() {
            return Err(Alert::UnsupportedExtension);
        }
        chain.push(CertificateDer::from(certificate.to_vec()));
    }
    Ok(chain)
}

/// RFC 8446 §4.4.2.
pub(super) fn certificate_body(chain: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut list = Vec::new();
    for certificate in chain {
        wire::put_vector24(&mut list, certificate);
        wire::put_vector16(&mut list, &[]);
    }
    let mut body = vec![0];
    wire::put_vector24(&mut body, &list);
    body
}
