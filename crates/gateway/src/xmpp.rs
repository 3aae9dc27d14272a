//! The XMPP door: client-to-server streams with a publish-subscribe service whose nodes are the topics of the bus.
//!
//! A connection is one task. `login` takes it from the first byte to a bound resource, `session` carries it from then
//! on: a turn reads once, publishes one batch, drains the mailbox once and writes once. What connections share is in
//! [`XmppDoor`]: nodes (configuration and affiliations of topics) and accounts (who is connected, who subscribes to what).
//! The bus is never called while the nodes are locked, for it asks them whether something may be read.

mod access;
mod accounts;
mod config;
mod control;
mod core;
mod discover;
mod fill;
mod kept;
mod login;
mod names;
mod nodes;
mod open;
mod owner;
mod publish;
mod read;
mod sasl;
mod session;
mod subscribe;
#[cfg(test)]
mod tests;
mod translate;

use std::{rc::Rc, sync::Arc, time::Duration};

use fogmux_net::TlsAcceptor;
use fogmux_xmpp::{Jid, Limits, ServerConfig, stream::StartTls};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use self::{
    accounts::Accounts,
    kept::Records,
    login::{Halted, Login},
    nodes::Nodes,
    open::OpenStanzas,
};
use crate::{Peer, WorkerContext};

pub use self::{config::XmppConfig, kept::NodeStore};

/// What the workers of the XMPP door share: configuration and registries. Connections find it in
/// [`crate::Shared::xmpp`].
#[derive(Debug)]
pub struct XmppDoor {
    /// How it behaves.
    pub config: XmppConfig,
    pub(crate) server: Arc<ServerConfig>,
    /// The address of the publish-subscribe service.
    service: Jid,
    nodes: Arc<Nodes>,
    accounts: Accounts,
    open: OpenStanzas,
}

impl XmppDoor {
    /// A door that nobody uses yet. A domain that is none (the configuration's reader refuses those) is `localhost`.
    #[must_use]
    pub fn new(config: XmppConfig) -> Self {
        let address = |text: &str| Jid::from_parts(None, text, None);
        let domain = address(&config.domain).or_else(|_| address("localhost"));
        let service = domain.as_ref().map_or(Err(fogmux_xmpp::JidError::Empty), |d| address(&format!("pubsub.{d}")));
        let (Ok(domain), Ok(service)) = (domain, service) else { unreachable!("localhost is a domain") };
        let records = Records::new(config.store.clone());
        let limits = Limits { stanza_bytes_max: config.stanza_bytes_max, ..Limits::default() };
        Self {
            server: Arc::new(ServerConfig { domain, limits, login_timeout: config.login_timeout }),
            service,
            nodes: Arc::new(Nodes::new(config.nodes_max, records.clone())),
            accounts: Accounts::new(config.subscriptions_per_account_max, records),
            open: OpenStanzas::new(config.open_stanzas_bytes_max),
            config,
        }
    }
}

/// Serves one connection until it ends; `tls` is there for STARTTLS, direct TLS arrives already decrypted with
/// [`crate::Peer::secure`] set.
pub async fn serve_plain(ctx: Rc<WorkerContext>, stream: TcpStream, peer: Peer, tls: Option<TlsAcceptor>) {
    // A write is a whole turn: waiting to fill a segment gains nothing.
    let _ = stream.set_nodelay(true);
    // Required but on loopback, where tools of the same machine come from – if they need no certificate either.
    let starttls = match &tls {
        None => StartTls::Unavailable,
        Some(tls) if peer.is_loopback() && !tls.requires_certificate() => StartTls::Offered,
        Some(_) => StartTls::Required,
    };
    match Box::pin(login::first(&ctx, stream, peer.clone(), starttls)).await {
        // Boxed, for a task is as large as its largest state, and this one is rare.
        Login::StartTls(halted) => Box::pin(serve_started(&ctx, *halted, peer, tls)).await,
        Login::Bound(session) => session.run().await,
        Login::Gone => {}
    }
}

/// Goes on where a client has asked for STARTTLS.
async fn serve_started(ctx: &Rc<WorkerContext>, halted: Halted<TcpStream>, peer: Peer, tls: Option<TlsAcceptor>) {
    let Some(tls) = tls else { return };
    let (stream, login) = halted.split();
    let Ok(Ok((stream, channel))) = tokio::time::timeout_at(login.deadline, tls.accept(stream)).await else {
        ctx.shared.metrics.xmpp.misbehaved.increment();
        return;
    };
    let peer = peer.over(channel);
    if let Login::Bound(session) = Box::pin(login::secured(ctx, stream, peer, login)).await {
        session.run().await;
    }
}

/// Serves one connection over direct TLS until it ends.
pub async fn serve_secure<S>(ctx: Rc<WorkerContext>, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    if let Login::Bound(session) = Box::pin(login::first(&ctx, stream, peer, StartTls::Unavailable)).await {
        session.run().await;
    }
}

/// How often [`housekeeping`] looks whether the rules have changed and subscriptions have ended.
const LOOK: Duration = Duration::from_secs(1);

/// Has connections that say nothing look as well when the rules have changed, and ends subscriptions whose time has come;
/// one worker runs it until drain.
pub async fn housekeeping(ctx: Rc<WorkerContext>) {
    let mut drain = std::pin::pin!(ctx.drain());
    let mut generation = ctx.authority().generation();
    loop {
        tokio::select! {
            () = &mut drain => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        ctx.shared.xmpp.accounts.expire(ctx.bus(), crate::credential::unix_s());
        if generation != ctx.authority().generation() {
            generation = ctx.authority().generation();
            ctx.shared.xmpp.accounts.wake();
        }
    }
}
