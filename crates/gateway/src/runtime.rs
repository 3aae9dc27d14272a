//! Workers and listeners: the running gateway.
//!
//! Each worker is a thread with a single-threaded runtime. Worker 0 accepts; a connection goes to the worker with the
//! fewest blocks of 16 connections, so that a few devices share one worker, and messages between them cross no thread,
//! while many devices are spread over all.

pub(crate) mod accept;
pub(crate) mod doors;
mod inside;
mod later;
mod open;
mod proxied;
mod wall_clock;
pub(crate) mod worker;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, OnceLock, atomic::AtomicUsize},
    thread::JoinHandle,
    time::Duration,
};

use fogmux_auth::Authority;
use fogmux_bus::{Bus, BusConfig, RetainedStore};
use fogmux_net::{Admission, AdmissionLimits, TlsConfig, TlsError, quic::QuicLimits};
use fogmux_store::JournalStore;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};

#[cfg(feature = "mqtt")]
pub use self::inside::Inside;
use self::{doors::Doors, open::Plan};
#[cfg(feature = "coap")]
use crate::coap::{CoapConfig, CoapDoor, oscore::Keyring};
#[cfg(feature = "http")]
use crate::http::{HttpConfig, HttpDoor};
#[cfg(feature = "traces")]
use crate::traces::{Traces, TracesConfig};
#[cfg(feature = "xmpp")]
use crate::xmpp::{XmppConfig, XmppDoor};
use crate::{
    administration::Administration,
    clock::Clock,
    discovery::DiscoveryConfig,
    listener::{Listen, Listener},
    listening::Listening,
    metrics::{Certificates, Metrics},
    phase::Phase,
    proxy::ProxyConfig,
    shutdown::Shutdown,
    sys::Unstored,
    worker::Shared,
};
#[cfg(feature = "mqtt")]
use crate::{
    links::Link,
    mqtt::{MqttConfig, MqttDoor},
};

/// Connections that share a worker before another is used: waking a second core costs more than the work of a few
/// devices.
const BLOCK: usize = 16;

/// The least time for wills to be published, and delivered before their readers are disconnected.
const WILLS: Duration = Duration::from_millis(100);
/// The longest wait until all MQTT clients are read for acknowledgements only.
const QUIESCING_MAX: Duration = Duration::from_secs(2);
/// How long clients may all take nothing of their output while the gateway shuts down, at least; a third of the time
/// that the shutdown has, if that is longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The part of a shutdown's time that is reserved for closing connections.
const CLOSING_TIME: Duration = Duration::from_secs(1);
/// The interval at which the shutdown checks its progress.
const LOOK: Duration = Duration::from_millis(5);
/// The interval at which it looks at the kernel's send queues, and how many times as long as a look that is at least.
const QUEUES_LOOK: Duration = Duration::from_millis(50);
const QUEUES_SHARE: u32 = 10;

/// The configuration of a gateway.
pub struct GatewayConfig {
    /// Worker threads; at least one.
    pub workers: usize,
    /// The bus; its number of workers is set from `workers`.
    pub bus: BusConfig,
    /// Listeners.
    pub listen: Vec<Listen>,
    /// Certificates, for the listeners that need them.
    pub tls: Option<TlsConfig>,
    /// The store on disk, for `/metrics` and `/readyz`; `None` if everything is in memory.
    pub store: Option<JournalStore>,
    /// How the gateway is found by multicast DNS; `None` if it is not.
    pub discovery: Option<DiscoveryConfig>,
    /// The way of changes by administrators.
    pub administration: Administration,
    /// Traces of messages; `None` if there are none.
    #[cfg(feature = "traces")]
    pub traces: Option<TracesConfig>,
    /// Limits of QUIC connections.
    pub quic: QuicLimits,
    /// Limits on connections.
    pub accept: AdmissionLimits,
    /// The proxies in front of it.
    pub proxies: ProxyConfig,
    /// The MQTT door.
    #[cfg(feature = "mqtt")]
    pub mqtt: MqttConfig,
    /// The links that will run beside the gateway: they are listed before a listener is open.
    #[cfg(feature = "mqtt")]
    pub links: Vec<Link>,
    /// The CoAP door.
    #[cfg(feature = "coap")]
    pub coap: CoapConfig,
    /// OSCORE contexts.
    #[cfg(feature = "coap")]
    pub oscore: Arc<Keyring>,
    /// The HTTP door.
    #[cfg(feature = "http")]
    pub http: HttpConfig,
    /// The XMPP door.
    #[cfg(feature = "xmpp")]
    pub xmpp: XmppConfig,
}

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener could not be bound for a reason that does not pass, or none could.
    #[error("cannot listen for {name} on {address}: {source}")]
    Bind {
        /// The name of the listener.
        name: Arc<str>,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A listener needs a certificate and there is none.
    #[error("{0} needs a certificate")]
    NoCertificate(Arc<str>),
    /// A listener's profile needs something that is not configured.
    #[error("{name}: {source}")]
    Tls {
        /// The name of the listener.
        name: Arc<str>,
        /// The reason.
        source: TlsError,
    },
    /// A listener's door is not a part of this program.
    #[error("this program was built without the door of {}", .0.name())]
    NoDoor(Listener),
    /// A thread or its runtime could not be made.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
}

/// Starts gateways.
#[derive(Clone, Copy, Debug)]
pub struct Gateway;

/// A running gateway. Dropping it leaves the threads running; call [`RunningGateway::drain`].
pub struct RunningGateway {
    /// The state that its workers share.
    pub shared: Arc<Shared>,
    tls: Option<TlsConfig>,
    draining: watch::Sender<Phase>,
    threads: Vec<JoinHandle<()>>,
    arrivals: Vec<mpsc::UnboundedSender<accept::Arrival>>,
    finished: mpsc::UnboundedReceiver<()>,
}

impl Gateway {
    /// Binds the listeners, then starts the workers. A listener whose address or port is not to be had yet is opened
    /// later, unless that is so for all of them.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub fn start(
        config: GatewayConfig,
        authority: Arc<Authority>,
        store: Box<dyn RetainedStore>,
    ) -> Result<RunningGateway, StartError> {
        let workers = config.workers.max(1);
        let clock = Clock::start();
        let now = clock.now();
        let store = Box::new(Unstored(store));
        let bus = Bus::new(&BusConfig { workers, ..config.bus }, store, now, clock.unix_ms(now));
        let listening = Listening::new(config.listen);
        let plan = Plan { tls: config.tls.as_ref(), quic: &config.quic, workers };
        let sockets = open::all(&listening, &plan)?;
        let certificates = Certificates::of(listening.each().map(|(_, spot)| &spot.listen), config.tls.as_ref());
        let challenges = config.tls.as_ref().map(|tls| tls.challenges().clone()).unwrap_or_default();
        let (draining, watched) = watch::channel(Phase::Open);
        let doors = Doors {
            #[cfg(feature = "mqtt")]
            mqtt: Arc::new(MqttDoor::new(config.mqtt)),
            #[cfg(feature = "coap")]
            coap: Arc::new(CoapDoor::new(config.coap).with_contexts(config.oscore)),
            #[cfg(feature = "http")]
            http: Arc::new(HttpDoor::new(config.http)),
            #[cfg(feature = "xmpp")]
            xmpp: Arc::new(XmppDoor::new(config.xmpp)),
        };
        let store = config.store.map(OnceLock::from).unwrap_or_default();
        let shared = Arc::new(Shared {
            metrics: Metrics { store, counted: doors.counted(), certificates, ..Metrics::default() },
            admission: Admission::behind(config.accept, config.proxies.named),
            proxy: config.proxies.rules,
            administration: config.administration,
            listening,
            challenges,
            #[cfg(feature = "traces")]
            traces: config.traces.map(Traces::new),
            #[cfg(feature = "xmpp")]
            realm: doors.xmpp.realm().into(),
            ..Shared::new(bus, authority, clock, watched)
        });
        #[cfg(feature = "mqtt")]
        doors.mqtt.restore(&shared);
        #[cfg(feature = "mqtt")]
        shared.links.set_sessions(Arc::<MqttDoor>::clone(&doors.mqtt));
        #[cfg(feature = "mqtt")]
        config.links.into_iter().map(Arc::new).for_each(|link| shared.links.add(link));
        let (done, finished) = mpsc::unbounded_channel();
        let seats: Arc<[AtomicUsize]> = (0..workers).map(|_| AtomicUsize::new(0)).collect();
        let worker::Workers { threads, arrivals } =
            worker::start(&shared, &doors, sockets, config.discovery, &seats, &done).map_err(StartError::Worker)?;
        Ok(RunningGateway { shared, tls: config.tls, draining, threads, arrivals, finished })
    }
}

impl RunningGateway {
    /// The first address that is open of a listener of this kind.
    #[must_use]
    pub fn address(&self, listener: Listener) -> Option<SocketAddr> {
        let mut open = self.shared.listening.open();
        open.find(|(listen, _)| listen.listener == listener).map(|(_, address)| address)
    }

    /// The certificates in use, to be replaced by its `reload`.
    #[must_use]
    pub const fn tls(&self) -> Option<&TlsConfig> {
        self.tls.as_ref()
    }

    /// Shuts down: no new connections, publishers are not read any more, wills are published, accepted messages are
    /// delivered and acknowledged, then connections are closed. Clients that do not read are not waited for. Returns
    /// whether every worker was done before `deadline`.
    pub async fn drain(mut self, deadline: Duration) -> bool {
        let end = Instant::now() + deadline;
        let ports: Vec<u16> = self.shared.listening.open().map(|(_, address)| address.port()).collect();
        wind_down(&self.shared, &self.draining, deadline, &ports).await;
        let all = async {
            for _ in 0..self.threads.len() {
                self.finished.recv().await;
            }
        };
        let in_time = tokio::time::timeout_at(end, all).await.is_ok();
        if in_time {
            for thread in self.threads.drain(..) {
                // A worker that panicked has reported it on standard error.
                drop(thread.join());
            }
        }
        match self.shared.shutdown.unacknowledged() {
            (0, _) => tracing::info!("every message of QoS 1 and 2 for a connected MQTT client was acknowledged"),
            (clients, messages) => tracing::warn!(clients, messages, "MQTT clients did not acknowledge everything"),
        }
        let (clients, messages) = self.shared.shutdown.unread();
        if clients > 0 {
            tracing::warn!(clients, messages, "event streams and XMPP clients did not read everything");
        }
        let (clients, bytes) = self.shared.shutdown.unsent();
        if clients > 0 {
            tracing::warn!(clients, bytes, "clients did not take everything that was written to their connections");
        }
        in_time
    }
}

/// Leads the workers through the phases of a shutdown, at most until `deadline` is nearly over; the connections that
/// are left close after it. `ports` are those of the listeners.
pub(crate) async fn wind_down(shared: &Shared, draining: &watch::Sender<Phase>, deadline: Duration, ports: &[u16]) {
    let end = Instant::now() + deadline;
    draining.send_replace(Phase::Quiescing);
    let shutdown = &shared.shutdown;
    sleep(WILLS.min(deadline)).await;
    wait_until(end.min(Instant::now() + QUIESCING_MAX), || shutdown.is_quiet()).await;
    shared.bus.shut_down();
    // A batch that was being published at that moment is delivered by now.
    sleep(LOOK).await;
    draining.send_replace(Phase::Emptying);
    wait_until(end - CLOSING_TIME.min(deadline / 4), emptied(shutdown, ports, PATIENCE.max(deadline / 3))).await;
    draining.send_replace(Phase::Closing);
}

/// Whether every client has taken everything, or for a while none has taken anything; to be asked again and again.
fn emptied(shutdown: &Shutdown, ports: &[u16], patience: Duration) -> impl FnMut() -> bool {
    let mut taken = (shutdown.progress(), Instant::now());
    let mut next = taken.1;
    move || {
        let now = Instant::now();
        let progress = shutdown.progress();
        if progress != taken.0 {
            taken = (progress, now);
        }
        if now < next {
            return now.duration_since(taken.1) >= patience;
        }
        // Asked before the look: what they wrote last is in the queues.
        let is_over = shutdown.is_over();
        let (has_progress, is_read) = shutdown.look(ports);
        next = Instant::now() + QUEUES_LOOK.max(now.elapsed() * QUEUES_SHARE);
        if has_progress {
            taken.1 = now;
        }
        is_over && is_read
    }
}

/// Waits until `holds` returns true, or until `end`.
async fn wait_until(end: Instant, mut holds: impl FnMut() -> bool) {
    while !holds() && Instant::now() < end {
        sleep(LOOK).await;
    }
}

impl std::fmt::Debug for RunningGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningGateway").field("listening", &self.shared.listening).finish_non_exhaustive()
    }
}
