//! Whether a bound client may stay: its credential, an administrator, and another connection with its resource.

use std::{task::Context, time::Duration};

use fogmux_xmpp::{StreamCondition, StreamError};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Session;
use crate::{
    credential::{self, Handshake},
    recheck,
};

/// Why a login may end.
#[derive(Debug)]
pub(super) struct Login {
    /// When it expires, as a token does, in seconds since 1970.
    pub(super) expires_unix_s: Option<u64>,
    /// The credential of the handshake, if that has shown one.
    pub(super) handshake: Option<Handshake>,
}

/// From now until a moment of the wall clock, in seconds since 1970.
fn left(unix_s: u64) -> Duration {
    Duration::from_secs(unix_s.saturating_sub(credential::unix_s()))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// Ends the stream of a client that may not stay.
    pub(super) fn check_control(&mut self, cx: &mut Context<'_>) {
        let authority = self.core.ctx.authority();
        let generation = recheck::lower(authority.generation());
        if generation != self.generation {
            self.generation = generation;
            let login = self.login.as_deref();
            let expires = login.and_then(|login| login.expires_unix_s);
            self.expires = expires.map(|end| Box::pin(tokio::time::sleep(left(end))));
            let principal = self.core.me.gate.access().principal();
            if !credential::holds(&self.core.ctx, login.and_then(|login| login.handshake.as_ref()), principal) {
                let error = StreamError::new(StreamCondition::Reset, "the credentials are not taken any more");
                self.core.machine.fail(error, &mut self.core.out);
            }
        }
        if self.expires.as_mut().is_some_and(|expires| expires.as_mut().poll(cx).is_ready()) {
            (self.expires, self.login) = (None, None);
            // RFC 6120 §4.9.3.16: log in again.
            let error = StreamError::new(StreamCondition::Reset, "the credentials have expired");
            self.core.machine.fail(error, &mut self.core.out);
        }
        self.listed.register(cx.waker());
        if self.listed.is_kicked() {
            let error = StreamError::new(StreamCondition::PolicyViolation, "disconnected by an administrator");
            self.core.machine.fail(error, &mut self.core.out);
        }
        self.core.me.control.register(cx.waker());
        if self.core.me.control.is_displaced() {
            let error = StreamError::new(StreamCondition::Conflict, "another connection took the resource");
            self.core.machine.fail(error, &mut self.core.out);
        }
    }
}
