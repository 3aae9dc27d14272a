//! TLS handshakes of connections, with the back-off for pre-shared keys.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use fogmux_auth::Door;
use fogmux_fair::Owner;
use fogmux_net::{HandshakeError, HandshakeFailure, ProvenPsk, Stream, TlsAcceptor};
use tokio::net::TcpStream;

use crate::{
    Peer, WorkerContext,
    audit::{self, RefusedLogin},
    listener::Listener,
    psk_guard,
    shares::Table,
};

/// Makes a TLS handshake. The handshakes of a worker share its core; a silent peer holds only its place.
pub(crate) async fn handshake(
    ctx: &WorkerContext,
    listener: Listener,
    stream: TcpStream,
    tls: &TlsAcceptor,
    peer: Peer,
) -> Option<(Stream, Peer)> {
    let (door, from) = (listener.door(), peer.address.ip());
    let unproven = Arc::<AtomicBool>::default();
    let accepted = if tls.takes_keys() {
        let (shared, unproven) = (Arc::clone(&ctx.shared), Arc::clone(&unproven));
        let guard = psk_guard::Connection { shared, from: peer.address, door, unproven };
        tls.clone().guarded(Arc::new(guard)).accept(stream, from).await
    } else {
        tls.accept(stream, from).await
    };
    match accepted {
        // Its key was looked up when the handshake began, and its end is the client's to choose.
        Ok((_, channel)) if !holds(ctx, channel.psk.as_ref()) => {
            let peer = peer.over(channel);
            let (by, claimed) = audit::shown_by(&peer);
            RefusedLogin { claimed: &claimed, ..RefusedLogin::of(&peer, door, by, psk_guard::REPLACED) }
                .log(&ctx.shared);
            ctx.shared.metrics.of(door).unauthenticated.increment();
            ctx.shared.metrics.handshakes.note_tls(door, HandshakeFailure::Key);
            None
        }
        Ok((stream, channel)) => Some((stream, peer.over(channel))),
        Err(error) => {
            if let Some(refused) = error.certificate() {
                RefusedLogin::of_certificate(peer.address, door, &refused).log(&ctx.shared);
            }
            let key = unproven.load(Relaxed).then_some(HandshakeFailure::Key);
            count_failed(ctx, door, from, &error, key);
            tracing::debug!(%error, "no TLS");
            None
        }
    }
}

/// Whether the key of a handshake, if it has one, is still that of its identity.
fn holds(ctx: &WorkerContext, psk: Option<&ProvenPsk>) -> bool {
    psk.is_none_or(|psk| ctx.authority().holds_psk(&psk.identity, psk.mark))
}

/// Counts a handshake that failed. `known` is the reason if it is known better than from the error.
pub(crate) fn count_failed(
    ctx: &WorkerContext,
    door: Door,
    from: IpAddr,
    error: &HandshakeError,
    known: Option<HandshakeFailure>,
) {
    let metrics = ctx.shared.metrics.of(door);
    if let Some(reason) = known.or_else(|| error.reason()) {
        ctx.shared.metrics.handshakes.note_tls(door, reason);
    }
    match error {
        HandshakeError::TooSlow => metrics.timed_out.increment(),
        HandshakeError::GaveWay => {
            metrics.rejected.increment();
            let shares = &ctx.shared.metrics.shares;
            shares.gave_way(Table::TlsHandshakes, &Owner::nameless(from), 1, ctx.now());
        }
        // The engine that ordered it says so.
        HandshakeError::Validation => {}
        HandshakeError::Failed(_) => metrics.misbehaved.increment(),
    }
}

/// [`handshake`] for doors whose futures pass the stream on by value: each of them would hold the 1.2 KiB of a TLS
/// stream several times for as long as the connection lasts.
pub(crate) async fn boxed_handshake(
    ctx: &WorkerContext,
    listener: Listener,
    stream: TcpStream,
    tls: &TlsAcceptor,
    peer: Peer,
) -> Option<(Box<Stream>, Peer)> {
    let (stream, peer) = handshake(ctx, listener, stream, tls, peer).await?;
    Some((Box::new(stream), peer))
}
