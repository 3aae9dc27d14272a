//! MQTT 3.1.1 and 5 over TCP, TLS and WebSocket, on the client session of `fogmux_mqtt`.
//!
//! `session` puts the requests of a pattern to it, without a socket. `carrier` brings the bytes to the socket and back,
//! and `client` makes turns of both.

mod carrier;
mod client;
mod session;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use fogmux_client::{ClientError, Connector, Dialer, Options, Own, Psk, Trust, websocket};
use fogmux_mqtt::{Connect, Properties, Version};
use fogmux_net::KeyLogFile;
use fogmux_net::channel::Zeroizing;

use self::carrier::{Carrier, READ_BYTES};
use self::client::MqttClient;
use self::session::{Session, Wanted};
use crate::driver::{Connected, Driver, DriverError, Nobody, Pending, Role, body_bytes_max};
use crate::experiment::{Credential, Door, Experiment, Operation, Qos, Visit};
use crate::target::Access;

/// Where gateways speak MQTT over WebSocket, and as what ([MQTT-6.0.0-3]).
const PATH: &str = "/mqtt";
const SUBPROTOCOL: &str = "mqtt";

/// The driver.
///
/// # Errors
/// The door and the protection do not go together, or credentials cannot be read.
pub fn driver(door: Door, experiment: &Experiment, access: &Access) -> Result<Box<dyn Driver>, DriverError> {
    let version = match door {
        Door::Mqtt | Door::MqttWs => Version::V311,
        Door::Mqtt5 => Version::V5,
        Door::Coap | Door::CoapTcp | Door::Http1 | Door::Http2 | Door::Http3 | Door::Xmpp | Door::Xmpps => {
            return Err(DriverError::Unsupported { door, what: "MQTT" });
        }
    };
    if experiment.security.oscore {
        return Err(DriverError::Unsupported { door, what: "OSCORE" });
    }
    let over_websocket = door == Door::MqttWs;
    let alpn: &[u8] = if over_websocket { b"http/1.1" } else { b"mqtt" };
    let connector = if experiment.security.is_secure() {
        Some(Connector::new(&options(experiment, access)?, &[alpn]).map_err(not_connected)?)
    } else {
        None
    };
    let retain = match experiment.operation {
        Operation::Put | Operation::Get => true,
        // A value that is asked for has to be there.
        Operation::Connect => experiment.retain || experiment.visit == Visit::Get,
        Operation::Deliver | Operation::Post | Operation::Hold => experiment.retain,
    };
    let host = if access.host.contains(':') { format!("[{}]", access.host) } else { access.host.clone() };
    Ok(Box::new(MqttDriver {
        version,
        dialer: Dialer::new(&access.host, access.port, &access.name, connector),
        websocket: over_websocket.then(|| format!("{host}:{}", access.port)),
        login: login(door, experiment, access)?,
        wanted: Wanted {
            qos: qos(experiment.qos),
            retain,
            // One read may bring the end of a packet and the beginning of the next.
            packet_bytes_max: body_bytes_max(experiment).saturating_add(READ_BYTES),
        },
        seed: experiment.seed,
        group: access.group.clone().unwrap_or_else(|| "bench".to_owned()),
        buffer: Rc::new(RefCell::new(vec![0; READ_BYTES].into())),
    }))
}

/// User and password.
type Login = (String, Zeroizing<Vec<u8>>);

/// Everything that connections have in common.
struct MqttDriver {
    version: Version,
    dialer: Dialer,
    /// The authority of a WebSocket's handshake, if there is one.
    websocket: Option<String>,
    login: Option<Login>,
    wanted: Wanted,
    seed: u64,
    /// How client identifiers begin.
    group: String,
    /// All clients read into it: they are on one thread, and none waits while it has it.
    buffer: Rc<RefCell<Box<[u8]>>>,
}

impl Driver for MqttDriver {
    fn connect(&self, role: Role, number: u32) -> Pending<'_, Result<Connected, DriverError>> {
        Box::pin(self.connected(role, number))
    }
}

impl MqttDriver {
    async fn connected(&self, role: Role, number: u32) -> Result<Connected, DriverError> {
        let began = Instant::now();
        let (mut stream, counter) = self.dialer.dial().await.map_err(not_connected)?;
        stream.unbound();
        let cipher = stream.cipher();
        let carrier = match &self.websocket {
            Some(authority) => {
                let upgraded = websocket::upgrade(stream, authority, PATH, SUBPROTOCOL).await.map_err(not_connected)?;
                Carrier::websocket(upgraded, self.seed ^ u64::from(number))
            }
            None => Carrier::stream(stream),
        };
        let session = Session::open(&self.greeting(&self.client_id(role, number)), self.wanted)?;
        let mut client = MqttClient::new(carrier, session, Arc::clone(&counter), Rc::clone(&self.buffer));
        poll_fn(|cx| {
            while !client.is_connected() {
                match client.poll(cx, &mut Nobody) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        Ok(Connected { client: Box::new(client), took: began.elapsed(), cipher })
    }

    fn client_id(&self, role: Role, number: u32) -> String {
        match role {
            Role::Publisher => format!("{}-p{number}", self.group),
            Role::Subscriber => format!("{}-s{number}", self.group),
        }
    }

    fn greeting<'a>(&'a self, client_id: &'a str) -> Connect<'a> {
        Connect {
            version: self.version,
            bridge: false,
            clean_start: true,
            // None: a PINGREQ would stand in the middle of what is counted. The server may ask for one (§3.2.2.3.14).
            keep_alive: 0,
            client_id,
            will: None,
            user: self.login.as_ref().map(|(user, _)| user.as_str()),
            password: self.login.as_ref().map(|(_, password)| password.as_slice()),
            properties: Properties::NONE,
        }
    }
}

/// The credentials for the handshake, and the authorities it trusts.
fn options(experiment: &Experiment, access: &Access) -> Result<Options, DriverError> {
    let profile = experiment.security.profile;
    let shown = match experiment.credential {
        Credential::OfProfile | Credential::Certificate => access.certificate.as_ref(),
        Credential::Anonymous | Credential::Password | Credential::Token => None,
    };
    if shown.is_none() && experiment.credential == Credential::Certificate {
        return Err(DriverError::Refused("the experiment wants a certificate, and there is none".to_owned()));
    }
    let key_log = access.key_log.as_deref().map(KeyLogFile::open).transpose();
    Ok(Options {
        profile: Some(profile),
        only: experiment.only(),
        trust: access.authority.clone().map_or(Trust::Insecure, Trust::File),
        own: shown.map(|(certificate, key)| Own { certificate: certificate.clone(), key: key.clone() }),
        psk: access.psk.clone().filter(|_| profile.psk).map(|(identity, key)| Psk { identity, key }),
        key_log: key_log.map_err(|error| DriverError::Refused(format!("key log: {error}")))?.map(Arc::new),
        ..Options::default()
    })
}

/// The credentials for CONNECT.
fn login(door: Door, experiment: &Experiment, access: &Access) -> Result<Option<Login>, DriverError> {
    let bytes = |text: &Zeroizing<String>| Zeroizing::new(text.as_bytes().to_vec());
    let password = access.password.as_ref().map(|(user, password)| (user.clone(), bytes(password)));
    match experiment.credential {
        Credential::OfProfile => Ok(password),
        Credential::Password if password.is_none() => Err(DriverError::Unsupported { door, what: "user to log in as" }),
        Credential::Password => Ok(password),
        // Version 3.1.1 has no password without a user ([MQTT-3.1.2-22]); nobody looks at it.
        Credential::Token => match &access.token {
            Some(token) => Ok(Some(("token".to_owned(), bytes(token)))),
            None => Err(DriverError::Unsupported { door, what: "token to log in with" }),
        },
        Credential::Anonymous | Credential::Certificate => Ok(None),
    }
}

fn qos(qos: Qos) -> fogmux_mqtt::Qos {
    match qos {
        Qos::AtMostOnce => fogmux_mqtt::Qos::AtMostOnce,
        Qos::AtLeastOnce => fogmux_mqtt::Qos::AtLeastOnce,
        Qos::ExactlyOnce => fogmux_mqtt::Qos::ExactlyOnce,
    }
}

fn not_connected(error: ClientError) -> DriverError {
    match error {
        ClientError::Refused(_) => DriverError::Refused(error.to_string()),
        ClientError::Protocol(said) => DriverError::Protocol(said),
        ClientError::Unavailable(_)
        | ClientError::NotAccepted(_)
        | ClientError::Timeout(_)
        | ClientError::Usage(_)
        | ClientError::Io(_)
        | ClientError::Nothing => DriverError::Connection(error.to_string()),
    }
}
