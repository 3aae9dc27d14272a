//! The context of a worker: what the connections of all doors on it share, and what all workers share. It knows no
//! door; each door has a context of its own around this one.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use fogmux_auth::{Authority, Door, LoginGuard, Refusals};
use fogmux_bus::{Bus, Message, Publisher, Timestamp, Worker, WorkerId};
use fogmux_net::{Admission, AdmissionLimits, Challenges};
use tokio::{sync::watch, time::Instant};

#[cfg(feature = "traces")]
use crate::traces::{Deliveries, Traces};
use crate::{
    Peer,
    administration::Administration,
    clients::{Arrived, Clients, Listed},
    clock::Clock,
    delivery_times::{DeliveryTimes, Marks},
    links::Links,
    listening::Listening,
    metrics::Metrics,
    phase::{Phase, Phases},
    proxy::ProxyRules,
    shutdown::Shutdown,
    stops::{Look, Running},
    verifiers::Verifiers,
    waiting::Waiting,
};

/// Bytes of the read buffer that the connections of a worker take turns to use. 16 KiB cost 1.3 to 1.7 times as much
/// CPU a message in our measurements.
pub const READ_BUFFER_BYTES: usize = 64 << 10;

/// The state that all workers share.
#[derive(Debug)]
pub struct Shared {
    /// The bus.
    pub bus: Arc<Bus>,
    /// Authentication and access rules.
    pub authority: Arc<Authority>,
    /// Back-off after failed logins, for all doors.
    pub logins: LoginGuard,
    /// The threads that verify passwords.
    pub verifiers: Verifiers,
    /// Refusals that have been logged.
    pub refusals: Refusals,
    /// The last refusals, logged or not.
    #[cfg(feature = "http")]
    pub(crate) last_refusals: crate::refused::LastRefusals,
    /// The clock.
    pub clock: Clock,
    /// The counters of the doors.
    pub metrics: Metrics,
    /// Connections under the limits, QUIC's included.
    pub admission: Admission,
    /// How proxies say whose connection or request they pass on.
    pub proxy: ProxyRules,
    /// The realm of the users: a domain. XMPP addresses in certificates are those of our users if they are in it.
    pub realm: Box<str>,
    /// The addresses of the listeners.
    pub listening: Listening,
    /// Parts that are not in service yet.
    pub waiting: Waiting,
    /// The challenges of an ACME server that are answered over HTTP.
    pub challenges: Challenges,
    /// Links to other brokers.
    pub links: Links,
    /// The way of administrators' commands.
    pub administration: Administration,
    /// Traces of messages, if there are any.
    #[cfg(feature = "traces")]
    pub traces: Option<Arc<Traces>>,
    /// Connections that are logged in.
    pub(crate) clients: Arc<Clients>,
    /// The connections and streams that a shutdown waits for.
    pub(crate) shutdown: Arc<Shutdown>,
    pub(crate) draining: watch::Receiver<Phase>,
}

impl Shared {
    /// Whether the gateway is shutting down.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow() > Phase::Open
    }

    /// The state of a gateway without listeners, limits or a store, whose realm is `localhost`.
    pub(crate) fn new(
        bus: Arc<Bus>,
        authority: Arc<Authority>,
        clock: Clock,
        draining: watch::Receiver<Phase>,
    ) -> Self {
        Self {
            bus,
            authority,
            logins: LoginGuard::default(),
            verifiers: Verifiers::default(),
            refusals: Refusals::default(),
            #[cfg(feature = "http")]
            last_refusals: crate::refused::LastRefusals::default(),
            clock,
            metrics: Metrics::default(),
            admission: Admission::new(AdmissionLimits::default()),
            proxy: ProxyRules::default(),
            realm: "localhost".into(),
            listening: Listening::default(),
            waiting: Waiting::default(),
            challenges: Challenges::default(),
            links: Links::default(),
            administration: Administration::default(),
            #[cfg(feature = "traces")]
            traces: None,
            clients: Arc::default(),
            shutdown: Arc::default(),
            draining,
        }
    }
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
    delivery_times: Arc<DeliveryTimes>,
    #[cfg(feature = "traces")]
    traced: RefCell<Deliveries>,
    look: Look,
    itself: Weak<Self>,
}

impl WorkerContext {
    pub(crate) fn new(shared: Arc<Shared>, id: WorkerId) -> Rc<Self> {
        let (mut worker, clock) = (shared.bus.worker(id), shared.clock.clone());
        worker.time_deliveries(move || clock.micros());
        #[cfg(feature = "traces")]
        if let Some(traces) = &shared.traces {
            worker.trace(Box::new(traces.publications(shared.clock.clone())));
        }
        Rc::new_cyclic(|itself| Self {
            itself: Weak::clone(itself),
            worker: RefCell::new(worker),
            delivery_times: shared.metrics.deliveries.of_worker(),
            #[cfg(feature = "traces")]
            traced: RefCell::new(Deliveries::new()),
            look: Look::new(shared.clock.now()),
            shared,
            id,
            read_buffer: RefCell::new(vec![0; READ_BUFFER_BYTES].into_boxed_slice()),
            spare: RefCell::default(),
        })
    }

    /// A handle on it, for a task.
    pub(crate) fn itself(&self) -> Option<Rc<Self>> {
        self.itself.upgrade()
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
            && self.shared.clock.stops().ended(now, stopped)
        {
            tracing::warn!(?stopped, "the gateway did not run for a while, which counts against no client");
        }
        now
    }

    /// The running time now, in which deadlines of clients are judged.
    pub(crate) fn running(&self) -> Running {
        self.running_at(self.now())
    }

    /// The running time at a time that [`WorkerContext::now`] has given.
    pub(crate) fn running_at(&self, now: Timestamp) -> Running {
        self.look.running(now)
    }

    /// When a deadline passes if the worker runs until then.
    pub(crate) fn passes(&self, deadline: Running) -> Timestamp {
        self.look.passes(deadline)
    }

    /// The same for a timer of the runtime.
    pub(crate) fn timer(&self, deadline: Running) -> Instant {
        self.shared.clock.instant(self.passes(deadline))
    }

    /// Whether a deadline has passed for which a timer rang. Timers have a grain of their own.
    pub(crate) fn has_passed(&self, deadline: Running) -> bool {
        const GRAIN: Duration = Duration::from_millis(1);
        let now = self.now();
        self.passes(deadline) <= now + GRAIN
    }

    /// When the gateway went on after it last had not run. The pace of a subscriber counts from then on at the
    /// earliest.
    pub(crate) fn went_on(&self) -> Timestamp {
        self.shared.clock.stops().last()
    }

    /// Notes that a message was handed to the transport of a subscriber at a door. `reader` is asked for only if the
    /// message is traced.
    #[inline]
    pub(crate) fn delivered<'r>(&self, message: &Message, to: Door, reader: impl FnOnce() -> Option<&'r Publisher>) {
        self.delivery_times.delivered(message, to, || self.shared.clock.micros());
        #[cfg(feature = "traces")]
        if message.is_traced() {
            self.trace_one(to, reader(), |marks| marks.note_message(message));
        }
        #[cfg(not(feature = "traces"))]
        let _ = reader;
    }

    /// Notes that a client of a door has read a message that was retained; see [`WorkerContext::delivered`].
    #[inline]
    pub(crate) fn read<'r>(&self, message: &Message, to: Door, reader: impl FnOnce() -> &'r Publisher) {
        #[cfg(feature = "traces")]
        if message.is_traced() {
            self.trace_one(to, Some(reader()), |marks| marks.note_uncounted(message, true));
        }
        #[cfg(not(feature = "traces"))]
        let _ = (message, to, reader);
    }

    /// Notes that an output for a subscriber at a door was written.
    #[inline]
    pub(crate) fn written(&self, marks: &mut Marks, to: Door, reader: &Publisher) {
        if !marks.is_empty() {
            let now_us = self.shared.clock.micros();
            #[cfg(feature = "traces")]
            self.trace(marks, to, reader, now_us);
            marks.written(&self.delivery_times, to, now_us);
        }
        #[cfg(not(feature = "traces"))]
        let _ = reader;
    }

    #[cfg(feature = "traces")]
    #[cold]
    fn trace_one(&self, to: Door, reader: Option<&Publisher>, note: impl FnOnce(&mut Marks)) {
        let Some(reader) = reader else { return };
        let mut marks = Marks::default();
        note(&mut marks);
        self.trace(&marks, to, reader, self.shared.clock.micros());
    }

    /// Makes the spans of the deliveries among these that are traced.
    #[cfg(feature = "traces")]
    #[cold]
    fn trace(&self, marks: &Marks, to: Door, reader: &Publisher, now_us: u64) {
        let (Some(traces), true) = (&self.shared.traces, marks.is_traced()) else { return };
        let mut deliveries = self.traced.borrow_mut();
        let now_unix_us = self.shared.clock.unix_us(now_us);
        let spans = marks.traced(now_us);
        traces.spans.push(spans.map(|(traced, elapsed)| deliveries.span(traced, (to, reader), now_unix_us, elapsed)));
    }

    /// Puts a connection that has logged in into the list of connections.
    pub(crate) fn enter(&self, door: Door, peer: &Peer, publisher: &Arc<Publisher>) -> Listed {
        let publisher = Arc::clone(publisher);
        let since_unix_ms = self.unix_ms(self.shared.clock.now());
        let (listener, address) = (peer.listener, peer.address);
        self.shared.clients.enter(Arrived { door, listener, address, publisher, since_unix_ms })
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
        Phases::new(&self.shared.draining)
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
