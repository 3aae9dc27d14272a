//! The credential for which a handshake was refused, for a log: a claim of the peer's that it has not proved.

use rustls::{pki_types::CertificateDer, server::danger::ClientCertVerifier};

use crate::{Alert, ProvenPsk, exchange, platform::Host};

/// The credential for which a handshake was refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    /// The identity of a pre-shared key that was not proven.
    Identity(Box<[u8]>),
    /// The identity of a pre-shared key that was proven, and has been replaced or removed since the handshake began.
    Replaced(Box<[u8]>),
    /// A certificate that the verifier has rejected, and why.
    Certificate(CertificateDer<'static>, rustls::Error),
    /// A certificate whose key has not signed the handshake (`decrypt_error`), or whose kind of key or algorithm is not
    /// accepted (`illegal_parameter`).
    Unproven(CertificateDer<'static>),
    /// No certificate, where one is required.
    NoCertificate,
}

/// Checks a client's chain, which is empty when it has no certificate. `missing` is the alert where one is required.
pub(crate) fn check_chain(
    verifier: &dyn ClientCertVerifier,
    host: Host<'_>,
    chain: &[CertificateDer<'static>],
    missing: Alert,
) -> Result<(), (Alert, Option<Refused>)> {
    let Some((leaf, intermediates)) = chain.split_first() else {
        let is_required = verifier.client_auth_mandatory() || !host.credentials.admits_anonymous();
        return if is_required { Err((missing, Some(Refused::NoCertificate))) } else { Ok(()) };
    };
    let now = host.platform.unix_time().map_err(|alert| (alert, None))?;
    let verified = verifier.verify_client_cert(leaf, intermediates, now);
    verified.map(drop).map_err(|error| (exchange::alert_of(&error), Some(Refused::Certificate(leaf.clone(), error))))
}

/// A client's credential as it was judged when its handshake began.
pub(crate) struct Judged<'a> {
    pub(crate) verifier: Option<&'a dyn ClientCertVerifier>,
    /// The client's chain; empty when it has no certificate.
    pub(crate) chain: &'a [CertificateDer<'static>],
    pub(crate) psk: Option<&'a ProvenPsk>,
    /// Of the beginning ([`Credentials::trust`](crate::Credentials::trust)).
    pub(crate) trust: u64,
}

impl Judged<'_> {
    /// Checks at the end of the handshake that the credential still holds. A certificate has to be watched before that,
    /// so that none is revoked between the two. To the client a key that is not its identity's any more is a wrong one
    /// (RFC 4279 §2, RFC 8446 §6.2).
    pub(crate) fn check(&self, host: Host<'_>) -> Result<(), (Alert, Option<Refused>)> {
        if let Some(psk) = self.psk.filter(|psk| !host.credentials.holds(psk)) {
            return Err((Alert::DecryptError, Some(Refused::Replaced(psk.identity.clone()))));
        }
        match self.verifier {
            Some(verifier) if !self.chain.is_empty() && self.trust != host.credentials.trust() => {
                check_chain(verifier, host, self.chain, Alert::InternalError)
            }
            Some(_) | None => Ok(()),
        }
    }
}
