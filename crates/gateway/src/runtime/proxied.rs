//! Connections from a proxy, which begin with a header of the PROXY protocol.

use fogmux_net::proxy::{self, Origin};

use super::accept::Accepted;
use crate::WorkerContext;

/// Reads the header of the PROXY protocol of a connection, which must come from a named proxy. `None` when it is to be
/// closed.
pub(super) async fn unwrap(ctx: &WorkerContext, mut accepted: Accepted) -> Option<Accepted> {
    let (address, door) = (accepted.peer.address, ctx.shared.metrics.of(accepted.listener.door()));
    let admission = &ctx.shared.admission;
    if !admission.proxies().contains(address.ip()) {
        door.rejected.increment();
        tracing::debug!(peer = %address, "no named proxy, on a listener with the PROXY protocol");
        return None;
    }
    let mut stream = tokio::net::TcpStream::from_std(accepted.stream).ok()?;
    let read = tokio::select! {
        read = proxy::read_header(&mut stream, ctx.shared.proxy.timeout) => read,
        () = ctx.drain() => return None,
    };
    let origin = match read {
        Ok(origin) => origin,
        Err(error) => {
            match error {
                proxy::HeaderError::TooSlow => door.timed_out.increment(),
                proxy::HeaderError::Malformed(_) => door.misbehaved.increment(),
                proxy::HeaderError::Io(_) => {}
            }
            tracing::debug!(peer = %address, %error, "a connection of a proxy is closed");
            return None;
        }
    };
    accepted.peer = match origin {
        Origin::Proxy => accepted.peer,
        Origin::Unknown => accepted.peer.behind(None),
        Origin::Client(client) => {
            if !accepted.seat.count(admission, client.ip()) {
                door.rejected.increment();
                return None;
            }
            accepted.peer.behind(Some(client))
        }
    };
    accepted.stream = stream.into_std().ok()?;
    accepted.proxied = false;
    Some(accepted)
}
