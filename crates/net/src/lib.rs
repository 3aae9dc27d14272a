//! Listeners, TLS, QUIC, certificates of our own, and the limits on who may connect: what lies below every door.
//!
//! Nothing here knows a protocol above TLS. Sockets are made before the workers start ([`listener`]); connections are
//! counted ([`admission`]) before a byte is read; a TLS handshake has a deadline and never holds up the next accept
//! ([`tls`]).

pub mod acceptor;
pub mod admission;
pub mod by_name;
pub mod certificate;
pub mod challenges;
pub mod channel;
pub mod clients;
mod dates;
pub mod dtls;
mod error;
mod handshake_failure;
mod handshakes;
pub mod interfaces;
pub mod key_log;
pub mod listener;
#[cfg(feature = "tls-openssl")]
pub mod openssl;
mod own_authority;
pub mod pem;
pub mod pki;
mod places;
pub mod profile;
pub mod provider;
pub mod proxy;
pub mod quic;
pub mod stream;
pub mod tls;
pub mod validity;

pub use acceptor::{HandshakeError, TlsAcceptor};
pub use admission::{Admission, AdmissionLimits, Admitted};
pub use by_name::Named;
pub use challenges::{ChallengeError, Challenges, UnderWay};
pub use channel::{Channel, ClientCertificate, ProvenPsk, Psk, PskAttempt, PskGuard, PskSource, hex};
pub use clients::{ClientTrust, Cut, ListExpiry, NOT_YET_VALID, RefusedCertificate, RevocationList, Stamp};
pub use error::TlsError;
pub use handshake_failure::HandshakeFailure;
pub use key_log::KeyLogFile;
pub use profile::{ClientCertificates, KeyKind, Profile, Security};
pub use stream::Stream;
pub use tls::{InUse, Role, TlsConfig};

/// The version of OpenSSL, such as `OpenSSL 3.0.17 1 Jul 2025`; `None` if the build does not include it.
#[must_use]
pub fn openssl_version() -> Option<&'static str> {
    #[cfg(feature = "tls-openssl")]
    return Some(::openssl::version::version());
    #[cfg(not(feature = "tls-openssl"))]
    None
}
