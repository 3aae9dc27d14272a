//! HTTP/1.1, HTTP/2 and HTTP/3 (RFC 9110): a publication is a PUT when it is kept and a POST when it is not, and its
//! answer is awaited; subscribers follow an event stream, and askers GET what is kept.
//!
//! Of a gateway of ours the paths are `/topics/<topic>` and `/subscribe?filter=<topic>`, with the QoS as a parameter;
//! of a peer they are what its prefix says and the topic, without parameters and without event streams.

mod body;
mod events;
mod http1;
mod http2;
mod http3;
mod request;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use fogmux_client::{ClientError, Connector, Counted, Dialer, Options, Own, Psk, Stream, Trust, tls};
use fogmux_net::KeyLogFile;
use quinn::crypto::rustls::QuicClientConfig;
use tokio::net::{TcpStream, lookup_host};

use self::http1::{Http1, Line};
use self::http2::{Http2, Link};
use self::http3::Http3;
use self::request::{Surface, shown_by_handshake};
use crate::driver::{Connected, Driver, DriverError, Pending, Role};
use crate::experiment::{Credential, Door, Experiment};
use crate::target::Access;

/// TCP, with or without TLS, counted below it.
type Tcp = Stream<Counted<TcpStream>>;

/// Makes connections of one version.
struct HttpDriver {
    version: Version,
    surface: Surface,
}

enum Version {
    One(Rc<Dialer>),
    Two(Rc<Dialer>),
    Three(Quic),
}

struct Quic {
    host: String,
    port: u16,
    /// That the certificate carries.
    name: String,
    tls: Arc<QuicClientConfig>,
    cipher: String,
}

/// The driver.
///
/// # Errors
/// The version and the protection do not go together, or the experiment's credential is not there.
pub fn driver(door: Door, experiment: &Experiment, access: &Access) -> Result<Box<dyn Driver>, DriverError> {
    let surface = Surface::new(experiment, access)?;
    let version = match door {
        Door::Http2 => Version::Two(Rc::new(dialer(experiment, access, b"h2")?)),
        Door::Http3 => Version::Three(Quic::new(experiment, access)?),
        Door::Http1 => Version::One(Rc::new(dialer(experiment, access, b"http/1.1")?)),
        Door::Mqtt | Door::Mqtt5 | Door::MqttWs | Door::Coap | Door::CoapTcp | Door::Xmpp | Door::Xmpps => {
            return Err(DriverError::Unsupported { door, what: "HTTP" });
        }
    };
    Ok(Box::new(HttpDriver { version, surface }))
}

impl Driver for HttpDriver {
    fn connect(&self, _: Role, _: u32) -> Pending<'_, Result<Connected, DriverError>> {
        Box::pin(async move {
            let began = Instant::now();
            let surface = self.surface.clone();
            Ok(match &self.version {
                Version::One(dialer) => {
                    let (stream, socket) = dialer.dial().await.map_err(unreachable)?;
                    let cipher = stream.cipher();
                    let line = Line::new(Rc::clone(dialer), stream, socket);
                    let client = Box::new(Http1::new(line, surface));
                    Connected { client, took: began.elapsed(), cipher }
                }
                Version::Two(dialer) => {
                    let link = Link::open(dialer).await?;
                    let cipher = link.cipher.clone();
                    let client = Box::new(Http2::new(Rc::clone(dialer), link, surface));
                    Connected { client, took: began.elapsed(), cipher }
                }
                Version::Three(quic) => {
                    let mut remotes = lookup_host((quic.host.as_str(), quic.port)).await.map_err(unreachable)?;
                    let remote = remotes.next().ok_or_else(|| unreachable("the host has no address"))?;
                    let client = Box::new(Http3::open(remote, &quic.name, Arc::clone(&quic.tls), surface).await?);
                    Connected { client, took: began.elapsed(), cipher: quic.cipher.clone() }
                }
            })
        })
    }
}

impl Quic {
    fn new(experiment: &Experiment, access: &Access) -> Result<Self, DriverError> {
        let offer = experiment.only().offer.unwrap_or(&experiment.security.profile.offer);
        if !offer.versions.contains(&fogmux_net::profile::Version::Tls13) {
            return Err(DriverError::Unsupported { door: Door::Http3, what: "protection without TLS 1.3" });
        }
        let tls = tls::quic(&options(experiment, access)?, &[b"h3"]).map_err(refused)?;
        let Access { host, port, .. } = access;
        let cipher = offer.suites.first().map(|suite| (*suite).to_owned()).unwrap_or_default();
        Ok(Self { host: host.clone(), port: *port, name: name(access).to_owned(), tls: Arc::new(tls), cipher })
    }
}

fn dialer(experiment: &Experiment, access: &Access, alpn: &[u8]) -> Result<Dialer, DriverError> {
    let connector = if experiment.security.is_secure() {
        Some(Connector::new(&options(experiment, access)?, &[alpn]).map_err(refused)?)
    } else {
        None
    };
    Ok(Dialer::new(&access.host, access.port, name(access), connector))
}

fn name(access: &Access) -> &str {
    if access.name.is_empty() { &access.host } else { &access.name }
}

/// Returns the credentials of the handshake and the authorities that the client trusts.
fn options(experiment: &Experiment, access: &Access) -> Result<Options, DriverError> {
    let profile = experiment.security.profile;
    let with_certificate = match experiment.credential {
        Credential::OfProfile => shown_by_handshake(experiment) && !profile.psk,
        Credential::Certificate => true,
        Credential::Anonymous | Credential::Password | Credential::Token => false,
    };
    let own = access.certificate.as_ref().filter(|_| with_certificate);
    if own.is_none() && experiment.credential == Credential::Certificate {
        return Err(DriverError::Refused("the experiment wants a certificate, and there is none".to_owned()));
    }
    let key_log = access.key_log.as_deref().map(KeyLogFile::open).transpose();
    Ok(Options {
        profile: Some(profile),
        only: experiment.only(),
        trust: access.authority.clone().map_or(Trust::Insecure, Trust::File),
        own: own.map(|(certificate, key)| Own { certificate: certificate.clone(), key: key.clone() }),
        psk: access.psk.clone().filter(|_| profile.psk).map(|(identity, key)| Psk { identity, key }),
        key_log: key_log.map_err(|error| DriverError::Refused(format!("key log: {error}")))?.map(Arc::new),
        ..Options::default()
    })
}

fn refused(error: ClientError) -> DriverError {
    DriverError::Refused(error.to_string())
}

fn unreachable(why: impl std::fmt::Display) -> DriverError {
    DriverError::Connection(why.to_string())
}

fn over(why: impl std::fmt::Display) -> DriverError {
    DriverError::Connection(format!("the connection is over: {why}"))
}
