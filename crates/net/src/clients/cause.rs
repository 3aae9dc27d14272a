//! The reason why a certificate is refused, when there are several.

use std::time::Duration;

use rustls::{
    CertificateError, Error,
    pki_types::{CertificateDer, UnixTime},
    server::danger::ClientCertVerifier,
};

use crate::dates::Dates;

/// The reason to name for this error of the verifier, which looks at dates before signatures. Anybody can make a
/// certificate that has expired: such a one is verified once more as of the end of its validity, and counts as expired
/// only if its signatures are good.
#[expect(clippy::wildcard_enum_match_arm, reason = "any other reason stays as it is")]
pub(super) fn of(
    verifier: &dyn ClientCertVerifier,
    (leaf, intermediates): (&CertificateDer<'_>, &[CertificateDer<'_>]),
    error: Error,
) -> Error {
    use CertificateError as E;
    match error {
        Error::InvalidCertificate(
            E::Expired | E::ExpiredContext { .. } | E::NotValidYet | E::NotValidYetContext { .. },
        ) => {}
        _ => return error,
    }
    let Some(dates) = Dates::parse(leaf) else { return error };
    let end = UnixTime::since_unix_epoch(Duration::from_secs(dates.not_after_unix_s));
    match verifier.verify_client_cert(leaf, intermediates, end) {
        Err(forged @ Error::InvalidCertificate(E::BadSignature | E::UnknownIssuer)) => forged,
        Ok(_) | Err(_) => error,
    }
}
