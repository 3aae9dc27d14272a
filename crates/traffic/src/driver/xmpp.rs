//! XMPP publish-subscribe (RFC 6120, XEP-0060): a node is a topic, at `pubsub.<domain>`.
//!
//! A connection is made when a resource is bound and, for a subscriber, presence is sent: peers tell nobody whom they
//! take for absent. A publication is an IQ, done with its result; as many are under way as the pattern wants, told
//! apart by their identifiers. Passing messages go to nodes that keep nothing, kept ones to nodes that keep one item
//! (`node`); the payload travels as `<data xmlns='urn:fogmux:0'>`, as text if it is some, else in base64.

mod client;
mod login;
mod node;
mod request;
mod scan;
mod session;

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use fogmux_auth::scram::SaltedPassword;
use fogmux_client::connector::Connector;
use fogmux_client::{Options, Own, Psk, Trust};
use fogmux_net::KeyLogFile;

use self::client::XmppClient;
use self::login::{Proof, proofs};
use self::node::Prepared;
use self::session::{Security, Session};
use crate::driver::{Connected, Driver, DriverError, Pending, Role, text_bytes_max};
use crate::experiment::{Credential, Door, Experiment};
use crate::target::Access;

/// The driver.
///
/// # Errors
/// The door and the protection do not go together, or the experiment has no credential that access gives.
pub fn driver(door: Door, experiment: &Experiment, access: &Access) -> Result<Box<dyn Driver>, DriverError> {
    if experiment.security.oscore {
        return Err(DriverError::Unsupported { door, what: "OSCORE" });
    }
    if door == Door::Xmpps && !experiment.security.is_secure() {
        return Err(DriverError::Unsupported { door, what: "direct TLS without TLS" });
    }
    let proofs = proofs(experiment, access);
    if proofs.is_empty() {
        return Err(DriverError::Unsupported { door, what: "credential of the kind that is asked for" });
    }
    let domain = default_domain(if access.name.is_empty() { &access.host } else { &access.name });
    Ok(Box::new(XmppDriver {
        address: (access.host.clone(), access.port),
        security: security(door, experiment, access)?,
        domain,
        proofs,
        group: access.group.as_ref().map(|group| format!("{group}-")).unwrap_or_default(),
        retain: experiment.retain,
        prepared: Prepared::default(),
        stanza_bytes_max: text_bytes_max(experiment),
        salted: RefCell::default(),
    }))
}

struct XmppDriver {
    address: (String, u16),
    domain: String,
    security: Security,
    proofs: Vec<Proof>,
    /// How resources begin.
    group: String,
    retain: bool,
    prepared: Prepared,
    /// Bytes of the largest stanza.
    stanza_bytes_max: usize,
    /// All clients are the same user: what the first login derives serves the others, so that the generator's own work
    /// does not set the pace of logins.
    salted: RefCell<SaltedPassword>,
}

impl Driver for XmppDriver {
    fn connect(&self, role: Role, number: u32) -> Pending<'_, Result<Connected, DriverError>> {
        Box::pin(async move {
            let began = Instant::now();
            let resource = match role {
                Role::Publisher => format!("{}publisher-{number}", self.group),
                Role::Subscriber => format!("{}subscriber-{number}", self.group),
            };
            let (host, port) = &self.address;
            let mut session =
                Session::open((host, *port), &self.domain, &self.security, resource, self.stanza_bytes_max).await?;
            session.log_in(&self.proofs, !matches!(self.security, Security::None), &self.salted).await?;
            if role == Role::Subscriber {
                session.output.extend_from_slice(b"<presence/>");
                session.flush().await?;
            }
            let (took, cipher) = (began.elapsed(), session.transport.cipher());
            let client = XmppClient::new(session, role, self.retain, Prepared::clone(&self.prepared));
            Ok(Connected { client: Box::new(client), took, cipher })
        })
    }
}

/// The handshake of a door, made ready once for all connections.
fn security(door: Door, experiment: &Experiment, access: &Access) -> Result<Security, DriverError> {
    if !experiment.security.is_secure() {
        return Ok(Security::None);
    }
    let direct = door == Door::Xmpps;
    // XEP-0368 §3: the protocol name of direct TLS. STARTTLS has said already what is spoken.
    let alpn: &[&[u8]] = if direct { &[b"xmpp-client"] } else { &[] };
    let connector = Connector::new(&options(experiment, access)?, alpn);
    let connector = connector.map_err(|error| DriverError::Refused(error.to_string()))?;
    Ok(if direct { Security::Direct(connector) } else { Security::StartTls(connector) })
}

/// Returns the credentials of the handshake and the authorities that the client trusts.
fn options(experiment: &Experiment, access: &Access) -> Result<Options, DriverError> {
    let profile = experiment.security.profile;
    let with_certificate = match experiment.credential {
        Credential::OfProfile => !profile.psk,
        Credential::Certificate => true,
        Credential::Anonymous | Credential::Password | Credential::Token => false,
    };
    let own = access.certificate.as_ref().filter(|_| with_certificate);
    let key_log = access.key_log.as_deref().map(KeyLogFile::open).transpose();
    let key_log = key_log.map_err(|error| DriverError::Refused(format!("key log: {error}")))?;
    Ok(Options {
        profile: Some(profile),
        only: experiment.only(),
        trust: access.authority.clone().map_or(Trust::Insecure, Trust::File),
        own: own.map(|(certificate, key)| Own { certificate: certificate.clone(), key: key.clone() }),
        psk: access.psk.clone().filter(|_| profile.psk).map(|(identity, key)| Psk { identity, key }),
        key_log: key_log.map(Arc::new),
        ..Options::default()
    })
}

/// The gateway's domain is `localhost` until it is configured, however it is reached on this machine.
fn default_domain(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => "localhost".to_owned(),
        Ok(_) | Err(_) => host.to_owned(),
    }
}

#[cfg(test)]
mod tests;
