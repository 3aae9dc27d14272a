//! Opening the sockets of listeners. What the configuration decides is prepared first, so that a mistake in it ends the
//! start; binding may fail for reasons that pass, and is tried again then.

use std::{io, net::SocketAddr, sync::Arc};

#[cfg(feature = "coap")]
use fogmux_dtls::CookieKey;
use fogmux_net::{
    TlsAcceptor, TlsConfig, TlsError,
    dtls::ListenerCredentials,
    listener::{self, PortSharing},
    quic::QuicLimits,
};

use super::StartError;
#[cfg(feature = "coap")]
use crate::coap;
use crate::{
    listener::{Listen, Listener},
    listening::{Listening, Place, Spot},
};

/// The parts that the sockets of a gateway are made with.
pub(super) struct Plan<'a> {
    pub(super) tls: Option<&'a TlsConfig>,
    pub(super) quic: &'a QuicLimits,
    pub(super) workers: usize,
}

/// An address of a listener, ready to be bound.
pub(super) struct Prepared {
    pub(super) place: Place,
    pub(super) listen: Listen,
    way: Way,
    workers: usize,
}

/// How what arrives is protected.
enum Way {
    Stream(Option<TlsAcceptor>),
    #[cfg(feature = "coap")]
    Coap,
    #[cfg(feature = "coap")]
    Coaps {
        credentials: ListenerCredentials,
        cookies: Arc<CookieKey>,
    },
    #[cfg(feature = "http")]
    Http3 {
        tls: TlsConfig,
        limits: QuicLimits,
    },
}

/// A TCP listener, bound.
pub(super) struct Tcp {
    pub(super) place: Place,
    pub(super) listen: Listen,
    pub(super) socket: std::net::TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
}

/// A UDP socket of one worker, bound.
pub(super) enum Udp {
    /// CoAP: one for each worker.
    #[cfg(feature = "coap")]
    Coap { socket: std::net::UdpSocket, listener: coap::Listener },
    /// The groups of CoAP nodes, with another handle of a listener's socket, from which they are answered.
    #[cfg(feature = "coap")]
    CoapGroup { socket: std::net::UdpSocket, listener: coap::Listener },
    /// CoAP over DTLS: one for each worker.
    #[cfg(feature = "coap")]
    Coaps { socket: std::net::UdpSocket, listener: Box<coap::DtlsListener> },
    /// QUIC: one in all, for two endpoints on one port were slower.
    #[cfg(feature = "http")]
    Http3 { socket: std::net::UdpSocket, tls: TlsConfig, limits: QuicLimits, listen: Box<Listen>, place: Place },
}

/// The sockets of a listener at one address.
pub(super) enum Bound {
    Tcp(Box<Tcp>),
    /// With the number of the worker of each.
    Udp(Vec<(usize, Udp)>),
}

/// The sockets of all listeners, and the addresses that are tried again.
#[derive(Default)]
pub(super) struct Sockets {
    pub(super) bound: Vec<Bound>,
    pub(super) waiting: Vec<Prepared>,
}

/// Prepares all listeners, then binds them.
///
/// # Errors
/// A listener that cannot be prepared, or that the system refuses for good; or the first reason if none can be bound.
pub(super) fn all(listening: &Listening, plan: &Plan<'_>) -> Result<Sockets, StartError> {
    let prepared: Result<Vec<_>, _> =
        listening.each().map(|(place, spot)| prepare(place, &spot.listen, plan)).collect();
    let mut sockets = Sockets::default();
    let mut first = None;
    for prepared in prepared? {
        match prepared.bind(listening) {
            Ok(bound) => sockets.bound.push(bound),
            Err(source) if may_pass(&source) => {
                listening.failed(prepared.place, source.to_string());
                first.get_or_insert_with(|| prepared.failed(source));
                sockets.waiting.push(prepared);
            }
            Err(source) => return Err(prepared.failed(source)),
        }
    }
    match first {
        Some(error) if sockets.bound.is_empty() => Err(error),
        Some(_) | None => Ok(sockets),
    }
}

/// Whether an address may be had later: an interface without its address yet, a port that another socket has, a family
/// of addresses that the system does not have. A refusal (EACCES) is the operator's to mend.
fn may_pass(error: &io::Error) -> bool {
    const ENODEV: i32 = 19;
    const EAFNOSUPPORT_LINUX: i32 = 97;
    let kind = matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable);
    kind || cfg!(target_os = "linux") && matches!(error.raw_os_error(), Some(ENODEV | EAFNOSUPPORT_LINUX))
}

/// Makes everything that a listener needs but its sockets.
fn prepare(place: Place, listen: &Listen, plan: &Plan<'_>) -> Result<Prepared, StartError> {
    let name = || Arc::clone(&listen.name);
    let unusable = |source: TlsError| StartError::Tls { name: name(), source };
    let way = match listen.listener {
        listener if !listener.has_door() => return Err(StartError::NoDoor(listener)),
        #[cfg(feature = "coap")]
        Listener::Coap => Way::Coap,
        #[cfg(feature = "coap")]
        Listener::Coaps => {
            let tls = plan.tls.ok_or_else(|| StartError::NoCertificate(name()))?;
            let mut key = [0; 32];
            let no_key = |error| StartError::Worker(io::Error::other(error));
            getrandom::fill(&mut key).map_err(no_key)?;
            let credentials = ListenerCredentials::new(tls, listen.security).map_err(unusable)?;
            Way::Coaps { credentials, cookies: Arc::new(CookieKey::new(&key)) }
        }
        #[cfg(feature = "http")]
        Listener::Http3 => {
            let tls = plan.tls.ok_or_else(|| StartError::NoCertificate(name()))?;
            Way::Http3 { tls: tls.clone(), limits: *plan.quic }
        }
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
        | Listener::Xmpps => Way::Stream(acceptor(listen, plan.tls)?),
    };
    Ok(Prepared { place, listen: listen.clone(), way, workers: plan.workers })
}

/// TLS of a listener of streams, if it has any.
fn acceptor(listen: &Listen, tls: Option<&TlsConfig>) -> Result<Option<TlsAcceptor>, StartError> {
    let name = || Arc::clone(&listen.name);
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
    match tls {
        None if secure && encrypted => Err(StartError::NoCertificate(name())),
        Some(tls) if encrypted => {
            let acceptor = tls.acceptor(&listen.security, alpn);
            Ok(Some(acceptor.map_err(|source| StartError::Tls { name: name(), source })?))
        }
        Some(_) | None => Ok(None),
    }
}

impl Prepared {
    /// The error of a start.
    fn failed(&self, source: io::Error) -> StartError {
        StartError::Bind { name: Arc::clone(&self.listen.name), address: self.listen.address, source }
    }

    /// The address to bind. Port 0 is the port of the listener that this one stands beside, if that has one.
    fn address(&self, listening: &Listening) -> SocketAddr {
        let mut address = self.listen.address;
        let shared = if self.listen.listener == Listener::Http3 {
            listening.beside(self.place, Listener::Https).and_then(Spot::address).map(|https| https.port())
        } else if self.listen.shares_port {
            listening.port_before(self.place)
        } else {
            None
        };
        if let (0, Some(port)) = (address.port(), shared) {
            address.set_port(port);
        }
        address
    }

    /// Binds the sockets, and notes the address that they were given.
    ///
    /// # Errors
    /// The system refuses the address.
    pub(super) fn bind(&self, listening: &Listening) -> io::Result<Bound> {
        let wanted = self.address(listening);
        let (bound, address) = match &self.way {
            Way::Stream(tls) => {
                let socket = listener::tcp(wanted, PortSharing::Exclusive)?;
                let address = socket.local_addr()?;
                let (listen, tls) = (self.listen.clone(), tls.clone());
                (Bound::Tcp(Box::new(Tcp { place: self.place, listen, socket, tls })), address)
            }
            #[cfg(feature = "coap")]
            Way::Coap => {
                let multicast = self.listen.multicast;
                // The port of all addresses is that of the groups as well.
                let is_shared = self.workers > 1 || multicast && wanted.ip().is_unspecified();
                let sharing = if is_shared { PortSharing::Shared } else { PortSharing::Exclusive };
                let group = listener::udp_group_as(wanted, self.workers, sharing)?;
                let address = address_of(&group, wanted)?;
                let listener = self.coap();
                let answers = group.first().filter(|_| multicast).map(std::net::UdpSocket::try_clone).transpose()?;
                let sockets = group.into_iter().map(|socket| Udp::Coap { socket, listener }).enumerate();
                let groups = answers.map(|socket| (0, Udp::CoapGroup { socket, listener }));
                (Bound::Udp(sockets.chain(groups).collect()), address)
            }
            #[cfg(feature = "coap")]
            Way::Coaps { credentials, cookies } => {
                let group = listener::udp_group(wanted, self.workers)?;
                let address = address_of(&group, wanted)?;
                let admits = self.coap();
                let sockets = group.into_iter().zip(coap::Handover::among(self.workers)).map(|(socket, handover)| {
                    let (credentials, cookies) = (credentials.clone(), Arc::clone(cookies));
                    let listener = Box::new(coap::DtlsListener { credentials, cookies, admits, handover });
                    Udp::Coaps { socket, listener }
                });
                (Bound::Udp(sockets.enumerate().collect()), address)
            }
            #[cfg(feature = "http")]
            Way::Http3 { tls, limits } => {
                // The same port as HTTPS is a nicety: when any will do and that one is taken, Alt-Svc names another.
                let socket = listener::udp(wanted, PortSharing::Exclusive).or_else(|error| {
                    match self.listen.address.port() {
                        0 => listener::udp(self.listen.address, PortSharing::Exclusive),
                        _ => Err(error),
                    }
                })?;
                let address = socket.local_addr()?;
                let (tls, limits, listen, place) = (tls.clone(), *limits, self.listen.clone(), self.place);
                let last = self.workers.saturating_sub(1);
                (Bound::Udp(vec![(last, Udp::Http3 { socket, tls, limits, listen: Box::new(listen), place })]), address)
            }
        };
        listening.opened(self.place, address);
        Ok(bound)
    }

    #[cfg(feature = "coap")]
    const fn coap(&self) -> coap::Listener {
        let Listen { anonymous, sources, .. } = self.listen;
        coap::Listener { by: Some(self.place), anonymous, sources }
    }
}

#[cfg(feature = "coap")]
fn address_of(group: &[std::net::UdpSocket], wanted: SocketAddr) -> io::Result<SocketAddr> {
    group.first().map_or(Ok(wanted), std::net::UdpSocket::local_addr)
}
