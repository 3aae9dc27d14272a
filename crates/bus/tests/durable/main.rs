//! Durable sessions (ADR 0042): records as bytes, sessions restored at any commit, and clients that lose nothing.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

mod any;
mod crashes;
mod damage;
mod foreign;
mod gathered;
mod records;
mod refused;
mod restored;
