//! The HTTP door: HTTP/1.1, HTTP/2 and HTTP/3 over one service, with event streams, WebSocket and MQTT behind it.
//!
//! `connection` and `quic` own sockets, deadlines and hyper or h3. `service` screens and identifies a request;
//! `topics`, `batch`, `follow` and others respond. The wire format is data in [`fogmux_http`]. The path of a retained
//! message – route, permission, lookup, response – runs without a task, a box or an await.

mod admin;
mod answer;
mod batch;
mod body;
mod config;
mod conn;
mod connection;
mod context;
mod cors;
mod cursors;
mod dashboard;
mod exec;
mod follow;
mod forwarded;
mod framing;
mod idempotent;
mod identity;
mod io;
mod longpoll;
mod metrics;
mod payload;
mod quic;
mod respond;
mod service;
mod session;
mod sessions;
mod shared;
mod state;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod topics;
#[cfg(feature = "traces")]
mod trace;
mod translate;
mod unread;
mod websocket;

use std::{rc::Rc, time::Duration};

use fogmux_net::listener::set_user_timeout;
use tokio::task::spawn_local;

pub use config::HttpConfig;
pub use connection::serve;
pub use context::{HttpContext, Serve, Upgrades};
pub use quic::serve_quic;
pub use shared::HttpDoor;

use crate::{
    door::{Connection, DoorService},
    handshake::boxed_handshake,
    tasks::{Stage, Tasks},
};

impl DoorService for Rc<HttpContext> {
    fn serve(&self, connection: Connection, tasks: &Tasks) {
        let Connection { listener, stream, peer, tls, seat } = connection;
        let ctx = Self::clone(self);
        set_user_timeout(&stream, ctx.door.config.unacknowledged_max);
        let Some(tls) = tls else {
            return tasks.spawn_flat(connection::begin(ctx, stream, peer, None), seat);
        };
        let handshake = Stage::new(async move {
            let (stream, peer) = boxed_handshake(&ctx, listener, stream, &tls, peer).await?;
            let alpn = stream.alpn().map(<[u8]>::to_vec);
            Some(connection::begin(ctx, stream, peer, alpn))
        });
        tasks.spawn_flat(handshake, seat);
    }

    fn keep_house(&self) {
        spawn_local(housekeeping(Self::clone(self)));
    }

    fn rest(&self) {
        self.events.borrow_mut().rest();
    }
}

/// How often [`housekeeping`] looks for event streams that nobody came back for.
const LOOK: Duration = Duration::from_secs(1);

/// Ends event streams that nobody came back for, and has the others check their permissions when the rules have
/// changed; one worker runs it until drain.
pub async fn housekeeping(ctx: Rc<HttpContext>) {
    let door = &ctx.door;
    let mut drain = std::pin::pin!(ctx.drain());
    let mut rules = ctx.authority().changes();
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            () = &mut drain => return,
            Ok(()) = rules.changed() => door.second_look.send_replace(()),
            _ = ticks.tick() => door.streams.expire(&ctx),
        }
    }
}
