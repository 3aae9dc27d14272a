//! The state that the workers of the CoAP door share.

use std::{io, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{CoapConfig, oscore::Keyring};

/// The state that the workers of the CoAP door share: configuration and the key of Echo values. Sockets find it in
/// [`CoapContext`].
pub struct CoapDoor {
    /// The configuration.
    pub config: CoapConfig,
    /// Echo values of one worker are valid at all, because a peer may reach another one when a socket goes.
    echo_key: [u8; 32],
    /// The OSCORE contexts of all users.
    pub oscore: Arc<Keyring>,
    /// The next seed of a machine, in a simulation.
    #[cfg(test)]
    seeds: Option<std::sync::atomic::AtomicU64>,
}

impl CoapDoor {
    /// Creates the door.
    ///
    /// # Panics
    /// When the operating system gives no random numbers.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a gateway without random numbers must not start")]
    pub fn new(config: CoapConfig) -> Self {
        let mut echo_key = [0; 32];
        getrandom::fill(&mut echo_key).expect("the operating system gives random numbers");
        Self {
            config,
            echo_key,
            oscore: Arc::default(),
            #[cfg(test)]
            seeds: None,
        }
    }

    /// The same door without any randomness but this.
    #[cfg(test)]
    pub(crate) fn with_seed(self, seed: u64) -> Self {
        Self { echo_key: [7; 32], seeds: Some(seed.into()), ..self }
    }

    /// A seed for the timeouts, tokens and message identifiers of one machine (RFC 7252 §4.2, §4.4).
    pub(super) fn seed(&self) -> io::Result<u64> {
        #[cfg(test)]
        if let Some(seeds) = &self.seeds {
            return Ok(seeds.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        }
        getrandom::u64().map_err(io::Error::other)
    }

    /// The same door with these OSCORE contexts.
    #[must_use]
    pub fn with_contexts(self, oscore: Arc<Keyring>) -> Self {
        Self { oscore, ..self }
    }

    /// The maker of Echo values (RFC 9175 appendix A).
    pub(super) fn echo_key(&self) -> Box<dyn fogmux_coap::server::EchoKey> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.echo_key).ok();
        Box::new(move |input: &[u8]| {
            let mut code = [0; 8];
            if let Some(mac) = &mac {
                let full = mac.clone().chain_update(input).finalize().into_bytes();
                code.iter_mut().zip(full).for_each(|(to, from)| *to = from);
            }
            code
        })
    }
}

impl std::fmt::Debug for CoapDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoapDoor").field("config", &self.config).finish_non_exhaustive()
    }
}
