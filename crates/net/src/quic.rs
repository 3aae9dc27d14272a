//! QUIC endpoints for HTTP/3 (RFC 9000, RFC 9001): limits, no 0-RTT, and address validation when it gets busy.

mod watched;

use std::{borrow::Cow, io, net::UdpSocket, sync::Arc, time::Duration};

use quinn::{
    Connecting, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, Incoming, ServerConfig, TransportConfig,
    VarInt, crypto::rustls::QuicServerConfig,
};
use rustls::{Tls13CipherSuite, pki_types::CertificateDer};

use self::watched::{Refused, Watched};
use crate::{
    admission::{Admission, Admitted},
    channel::{Channel, ClientCertificate, EXPORTER_LABEL},
    clients::{Cut, RefusedCertificate},
    handshake_failure::HandshakeFailure,
    profile::Security,
    tls::TlsConfig,
};

/// RFC 8446 §6.2.
const CERTIFICATE_REQUIRED: u64 = 116;

/// The limits of one QUIC connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuicLimits {
    /// The number of concurrent request streams.
    pub bidirectional_streams_max: u32,
    /// The number of HTTP/3's unidirectional streams: control and QPACK (RFC 9114 §6.2 requires at least three).
    pub unidirectional_streams_max: u32,
    /// The receive window of one stream in bytes.
    pub stream_window_bytes: u32,
    /// Bytes in flight to us on the whole connection.
    pub connection_window_bytes: u32,
    /// Bytes we hold unacknowledged for the peer.
    pub send_window_bytes: u32,
    /// Silence after which the connection is over.
    pub idle_timeout: Duration,
    /// Open connections from which on a peer must show that its address is its own (Retry, RFC 9000 §8.1.2).
    pub retry_from_connections: usize,
}

impl Default for QuicLimits {
    fn default() -> Self {
        Self {
            bidirectional_streams_max: 100,
            unidirectional_streams_max: 8,
            stream_window_bytes: 512 << 10,
            connection_window_bytes: 2 << 20,
            send_window_bytes: 2 << 20,
            idle_timeout: Duration::from_secs(60),
            retry_from_connections: 256,
        }
    }
}

/// Makes a server endpoint on a socket of [`crate::listener::udp`]. Call it inside a tokio runtime.
///
/// # Errors
/// The socket cannot be used.
pub fn server(
    socket: UdpSocket,
    tls: &TlsConfig,
    security: &Security,
    alpn: &[&[u8]],
    limits: &QuicLimits,
) -> io::Result<Endpoint> {
    let crypto = tls.quic_server(security, alpn).map_err(io::Error::other)?;
    // RFC 9001 §5.2: the first packets are protected by AES-128 whatever the connection will use.
    let initial = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13();
    let initial = initial.and_then(Tls13CipherSuite::quic_suite).ok_or_else(|| io::Error::other("no AES-128"))?;
    let crypto = QuicServerConfig::with_initial(Arc::new(crypto), initial).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(Watched(Arc::new(crypto))));
    config.transport_config(Arc::new(transport(limits)));
    // Handshakes nobody has looked at yet: bounded by what one worker clears in a moment.
    config.max_incoming(1024).incoming_buffer_size(16 << 10).incoming_buffer_size_total(4 << 20);
    let runtime = quinn::default_runtime().ok_or_else(|| io::Error::other("there is no tokio runtime"))?;
    Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)
}

fn transport(limits: &QuicLimits) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(limits.bidirectional_streams_max.into())
        .max_concurrent_uni_streams(limits.unidirectional_streams_max.into())
        .stream_receive_window(limits.stream_window_bytes.into())
        .receive_window(limits.connection_window_bytes.into())
        .send_window(limits.send_window_bytes.into())
        .max_idle_timeout(Some(idle_timeout(limits.idle_timeout)))
        .datagram_receive_buffer_size(None);
    transport
}

fn idle_timeout(idle: Duration) -> IdleTimeout {
    IdleTimeout::try_from(idle).unwrap_or_else(|_| VarInt::MAX.into())
}

/// Decides on a connection attempt: over the limits it is refused, when many are connected its address is checked
/// first, otherwise its handshake begins.
#[must_use]
pub fn admit(incoming: Incoming, admission: &Admission, limits: &QuicLimits) -> Option<(Connecting, Admitted)> {
    let unproven = !incoming.remote_address_validated() && incoming.may_retry();
    if unproven && admission.connections() >= limits.retry_from_connections {
        // It cannot fail: the address is not validated.
        let _ = incoming.retry();
        return None;
    }
    let Some(admitted) = admission.admit(incoming.remote_address().ip()) else {
        incoming.refuse();
        return None;
    };
    // An error here is a malformed first packet, which quinn has answered.
    incoming.accept().ok().map(|connecting| (connecting, admitted))
}

/// A handshake that has failed.
#[derive(Debug)]
pub struct HandshakeFailed {
    /// The reason.
    pub error: ConnectionError,
    /// The client's certificate, if it was refused or is missing where one is required.
    pub certificate: Option<RefusedCertificate>,
}

impl HandshakeFailed {
    /// Why it failed, for metrics.
    #[must_use]
    pub fn reason(&self) -> HandshakeFailure {
        let by_error = || HandshakeFailure::of_quic(&self.error);
        self.certificate.as_ref().map_or_else(by_error, |_| HandshakeFailure::Certificate)
    }
}

/// Makes the handshake of a connection.
///
/// # Errors
/// [`HandshakeFailed`]; the connection is closed then.
pub async fn shake_hands(incoming: Incoming) -> Result<quinn::Connection, HandshakeFailed> {
    let failed = |error| HandshakeFailed { certificate: refused_by(&error, None), error };
    let mut connecting = incoming.accept().map_err(failed)?;
    let refused = connecting.handshake_data().await.map_err(failed)?.downcast::<Refused>().ok();
    connecting.await.map_err(|error| HandshakeFailed { certificate: refused_by(&error, refused.as_deref()), error })
}

/// The certificate for which a handshake has failed, by the alert of TLS (RFC 9001 §4.8).
fn refused_by(error: &ConnectionError, refused: Option<&Refused>) -> Option<RefusedCertificate> {
    let ConnectionError::TransportError(error) = error else { return None };
    match u64::from(error.code).checked_sub(0x100)? {
        CERTIFICATE_REQUIRED => Some(RefusedCertificate::missing()),
        _ => refused.and_then(Refused::take),
    }
}

/// Returns the properties of a connection after its handshake, and the handle that closes it when its certificate is
/// revoked, if the listener checks revocation.
///
/// # Errors
/// The client's certificate is not valid, or no longer valid: a resumed session carries a certificate that was verified
/// earlier, and a handshake takes as long as its client likes.
pub fn channel(connection: &quinn::Connection, tls: &TlsConfig) -> io::Result<(Channel, Option<Cut>)> {
    let chain = connection.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    let mut certificate = None;
    let mut cut = None;
    if let Some((leaf, intermediates)) = chain.as_deref().and_then(|chain| chain.split_first()) {
        let trust = tls.clients().ok_or_else(|| io::Error::other("nobody asked for a certificate"))?;
        // Before the question, so that a revocation between the two is not missed.
        cut = chain.as_deref().filter(|_| tls.cuts_revoked()).map(|chain| trust.watch(chain));
        let verified = trust.verify(leaf, intermediates);
        verified.map_err(|error| RefusedCertificate::new(leaf, &error).error(error))?;
        certificate = Some(Arc::new(ClientCertificate::parse(leaf).map_err(io::Error::other)?));
    }
    let mut exporter = [0; 32];
    let exported = connection.export_keying_material(&mut exporter, EXPORTER_LABEL, &[]);
    let channel = Channel {
        protocol: "TLSv1.3",
        // quinn does not tell.
        cipher: Cow::default(),
        certificate,
        psk: None,
        exporter: exported.is_ok().then(|| Box::new(exporter)),
        end_point: None,
    };
    Ok((channel, cut))
}
