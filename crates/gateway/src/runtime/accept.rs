//! Accepting, and handing connections to workers, within limits that hold before a client is authenticated.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use fogmux_net::{TlsAcceptor, listener::accept as accept_admitted};
use tokio::{net::TcpListener, sync::mpsc};

use super::{
    BLOCK,
    open::{Tcp, Udp},
};
use crate::{
    Peer, WorkerContext,
    door::Seat,
    listener::{Listen, Listener},
};

/// A connection or a socket for a worker.
pub(super) enum Arrival {
    /// A connection.
    Connection(Box<Accepted>),
    /// A socket of its own.
    Socket(Box<Udp>),
    /// A connection from inside.
    #[cfg(feature = "mqtt")]
    Link(Box<Link>),
}

/// A connection of a link to another broker, to the MQTT door.
#[cfg(feature = "mqtt")]
pub(super) struct Link {
    pub(super) stream: tokio::io::DuplexStream,
    pub(super) peer: Peer,
}

/// A connection on its way to its worker.
pub(crate) struct Accepted {
    pub(crate) listener: Listener,
    pub(crate) stream: std::net::TcpStream,
    pub(crate) peer: Peer,
    pub(super) tls: Option<TlsAcceptor>,
    pub(crate) seat: Seat,
    /// Whether a header of the PROXY protocol comes first.
    pub(crate) proxied: bool,
}

/// Gives each worker its sockets.
pub(super) fn hand_out(sockets: Vec<(usize, Udp)>, workers: &[mpsc::UnboundedSender<Arrival>]) {
    for (worker, socket) in sockets {
        if let Some(to) = workers.get(worker) {
            // A worker that is gone serves nothing.
            let _ = to.send(Arrival::Socket(Box::new(socket)));
        }
    }
}

/// Accepts on one listener until drain.
pub(super) async fn accept(
    ctx: Rc<WorkerContext>,
    tcp: Tcp,
    workers: Vec<mpsc::UnboundedSender<Arrival>>,
    seats: Arc<[AtomicUsize]>,
) {
    let Listen { listener, anonymous, sources, proxy_protocol: proxied, .. } = tcp.listen;
    let socket = match TcpListener::from_std(tcp.socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "a listener cannot be watched"),
    };
    let mut drain = std::pin::pin!(ctx.drain());
    let door = ctx.shared.metrics.of(listener.door());
    loop {
        let (stream, address, admitted) = tokio::select! {
            biased;
            () = &mut drain => return,
            accepted = accept_admitted(&socket, &ctx.shared.admission, || door.rejected.increment()) => accepted,
        };
        let worker = least_occupied(&seats);
        let (Ok(stream), Some(to), Some(seat)) = (stream.into_std(), workers.get(worker), seats.get(worker)) else {
            continue;
        };
        seat.fetch_add(1, Relaxed);
        door.accepted.increment();
        door.connections.change(1);
        let seat = Seat { seats: Arc::clone(&seats), worker, shared: Arc::clone(&ctx.shared), listener, admitted };
        let peer = Peer { sources, listener: Some(tcp.place), ..Peer::plain(address, anonymous) };
        // A worker that is gone takes its connections with it.
        let accepted = Accepted { listener, stream, peer, tls: tcp.tls.clone(), seat, proxied };
        let _ = to.send(Arrival::Connection(Box::new(accepted)));
    }
}

/// The worker with the fewest blocks of connections.
fn least_occupied(seats: &[AtomicUsize]) -> usize {
    let occupied = seats.iter().map(|seat| seat.load(Relaxed) / BLOCK).enumerate();
    occupied.min_by_key(|(_, blocks)| *blocks).map_or(0, |(worker, _)| worker)
}
