//! The CoAP door (RFC 7252 over UDP): one socket, one machine, one mailbox and one task per worker.
//!
//! A turn reads datagrams, hands them to the machine, publishes all of them in one batch, responds, turns the mailbox
//! into notifications, and writes. Protocol decisions are made in `fogmux_coap`. `translate` maps topics, codes and
//! options; `docs/protocols/coap.md` has the table.

mod backlog;
mod config;
mod context;
mod core;
mod door;
mod dtls;
mod expiry;
#[cfg(target_os = "linux")]
mod group;
mod handover;
mod handshakes;
mod heaviest;
mod holding;
mod identity;
mod looks;
mod mailbox;
mod observe;
pub mod oscore;
mod outcomes;
mod owners;
mod pending;
mod publish;
mod read;
mod shared;
mod shown;
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
pub use fogmux_coap::{BlockSize, group::GroupConfig, server::Amplification};
pub use fogmux_dtls::EndpointConfig;
pub use handover::Handover;
pub use shared::CoapDoor;
pub use streams::{serve_stream, serve_websocket};
pub use transport::Listener;
#[cfg(test)]
pub(crate) use {
    door::run as serve_over,
    transport::{Path, Transport},
};

use std::{net::UdpSocket, rc::Rc};

use fogmux_net::listener::set_user_timeout;

use crate::{
    door::{Connection, DoorService},
    handshake::boxed_handshake,
    tasks::Tasks,
};

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

/// Answers requests to the groups of CoAP nodes until drain, by way of a listener's socket.
pub async fn serve_group(ctx: Rc<CoapContext>, socket: UdpSocket, listener: Listener) {
    #[cfg(target_os = "linux")]
    match group::Groups::new(ctx, socket, listener) {
        Ok(groups) => groups.run().await,
        Err(error) => tracing::error!(%error, "the groups of CoAP cannot be served"),
    }
    #[cfg(not(target_os = "linux"))]
    {
        drop((ctx, socket, listener));
        tracing::error!("requests to groups are served on Linux only");
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
