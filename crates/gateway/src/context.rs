//! The context of a connection: its worker, and the state that all workers share.

use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use fogmux_auth::{Authority, LoginGuard, Refusals, SourceSet};
use fogmux_bus::{Bus, Timestamp, Worker, WorkerId};
use fogmux_net::{Admission, Channel};
use tokio::{sync::watch, time::Instant};

use crate::{
    Listener, coap::CoapDoor, http::HttpDoor, metrics::Metrics, mqtt::MqttDoor, readers::Readers, verifiers::Verifiers,
    xmpp::XmppDoor,
};

/// Bytes of the read buffer that the connections of a worker take turns to use. 16 KiB cost 1.3 to 1.7 times as much
/// CPU a message in our measurements.
pub const READ_BUFFER_BYTES: usize = 64 << 10;

/// Monotonic and wall-clock time from one origin: the start of the process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    origin_unix_ms: u64,
}

impl Clock {
    /// Starts counting.
    #[must_use]
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: Instant::now(), origin_unix_ms: u64::try_from(unix.as_millis()).unwrap_or_default() }
    }

    /// Milliseconds since the start; never goes back.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// A bus timestamp as milliseconds since 1970. The wall clock is read once, at the start, so that ages are exact
    /// whatever NTP does to a Pi without a battery.
    #[must_use]
    pub const fn unix_ms(&self, at: Timestamp) -> u64 {
        self.origin_unix_ms.saturating_add(at.as_millis())
    }

    /// A bus timestamp as an instant, for timers.
    #[must_use]
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.origin
            .checked_add(std::time::Duration::from_millis(at.as_millis()))
            .unwrap_or_else(|| self.origin + std::time::Duration::from_secs(86_400 * 365))
    }
}

/// The peer of a connection, and how it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Whether TLS (or QUIC) protects the connection.
    pub secure: bool,
    /// Whether its listener admitted anonymous clients when it was opened; see `Peer::may_be_anonymous`.
    pub anonymous: bool,
    /// Its listener, if that is one of the configuration.
    pub listener: Option<Listener>,
    /// The credentials that the listener takes.
    pub sources: SourceSet,
    /// The result of the handshake; `None` on a plain connection.
    pub channel: Option<Arc<Channel>>,
}

impl Peer {
    /// A peer on a plain connection.
    #[must_use]
    pub const fn plain(address: SocketAddr, anonymous: bool) -> Self {
        Self { address, secure: false, anonymous, listener: None, sources: SourceSet::ALL, channel: None }
    }

    /// Whether its listener admits anonymous clients now, which a reload can change.
    pub(crate) fn may_be_anonymous(&self, ctx: &WorkerContext) -> bool {
        self.listener.map_or(self.anonymous, |listener| ctx.shared.open_to_anonymous.contains(listener))
    }

    /// The same peer behind a handshake.
    #[must_use]
    pub fn over(self, channel: Arc<Channel>) -> Self {
        Self { secure: true, channel: Some(channel), ..self }
    }

    /// Whether it is on this machine.
    #[must_use]
    pub const fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }
}

/// The phase of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The gateway runs.
    Open,
    /// No new connections. Wills are published, and MQTT clients are read for acknowledgements only.
    Quiescing,
    /// Nothing is published any more. MQTT connections end when everything is delivered and acknowledged.
    Emptying,
    /// All remaining connections are closed.
    Closing,
}

/// Tells a task whether to ask for the phase: the first time, and always once a shutdown has begun. A task may be woken
/// between a change of the phase and its notification, so asking after changes only would miss it.
#[derive(Debug)]
pub(crate) struct Phases {
    draining: watch::Receiver<Phase>,
    asked: bool,
}

impl Phases {
    /// Whether to ask for the phase.
    pub(crate) fn is_news(&mut self) -> bool {
        // An error means that the gateway is gone altogether.
        !std::mem::replace(&mut self.asked, true) || self.draining.has_changed().unwrap_or(true)
    }
}

/// The listeners that admit anonymous clients.
#[derive(Debug, Default)]
pub struct OpenListeners(AtomicU32);

impl OpenListeners {
    /// Replaces them.
    pub fn set(&self, listeners: impl IntoIterator<Item = Listener>) {
        let bits = listeners.into_iter().fold(0, |bits, listener| bits | bit(listener));
        self.0.store(bits, Ordering::Release);
    }

    pub(crate) fn contains(&self, listener: Listener) -> bool {
        self.0.load(Ordering::Acquire) & bit(listener) != 0
    }
}

const fn bit(listener: Listener) -> u32 {
    1 << listener as u32
}

/// The state that all workers share.
#[derive(Debug)]
pub struct Shared {
    /// The bus.
    pub bus: Arc<Bus>,
    /// Authentication and access rules.
    pub authority: Arc<Authority>,
    /// Back-off after failed logins, for all doors.
    pub logins: LoginGuard,
    /// The listeners that admit anonymous clients.
    pub open_to_anonymous: OpenListeners,
    /// The threads that verify passwords.
    pub verifiers: Verifiers,
    /// Refusals that have been logged.
    pub refusals: Refusals,
    /// The clock.
    pub clock: Clock,
    /// The counters of the doors.
    pub metrics: Metrics,
    /// Connections under the limits, QUIC's included.
    pub admission: Admission,
    /// The MQTT door.
    pub mqtt: MqttDoor,
    /// The CoAP door.
    pub coap: CoapDoor,
    /// The HTTP door.
    pub http: HttpDoor,
    /// The XMPP door.
    pub xmpp: XmppDoor,
    /// Event streams and XMPP connections that a shutdown waits for.
    pub(crate) readers: Readers,
    pub(crate) draining: watch::Receiver<Phase>,
}

/// The state that the connections of one worker share; one per worker thread, in an [`Rc`].
#[derive(Debug)]
pub struct WorkerContext {
    /// The state that all workers share.
    pub shared: Arc<Shared>,
    /// The worker's identifier.
    pub id: WorkerId,
    /// The publishing end of the bus. Never borrowed across an `.await`.
    pub worker: RefCell<Worker>,
    /// A buffer of [`READ_BUFFER_BYTES`] to read into, for one poll. Never borrowed across an `.await`.
    pub read_buffer: RefCell<Box<[u8]>>,
    /// An empty buffer with capacity, to exchange for a mailbox's output while it is written; returned empty.
    pub spare: RefCell<Vec<u8>>,
    /// The hub of the worker's CoAP stream connections, while there are any.
    pub(crate) coap_streams: RefCell<std::rc::Weak<crate::coap::Hub>>,
}

impl WorkerContext {
    pub(crate) fn new(shared: Arc<Shared>, id: WorkerId) -> Rc<Self> {
        Rc::new(Self {
            worker: RefCell::new(shared.bus.worker(id)),
            shared,
            id,
            read_buffer: RefCell::new(vec![0; READ_BUFFER_BYTES].into_boxed_slice()),
            spare: RefCell::default(),
            coap_streams: RefCell::default(),
        })
    }

    /// The bus.
    #[must_use]
    pub fn bus(&self) -> &Arc<Bus> {
        &self.shared.bus
    }

    /// Authentication and access rules.
    #[must_use]
    pub fn authority(&self) -> &Arc<Authority> {
        &self.shared.authority
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// A bus timestamp as milliseconds since 1970.
    #[must_use]
    pub fn unix_ms(&self, at: Timestamp) -> u64 {
        self.shared.clock.unix_ms(at)
    }

    /// Whether the gateway is shutting down.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.shared.draining.borrow() > Phase::Open
    }

    /// The phase of the shutdown.
    pub(crate) fn phase(&self) -> Phase {
        *self.shared.draining.borrow()
    }

    /// Completes when nothing is published any more.
    pub(crate) fn emptying(&self) -> impl Future<Output = ()> + use<> {
        self.reached(Phase::Emptying)
    }

    /// Completes when the gateway begins to shut down: finish, close by the protocol's means, return.
    pub fn drain(&self) -> impl Future<Output = ()> + use<> {
        self.reached(Phase::Quiescing)
    }

    /// Completes when the wills and all accepted messages are delivered, or the time for that is over. Readers close
    /// after this, not at [`WorkerContext::drain`], so as to receive them.
    pub fn closing(&self) -> impl Future<Output = ()> + use<> {
        self.reached(Phase::Closing)
    }

    /// Tells a task that is polled very often when to ask [`WorkerContext::closing`].
    pub(crate) fn phases(&self) -> Phases {
        Phases { draining: self.shared.draining.clone(), asked: false }
    }

    /// Completes when a shutdown has come so far.
    pub(crate) fn reached(&self, phase: Phase) -> impl Future<Output = ()> + use<> {
        let mut draining = self.shared.draining.clone();
        async move {
            // An error means that the gateway is gone altogether.
            let _ = draining.wait_for(|now| *now >= phase).await;
        }
    }
}
