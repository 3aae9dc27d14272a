//! From a configuration to a running gateway: the one place where auth, store, bus and doors are put together.

use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use fogmux_auth::{Authority, PskSecret};
use fogmux_gateway::administration::Administration;
use fogmux_gateway::listener::Listen;
use fogmux_gateway::listening::http3_name;
use fogmux_gateway::{Gateway, GatewayConfig, Listener, RunningGateway, StartError};
use fogmux_net::{ProvenPsk, Psk, PskSource, profile::Stack};
use fogmux_store::{JournalStore, NotKept, OpenError, StoreConfig};

use crate::config::{Config, Listener as Configured, Tls};
use crate::data;
use crate::disk;
use crate::exit::{Failure, Status};
use crate::home::{self, Home};
use crate::open_files;
use crate::oscore::{self, Keyring};
#[cfg(feature = "otlp")]
use crate::otlp;

/// A gateway at work, and what is to be closed after it.
pub(crate) struct Running {
    pub(crate) gateway: RunningGateway,
    pub(crate) authority: Arc<Authority>,
    /// The OSCORE contexts in use.
    pub(crate) contexts: Arc<Keyring>,
    store: JournalStore,
}

impl Running {
    /// The store, for a copy of it.
    pub(crate) fn store(&self) -> JournalStore {
        self.store.clone()
    }

    /// Ends everything in good order. Connections that were not done in time are no failure.
    ///
    /// # Errors
    /// When the store has not kept everything, which is logged.
    pub(crate) async fn stop(self, deadline: Duration) -> Result<(), Failure> {
        let drained = self.gateway.drain(deadline).await;
        if !drained {
            tracing::warn!("some connections were cut off");
        }
        self.store.close().map_err(|NotKept { reason, failed, refused }| {
            tracing::error!(
                reason,
                failed,
                refused,
                "the store did not take everything: {} changes of retained messages, MQTT sessions, or XMPP nodes and \
                 subscriptions are not on the disk",
                failed + refused
            );
            Failure::silent(Status::IoErr)
        })
    }
}

/// Starts a gateway.
pub(crate) fn start(config: &Config, home: &Home) -> Result<Running, Failure> {
    let authority = Arc::new(Authority::new(home::rules(config, &home.directory)?));
    // The store needs files, too.
    open_files::raise_limit();
    let store = open_store(config, &home.directory)?;
    let contexts = contexts(config, &home.directory, &store).inspect_err(|_| close(&store))?;
    warn_of_weakness(config);
    let gateway = GatewayConfig {
        workers: workers(config),
        bus: config.bus,
        listen: listen(config, home.tls.is_some()),
        tls: home.tls.clone().map(|tls| tls.with_psk(Arc::new(Keys(Arc::clone(&authority))))),
        accept: config.limits,
        proxies: config.proxy.of_gateway(),
        store: Some(store.clone()),
        discovery: config.discovery.of_gateway(),
        administration: Administration::new(config.auth.api_changes, home.directory.clone()),
        #[cfg(feature = "otlp")]
        traces: otlp::of_gateway(&config.telemetry.traces),
        quic: config.http.quic,
        #[cfg(feature = "mqtt")]
        mqtt: fogmux_gateway::mqtt::MqttConfig { store: sessions(config, &store), ..config.mqtt.door.clone() },
        #[cfg(feature = "mqtt")]
        links: config.links.0.iter().map(|(name, link)| link.state(name)).collect(),
        #[cfg(feature = "coap")]
        coap: config.coap.door.clone(),
        #[cfg(feature = "coap")]
        oscore: Arc::clone(&contexts),
        #[cfg(feature = "http")]
        http: config.http.door.clone(),
        #[cfg(feature = "xmpp")]
        xmpp: fogmux_gateway::xmpp::XmppConfig { store: Some(Arc::new(store.clone())), ..config.xmpp.door.clone() },
    };
    let gateway = Gateway::start(gateway, Arc::clone(&authority), Box::new(store.clone())).map_err(|error| {
        close(&store);
        not_started(&error)
    })?;
    gateway.shared.admission.limit(open_files::room_for_connections(config.limits.connections_max));
    gateway.shared.waiting.set(contexts.why_waiting());
    gateway.shared.logins.configure(config.auth.backoff);
    gateway.shared.refusals.configure(config.log.refused_logins, config.log.refused_actions);
    gateway.shared.verifiers.configure(config.auth.verification);
    Ok(Running { gateway, authority, contexts, store })
}

/// The store of MQTT sessions. With `none` they end with the process, and none comes back that ended long ago.
#[cfg(feature = "mqtt")]
fn sessions(config: &Config, store: &JournalStore) -> Option<Arc<dyn fogmux_gateway::mqtt::SessionStore>> {
    if config.store.durability() == fogmux_store::Durability::None {
        let forgotten = store.forget_sessions();
        if forgotten > 0 {
            tracing::warn!(forgotten, "store.durability is none: MQTT sessions that were stored before are forgotten");
        }
        return None;
    }
    Some(Arc::new(store.clone()))
}

/// Closes the store of a gateway that does not start; nobody has given it anything.
fn close(store: &JournalStore) {
    let _ = store.close();
}

/// The OSCORE contexts of all users. Where the disk takes nothing there are none: their sequence numbers must be on the
/// disk before they are used (ADR 0009).
fn contexts(config: &Config, directory: &Path, store: &JournalStore) -> Result<Arc<Keyring>, Failure> {
    let contexts = Arc::new(Keyring::default());
    let fresh = oscore::read_usable(&contexts, config, directory)?;
    match oscore::put_in_place(&contexts, fresh, directory) {
        Err(failure) if store.why_stopped().is_some() || disk::caused(&failure) => {
            let why = failure.message().unwrap_or_default();
            tracing::error!("{why}; OSCORE contexts are not in use");
            Ok(Arc::default())
        }
        done => done.map(|()| contexts),
    }
}

/// Where handshakes find pre-shared keys.
struct Keys(Arc<Authority>);

impl PskSource for Keys {
    fn secret(&self, identity: &[u8]) -> Option<Psk> {
        self.0.psk_secret(identity).map(|PskSecret { key, mark }| Psk { key, mark })
    }

    fn holds(&self, psk: &ProvenPsk) -> bool {
        self.0.holds_psk(&psk.identity, psk.mark)
    }

    fn has_keys(&self) -> bool {
        self.0.has_psks()
    }
}

/// Warns of weak profiles that the operator has allowed by name.
fn warn_of_weakness(config: &Config) {
    for (name, listener) in config.listeners.each() {
        if let Some(profile) = listener.tls().map(|tls| tls.profile).filter(|_| listener.enabled)
            && let Some(why) = profile.weak
        {
            tracing::warn!("listeners.{name} has the weak profile {:?}: {why}", profile.name);
        }
    }
}

fn workers(config: &Config) -> usize {
    match config.workers.count {
        0 => available_parallelism().map_or(1, std::num::NonZero::get),
        count => count,
    }
}

fn open_store(config: &Config, directory: &Path) -> Result<JournalStore, Failure> {
    let path = config.store.path.clone().unwrap_or_else(|| directory.join(data::STORE));
    let wanted = StoreConfig {
        durability: config.store.durability(),
        interval: config.store.interval,
        group_delay: config.store.group_delay(),
        queue_bytes_max: config.store.queue_bytes_max,
        ..StoreConfig::new(path)
    };
    JournalStore::open(&wanted).map_err(|error| match error {
        OpenError::InUse(_) => Failure::new(Status::Unavailable, format!("{error}; is there a gateway already?")),
        OpenError::Io { path, source } => Failure::io(path.display(), &source),
        OpenError::Format { .. } | OpenError::Newer { .. } => Failure::new(Status::IoErr, error),
    })
}

/// The addresses of listeners to open, of the doors that this program has: without a certificate those that encrypt
/// stay closed. HTTPS comes before HTTP/3, which takes its port when that is left to the system.
pub(crate) fn listen(config: &Config, certificate: bool) -> Vec<Listen> {
    let enabled = config.listeners.each().map(|(_, listener)| listener).filter(|listener| listener.enabled);
    let can_encrypt = |tls: &Tls| certificate || !tls.profile.is_encrypted();
    let possible = enabled.filter(|one| one.kind.has_door() && one.tls().is_none_or(can_encrypt));
    possible.flat_map(|listener| addresses(listener, config.http.http3)).collect()
}

/// One listener at each of its addresses, and then HTTP/3 at those if it is HTTPS.
fn addresses(listener: &Configured, http3: bool) -> Vec<Listen> {
    let security = listener.tls().map(Tls::security).unwrap_or_default();
    // QUIC has TLS 1.3 of rustls, and no way without (RFC 9001).
    let quic = listener.kind == Listener::Https && http3 && security.profile.stack == Stack::Rustls;
    let kinds = [Some(listener.kind), quic.then_some(Listener::Http3)];
    let sockets = kinds.into_iter().flatten().flat_map(|kind| listener.sockets().map(move |socket| (kind, socket)));
    sockets
        .map(|(kind, (address, shares_port))| Listen {
            listener: kind,
            name: if kind == Listener::Http3 { http3_name(&listener.name) } else { listener.name.clone() }.into(),
            address,
            shares_port,
            anonymous: listener.lets_anonymous_in(address),
            sources: listener.auth,
            security,
            remote_anonymous: listener.anonymous && listener.allow_remote_anonymous,
            proxy_protocol: kind != Listener::Http3 && listener.proxy_protocol == Some(true),
            multicast: listener.multicast == Some(true),
            oscore_only: listener.is_oscore_only() && !address.ip().is_loopback(),
        })
        .collect()
}

fn not_started(error: &StartError) -> Failure {
    let status = match error {
        StartError::Bind { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => Status::NoPerm,
        StartError::Bind { .. } => Status::Unavailable,
        StartError::NoCertificate(_) | StartError::Tls { .. } | StartError::NoDoor(_) => Status::Config,
        StartError::Worker(_) => Status::IoErr,
    };
    Failure::new(status, error.to_string())
}

#[cfg(all(test, feature = "mqtt"))]
mod tests {
    use super::*;
    use crate::config::links::Link;

    #[test]
    fn links_are_listed_before_they_are_started() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.listeners.free_ports();
        let link = Link { url: "mqtts://broker.example".to_owned(), ..Link::default() };
        config.links.0.insert("north".to_owned(), link);
        let home = home::prepare(&config, directory.path()).unwrap();
        let running = start(&config, &home).unwrap();
        let names: Vec<_> = running.gateway.shared.links.each().iter().map(|link| link.name.clone()).collect();
        assert_eq!(names, ["north"]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(running.stop(Duration::from_secs(5))).unwrap();
    }
}
