//! Certificates of an ACME server (RFC 8555): ordered, kept in the data directory and renewed while the gateway runs
//! (ADR 0066). They are for clients that ask for one of their names; everybody else keeps the gateway's own.

#[cfg(feature = "acme")]
mod client;
#[cfg(feature = "acme")]
mod engine;
#[cfg(feature = "acme")]
mod failed;
#[cfg(feature = "acme")]
mod order;
mod schedule;
mod state;

use std::path::{Path, PathBuf};

#[cfg(feature = "acme")]
pub(crate) use self::engine::Engine;
pub(crate) use self::state::{Failure, State};
use crate::data;

/// The files of the data directory.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) directory: PathBuf,
    /// The account's key and URL.
    pub(crate) account: PathBuf,
    /// The private key and the chain in one file, so that one rename replaces both.
    pub(crate) certificate: PathBuf,
    pub(crate) state: PathBuf,
}

/// Returns the files in a data directory.
pub(crate) fn files(data: &Path) -> Files {
    let directory = data.join(data::ACME);
    let file = |name: &str| directory.join(name);
    Files {
        account: file("account.json"),
        certificate: file("certificate-and-key"),
        state: file("state.json"),
        directory,
    }
}
