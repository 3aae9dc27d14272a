//! Binding, accepting, and handing connections to workers, within limits that hold before anybody has said who they
//! are.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use fogmux_net::{TlsConfig, bind_tcp, bind_udp};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{BLOCK, Listen, Listener, StartError};
use crate::context::{Peer, WorkerContext};
use crate::metrics::DoorMetrics;

/// Limits on connections, over all TCP listeners.
#[derive(Clone, Debug)]
pub struct AcceptLimits {
    /// Most connections.
    pub connections_max: usize,
    /// Most connections from one address that is not on this machine.
    pub connections_per_address_max: usize,
    /// Longest TLS handshake.
    pub handshake_deadline: Duration,
}

impl Default for AcceptLimits {
    fn default() -> Self {
        Self {
            connections_max: 100_000,
            connections_per_address_max: 1_000,
            handshake_deadline: Duration::from_secs(10),
        }
    }
}

/// A TCP listener, bound.
pub(super) struct Tcp {
    listen: Listen,
    socket: std::net::TcpListener,
    tls: Option<TlsAcceptor>,
}

/// A UDP socket of one worker, bound.
pub(super) enum Udp {
    /// CoAP: one for each worker.
    Coap { socket: std::net::UdpSocket, anonymous: bool },
    /// QUIC: one in all, for two endpoints on one port were slower.
    Http3 { socket: std::net::UdpSocket, config: quinn::ServerConfig, anonymous: bool },
}

/// All sockets of a gateway.
pub(super) struct Sockets {
    pub(super) tcp: Vec<Tcp>,
    /// By worker.
    pub(super) udp: Vec<Vec<Udp>>,
    addresses: Vec<(Listener, SocketAddr)>,
}

impl Sockets {
    pub(super) fn addresses(&self) -> Vec<(Listener, SocketAddr)> {
        self.addresses.clone()
    }
}

/// A connection on its way to its worker.
pub(super) struct Accepted {
    pub(super) listener: Listener,
    pub(super) stream: std::net::TcpStream,
    pub(super) peer: Peer,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) handshake_deadline: Duration,
    pub(super) seat: Seat,
}

/// Binds everything, so that nothing is started when something cannot be.
pub(super) fn bind(listen: &[Listen], tls: Option<&TlsConfig>, workers: usize) -> Result<Sockets, StartError> {
    let mut sockets = Sockets { tcp: Vec::new(), udp: (0..workers).map(|_| Vec::new()).collect(), addresses: Vec::new() };
    for listen in listen {
        let address = match listen.listener {
            Listener::Coap => bind_coap(&mut sockets, listen)?,
            Listener::Http3 => bind_http3(&mut sockets, listen, tls)?,
            Listener::Mqtt | Listener::Mqtts | Listener::Http | Listener::Https | Listener::Xmpp | Listener::Xmpps => {
                bind_stream(&mut sockets, listen, tls)?
            }
        };
        sockets.addresses.push((listen.listener, address));
    }
    Ok(sockets)
}

fn failed(listen: &Listen) -> impl Fn(io::Error) -> StartError {
    let (listener, address) = (listen.listener, listen.address);
    move |source| StartError::Bind { listener, address, source }
}

fn bind_coap(sockets: &mut Sockets, listen: &Listen) -> Result<SocketAddr, StartError> {
    let failed = failed(listen);
    let mut address = listen.address;
    for worker in &mut sockets.udp {
        let socket = bind_udp(address, true).map_err(&failed)?;
        // With port 0 the first socket chooses, the others join it.
        address = socket.local_addr().map_err(&failed)?;
        worker.push(Udp::Coap { socket, anonymous: listen.anonymous });
    }
    Ok(address)
}

fn bind_http3(sockets: &mut Sockets, listen: &Listen, tls: Option<&TlsConfig>) -> Result<SocketAddr, StartError> {
    let failed = failed(listen);
    let config = tls.ok_or(StartError::NoCertificate(listen.listener))?.quic();
    let mut address = listen.address;
    if address.port() == 0
        && let Some((_, https)) = sockets.addresses.iter().find(|(listener, _)| *listener == Listener::Https)
    {
        address.set_port(https.port());
    }
    let socket = bind_udp(address, false).map_err(&failed)?;
    let address = socket.local_addr().map_err(&failed)?;
    if let Some(worker) = sockets.udp.last_mut() {
        worker.push(Udp::Http3 { socket, config, anonymous: listen.anonymous });
    }
    Ok(address)
}

fn bind_stream(sockets: &mut Sockets, listen: &Listen, tls: Option<&TlsConfig>) -> Result<SocketAddr, StartError> {
    let failed = failed(listen);
    let alpn: &[&[u8]] = match listen.listener {
        Listener::Https => &[b"h2", b"http/1.1"],
        Listener::Mqtts => &[b"mqtt"],
        Listener::Xmpp | Listener::Xmpps => &[b"xmpp-client"],
        Listener::Mqtt | Listener::Http | Listener::Coap | Listener::Http3 => &[],
    };
    let secure = matches!(listen.listener, Listener::Https | Listener::Mqtts | Listener::Xmpps);
    let tls = match tls {
        None if secure => return Err(StartError::NoCertificate(listen.listener)),
        Some(tls) if !alpn.is_empty() => Some(tls.acceptor(alpn)),
        Some(_) | None => None,
    };
    let socket = bind_tcp(listen.address).map_err(&failed)?;
    let address = socket.local_addr().map_err(&failed)?;
    sockets.tcp.push(Tcp { listen: *listen, socket, tls });
    Ok(address)
}

/// Connections by address, for the limits.
#[derive(Debug, Default)]
struct Addresses(Mutex<HashMap<IpAddr, usize>>);

/// A connection's place on a worker and under its address's limit, given back when dropped.
pub(super) struct Seat {
    seats: Arc<[AtomicUsize]>,
    worker: usize,
    addresses: Arc<Addresses>,
    counted: Option<IpAddr>,
    shared: Arc<crate::Shared>,
    listener: Listener,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(seat) = self.seats.get(self.worker) {
            seat.fetch_sub(1, Relaxed);
        }
        metrics(&self.shared, self.listener).connections.change(-1);
        let Some(address) = self.counted else { return };
        let mut addresses = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&address);
            }
        }
    }
}

/// Of the door that a listener leads to.
fn metrics(shared: &crate::Shared, listener: Listener) -> &DoorMetrics {
    match listener {
        Listener::Mqtt | Listener::Mqtts => &shared.metrics.mqtt,
        Listener::Coap => &shared.metrics.coap,
        Listener::Http | Listener::Https | Listener::Http3 => &shared.metrics.http,
        Listener::Xmpp | Listener::Xmpps => &shared.metrics.xmpp,
    }
}

/// Accepts on one listener until drain.
pub(super) async fn accept(
    ctx: Rc<WorkerContext>,
    tcp: Tcp,
    workers: Vec<mpsc::UnboundedSender<Accepted>>,
    seats: Arc<[AtomicUsize]>,
    limits: AcceptLimits,
) {
    let listener = match TcpListener::from_std(tcp.socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "a listener cannot be watched"),
    };
    let addresses = Arc::new(Addresses::default());
    let mut drain = std::pin::pin!(ctx.drain());
    loop {
        let (stream, address) = tokio::select! {
            biased;
            () = &mut drain => return,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, most likely: spinning would take the core from those who could free some.
                    tracing::warn!(%error, "cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let metrics = metrics(&ctx.shared, tcp.listen.listener);
        let Some((worker, counted)) = admit(address.ip(), &seats, &addresses, &limits) else {
            metrics.rejected.increment();
            continue;
        };
        metrics.accepted.increment();
        metrics.connections.change(1);
        let seat = Seat {
            seats: Arc::clone(&seats),
            worker,
            addresses: Arc::clone(&addresses),
            counted,
            shared: Arc::clone(&ctx.shared),
            listener: tcp.listen.listener,
        };
        let peer = Peer {
            address,
            secure: matches!(tcp.listen.listener, Listener::Mqtts | Listener::Https | Listener::Xmpps),
            anonymous: tcp.listen.anonymous,
        };
        let _ = stream.set_nodelay(true);
        let (Ok(stream), Some(to)) = (stream.into_std(), workers.get(worker)) else { continue };
        // A worker that is gone takes its connections with it.
        let _ = to.send(Accepted {
            listener: tcp.listen.listener,
            stream,
            peer,
            tls: tcp.tls.clone(),
            handshake_deadline: limits.handshake_deadline,
            seat,
        });
    }
}

/// Takes a place on the least occupied worker, if the limits have one.
fn admit(
    address: IpAddr,
    seats: &[AtomicUsize],
    addresses: &Addresses,
    limits: &AcceptLimits,
) -> Option<(usize, Option<IpAddr>)> {
    let total: usize = seats.iter().map(|s| s.load(Relaxed)).sum();
    if total >= limits.connections_max {
        return None;
    }
    let counted = (!address.to_canonical().is_loopback()).then_some(address);
    if let Some(address) = counted {
        let mut addresses = addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = addresses.entry(address).or_default();
        if *count >= limits.connections_per_address_max {
            return None;
        }
        *count += 1;
    }
    let (worker, seat) = seats.iter().enumerate().min_by_key(|(_, seat)| seat.load(Relaxed) / BLOCK)?;
    seat.fetch_add(1, Relaxed);
    Some((worker, counted))
}

/// Makes a TLS handshake within the deadline. Handshakes of one worker share its core, so they hold up neither the
/// accepting nor, between two messages of theirs, each other; a silent peer holds only its seat.
pub(super) async fn handshake(
    ctx: &WorkerContext,
    listener: Listener,
    stream: TcpStream,
    tls: TlsAcceptor,
    deadline: Duration,
) -> Option<TlsStream<TcpStream>> {
    let metrics = metrics(&ctx.shared, listener);
    match tokio::time::timeout(deadline, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            metrics.misbehaved.increment();
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            metrics.timed_out.increment();
            None
        }
    }
}
