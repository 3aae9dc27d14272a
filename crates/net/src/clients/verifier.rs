//! A verifier for rustls of the certificates that clients show.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use super::{ClientTrust, hints::Hints, refused};
use crate::{channel::ClientCertificate, profile::KeyKind};

/// The verifier for rustls.
#[derive(Debug)]
pub(super) struct Verifier {
    /// The names of the authorities: a browser asks its user for a certificate only if it has one of these.
    pub(super) hints: Hints,
    pub(super) trust: ClientTrust,
    pub(super) mandatory: bool,
    pub(super) key: Option<KeyKind>,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.hints.at(&self.trust.authorities())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verify(end_entity, intermediates);
        verified.inspect_err(|error| refused::note(end_entity, error)).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms);
        verified.inspect_err(|error| refused::note_unproven(cert, error))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms);
        verified.inspect_err(|error| refused::note_unproven(cert, error))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Verifier {
    fn verify(&self, end_entity: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
        self.trust.verify(end_entity, intermediates)?;
        // The doors go by what is in it, so one that they cannot read is refused here, where the peer hears of it.
        if ClientCertificate::parse(end_entity).is_err() {
            return Err(Error::InvalidCertificate(CertificateError::BadEncoding));
        }
        match self.key {
            Some(kind) if !kind.is_in(end_entity) => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
            Some(_) | None => Ok(()),
        }
    }
}
