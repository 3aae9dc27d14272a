//! The transports of CoAP messages: UDP, DTLS, or a connection (RFC 8323).

mod connection;

use std::sync::Arc;

use fogmux_coap::server::StreamLimits;
use fogmux_dtls::client::ClientConfig;
use fogmux_dtls::{Alert, Group, Suite, Suite13};
use fogmux_net::TlsError;
use fogmux_net::pem;
use fogmux_net::profile::{self, Version};
use rustls::KeyLog;
use rustls::sign::CertifiedKey;
use tokio::net::UdpSocket;
use tokio::time::Duration;

pub use self::connection::{ConnectError, Connection};
use crate::coap_stream::Line;
use crate::error::ClientError;
use crate::tls::{self, Own};
use crate::url::Url;
use crate::{Options, Psk};

/// How long a handshake is tried: four repeats (RFC 6347 §4.2.4.1).
const PATIENCE: Duration = Duration::from_secs(20);

/// A connected socket, with or without protection.
pub enum Link {
    /// UDP.
    Plain {
        /// Connected.
        socket: UdpSocket,
        /// For the largest datagram there is.
        buffer: Box<[u8]>,
    },
    /// DTLS.
    Protected(Box<Connection>),
    /// TCP, TLS or a WebSocket (RFC 8323).
    Stream(Box<Line>),
}

impl Link {
    /// The message limits of the server on a connection; `None` over UDP and DTLS, where the datagram is the limit.
    pub fn limits(&self) -> Option<StreamLimits> {
        match self {
            Self::Plain { .. } | Self::Protected(_) => None,
            Self::Stream(line) => Some(line.limits()),
        }
    }

    /// The largest message over DTLS, in bytes.
    pub fn record_bytes_max(&self) -> Option<usize> {
        match self {
            Self::Plain { .. } | Self::Stream(_) => None,
            Self::Protected(connection) => Some(connection.message_bytes_max()),
        }
    }

    /// Makes a handshake where the address asks for it.
    pub async fn open(socket: UdpSocket, url: &Url, options: &Options) -> Result<Self, ClientError> {
        if !url.secure {
            return Ok(Self::Plain { socket, buffer: vec![0; 1 << 16].into() });
        }
        let connection = Connection::connect(socket, config(&url.host, options)?, PATIENCE).await.map_err(not_made)?;
        Ok(Self::Protected(Box::new(connection)))
    }

    /// The next datagram, appended to nothing else.
    pub async fn receive(&mut self) -> Result<Vec<u8>, ClientError> {
        match self {
            Self::Plain { socket, buffer } => {
                let len = socket.recv(buffer).await.map_err(ClientError::unavailable)?;
                Ok(buffer.get(..len).unwrap_or_default().to_vec())
            }
            Self::Stream(line) => line.receive().await,
            Self::Protected(connection) => {
                let message = connection.receive().await.map_err(ClientError::unavailable)?;
                message.ok_or_else(|| ClientError::unavailable("the gateway has ended the DTLS session"))
            }
        }
    }

    /// Ends the session or connection, if there is one: by `close_notify` (RFC 6347 §4.1.2.7) or Release (RFC 8323
    /// §5.5).
    pub async fn close(self) -> Result<(), ClientError> {
        match self {
            Self::Plain { .. } => Ok(()),
            Self::Protected(connection) => {
                connection.close().await;
                Ok(())
            }
            Self::Stream(line) => line.close().await,
        }
    }

    /// Sends one.
    pub async fn send(&mut self, datagram: &[u8]) -> Result<(), ClientError> {
        match self {
            Self::Stream(line) => return line.send(datagram).await,
            Self::Plain { socket, .. } => socket.send(datagram).await.map(drop),
            Self::Protected(connection) => connection.send(datagram).await,
        }
        .map_err(ClientError::unavailable)
    }
}

/// A pre-shared key where there is one, else certificates; of suites what the profile offers. `name` is what the
/// server's certificate must carry.
pub fn config(name: &str, options: &Options) -> Result<ClientConfig, ClientError> {
    let (suites, suites_13) = suites(options)?;
    let groups = groups(options)?;
    let key_log = options.key_log.clone().map(|log| log as Arc<dyn KeyLog>);
    let by_key = options.profile.is_none_or(|profile| profile.psk || profile.offer.suites.is_empty());
    if let Some(Psk { identity, key }) = options.psk.as_ref().filter(|_| by_key) {
        return Ok(ClientConfig { suites, suites_13, groups, key_log, ..ClientConfig::psk(identity.as_bytes(), key) });
    }
    let certified_key = options.own.as_ref().map(certified).transpose()?;
    let verifier = tls::verifier(&options.trust)?;
    let config = ClientConfig::certificates(verifier, tls::server_name(name)?);
    Ok(ClientConfig { certified_key, suites, suites_13, groups, key_log, ..config })
}

/// The groups of DTLS: both, or the one that is asked for.
fn groups(options: &Options) -> Result<Vec<Group>, ClientError> {
    match options.only.group {
        None => Ok(Group::ALL.to_vec()),
        Some(profile::Group::X25519) => Ok(vec![Group::X25519]),
        Some(profile::Group::Secp256r1) => Ok(vec![Group::Secp256r1]),
        Some(group @ profile::Group::Secp384r1) => {
            Err(ClientError::Usage(format!("DTLS has x25519 and secp256r1, and not {}", group.name())))
        }
    }
}

/// The suites of DTLS 1.2 and 1.3: all of both, or those that the profile offers.
fn suites(options: &Options) -> Result<(Vec<Suite>, Vec<Suite13>), ClientError> {
    let offers = |version, name| {
        options.offer().is_none_or(|offer| {
            offer.versions.contains(&version) && (offer.suites.is_empty() || offer.suites.contains(&name))
        })
    };
    let older: Vec<_> = Suite::ALL.into_iter().filter(|suite| offers(Version::Tls12, suite.name())).collect();
    let newer: Vec<_> = Suite13::ALL.into_iter().filter(|suite| offers(Version::Tls13, suite.name())).collect();
    if let (Some(profile), true, true) = (options.profile, older.is_empty(), newer.is_empty()) {
        return Err(ClientError::Usage(format!("profile {} has no suite for DTLS", profile.name)));
    }
    Ok((older, newer))
}

fn certified(own: &Own) -> Result<Arc<CertifiedKey>, ClientError> {
    let failed = |error: TlsError| ClientError::Io(error.to_string());
    let chain = pem::certificates(&own.certificate).map_err(failed)?;
    let key = pem::key(&own.key).map_err(failed)?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider)
        .map(Arc::new)
        .map_err(|error| ClientError::Io(format!("{}: {error}", own.certificate.display())))
}

fn not_made(error: ConnectError) -> ClientError {
    let hint = match &error {
        ConnectError::Refused(Alert::UnknownCa) => " (name the authority with --ca FILE)",
        ConnectError::Refused(Alert::DecryptError) => " (is it the right key, and the right identity?)",
        ConnectError::Refused(Alert::CertificateRequired) => " (it admits nobody without a certificate or a key)",
        ConnectError::Refused(_) | ConnectError::Silence(_) | ConnectError::Io(_) => "",
    };
    match error {
        ConnectError::Refused(Alert::DecryptError | Alert::CertificateRequired) => {
            ClientError::Refused(format!("{error}{hint}"))
        }
        ConnectError::Refused(_) | ConnectError::Silence(_) | ConnectError::Io(_) => {
            ClientError::Unavailable(format!("{error}{hint}"))
        }
    }
}
