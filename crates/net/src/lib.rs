//! Listeners, TLS, QUIC, certificates of our own, and the limits on who may connect: what lies below every door.
//!
//! Nothing here knows a protocol above TLS. Sockets are made before the workers start ([`listener`]); connections are
//! counted ([`admission`]) before a byte is read; a TLS handshake has a deadline and never holds up the next accept
//! ([`tls`]).

pub mod admission;
pub mod listener;
pub mod pki;
pub mod quic;
pub mod tls;

pub use admission::{Admission, AdmissionLimits, Admitted};
pub use tls::{HandshakeError, TlsAcceptor, TlsConfig, TlsError};
