//! The back-off for pre-shared keys of TLS and DTLS: an attempt counts from before the key is looked up.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use fogmux_auth::Door;
use fogmux_net::{HandshakeFailure, PskAttempt, PskGuard, dtls};

use crate::{
    Shared,
    audit::{RefusedLogin, too_often},
};

/// The attempts of one TLS connection.
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) from: SocketAddr,
    pub(crate) door: Door,
    /// Set when a key was not proven, or was not to be tried.
    pub(crate) unproven: Arc<AtomicBool>,
}

impl Connection {
    fn log(&self, identity: &str, reason: &str) {
        let Self { from, door, .. } = *self;
        let line = RefusedLogin { from, door, by: "psk", claimed: identity, token: None, client: "", reason };
        line.log(&self.shared);
    }

    fn now_ms(&self) -> u64 {
        self.shared.clock.now().as_millis()
    }
}

impl PskGuard for Connection {
    fn begin(&self, identity: &[u8]) -> Option<Box<dyn PskAttempt>> {
        let Self { shared, from, door, unproven } = self;
        let identity = String::from_utf8_lossy(identity);
        if let Err(wait) = shared.logins.begin_apart(from.ip(), &identity, self.now_ms()) {
            self.log(&identity, too_often(wait));
            unproven.store(true, Relaxed);
            return None;
        }
        let (shared, unproven) = (Arc::clone(shared), Arc::clone(unproven));
        let connection = Self { shared, from: *from, door: *door, unproven };
        Some(Box::new(Attempt { connection, identity: identity.into(), proven: AtomicBool::new(false) }))
    }
}

/// An attempt that has begun.
struct Attempt {
    connection: Connection,
    identity: Box<str>,
    proven: AtomicBool,
}

impl PskAttempt for Attempt {
    fn proven(&self) {
        let Connection { shared, from, .. } = &self.connection;
        if !self.proven.swap(true, Relaxed) {
            shared.logins.ended_apart(from.ip(), &self.identity);
            shared.logins.succeeded(from.ip(), &self.identity, self.connection.now_ms());
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.proven.load(Relaxed) {
            return;
        }
        let Connection { shared, from, unproven, .. } = &self.connection;
        unproven.store(true, Relaxed);
        shared.logins.ended_apart(from.ip(), &self.identity);
        shared.logins.failed(from.ip(), &self.identity, self.connection.now_ms());
        self.connection.log(&self.identity, WRONG_KEY);
    }
}

/// The reason of a handshake that did not prove its key.
pub(crate) const WRONG_KEY: &str = "the key was not proven";

/// The reason of a handshake whose key was withdrawn before it ended.
pub(crate) const REPLACED: &str = "the key was replaced or removed during the handshake";

/// The attempts at a DTLS socket, where each is judged in one step.
pub(crate) struct Datagrams(pub(crate) Arc<Shared>);

impl dtls::Guard for Datagrams {
    /// An address that has to wait is ignored, and an early attempt does not prolong the wait.
    fn may_try(&self, from: IpAddr, identity: &[u8]) -> bool {
        let Self(shared) = self;
        let claimed = String::from_utf8_lossy(identity);
        let may_try = shared.logins.may_try(from, &claimed, shared.clock.now().as_millis());
        if let Err(wait) = may_try {
            let reason = too_often(wait);
            let from = SocketAddr::new(from, 0);
            let claimed = &*claimed;
            let line = RefusedLogin { from, door: Door::Coap, by: "psk", claimed, token: None, client: "", reason };
            line.log(shared);
            shared.metrics.coap.unauthenticated.increment();
            shared.metrics.handshakes.note_dtls(HandshakeFailure::Key, 1);
        }
        may_try.is_ok()
    }

    fn failed(&self, from: IpAddr, identity: &[u8]) {
        let Self(shared) = self;
        shared.logins.failed(from, &String::from_utf8_lossy(identity), shared.clock.now().as_millis());
    }

    fn taken_back(&self, from: IpAddr, identity: &[u8]) {
        let Self(shared) = self;
        shared.logins.failure_taken_back(from, &String::from_utf8_lossy(identity));
    }
}
