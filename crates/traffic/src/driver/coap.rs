//! CoAP over UDP, DTLS 1.2, TCP and TLS, with or without OSCORE: PUT or POST, GET, Observe.
//!
//! A request is a few bytes behind a header, so what a client costs is what it does besides: here one system call for
//! each datagram each way and no allocation. `machine` knows the protocol, `datagrams` and `line` the sockets.

mod account;
mod client;
mod contexts;
mod datagrams;
mod line;
mod resource;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fogmux_client::connector::{Connector, Dialer};
use fogmux_client::{ClientError, Options, Own, Psk, Trust};
use fogmux_coap::client::{ClientConfig, Machine, TokenForm};
use fogmux_coap::transmission::Transmission;
use fogmux_dtls::client::ClientConfig as DtlsConfig;
use fogmux_oscore::RequestProtection;

use self::client::{CoapClient, Link, Since};
use self::contexts::Contexts;
use self::datagrams::{Buffers, Datagrams};
use self::line::Line;
use self::resource::Shape;
use crate::driver::{Connected, Driver, DriverError, Pending, Role, body_bytes_max};
use crate::experiment::{CoapToken, Credential, Door, Experiment};
use crate::target::Access;

/// As ALPN names CoAP over TLS (RFC 8323 §8.2).
const ALPN: &[u8] = b"coap";
/// How long an answer may take that was promised by an acknowledgement: RFC 7252 §4.8.2, MAX_TRANSMIT_WAIT, in which
/// the server has sent it as often as it may.
const PROMISED_WAIT: Duration = Duration::from_secs(93);
/// CoAP.
///
/// # Errors
/// The door and the protection do not go together, or credentials cannot be read.
pub fn driver(door: Door, experiment: &Experiment, access: &Access) -> Result<Box<dyn Driver>, DriverError> {
    CoapDriver::new(door, experiment, access).map(|driver| Box::new(driver) as Box<dyn Driver>)
}

/// The transport of messages.
enum Carrier {
    Udp(Option<DtlsConfig>),
    Tcp(Dialer),
}

struct CoapDriver {
    carrier: Carrier,
    shape: Rc<Shape>,
    contexts: Option<Contexts>,
    buffers: Rc<RefCell<Buffers>>,
    host: String,
    port: u16,
    unconfirmed_wait: Duration,
    transmission: Transmission,
    tokens: TokenForm,
    /// Bytes of the largest body of an answer, of all of its blocks together.
    body_bytes_max: usize,
    seed: u64,
}

impl CoapDriver {
    fn new(door: Door, experiment: &Experiment, access: &Access) -> Result<Self, DriverError> {
        let contexts = match (experiment.security.oscore, &access.oscore) {
            (false, _) => None,
            (true, Some(directory)) => Some(Contexts::new(directory)),
            (true, None) => return Err(DriverError::Refused("there are no OSCORE contexts".to_owned())),
        };
        Ok(Self {
            carrier: carrier(door, experiment, access)?,
            shape: Rc::new(Shape::new(experiment, access.prefix.as_deref())),
            contexts,
            buffers: Rc::default(),
            host: access.host.clone(),
            port: access.port,
            unconfirmed_wait: Duration::from_secs_f64(experiment.drain_seconds.max(0.1)),
            transmission: Transmission {
                ack_timeout: Duration::from_secs_f64(experiment.coap_ack_timeout_seconds),
                ..Transmission::default()
            },
            // RFC 7252 §5.3.1 wants tokens that nobody can guess where nothing else protects; forged answers to a load
            // generator gain nothing, and two bytes are what other generators send.
            tokens: match experiment.coap_token {
                CoapToken::MessageId => TokenForm::MessageId,
                CoapToken::Empty => TokenForm::Empty,
            },
            body_bytes_max: body_bytes_max(experiment),
            seed: experiment.seed,
        })
    }

    async fn open(&self, role: Role, number: u32) -> Result<Connected, DriverError> {
        let context = self.contexts.as_ref().map(|contexts| contexts.of(role, number)).transpose()?;
        let since = Since::now();
        let (link, cipher) = match &self.carrier {
            Carrier::Udp(dtls) => {
                let (datagrams, cipher) = Datagrams::connect(self.remote().await?, dtls.clone()).await?;
                (Link::Datagrams(datagrams), cipher)
            }
            Carrier::Tcp(dialer) => {
                let (socket, counter) = dialer.dial().await.map_err(refused)?;
                let cipher = socket.cipher();
                (Link::Line(Box::new(Line::open(socket, counter).await?)), cipher)
            }
        };
        let took = since.elapsed();
        let (block_size, chunk) = link.blocks();
        let config = ClientConfig {
            transmission: self.transmission,
            reliable: matches!(link, Link::Line(_)),
            tokens: self.tokens,
            block_size,
            chunk,
            body_bytes_max: self.body_bytes_max,
            bodies_bytes_max: usize::MAX,
            answer_timeout: PROMISED_WAIT,
            unconfirmed_timeout: self.unconfirmed_wait,
        };
        let seed = self.seed ^ (u64::from(number) << 1) ^ u64::from(role == Role::Subscriber);
        let machine = Machine::new(config, seed, context.map(RequestProtection));
        let client = CoapClient::new(link, machine, Rc::clone(&self.shape), Rc::clone(&self.buffers), since);
        Ok(Connected { client: Box::new(client), took, cipher })
    }

    async fn remote(&self) -> Result<SocketAddr, DriverError> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok((address, self.port).into());
        }
        let failed = |why: String| DriverError::Connection(format!("{}: {why}", self.host));
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let mut found = found.map_err(|error| failed(error.to_string()))?;
        found.next().ok_or_else(|| failed("the host has no address".to_owned()))
    }
}

impl Driver for CoapDriver {
    fn connect(&self, role: Role, number: u32) -> Pending<'_, Result<Connected, DriverError>> {
        Box::pin(self.open(role, number))
    }
}

fn carrier(door: Door, experiment: &Experiment, access: &Access) -> Result<Carrier, DriverError> {
    let options = options(door, experiment, access)?;
    let secure = experiment.security.is_secure();
    if door == Door::CoapTcp {
        let connector = secure.then(|| Connector::new(&options, &[ALPN])).transpose().map_err(refused)?;
        return Ok(Carrier::Tcp(Dialer::new(&access.host, access.port, &access.name, connector)));
    }
    let dtls = secure.then(|| fogmux_client::dtls::config(&access.name, &options)).transpose().map_err(refused)?;
    Ok(Carrier::Udp(dtls))
}

/// Returns the credentials of the client and the authorities that it trusts.
fn options(door: Door, experiment: &Experiment, access: &Access) -> Result<Options, DriverError> {
    let profile = experiment.security.profile;
    let with_certificate = match experiment.credential {
        Credential::OfProfile => !profile.psk,
        Credential::Certificate => true,
        Credential::Anonymous => false,
        // RFC 7252 §9 knows none of these; OSCORE and DTLS say who somebody is.
        Credential::Password => return Err(DriverError::Unsupported { door, what: "passwords" }),
        Credential::Token => return Err(DriverError::Unsupported { door, what: "tokens" }),
    };
    let own = access.certificate.as_ref().filter(|_| with_certificate);
    let key_log = access.key_log.as_deref().map(fogmux_net::KeyLogFile::open).transpose();
    Ok(Options {
        profile: Some(profile),
        only: experiment.only(),
        trust: access.authority.clone().map_or(Trust::Insecure, Trust::File),
        own: own.map(|(certificate, key)| Own { certificate: certificate.clone(), key: key.clone() }),
        psk: access.psk.clone().filter(|_| experiment.is_by_key()).map(|(identity, key)| Psk { identity, key }),
        key_log: key_log.map_err(|error| DriverError::Connection(error.to_string()))?.map(Arc::new),
        ..Options::default()
    })
}

fn refused(error: ClientError) -> DriverError {
    DriverError::Refused(error.to_string())
}
