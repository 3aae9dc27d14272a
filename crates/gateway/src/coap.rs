//! The CoAP door (RFC 7252 over UDP): one socket, one machine, one mailbox and one task per worker.
//!
//! A turn reads datagrams, hands them to the machine, publishes all of them in one batch, responds, turns the mailbox
//! into notifications, and writes. Protocol decisions are made in `fogmux_coap`. `translate` maps topics, codes and
//! options; `docs/protocols/coap.md` has the table.

mod backlog;
mod config;
mod context;
mod door;
mod dtls;
mod expiry;
mod handover;
mod handshakes;
mod holding;
mod identity;
mod looks;
mod mailbox;
mod observe;
pub mod oscore;
mod publish;
mod read;
mod socket;
mod streams;
mod tell;
#[cfg(test)]
mod tests;
mod translate;
mod transport;
mod well_known;

pub use config::CoapConfig;
pub use context::CoapContext;
pub use dtls::DtlsListener;
pub use fogmux_coap::server::Amplification;
pub use fogmux_dtls::EndpointConfig;
pub use handover::Handover;
pub use streams::{serve_stream, serve_websocket};
pub use transport::Listener;
#[cfg(test)]
pub(crate) use {
    door::run as serve_over,
    transport::{Path, Transport},
};

use std::{io, net::UdpSocket, rc::Rc, sync::Arc};

use fogmux_net::listener::set_user_timeout;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{
    door::{Connection, DoorService},
    handshake::boxed_handshake,
    tasks::Tasks,
};

/// The state that the workers of the CoAP door share: configuration and the key of Echo values. Sockets find it in
/// [`CoapContext`].
pub struct CoapDoor {
    /// The configuration.
    pub config: CoapConfig,
    /// Echo values of one worker are valid at all, because a peer may reach another one when a socket goes.
    echo_key: [u8; 32],
    /// The OSCORE contexts of all users.
    pub oscore: Arc<oscore::Keyring>,
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
    fn seed(&self) -> io::Result<u64> {
        #[cfg(test)]
        if let Some(seeds) = &self.seeds {
            return Ok(seeds.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        }
        getrandom::u64().map_err(io::Error::other)
    }

    /// The same door with these OSCORE contexts.
    #[must_use]
    pub fn with_contexts(self, oscore: Arc<oscore::Keyring>) -> Self {
        Self { oscore, ..self }
    }

    /// The maker of Echo values (RFC 9175 appendix A).
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

impl DoorService for Rc<CoapContext> {
    fn serve(&self, connection: Connection, tasks: &Tasks) {
        let Connection { listener, stream, peer, tls, seat } = connection;
        let ctx = Self::clone(self);
        set_user_timeout(&stream, ctx.door.config.unacknowledged_max);
        let Some(tls) = tls else {
            return tasks.spawn(async move {
                let _seat = seat;
                serve_stream(ctx, stream, peer).await;
            });
        };
        tasks.spawn(async move {
            let _seat = seat;
            let handshake = Box::pin(boxed_handshake(&ctx, listener, stream, &tls, peer));
            let Some((stream, peer)) = handshake.await else { return };
            serve_stream(ctx, stream, peer).await;
        });
    }
}

/// Serves one worker's UDP socket until drain.
pub async fn serve(ctx: Rc<CoapContext>, socket: UdpSocket, listener: Listener) {
    match socket::Socket::new(socket) {
        Ok(socket) => door::run(ctx, socket, listener).await,
        Err(error) => tracing::error!(%error, "the CoAP socket cannot be used"),
    }
}

/// Serves one worker's UDP socket of CoAP over DTLS until drain.
pub async fn serve_dtls(ctx: Rc<CoapContext>, socket: UdpSocket, listener: DtlsListener) {
    let admits = listener.admits;
    match dtls::Dtls::new(Rc::clone(&ctx), socket, listener) {
        Ok(socket) => door::run(ctx, socket, admits).await,
        Err(error) => tracing::error!(%error, "the CoAPS socket cannot be used"),
    }
}
