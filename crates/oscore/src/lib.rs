//! OSCORE (RFC 8613): CoAP requests and responses protected from end to end, for servers and for clients.
//!
//! A server's [`Ring`] finds the [`Context`] that a request names and opens it ([`Ring::open_request`]); the
//! [`Exchange`] that comes of it seals what answers. A client's context seals requests ([`Context::seal_request`]), and
//! what is [`Pending`] opens their responses; [`RequestProtection`] does both for a CoAP client. Contexts may be shared
//! between threads; messages come and go as bytes.
//!
//! No socket, clock, task or randomness, and no file but for [`file::directory`], which both ends read contexts by:
//! what must be random is an argument, and what must be on the disk before a number is used is asked of a
//! [`SequenceStore`]. Nothing a peer sends makes it panic.

mod aad;
mod aead;
mod algorithm;
mod cbor;
mod class;
mod client;
mod context;
mod derive;
mod exchange;
pub mod file;
mod fingerprint;
mod id;
mod nonce;
mod option;
mod parameters;
mod partial_iv;
mod ring;
mod seal;
mod sequence;
mod server;
mod window;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use class::Class;
pub use client::{Pending, RequestProtection, ResponseRefused};
pub use context::{Context, Requests, SealError, Start};
pub use exchange::Exchange;
pub use fingerprint::{Fingerprint, NoFingerprint};
pub use id::{Id, NoId, TooLong};
pub use option::{Malformed, OscoreOption};
pub use parameters::{Parameters, ParametersError};
pub use partial_iv::{PartialIv, SEQUENCE_MAX};
pub use ring::{Clash, Ring};
pub use sequence::{CHUNK, Reservation, SequenceStore};
pub use server::{Opened, RequestRefused};
pub use zeroize::Zeroizing;
