//! Client certificates that a handshake refuses, for a log: what they claim, which is not proven, and the reason.
//!
//! The TLS stacks tell why a handshake has failed, but not whose certificate it was. Only the verifier sees it, so a
//! step of a handshake that fails is asked what the verifier has refused within it ([`during`]).

use std::{cell::Cell, error, fmt, future::poll_fn, io, pin::pin, task::Poll};

use fogmux_dtls::Alert;
use rustls::{CertificateError, Error, PeerMisbehaved};

use crate::channel::claimed_by;

pub(crate) const KEY_NOT_PROVEN: &str = "the certificate's key was not proven";
pub(crate) const NOT_ACCEPTED: &str = "the certificate's key or algorithm is not accepted";
const FORGED: &str = "the certificate's signature is not its authority's";
const BAD: &str = "bad certificate";
const NOT_SHOWN: &str = "no certificate shown";
/// The reason of a certificate that is valid only later, which a clock in the past says of good ones as well.
pub const NOT_YET_VALID: &str = "certificate not yet valid";

/// A client certificate that was refused, or is missing where one is required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCertificate {
    /// The common name that the certificate claims, or the beginning of its fingerprint; empty if there is none.
    pub claimed: Box<str>,
    /// The reason, in words that filters of logs can rely on.
    pub reason: &'static str,
}

impl RefusedCertificate {
    /// None was shown.
    pub(crate) fn missing() -> Self {
        Self { claimed: Box::default(), reason: NOT_SHOWN }
    }

    /// Of a certificate in DER, for a reason that rustls names.
    pub(crate) fn new(leaf: &[u8], error: &Error) -> Self {
        Self { claimed: claimed_by(leaf), reason: in_words(error) }
    }

    /// Of a DTLS handshake; `None` if it was refused for something else.
    #[must_use]
    pub fn of_dtls(alert: Alert, refused: &fogmux_dtls::Refused) -> Option<Self> {
        match refused {
            fogmux_dtls::Refused::Identity(_) | fogmux_dtls::Refused::Replaced(_) => None,
            fogmux_dtls::Refused::NoCertificate => Some(Self::missing()),
            fogmux_dtls::Refused::Certificate(leaf, error) => Some(Self::new(leaf, error)),
            fogmux_dtls::Refused::Unproven(leaf) => {
                let reasons = [(Alert::DecryptError, KEY_NOT_PROVEN), (Alert::IllegalParameter, NOT_ACCEPTED)];
                let reason = reasons.into_iter().find_map(|(at, reason)| (at == alert).then_some(reason));
                Some(Self { claimed: claimed_by(leaf), reason: reason.unwrap_or(BAD) })
            }
        }
    }

    /// Of a handshake that has failed with this error; `None` if it has failed for something else.
    #[must_use]
    pub fn of_error(error: &io::Error) -> Option<Self> {
        let inner = error.get_ref()?;
        if let Some(told) = inner.downcast_ref::<Told>() {
            return Some(told.refused.clone());
        }
        match inner.downcast_ref::<Error>() {
            Some(Error::NoCertificatesPresented) => Some(Self::missing()),
            Some(_) => None,
            // OpenSSL has only words for it (SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE).
            None => inner.to_string().contains("did not return a certificate").then(Self::missing),
        }
    }

    /// The error of a handshake that has failed for this.
    pub(crate) fn error(self, error: impl Into<Box<dyn error::Error + Send + Sync>>) -> io::Error {
        io::Error::other(Told { refused: self, error: error.into() })
    }
}

/// The same words stand for every stack.
#[expect(clippy::wildcard_enum_match_arm, reason = "rustls adds reasons, which are all a bad certificate")]
fn in_words(error: &Error) -> &'static str {
    let why = match error {
        Error::InvalidCertificate(why) => why,
        Error::PeerMisbehaved(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme) => return NOT_ACCEPTED,
        _ => return BAD,
    };
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => NOT_YET_VALID,
        CertificateError::Revoked => "certificate revoked",
        CertificateError::UnknownIssuer => "unknown certificate authority",
        CertificateError::BadSignature => FORGED,
        CertificateError::UnknownRevocationStatus => "no revocation list covers the certificate",
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            "the revocation list has expired"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "no certificate of a client"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
        // Ours, where a profile asks for a kind of key.
        | CertificateError::ApplicationVerificationFailure => NOT_ACCEPTED,
        _ => BAD,
    }
}

/// The error of a handshake, with the certificate for which it has failed.
#[derive(Debug)]
struct Told {
    refused: RefusedCertificate,
    error: Box<dyn error::Error + Send + Sync>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl error::Error for Told {}

/// A step of a handshake on this thread.
enum Step {
    /// There is none.
    Idle,
    /// One that has refused this so far.
    Running(Option<RefusedCertificate>),
}

thread_local! {
    static STEP: Cell<Step> = const { Cell::new(Step::Idle) };
}

/// Notes the certificate that the verifier refuses.
pub(super) fn note(leaf: &[u8], error: &Error) {
    note_for(leaf, in_words(error));
}

/// Notes the certificate whose key has not signed the handshake.
pub(super) fn note_unproven(leaf: &[u8], error: &Error) {
    let is_false = matches!(error, Error::InvalidCertificate(CertificateError::BadSignature));
    note_for(leaf, if is_false { KEY_NOT_PROVEN } else { in_words(error) });
}

fn note_for(leaf: &[u8], reason: &'static str) {
    STEP.with(|step| {
        if let Step::Running(_) = step.replace(Step::Idle) {
            step.set(Step::Running(Some(RefusedCertificate { claimed: claimed_by(leaf), reason })));
        }
    });
}

/// Makes one step of a handshake, and tells which certificate was refused within it.
pub(crate) fn during<T>(make: impl FnOnce() -> T) -> (T, Option<RefusedCertificate>) {
    STEP.set(Step::Running(None));
    let made = make();
    match STEP.replace(Step::Idle) {
        Step::Running(refused) => (made, refused),
        Step::Idle => (made, None),
    }
}

/// Makes a handshake. Its error tells of the certificate that was refused.
pub(crate) async fn told<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let mut handshake = pin!(handshake);
    let mut refused = None;
    let done = poll_fn(|cx| {
        let (polled, noted) = during(|| handshake.as_mut().poll(cx));
        if noted.is_some() {
            refused = noted;
        }
        match polled {
            Poll::Ready(done) => Poll::Ready((done, refused.take())),
            Poll::Pending => Poll::Pending,
        }
    });
    match done.await {
        (Ok(made), _) => Ok(made),
        (Err(error), None) => Err(error),
        (Err(error), Some(refused)) => Err(refused.error(error)),
    }
}
