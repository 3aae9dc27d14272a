//! DTLS 1.3 (RFC 9147 over RFC 8446), both roles: what they do otherwise than in 1.2. Chosen by the ClientHello
//! (`supported_versions`), and served by the same endpoint.
//!
//! - to a server of ours every client shows first that it can receive, by a HelloRetryRequest whose cookie holds all
//!   that has to be known then (`hello`);
//! - external pre-shared keys (`psk_dhe_ke`, `psk_ke`) and certificates; no tickets, no resumption and no early data,
//!   for a device keeps one association, with an identifier through changes of address;
//! - messages are acknowledged (§7), keys are changed (§8), identifiers are handed out (§9).

mod ack;
mod certificates;
mod client;
mod flight;
mod hello;
mod record;
mod schedule;
mod server;
mod session;
mod suite;

#[cfg(test)]
mod tests;

/// Here and not above, for it takes apart what nobody else needs to.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;

pub(super) use {
    certificates::SCHEMES as SCHEMES_13,
    client::{ClientHandshake, ClientStep, Greeted, Newer, ServerHello},
    hello::{Offer, Retry, look, put_retry},
    record::{Content, Sealed, is_sealed},
    server::{Handshake, Identities, Psks, Refusal, Step},
    session::{Heard, Session, USER_CANCELED},
};
pub use {record::identified, suite::Suite13};
