//! The gateway under simulation: its workers on one thread with a virtual clock, and a store that acknowledges late.

use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use fogmux_auth::{Authority, Rules};
use fogmux_bus::{
    Bus, BusConfig, Completer, Completion, Message, RetainedStore, StoreFailed, Stored, Timestamp, Topic, WorkerId,
};
use fogmux_net::{Admission, AdmissionLimits};
use tokio::{sync::watch, task::JoinHandle, task::spawn_local};

use super::{
    pipe::{self, End, Line},
    random::Random,
};
use crate::{
    Clock, Peer, Shared, WorkerContext,
    coap::{self, CoapConfig, CoapDoor},
    context::Phase,
    http::{self, HttpConfig, HttpDoor},
    metrics::Metrics,
    mqtt::{self, MqttConfig, MqttDoor},
    runtime::worker::spawn_own_tasks,
    xmpp::{self, XmppConfig, XmppDoor},
};

impl mqtt::Transport for End {}

/// Which door a simulated connection goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Mqtt,
    Http,
    CoapTcp,
    Xmpp,
}

/// A store in memory whose writes are durable some time after the request, in order.
#[derive(Debug, Default)]
struct LateStore {
    waiting: Arc<Mutex<Vec<Arc<Completer>>>>,
}

impl RetainedStore for LateStore {
    fn put(&self, _: &Arc<Message>, _: Option<u64>, _: Option<&Arc<Message>>) -> Completion {
        self.later()
    }

    fn remove(&self, _: &Topic, _: Option<&Arc<Message>>) -> Completion {
        self.later()
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}
}

impl LateStore {
    fn later(&self) -> Completion {
        let completer = Arc::new(Completer::default());
        self.waiting.lock().unwrap().push(Arc::clone(&completer));
        Completion::Waiting(completer)
    }
}

/// A running gateway without listeners.
pub(super) struct World {
    pub(super) workers: Vec<Rc<WorkerContext>>,
    random: Random,
    connections: RefCell<Vec<JoinHandle<()>>>,
    _drain: watch::Sender<Phase>,
}

impl World {
    /// Starts two or three workers.
    pub(super) fn start(random: &Random) -> Rc<Self> {
        let clock = Clock::start();
        let now = clock.now();
        let count = 2 + random.below(2);
        let config = BusConfig { workers: count, ..BusConfig::default() };
        let store: Box<dyn RetainedStore> = if random.percent(50) {
            let store = LateStore::default();
            spawn_local(commit(Arc::clone(&store.waiting), random.fork()));
            Box::new(store)
        } else {
            Box::new(fogmux_bus::Forgetful)
        };
        let bus = Bus::new(&config, store, now, clock.unix_ms(now));
        let (drain, draining) = watch::channel(Phase::Open);
        let shared = Arc::new(Shared {
            bus,
            authority: Arc::new(Authority::new(Rules::default())),
            clock,
            metrics: Metrics::default(),
            open_to_anonymous: crate::context::OpenListeners::default(),
            verifiers: crate::verifiers::Verifiers::default(),
            logins: fogmux_auth::LoginGuard::default(),
            refusals: fogmux_auth::Refusals::default(),
            admission: Admission::new(AdmissionLimits::default()),
            mqtt: MqttDoor::new(mqtt_config(random)),
            coap: CoapDoor::new(CoapConfig::default()),
            http: HttpDoor::new(HttpConfig::default()),
            xmpp: XmppDoor::new(XmppConfig::default()),
            draining,
        });
        let workers: Vec<_> = (0..count).map(|id| WorkerContext::new(Arc::clone(&shared), WorkerId(id))).collect();
        for ctx in &workers {
            spawn_own_tasks(ctx);
        }
        spawn_local(mqtt::housekeeping(Rc::clone(&workers[0])));
        spawn_local(http::housekeeping(Rc::clone(&workers[0])));
        spawn_local(xmpp::housekeeping(Rc::clone(&workers[0])));
        Rc::new(Self { workers, random: random.fork(), connections: RefCell::default(), _drain: drain })
    }

    /// A new connection, served by a worker that is drawn.
    pub(super) fn connect(&self, door: Door) -> End {
        let (client, server) = pipe::connection(Line::random(&self.random), &self.random);
        let ctx = Rc::clone(self.random.pick(&self.workers));
        let peer = Peer::plain(SocketAddr::from(([127, 0, 0, 1], 9)), true);
        // As behind TLS, whose handshake is not simulated.
        let peer = if door == Door::Xmpp { Peer { secure: true, ..peer } } else { peer };
        let task = match door {
            Door::Mqtt => spawn_local(mqtt::serve(ctx, server, peer)),
            Door::Http => spawn_local(http::serve(ctx, server, peer, None)),
            Door::CoapTcp => spawn_local(coap::serve_stream(ctx, server, peer)),
            Door::Xmpp => spawn_local(xmpp::serve_stream(ctx, server, peer)),
        };
        self.connections.borrow_mut().push(task);
        client
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.workers[0].shared
    }

    pub(super) fn now(&self) -> Timestamp {
        self.workers[0].now()
    }

    /// Fails if a connection's task has panicked.
    pub(super) async fn check_tasks(&self) -> Result<(), String> {
        let tasks: Vec<_> = self.connections.borrow_mut().drain(..).collect();
        for task in tasks {
            if task.is_finished() {
                task.await.map_err(|error| format!("a connection's task ended with {error}"))?;
            } else {
                self.connections.borrow_mut().push(task);
            }
        }
        Ok(())
    }

    /// Connections that are still served.
    pub(super) fn open(&self) -> usize {
        self.connections.borrow().iter().filter(|task| !task.is_finished()).count()
    }
}

fn mqtt_config(random: &Random) -> MqttConfig {
    MqttConfig {
        max_inflight: *random.pick(&[1, 2, 20, 1024]),
        out_bytes_max: *random.pick(&[1 << 10, 16 << 10, 256 << 10]),
        inflight_bytes_max: *random.pick(&[1 << 10, 64 << 10, 1 << 20]),
        // Seconds: sessions end soon after the simulation.
        session_expiry_max: 60,
        ..MqttConfig::default()
    }
}

/// Commits what waits, now and then.
async fn commit(waiting: Arc<Mutex<Vec<Arc<Completer>>>>, random: Random) {
    loop {
        tokio::time::sleep(Duration::from_millis(1 + random.below(40) as u64)).await;
        let now = std::mem::take(&mut *waiting.lock().unwrap());
        now.into_iter().for_each(|completer| completer.complete(Ok::<(), StoreFailed>(())));
    }
}
