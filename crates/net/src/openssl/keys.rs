//! Pre-shared keys: the callback that looks one up, and the one that stands in for it.

use std::sync::{Arc, OnceLock};

use openssl::{
    error::ErrorStack,
    ex_data::Index,
    ssl::{Ssl, SslContextBuilder},
};

use crate::channel::{PskAttempt, PskGuard, PskSource, Zeroizing};

/// Bytes of the key that stands in for one that does not exist, so that nobody can tell whether it does.
const STAND_IN_BYTES: usize = 32;

/// The pre-shared key that a client of a connection tries.
pub(super) struct Shown {
    pub(super) guard: Option<Arc<dyn PskGuard>>,
    pub(super) key: Option<ShownKey>,
}

pub(super) struct ShownKey {
    pub(super) identity: Box<[u8]>,
    /// Of the key that was looked up last, which is the one that the handshake is made with.
    pub(super) mark: u64,
    pub(super) attempt: Option<Box<dyn PskAttempt>>,
}

impl Shown {
    /// Begins an attempt at the key of `identity`. Returns whether the key may be looked up. After a HelloRetryRequest
    /// the client names the identity again (RFC 8446 §4.1.2), which is the same attempt.
    fn begin(&mut self, identity: &[u8]) -> bool {
        let Some(guard) = &self.guard else {
            self.key = Some(ShownKey { identity: identity.into(), mark: 0, attempt: None });
            return true;
        };
        if let Some(key) = self.key.as_ref().filter(|key| *key.identity == *identity) {
            return key.attempt.is_some();
        }
        let attempt = guard.begin(identity);
        let admitted = attempt.is_some();
        self.key = Some(ShownKey { identity: identity.into(), mark: 0, attempt });
        admitted
    }
}

/// Where a connection keeps the key that its client tries.
pub(super) fn shown_index() -> Result<Index<Ssl, Shown>, ErrorStack> {
    static INDEX: OnceLock<Index<Ssl, Shown>> = OnceLock::new();
    match INDEX.get() {
        Some(index) => Ok(*index),
        None => Ssl::new_ex_index().map(|index| *INDEX.get_or_init(|| index)),
    }
}

pub(super) fn take_keys(builder: &mut SslContextBuilder, psk: Arc<dyn PskSource>) -> Result<(), ErrorStack> {
    let index = shown_index()?;
    builder.set_psk_server_callback(move |ssl, identity, key| {
        let identity = identity.unwrap_or_default();
        let admitted = ssl.ex_data_mut(index).is_some_and(|shown| shown.begin(identity));
        // RFC 4279 §2: an unknown identity fails as a wrong key does, and as late; so does one that has to wait.
        let secret = match psk.secret(identity).filter(|_| admitted) {
            Some(psk) if !psk.key.is_empty() && psk.key.len() <= key.len() => {
                let shown = ssl.ex_data_mut(index).and_then(|shown| shown.key.as_mut());
                shown.into_iter().for_each(|shown| shown.mark = psk.mark);
                psk.key
            }
            Some(_) | None => stand_in()?,
        };
        let (used, _) = key.split_at_mut(secret.len());
        used.copy_from_slice(&secret);
        Ok(secret.len())
    });
    Ok(())
}

fn stand_in() -> Result<Zeroizing<Vec<u8>>, ErrorStack> {
    let mut bytes = Zeroizing::new(vec![0; STAND_IN_BYTES]);
    openssl::rand::rand_bytes(&mut bytes)?;
    Ok(bytes)
}
