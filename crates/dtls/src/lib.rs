//! DTLS 1.2 (RFC 6347) and 1.3 (RFC 9147, `v13`) for CoAP: a server of both for very many peers on one socket
//! ([`Endpoint`]), and a client of both for one association ([`client`]).
//!
//! This crate has no socket, clock or task, and no randomness of its own: datagrams and the time come in as arguments,
//! datagrams go out to a function of the caller, and random numbers, key exchanges and the date are those of a
//! [`Platform`]. Of this workspace it uses the AES-CCM only. The cryptography is ring's and RustCrypto's, certificates
//! are verified by rustls; ours is the order of messages, and ADR 0030 says why. The rules that everything here keeps:
//!
//! - nothing is kept for an address that has not shown that it can receive (`hello`, RFC 6347 §4.2.1);
//! - a record that does not open changes nothing: a forged datagram can neither end nor replace a session (§4.1.2.7);
//! - a peer that has forgotten its session gets a new one beside the old, which goes when the new one is proved
//!   (§4.2.8);
//! - a session follows its identifier to another address, never to where somebody else is (`endpoint/moves.rs`);
//! - a session at rest is keys and counters; the handshake goes with its last message.

mod alert;
mod channel;
pub mod client;
mod cookie;
mod credentials;
mod endpoint;
mod exchange;
mod flight;
mod hello;
mod inbox;
mod limit;
mod platform;
mod prf;
mod protection;
mod reassembly;
mod refused;
mod server;
mod session;
mod suite;
mod v13;
mod wire;

#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use hello::prefilter;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub use v13::fuzzing;
pub use {
    alert::Alert,
    channel::{Channel, ChannelSuite, ProvenPsk},
    cookie::CookieKey,
    credentials::{Credentials, Psk, Watch},
    endpoint::{Counters, Endpoint, EndpointConfig, Evicted, Peer, Sent},
    exchange::Group,
    inbox::{Association, End, Event, Inbox},
    platform::Platform,
    refused::Refused,
    suite::Suite,
    v13::{Suite13, identified},
};
