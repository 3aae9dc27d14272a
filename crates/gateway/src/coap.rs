//! The CoAP door (RFC 7252 over UDP): one socket, one machine, one mailbox and one task per worker.
//!
//! A turn reads what has come, hands it to the machine, publishes all of it in one batch, answers, empties the mailbox
//! into notifications, and writes. No protocol decision is made here: those are in `fogmux_coap`. What topics, codes and
//! options stand for is in `translate`; `docs/protocols/coap.md` has the table.

mod config;
mod door;
mod identity;
mod mailbox;
mod observe;
mod publish;
mod read;
mod socket;
#[cfg(test)]
mod tests;
mod translate;
mod well_known;

pub use config::CoapConfig;
pub use fogmux_coap::server::Amplification;

use std::{future::poll_fn, rc::Rc};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::WorkerContext;

/// What the workers of the CoAP door share: configuration and the key of Echo values. Sockets find it in
/// [`crate::Shared::coap`].
pub struct CoapDoor {
    /// How it behaves.
    pub config: CoapConfig,
    /// Echo values of one worker are good at all, for a peer may come to another when a socket goes.
    echo_key: [u8; 32],
}

impl CoapDoor {
    /// A door that nobody uses yet.
    ///
    /// # Panics
    /// When the operating system gives no random numbers.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a gateway without random numbers must not start")]
    pub fn new(config: CoapConfig) -> Self {
        let mut echo_key = [0; 32];
        getrandom::fill(&mut echo_key).expect("the operating system gives random numbers");
        Self { config, echo_key }
    }

    /// What makes Echo values (RFC 9175 appendix A).
    fn echo_key(&self) -> Box<dyn fogmux_coap::server::EchoKey> {
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

/// Serves one worker's UDP socket until drain. `anonymous`: whether it may be used without credentials, and there are
/// no others on plain CoAP.
pub async fn serve(ctx: Rc<WorkerContext>, socket: tokio::net::UdpSocket, anonymous: bool) {
    let mut drain = Box::pin(ctx.farewell());
    let mut door = match door::Door::open(Rc::clone(&ctx), socket, anonymous) {
        Ok(door) => door,
        Err(error) => {
            tracing::error!(%error, "the CoAP socket cannot be used");
            return;
        }
    };
    // Between turns the runtime looks at the other sockets: a task that only wakes itself is run dozens of times first.
    while poll_fn(|cx| match drain.as_mut().poll(cx) {
        std::task::Poll::Ready(()) => std::task::Poll::Ready(false),
        std::task::Poll::Pending => door.poll(cx),
    })
    .await
    {
        tokio::task::yield_now().await;
    }
    door.close();
    // Notifications that say goodbye, as far as the socket takes them at once.
    poll_fn(|cx| door.poll_goodbye(cx)).await;
}
