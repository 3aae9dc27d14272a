//! The XMPP door: client-to-server streams with a publish-subscribe service whose nodes are the topics of the bus.
//!
//! A connection is one task. `login` takes it from the first byte to a bound resource, `session` runs it from then on:
//! a turn reads once, publishes one batch, drains the mailbox once and writes once. Connections share the [`XmppDoor`]:
//! nodes (configuration and affiliations of topics) and accounts (connected resources and subscriptions). The bus is
//! never called while the nodes are locked, because it asks them for permissions.

mod access;
mod accounts;
mod config;
mod context;
mod control;
mod core;
mod discover;
mod divided;
mod doubts;
mod ending;
mod fill;
mod followed;
mod held;
mod held_back;
mod kept;
mod login;
mod names;
mod nodes;
mod owner;
mod presence;
mod publish;
mod read;
mod sasl;
mod session;
mod shared;
mod stanzas;
mod subscribe;
#[cfg(test)]
#[cfg(all(feature = "coap", feature = "http", feature = "mqtt"))]
mod tests;
mod translate;
mod unfollow;
mod weights;

use std::{rc::Rc, time::Duration};

use fogmux_auth::Door;
use fogmux_net::{HandshakeError::TooSlow, TlsAcceptor, listener::set_user_timeout};
use fogmux_xmpp::stream::StartTls;
use tokio::{net::TcpStream, task::spawn_local};

use self::login::Login;
use crate::{
    Listener, Peer,
    deadline::in_time,
    door::{Connection, DoorService},
    handshake::{count_failed, handshake},
    tasks::{Stage, Tasks},
};

pub use self::{config::XmppConfig, context::XmppContext, kept::NodeStore, shared::XmppDoor};

impl DoorService for Rc<XmppContext> {
    fn serve(&self, connection: Connection, tasks: &Tasks) {
        let Connection { listener, stream, peer, tls, seat } = connection;
        let ctx = Self::clone(self);
        set_user_timeout(&stream, ctx.door.config.unacknowledged_max);
        let login = match tls {
            Some(tls) if listener == Listener::Xmpps => log_in_secure(ctx, stream, peer, tls),
            tls => Stage::new(async move { log_in_plain(&ctx, stream, peer, tls).await }),
        };
        tasks.spawn_flat(login, seat);
    }

    fn keep_house(&self) {
        spawn_local(housekeeping(Self::clone(self)));
    }

    fn rest(&self) {
        self.notifications.borrow_mut().rest();
    }
}

/// The login over direct TLS, then the session.
fn log_in_secure(ctx: Rc<XmppContext>, stream: TcpStream, peer: Peer, tls: TlsAcceptor) -> Stage {
    Stage::new(async move {
        let (stream, peer) = handshake(&ctx, Listener::Xmpps, stream, &tls, peer).await?;
        bound(login::first(&ctx, stream, peer, StartTls::Unavailable).await)
    })
}

/// Serves one connection over any stream, as behind a handshake.
#[cfg(test)]
pub(crate) fn serve_stream<S>(ctx: Rc<XmppContext>, stream: S, peer: Peer) -> Stage
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
    Stage::new(async move { bound(login::first(&ctx, stream, peer, StartTls::Unavailable).await) })
}

fn bound<S>(login: Login<S>) -> Option<Stage>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
    match login {
        Login::Bound(session) => Some(Stage::new(session.run())),
        Login::StartTls(_) | Login::Gone => None,
    }
}

/// The login, perhaps with STARTTLS (`tls`), then the session.
async fn log_in_plain(ctx: &Rc<XmppContext>, stream: TcpStream, peer: Peer, tls: Option<TlsAcceptor>) -> Option<Stage> {
    // Output is written a turn at a time, so that waiting to fill a segment gains nothing.
    let _ = stream.set_nodelay(true);
    // Required except on loopback, for tools on the same machine, unless certificates are required.
    let starttls = match &tls {
        None => StartTls::Unavailable,
        Some(tls) if peer.is_loopback() && !tls.requires_certificate() => StartTls::Offered,
        Some(_) => StartTls::Required,
    };
    match login::first(ctx, stream, peer.clone(), starttls).await {
        Login::StartTls(halted) => {
            let (stream, login) = halted.split();
            let (from, tls) = (peer.address.ip(), tls?);
            let shaken = in_time(ctx, login.deadline, handshake(ctx, Listener::Xmpp, stream, &tls, peer)).await;
            let Ok(shaken) = shaken else {
                count_failed(ctx, Door::Xmpp, from, &TooSlow, None);
                return None;
            };
            let (stream, peer) = shaken?;
            bound(login::secured(ctx, stream, peer, login).await)
        }
        login @ (Login::Bound(_) | Login::Gone) => bound(login),
    }
}

/// How often [`housekeeping`] looks for expired subscriptions, and for changes that were not kept.
const LOOK: Duration = Duration::from_secs(1);

/// Wakes idle connections when the rules have changed, and ends expired subscriptions. One worker runs it until the
/// shutdown.
pub async fn housekeeping(ctx: Rc<XmppContext>) {
    let mut drain = std::pin::pin!(ctx.drain());
    let mut rules = ctx.authority().changes();
    let mut ticks = tokio::time::interval(LOOK);
    ctx.door.warn_of_excess(ctx.bus());
    loop {
        tokio::select! {
            () = &mut drain => return,
            Ok(()) = rules.changed() => ctx.door.accounts.wake(),
            _ = ticks.tick() => {
                ctx.door.undo(ctx.bus());
                ctx.door.accounts.expire(ctx.bus(), crate::credential::unix_s());
            }
        }
    }
}
