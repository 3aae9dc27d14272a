//! The context of a connection: its worker, and the state that all workers share.

use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use fogmux_auth::{Authority, LoginGuard, Refusals, SourceSet};
use fogmux_bus::{Bus, ClockSet, Timestamp, Worker, WorkerId};
use fogmux_net::{Admission, Channel};
use tokio::{sync::watch, time::Instant};

use crate::{
    Listener,
    coap::CoapDoor,
    http::HttpDoor,
    metrics::Metrics,
    mqtt::MqttDoor,
    proxy::ProxyRules,
    shutdown::Shutdown,
    stops::{Look, Stops},
    verifiers::Verifiers,
    xmpp::XmppDoor,
};

/// Bytes of the read buffer that the connections of a worker take turns to use. 16 KiB cost 1.3 to 1.7 times as much
/// CPU a message in our measurements.
pub const READ_BUFFER_BYTES: usize = 64 << 10;

/// More than the wall clock and the monotonic one come apart when nobody sets one.
const APART_MAX_MS: u64 = 2_000;

/// Monotonic time since the start of the process, and the wall-clock time of that start. What elapses is judged by the
/// monotonic clock alone; the wall clock may be set at any time.
#[derive(Clone, Debug)]
pub struct Clock {
    origin: Instant,
    origin_unix_ms: Arc<AtomicU64>,
    stops: Arc<Stops>,
}

impl Clock {
    /// Starts counting.
    #[must_use]
    pub fn start() -> Self {
        let origin_unix_ms = Arc::new(AtomicU64::new(wall_unix_ms()));
        Self { origin: Instant::now(), origin_unix_ms, stops: Arc::default() }
    }

    /// Milliseconds since the start; never goes back.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// A bus timestamp as milliseconds since 1970, by the wall clock as it was a second ago at most.
    #[must_use]
    pub fn unix_ms(&self, at: Timestamp) -> u64 {
        self.origin_unix_ms.load(Ordering::Relaxed).saturating_add(at.as_millis())
    }

    /// Times in which the gateway did not run.
    pub(crate) const fn stops(&self) -> &Arc<Stops> {
        &self.stops
    }

    /// Looks whether the wall clock was set: a board without a battery starts in 1970, or when it was shut down, and
    /// hears of the time later.
    pub(crate) fn look(&self) -> Option<ClockSet> {
        self.compare(wall_unix_ms())
    }

    fn compare(&self, unix_ms: u64) -> Option<ClockSet> {
        let before_unix_ms = self.origin_unix_ms.load(Ordering::Relaxed);
        let origin_unix_ms = unix_ms.saturating_sub(self.now().as_millis());
        if origin_unix_ms.abs_diff(before_unix_ms) <= APART_MAX_MS {
            return None;
        }
        self.origin_unix_ms.store(origin_unix_ms, Ordering::Relaxed);
        Some(ClockSet { before_unix_ms, origin_unix_ms })
    }

    /// A bus timestamp as an instant, for timers.
    #[must_use]
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.origin
            .checked_add(std::time::Duration::from_millis(at.as_millis()))
            .unwrap_or_else(|| self.origin + std::time::Duration::from_secs(86_400 * 365))
    }
}

fn wall_unix_ms() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_millis()).unwrap_or_default()
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
    /// The proxy that it came through, whose address the connection has; `None` if it came directly. Where the proxy did
    /// not say whose connection it is, this is `address`, too. In a box, for every idle connection has one of these.
    pub through: Option<Box<SocketAddr>>,
}

impl Peer {
    /// A peer on a plain connection.
    #[must_use]
    pub const fn plain(address: SocketAddr, anonymous: bool) -> Self {
        let sources = SourceSet::ALL;
        Self { address, secure: false, anonymous, listener: None, sources, channel: None, through: None }
    }

    /// Whether its listener admits it without credentials now, which a reload can change. Who came through a proxy may be
    /// anywhere, whatever the address of the connection.
    pub(crate) fn may_be_anonymous(&self, ctx: &WorkerContext) -> bool {
        let open = &ctx.shared.open_to_anonymous;
        match self.listener {
            None => self.anonymous && self.through.is_none(),
            Some(listener) if self.through.is_some() => open.contains_remote(listener),
            Some(listener) => open.contains(listener),
        }
    }

    /// The same peer behind a proxy that says that it is at `address`, or does not say.
    #[must_use]
    pub fn behind(&self, address: Option<SocketAddr>) -> Self {
        let proxy = self.proxy().unwrap_or(self.address);
        Self { address: address.unwrap_or(proxy), through: Some(Box::new(proxy)), ..self.clone() }
    }

    /// The same peer behind a handshake.
    #[must_use]
    pub fn over(self, channel: Arc<Channel>) -> Self {
        Self { secure: true, channel: Some(channel), ..self }
    }

    /// The proxy that it came through.
    pub(crate) fn proxy(&self) -> Option<SocketAddr> {
        self.through.as_deref().copied()
    }

    /// Whether it is on this machine, and no proxy that others may use.
    #[must_use]
    pub const fn is_loopback(&self) -> bool {
        self.through.is_none() && self.address.ip().to_canonical().is_loopback()
    }

    /// Whether what it sends passes a network in the clear on its last way to us.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        !self.secure && !self.proxy().unwrap_or(self.address).ip().to_canonical().is_loopback()
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

/// The listeners that admit anonymous clients: those on this machine in the lower half, those beyond it in the upper.
#[derive(Debug, Default)]
pub struct OpenListeners(AtomicU32);

impl OpenListeners {
    /// Replaces them. Each comes with whether it admits anonymous clients from beyond this machine.
    pub fn set(&self, listeners: impl IntoIterator<Item = (Listener, bool)>) {
        let of = |(listener, remote)| bit(listener) | if remote { bit(listener) << REMOTE } else { 0 };
        let bits = listeners.into_iter().fold(0, |bits, open| bits | of(open));
        self.0.store(bits, Ordering::Release);
    }

    pub(crate) fn contains(&self, listener: Listener) -> bool {
        self.0.load(Ordering::Acquire) & bit(listener) != 0
    }

    fn contains_remote(&self, listener: Listener) -> bool {
        self.0.load(Ordering::Acquire) & (bit(listener) << REMOTE) != 0
    }
}

const REMOTE: u32 = 16;

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
    /// How proxies say whose connection or request they pass on.
    pub proxy: ProxyRules,
    /// The MQTT door.
    pub mqtt: MqttDoor,
    /// The CoAP door.
    pub coap: CoapDoor,
    /// The HTTP door.
    pub http: HttpDoor,
    /// The XMPP door.
    pub xmpp: XmppDoor,
    /// The connections and streams that a shutdown waits for.
    pub(crate) shutdown: Shutdown,
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
    /// Allocations of earlier XMPP stanzas.
    pub(crate) stanzas: RefCell<fogmux_xmpp::parse::Spare>,
    /// The hub of the worker's CoAP stream connections, while there are any.
    pub(crate) coap_streams: RefCell<std::rc::Weak<crate::coap::Hub>>,
    look: Look,
}

impl WorkerContext {
    pub(crate) fn new(shared: Arc<Shared>, id: WorkerId) -> Rc<Self> {
        Rc::new(Self {
            worker: RefCell::new(shared.bus.worker(id)),
            look: Look::new(shared.clock.now()),
            shared,
            id,
            read_buffer: RefCell::new(vec![0; READ_BUFFER_BYTES].into_boxed_slice()),
            spare: RefCell::default(),
            stanzas: RefCell::default(),
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

    /// The time now. Every judgement on a client begins with this: it notices times in which the gateway did not run.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let now = self.shared.clock.now();
        if let Some(stopped) = self.look.again(now)
            && self.shared.clock.stops.ended(now)
        {
            tracing::warn!(?stopped, "the gateway did not run for a while: its clients are given their time again");
        }
        now
    }

    /// When the gateway went on after it last had not run. The idleness of a client counts from then on at the earliest.
    pub(crate) fn went_on(&self) -> Timestamp {
        self.shared.clock.stops.last()
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
