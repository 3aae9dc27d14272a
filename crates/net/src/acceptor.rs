//! TLS handshakes of servers: each in its own task with a deadline, capped, and never in the way of others.
//!
//! A handshake is not finished before its client certificate is known to be good now: sessions that are resumed bring
//! the certificate of the first handshake with them (RFC 8446 §4.6.1), and a client that holds back its Finished
//! decides how long ago its certificate was verified. Either may have been revoked since.

use std::{fmt, io, net::IpAddr, sync::Arc, time::Duration};

use rustls::{HandshakeKind, ServerConfig, pki_types::CertificateDer, server::Acceptor};
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;

use crate::{
    by_name::Served,
    challenges::Challenges,
    channel::{Channel, PskGuard},
    clients::{ClientTrust, RefusedCertificate, refused::told},
    handshake_failure::HandshakeFailure,
    handshakes::Elsewhere,
    places::{GaveWay, Places},
    stream::{Socket, Stream},
};

/// The longest a handshake may take from the connection on.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// Handshakes past their ClientHello at once: each holds some 30 KiB.
const HANDSHAKES_MAX: usize = 1024;

/// Does handshakes. Each runs in its own task; none waits for another that only holds its connection open.
#[derive(Clone)]
pub struct TlsAcceptor {
    pub(crate) stack: ServerStack,
    pub(crate) served: Served,
    pub(crate) challenges: Challenges,
    pub(crate) trust: Option<ClientTrust>,
    /// Whether open connections end with their certificate.
    pub(crate) cut_revoked: bool,
    pub(crate) requires_certificate: bool,
    /// There when handshakes are too expensive for a worker.
    pub(crate) elsewhere: Option<Elsewhere>,
    #[cfg_attr(not(feature = "tls-openssl"), expect(dead_code, reason = "only OpenSSL takes pre-shared keys"))]
    guard: Option<Arc<dyn PskGuard>>,
    places: Places,
    deadline: Duration,
}

/// The TLS stack that does the handshake, with its configuration.
#[derive(Clone)]
pub(crate) enum ServerStack {
    Rustls(Arc<ServerConfig>),
    #[cfg(feature = "tls-openssl")]
    OpenSsl(Arc<crate::openssl::Server>),
}

/// The reason why a handshake failed. The peer causes most failures, so they are logged at a low level.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// Not finished in time.
    #[error("the TLS handshake took too long")]
    TooSlow,
    /// There were too many at once, and most of them from there.
    #[error("the TLS handshake gave way to one from another network or host")]
    GaveWay,
    /// It was an ACME server's, which has validated a name by it: no connection follows (RFC 8737 §3).
    #[error("an ACME server has validated a name")]
    Validation,
    /// The peer does not speak TLS, or none that we do, or went away.
    #[error("the TLS handshake failed: {0}")]
    Failed(io::Error),
}

/// The end of a handshake that was a validation.
#[derive(Debug, thiserror::Error)]
#[error("an ACME server has validated a name")]
struct Validation;

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        match error.get_ref() {
            Some(inner) if inner.is::<GaveWay>() => Self::GaveWay,
            Some(inner) if inner.is::<Validation>() => Self::Validation,
            Some(_) | None => Self::Failed(error),
        }
    }
}

impl HandshakeError {
    /// The client's certificate if it was refused, or is missing where one is required.
    #[must_use]
    pub fn certificate(&self) -> Option<RefusedCertificate> {
        let Self::Failed(error) = self else { return None };
        RefusedCertificate::of_error(error)
    }

    /// Why it failed, for metrics. A validation did not fail.
    #[must_use]
    pub fn reason(&self) -> Option<HandshakeFailure> {
        match self {
            Self::TooSlow => Some(HandshakeFailure::Timeout),
            Self::GaveWay => Some(HandshakeFailure::GaveWay),
            Self::Validation => None,
            Self::Failed(_) if self.certificate().is_some() => Some(HandshakeFailure::Certificate),
            Self::Failed(error) => Some(HandshakeFailure::of_error(error)),
        }
    }
}

impl TlsAcceptor {
    pub(crate) fn new(stack: ServerStack, served: Served) -> Self {
        Self {
            stack,
            served,
            challenges: Challenges::default(),
            trust: None,
            cut_revoked: false,
            requires_certificate: false,
            elsewhere: None,
            guard: None,
            places: Places::new(HANDSHAKES_MAX),
            deadline: HANDSHAKE_DEADLINE,
        }
    }

    /// Whether nobody comes through without a certificate.
    #[must_use]
    pub const fn requires_certificate(&self) -> bool {
        self.requires_certificate
    }

    /// Asks `guard` before a pre-shared key is looked up.
    #[must_use]
    pub fn guarded(self, guard: Arc<dyn PskGuard>) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// Whether clients may prove themselves by a pre-shared key.
    #[must_use]
    pub fn takes_keys(&self) -> bool {
        match &self.stack {
            ServerStack::Rustls(_) => false,
            #[cfg(feature = "tls-openssl")]
            ServerStack::OpenSsl(server) => server.takes_keys(),
        }
    }

    /// With another deadline than 10 s.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Takes a connection from there through its handshake. A peer that sends nothing costs no TLS state; one that
    /// sends a ClientHello needs one of 1024 places, which networks and hosts share.
    ///
    /// # Errors
    /// [`HandshakeError`]; the connection is closed then.
    pub async fn accept(&self, stream: TcpStream, from: IpAddr) -> Result<(Stream, Arc<Channel>), HandshakeError> {
        let handshake = tokio::time::timeout(self.deadline, self.handshake(stream, from));
        let (stream, channel) = handshake.await.map_err(|_| HandshakeError::TooSlow)??;
        Ok((stream, Arc::new(channel)))
    }

    async fn handshake(&self, stream: TcpStream, from: IpAddr) -> io::Result<Finished> {
        stream.readable().await?;
        let Some(elsewhere) = &self.elsewhere else {
            return self.clone().shake_hands(Socket::Attached(stream), from).await;
        };
        let mut socket = Socket::Attached(stream);
        socket.detach()?;
        let this = self.clone();
        let (mut stream, channel) = elsewhere
            .run(async move {
                socket.attach()?;
                let (mut stream, channel) = this.shake_hands(socket, from).await?;
                stream.socket_mut().detach()?;
                Ok((stream, channel))
            })
            .await?;
        stream.socket_mut().attach()?;
        Ok((stream, channel))
    }

    async fn shake_hands(self, socket: Socket, from: IpAddr) -> io::Result<Finished> {
        match &self.stack {
            ServerStack::Rustls(config) => self.rustls(config, socket, from).await,
            #[cfg(feature = "tls-openssl")]
            ServerStack::OpenSsl(server) => {
                let place = self.places.take(from).await;
                let (stream, mut channel, chain) = place.hold(server.accept(socket, self.guard.clone())).await?;
                let mut stream = Stream::openssl(stream);
                self.watch(&chain, &mut stream);
                self.verify(&chain)?;
                channel.end_point = self.served.own.loaded().end_point();
                Ok((stream, channel))
            }
        }
    }

    async fn rustls(&self, config: &Arc<ServerConfig>, socket: Socket, from: IpAddr) -> io::Result<Finished> {
        let start = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
        let place = self.places.take(from).await;
        if let Some(validation) = self.challenges.config_for(&start.client_hello()) {
            place.hold(start.into_stream(validation)).await?;
            return Err(io::Error::other(Validation));
        }
        let trust = self.trust_version();
        let stream = place.hold(told(start.into_stream(Arc::clone(config)))).await?;
        let connection = stream.get_ref().1;
        let chain: Vec<_> =
            connection.peer_certificates().unwrap_or_default().iter().map(|one| one.clone().into_owned()).collect();
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let mut channel = Channel::of_rustls(connection).map_err(io::Error::other)?;
        channel.end_point = self.served.certificate(connection.server_name()).end_point();
        let mut stream = Stream::rustls(stream);
        self.watch(&chain, &mut stream);
        // rustls has verified a certificate that is not resumed, but by what was in force when it came.
        if !chain.is_empty() && (is_resumed || self.trust_version() != trust) {
            self.verify(&chain)?;
        }
        Ok((stream, channel))
    }

    /// The version of what certificates are judged by ([`ClientTrust::version`]).
    fn trust_version(&self) -> u64 {
        self.trust.as_ref().map_or(0, ClientTrust::version)
    }

    /// Has the stream end with its certificate, if it is to. Before the certificate is verified at the end of the
    /// handshake, so that a revocation between the two is not missed.
    fn watch(&self, chain: &[CertificateDer<'_>], stream: &mut Stream) {
        if let (true, Some(trust), Some(_)) = (self.cut_revoked, &self.trust, chain.first()) {
            stream.cut_by(trust.watch(chain));
        }
    }

    /// A certificate that rustls has not verified, or not of late.
    fn verify(&self, chain: &[CertificateDer<'_>]) -> io::Result<()> {
        let Some((leaf, intermediates)) = chain.split_first() else { return Ok(()) };
        let trust = self.trust.as_ref().ok_or_else(|| io::Error::other("nobody asked for a certificate"))?;
        trust.verify(leaf, intermediates).map_err(|error| RefusedCertificate::new(leaf, &error).error(error))
    }
}

/// The result of a handshake: the stream and its properties.
type Finished = (Stream, Channel);

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
