//! Client certificates that OpenSSL itself refuses: those whose key has not signed the handshake.

use std::io;

use openssl::ssl::{Error, SslRef};

use crate::{
    channel::claimed_by,
    clients::{
        RefusedCertificate,
        refused::{KEY_NOT_PROVEN, NOT_ACCEPTED},
    },
};

/// The words of OpenSSL, which has no other names for them: `SSL_R_BAD_SIGNATURE`, `SSL_R_WRONG_CURVE` and
/// `SSL_R_WRONG_SIGNATURE_TYPE`.
const REASONS: [(&str, &str); 3] =
    [("bad signature", KEY_NOT_PROVEN), ("wrong curve", NOT_ACCEPTED), ("wrong signature type", NOT_ACCEPTED)];

/// The error of a handshake, with the certificate for which it has failed.
pub(super) fn error(ssl: &SslRef, error: Error) -> io::Error {
    let refused = refused(ssl, &error);
    let error = error.into_io_error().unwrap_or_else(io::Error::other);
    match refused {
        Some(refused) => refused.error(error),
        None => error,
    }
}

fn refused(ssl: &SslRef, error: &Error) -> Option<RefusedCertificate> {
    let leaf = ssl.peer_certificate()?.to_der().ok()?;
    let mut errors = error.ssl_error()?.errors().iter().filter_map(|error| error.reason());
    let (_, reason) = errors.find_map(|said| REASONS.into_iter().find(|(words, _)| *words == said))?;
    Some(RefusedCertificate { claimed: claimed_by(&leaf), reason })
}
