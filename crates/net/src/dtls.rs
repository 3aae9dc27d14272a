//! DTLS 1.2 (RFC 6347) and 1.3 (RFC 9147, `v13`) for CoAP: a server of both for very many peers on one socket, and a
//! client of 1.2.
//!
//! No socket, clock or task in here but in [`client`]'s small shell: datagrams and the time come in as arguments,
//! datagrams go out into a buffer of the caller. The cryptography is ring's and RustCrypto's, the certificates are
//! rustls's; what is ours is the order of messages, and ADR 0010 and 0016 say why. Rules that everything here keeps:
//!
//! - nothing is kept for an address that has not shown that it can receive (`hello`, RFC 6347 §4.2.1);
//! - what does not open changes nothing: a forged datagram can neither end nor replace a session (§4.1.2.7);
//! - a peer that has forgotten its session gets a new one beside the old, which goes when the new one is proved
//!   (§4.2.8);
//! - a session follows its identifier to another address, never to where somebody else is (`endpoint/moves.rs`);
//! - a session at rest is keys and counters; the handshake goes with its last message.

mod alert;
mod ccm;
pub mod client;
mod cookie;
mod credentials;
mod endpoint;
mod exchange;
mod flight;
mod hello;
mod inbox;
mod prf;
mod protection;
mod reassembly;
mod server;
mod session;
mod suite;
mod v13;
mod wire;

#[cfg(test)]
mod tests;

use std::{net::IpAddr, sync::Arc};

use rustls::{pki_types::CertificateDer, server::danger::ClientCertVerifier, sign::CertifiedKey};
use zeroize::Zeroizing;

use crate::clients::Cut;

#[doc(hidden)]
pub use hello::prefilter;
pub use {
    alert::Alert,
    cookie::CookieKey,
    credentials::{Guard, ListenerCredentials},
    endpoint::{Counters, Endpoint, EndpointConfig, Peer},
    inbox::{Association, End, Event, Inbox},
    suite::Suite,
    v13::{Suite13, identified},
};

/// What a server proves itself with, and whom it believes. Asked anew for each handshake, so that a reload counts at
/// once.
pub trait Credentials: Send + Sync {
    /// The server's certificate and key. Without one there are no suites with certificates.
    fn certified_key(&self) -> Option<Arc<CertifiedKey>>;

    /// Who checks certificates of clients. Without one they are not asked for any.
    fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>>;

    /// Whether pre-shared keys are taken at all.
    fn has_psk(&self) -> bool;

    /// Whether that identity has to wait there, after attempts that failed. The handshake is dropped without a word and
    /// counts as no attempt: whoever has the right key must not wait the longer for having come too early.
    fn must_wait(&self, _from: IpAddr, _identity: &[u8]) -> bool {
        false
    }

    /// Notes that somebody there has tried a wrong key for that identity, before anything else is judged.
    fn wrong_key(&self, _from: IpAddr, _identity: &[u8]) {}

    /// The key of an identity, unless there is none.
    fn psk(&self, from: IpAddr, identity: &[u8]) -> Option<Zeroizing<Vec<u8>>>;

    /// What says later that the certificate of a session was revoked, where sessions are to end then.
    fn watch(&self, _chain: &[CertificateDer<'static>]) -> Option<Cut> {
        None
    }
}
