//! Binding and accepting, and handing connections to workers, within limits that hold before a client is authenticated.

use std::{
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

#[cfg(feature = "coap")]
use fogmux_dtls::CookieKey;
use fogmux_net::{
    TlsAcceptor, TlsConfig, TlsError,
    dtls::ListenerCredentials,
    listener::{self, PortSharing, accept as accept_admitted},
    quic::QuicLimits,
};
use tokio::{net::TcpListener, sync::mpsc};

use super::{BLOCK, StartError};
#[cfg(feature = "coap")]
use crate::coap;
use crate::{
    Peer, WorkerContext,
    door::Seat,
    listener::{Listen, Listener},
};

/// A TCP listener, bound.
pub(super) struct Tcp {
    listen: Listen,
    socket: std::net::TcpListener,
    tls: Option<TlsAcceptor>,
}

/// A UDP socket of one worker, bound.
pub(super) enum Udp {
    /// CoAP: one for each worker.
    #[cfg(feature = "coap")]
    Coap { socket: std::net::UdpSocket, listener: coap::Listener },
    /// CoAP over DTLS: one for each worker.
    #[cfg(feature = "coap")]
    Coaps { socket: std::net::UdpSocket, listener: coap::DtlsListener },
    /// QUIC: one in all, for two endpoints on one port were slower.
    #[cfg(feature = "http")]
    Http3 { socket: std::net::UdpSocket, tls: TlsConfig, limits: QuicLimits, listen: Listen },
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
pub(crate) struct Accepted {
    pub(crate) listener: Listener,
    pub(crate) stream: std::net::TcpStream,
    pub(crate) peer: Peer,
    pub(super) tls: Option<TlsAcceptor>,
    pub(crate) seat: Seat,
    /// Whether a header of the PROXY protocol comes first.
    pub(crate) proxied: bool,
}

/// Binds everything before anything is started.
pub(super) fn bind(
    listen: &[Listen],
    tls: Option<&TlsConfig>,
    quic: &QuicLimits,
    workers: usize,
) -> Result<Sockets, StartError> {
    let mut sockets =
        Sockets { tcp: Vec::new(), udp: (0..workers).map(|_| Vec::new()).collect(), addresses: Vec::new() };
    for listen in listen {
        let address = match listen.listener {
            listener if !listener.has_door() => return Err(StartError::NoDoor(listener)),
            #[cfg(feature = "coap")]
            Listener::Coap => bind_coap(&mut sockets, listen)?,
            #[cfg(feature = "coap")]
            Listener::Coaps => bind_coaps(&mut sockets, listen, tls)?,
            #[cfg(feature = "http")]
            Listener::Http3 => bind_http3(&mut sockets, listen, tls, quic)?,
            #[cfg(not(feature = "coap"))]
            listener @ (Listener::Coap | Listener::Coaps) => return Err(StartError::NoDoor(listener)),
            #[cfg(not(feature = "http"))]
            listener @ Listener::Http3 => return Err(StartError::NoDoor(listener)),
            Listener::Mqtt
            | Listener::Mqtts
            | Listener::CoapTcp
            | Listener::CoapsTcp
            | Listener::Http
            | Listener::Https
            | Listener::Xmpp
            | Listener::Xmpps => bind_stream(&mut sockets, listen, tls)?,
        };
        sockets.addresses.push((listen.listener, address));
    }
    Ok(sockets)
}

fn failed(listen: &Listen) -> impl Fn(io::Error) -> StartError {
    let (listener, address) = (listen.listener, listen.address);
    move |source| StartError::Bind { listener, address, source }
}

fn unusable(listen: &Listen) -> impl Fn(TlsError) -> StartError {
    let listener = listen.listener;
    move |source| StartError::Tls { listener, source }
}

#[cfg(feature = "coap")]
fn bind_coap(sockets: &mut Sockets, listen: &Listen) -> Result<SocketAddr, StartError> {
    let failed = failed(listen);
    let mut address = listen.address;
    let group = listener::udp_group(listen.address, sockets.udp.len()).map_err(&failed)?;
    for (worker, socket) in sockets.udp.iter_mut().zip(group) {
        address = socket.local_addr().map_err(&failed)?;
        let listener =
            coap::Listener { by: Some(listen.listener), anonymous: listen.anonymous, sources: listen.sources };
        worker.push(Udp::Coap { socket, listener });
    }
    Ok(address)
}

#[cfg(feature = "coap")]
fn bind_coaps(sockets: &mut Sockets, listen: &Listen, tls: Option<&TlsConfig>) -> Result<SocketAddr, StartError> {
    let failed = failed(listen);
    let tls = tls.ok_or(StartError::NoCertificate(listen.listener))?;
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| failed(io::Error::other(error)))?;
    let credentials = ListenerCredentials::new(tls, listen.security).map_err(unusable(listen))?;
    let cookies = Arc::new(CookieKey::new(&key));
    let admits = coap::Listener { by: Some(listen.listener), anonymous: listen.anonymous, sources: listen.sources };
    let mut address = listen.address;
    let group = listener::udp_group(listen.address, sockets.udp.len()).map_err(&failed)?;
    let handovers = coap::Handover::among(sockets.udp.len());
    for ((worker, socket), handover) in sockets.udp.iter_mut().zip(group).zip(handovers) {
        address = socket.local_addr().map_err(&failed)?;
        let (credentials, cookies) = (credentials.clone(), Arc::clone(&cookies));
        let listener = coap::DtlsListener { credentials, cookies, admits, handover };
        worker.push(Udp::Coaps { socket, listener });
    }
    Ok(address)
}

#[cfg(feature = "http")]
fn bind_http3(
    sockets: &mut Sockets,
    listen: &Listen,
    tls: Option<&TlsConfig>,
    quic: &QuicLimits,
) -> Result<SocketAddr, StartError> {
    let failed = failed(listen);
    let tls = tls.ok_or(StartError::NoCertificate(listen.listener))?.clone();
    let mut address = listen.address;
    if address.port() == 0
        && let Some((_, https)) = sockets.addresses.iter().find(|(listener, _)| *listener == Listener::Https)
    {
        address.set_port(https.port());
    }
    // The same port as HTTPS is a nicety: when any will do and that one is taken, Alt-Svc names another.
    let socket = listener::udp(address, PortSharing::Exclusive)
        .or_else(|error| match listen.address.port() {
            0 => listener::udp(listen.address, PortSharing::Exclusive),
            _ => Err(error),
        })
        .map_err(&failed)?;
    let address = socket.local_addr().map_err(&failed)?;
    if let Some(worker) = sockets.udp.last_mut() {
        worker.push(Udp::Http3 { socket, tls, limits: *quic, listen: *listen });
    }
    Ok(address)
}

fn bind_stream(sockets: &mut Sockets, listen: &Listen, tls: Option<&TlsConfig>) -> Result<SocketAddr, StartError> {
    let failed = failed(listen);
    let alpn: &[&[u8]] = match listen.listener {
        Listener::Https => &[b"h2", b"http/1.1"],
        Listener::Mqtts => &[b"mqtt"],
        Listener::Xmpp | Listener::Xmpps => &[b"xmpp-client"],
        // RFC 8323 §8.2
        Listener::CoapsTcp => &[b"coap"],
        Listener::Mqtt | Listener::Http | Listener::Coap | Listener::Coaps | Listener::CoapTcp | Listener::Http3 => &[],
    };
    let secure = listen.listener.begins_with_tls();
    let encrypted = !alpn.is_empty() && listen.security.profile.is_encrypted();
    let tls = match tls {
        None if secure && encrypted => return Err(StartError::NoCertificate(listen.listener)),
        Some(tls) if encrypted => Some(tls.acceptor(&listen.security, alpn).map_err(unusable(listen))?),
        Some(_) | None => None,
    };
    let socket = listener::tcp(listen.address, PortSharing::Exclusive).map_err(&failed)?;
    let address = socket.local_addr().map_err(&failed)?;
    sockets.tcp.push(Tcp { listen: *listen, socket, tls });
    Ok(address)
}

/// Accepts on one listener until drain.
pub(super) async fn accept(
    ctx: Rc<WorkerContext>,
    tcp: Tcp,
    workers: Vec<mpsc::UnboundedSender<Accepted>>,
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
        let peer = Peer { sources, listener: Some(listener), ..Peer::plain(address, anonymous) };
        // A worker that is gone takes its connections with it.
        let _ = to.send(Accepted { listener, stream, peer, tls: tcp.tls.clone(), seat, proxied });
    }
}

/// The worker with the fewest blocks of connections.
fn least_occupied(seats: &[AtomicUsize]) -> usize {
    let occupied = seats.iter().map(|seat| seat.load(Relaxed) / BLOCK).enumerate();
    occupied.min_by_key(|(_, blocks)| *blocks).map_or(0, |(worker, _)| worker)
}
