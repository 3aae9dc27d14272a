//! The cryptography, randomness and wall clock that the program provides.

use std::sync::Arc;

use rustls::{crypto::CryptoProvider, pki_types::UnixTime, time_provider::TimeProvider};

use super::{Alert, Credentials};

/// The sources of everything that is not computed from its arguments. Endpoints and clients share one.
#[derive(Clone, Debug)]
pub struct Platform {
    /// Random bytes (`secure_random`) and key exchanges (`kx_groups`); nothing else of it is used.
    pub crypto: Arc<CryptoProvider>,
    /// The wall clock, by which certificates are valid or not.
    pub wall_clock: Arc<dyn TimeProvider>,
}

impl Platform {
    /// Fills a buffer with random bytes.
    pub(crate) fn fill(&self, bytes: &mut [u8]) -> Result<(), Alert> {
        self.crypto.secure_random.fill(bytes).map_err(|_| Alert::InternalError)
    }

    pub(crate) fn unix_time(&self) -> Result<UnixTime, Alert> {
        self.wall_clock.current_time().ok_or(Alert::InternalError)
    }
}

/// The program's side of a server's handshake.
#[derive(Clone, Copy)]
pub(crate) struct Host<'a> {
    pub(crate) credentials: &'a dyn Credentials,
    pub(crate) platform: &'a Platform,
}
