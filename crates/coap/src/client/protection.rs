//! The place between messages and requests for what protects requests from end to end (OSCORE, RFC 8613).
//!
//! Deduplication, acknowledgements and retransmissions stay outside: what is sent again is the same bytes.

use std::convert::Infallible;
use std::fmt::{Debug, Display};

use crate::message::Message;

/// Seals the requests of one client.
pub trait Protection {
    /// Opens the answers to one request.
    type Exchange: Debug;
    /// Why a request cannot be sealed.
    type Error: Display;

    /// Appends to `out` the protected form of `plain`, with its type, message identifier and token.
    ///
    /// # Errors
    /// The request cannot be sealed; then nothing is appended.
    fn seal(&mut self, plain: &Message<'_>, out: &mut Vec<u8>) -> Result<Self::Exchange, Self::Error>;

    /// Appends to `inner` the message in an answer or notification, with type, message identifier and token of `outer`.
    ///
    /// # Errors
    /// [`Unopened`]; then nothing is appended.
    fn open(exchange: &mut Self::Exchange, outer: &Message<'_>, inner: &mut Vec<u8>) -> Result<(), Unopened>;
}

/// Why an answer was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// It has no protection at all. An error may be one of the server's OSCORE (RFC 8613 §8.2), or forged.
    Unprotected,
    /// It was sealed for another request or by somebody else, is old, or cannot be read: dropped (RFC 8613 §8.4).
    Invalid,
}

/// No protection.
#[derive(Clone, Copy, Debug)]
pub enum Unprotected {}

impl Protection for Unprotected {
    type Exchange = Infallible;
    type Error = Infallible;

    fn seal(&mut self, _: &Message<'_>, _: &mut Vec<u8>) -> Result<Infallible, Infallible> {
        match *self {}
    }

    fn open(exchange: &mut Infallible, _: &Message<'_>, _: &mut Vec<u8>) -> Result<(), Unopened> {
        match *exchange {}
    }
}
