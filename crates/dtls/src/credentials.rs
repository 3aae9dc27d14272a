//! A server's credentials, and whom it believes: what the program answers during a handshake.

use std::{fmt, net::IpAddr, sync::Arc};

use rustls::{pki_types::CertificateDer, server::danger::ClientCertVerifier, sign::CertifiedKey};
use zeroize::Zeroizing;

use crate::{Channel, ProvenPsk};

/// A server's credentials and its trust in clients. Asked anew for each handshake, so that a reload counts at once.
pub trait Credentials: Send + Sync {
    /// The server's certificate and key. Without one there are no suites with certificates.
    fn certified_key(&self) -> Option<Arc<CertifiedKey>>;

    /// The verifier of clients' certificates. Without one, clients are not asked for any.
    fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>>;

    /// Whether a client may have a session without a certificate or a key of its own.
    fn admits_anonymous(&self) -> bool {
        true
    }

    /// Whether pre-shared keys are taken at all.
    fn has_psk(&self) -> bool;

    /// Whether that identity has to wait there, after attempts that failed. The handshake is dropped without a word and
    /// counts as no attempt: a client with the right key must not wait the longer for having come too early.
    fn must_wait(&self, _from: IpAddr, _identity: &[u8]) -> bool {
        false
    }

    /// Notes that somebody there has tried a wrong key for that identity, before anything else is judged.
    fn wrong_key(&self, _from: IpAddr, _identity: &[u8]) {}

    /// Takes one [`Credentials::wrong_key`] back: the record was forged by somebody else, and the client has the key.
    fn right_key_after_all(&self, _from: IpAddr, _identity: &[u8]) {}

    /// The key of an identity, unless there is none.
    fn psk(&self, from: IpAddr, identity: &[u8]) -> Option<Psk>;

    /// Whether a key is still that of its identity. Asked when a handshake ends: the key was looked up when it began,
    /// and a peer decides how long the rest takes.
    fn holds(&self, _psk: &ProvenPsk) -> bool {
        true
    }

    /// A number that changes with the authorities and revocation lists that certificates are judged by. If it is
    /// another when a handshake ends than when it began, the client's certificate is verified once more.
    fn trust(&self) -> u64 {
        0
    }

    /// The name of the principal that the channel's credential belongs to. Its sessions share what is there with those
    /// of others, whatever credentials it has; without a name each credential is a principal of its own.
    fn principal(&self, _channel: &Channel) -> Option<Arc<str>> {
        None
    }

    /// Watches a client's certificate and chain, if its session is to end when the certificate is revoked.
    fn watch(&self, _chain: &[CertificateDer<'static>]) -> Option<Watch> {
        None
    }
}

/// A pre-shared key as it is when it is looked up.
pub struct Psk {
    /// The key.
    pub key: Zeroizing<Vec<u8>>,
    /// Tells it from other keys of its identity; it has no other meaning here.
    pub mark: u64,
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk").finish_non_exhaustive()
    }
}

/// An open session's question whether its client's certificate was revoked. Dropped with the session.
pub struct Watch(Box<dyn Fn() -> bool + Send>);

impl Watch {
    /// A watch that asks `is_revoked` with each record.
    #[must_use]
    pub fn new(is_revoked: impl Fn() -> bool + Send + 'static) -> Self {
        Self(Box::new(is_revoked))
    }

    pub(crate) fn is_revoked(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("is_revoked", &self.is_revoked()).finish()
    }
}
