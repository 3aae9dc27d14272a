//! The credential for which a handshake was refused, for a log: a claim of the peer's that it has not proved.

use rustls::pki_types::CertificateDer;

/// The credential for which a handshake was refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    /// The identity of a pre-shared key that was not proven.
    Identity(Box<[u8]>),
    /// A certificate that the verifier has rejected, and why.
    Certificate(CertificateDer<'static>, rustls::Error),
    /// A certificate whose key has not signed the handshake (`decrypt_error`), or whose kind of key or algorithm is not
    /// accepted (`illegal_parameter`).
    Unproven(CertificateDer<'static>),
    /// No certificate, where one is required.
    NoCertificate,
}
