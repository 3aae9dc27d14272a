//! Our client of DTLS 1.2, and servers that misbehave.

pub(crate) mod handshake;
pub(crate) mod hello;
pub(crate) mod session;

pub(crate) const TABLES: [&[crate::case::Case]; 3] = [hello::CASES, handshake::CASES, session::CASES];
