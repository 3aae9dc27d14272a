//! The gateway under simulation: its workers on one thread with a virtual clock, from a start to a shutdown or a crash.

use std::{cell::RefCell, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use fogmux_auth::{Authority, Rules, SourceSet};
use fogmux_bus::{
    Bus, BusConfig, Payload, Publication, Publisher, Timestamp, TopicRef, WorkerId, durable::MemoryStore,
};
use tokio::{
    sync::watch,
    task::{JoinHandle, spawn_local},
    time::sleep,
};

use super::{
    network::Network,
    pipe::{self, End, Line},
    random::Random,
    store::Disk,
};
use crate::{
    Clock, Peer, Shared, WorkerContext,
    coap::{self, CoapConfig, CoapDoor},
    http,
    mqtt::{self, MqttConfig, MqttDoor},
    phase::Phase,
    runtime::{
        doors::{Doors, WorkerDoors},
        wind_down,
        worker::spawn_own_tasks,
    },
    transport::Transport,
    xmpp,
};

impl Transport for End {}

/// Virtual time that a shutdown has: long enough for every client that reads.
const DRAIN: Duration = Duration::from_secs(300);
/// Within which connections close after that.
const GOODBYES_SECONDS: u64 = 10;

/// Which door a simulated connection goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Mqtt,
    Http,
    CoapTcp,
    Xmpp,
}

/// A running gateway without listeners.
pub(super) struct World {
    pub(super) workers: Vec<Rc<WorkerContext>>,
    doors: Vec<WorkerDoors>,
    random: Random,
    pub(super) network: Rc<Network>,
    connections: RefCell<Vec<JoinHandle<()>>>,
    sockets: RefCell<Vec<JoinHandle<()>>>,
    drain: watch::Sender<Phase>,
}

impl World {
    /// Starts two or three workers on a disk.
    pub(super) fn start(random: &Random, disk: &Disk) -> Rc<Self> {
        let clock = Clock::start();
        let now = clock.now();
        let count = 2 + random.below(2);
        let config = BusConfig { workers: count, ..BusConfig::default() };
        let bus = Bus::new(&config, disk.open(random), now, clock.unix_ms(now));
        let (drain, draining) = watch::channel(Phase::Open);
        let authority = Arc::new(Authority::new(Rules::default()));
        let doors = Doors {
            mqtt: Arc::new(MqttDoor::new(MqttConfig { store: Some(sessions(random)), ..mqtt_config(random) })),
            coap: Arc::new(CoapDoor::new(coap_config()).with_seed(random.below(usize::MAX) as u64)),
            ..Doors::default()
        };
        let shared = Arc::new(Shared::new(bus, authority, clock, draining));
        let workers: Vec<_> = (0..count).map(|id| WorkerContext::new(Arc::clone(&shared), WorkerId(id))).collect();
        for ctx in &workers {
            spawn_own_tasks(ctx);
        }
        let doors: Vec<_> = workers.iter().map(|ctx| doors.on(ctx)).collect();
        doors[0].keep_house();
        let network = Network::new(count);
        let listener = coap::Listener { by: None, anonymous: true, sources: SourceSet::ALL };
        let sockets = doors.iter().enumerate().map(|(index, doors)| {
            spawn_local(coap::serve_over(Rc::clone(&doors.coap), network.port(index, random), listener))
        });
        let sockets = RefCell::new(sockets.collect());
        Rc::new(Self {
            workers,
            doors,
            random: random.fork(),
            network,
            connections: RefCell::default(),
            sockets,
            drain,
        })
    }

    /// Shuts down as the process does.
    pub(super) async fn shut_down(&self) -> Result<(), String> {
        wind_down(self.shared(), &self.drain, DRAIN, &[]).await;
        for _ in 0..GOODBYES_SECONDS * 10 {
            let sockets = self.sockets.borrow().iter().filter(|task| !task.is_finished()).count();
            if (self.open(), sockets) == (0, 0) {
                return Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
        Err(format!("{} connections outlive the shutdown", self.open()))
    }

    /// The process is killed.
    pub(super) fn kill(&self) {
        self.connections.borrow().iter().chain(self.sockets.borrow().iter()).for_each(JoinHandle::abort);
    }

    /// A last event on each topic, so that every observer that has gone is found.
    pub(super) fn publish_event(&self, topic: &str) {
        let ctx = &self.workers[0];
        let (publisher, now) = (Publisher::internal(), ctx.now());
        let topic = TopicRef::new(topic).unwrap();
        let publication = Publication::new(topic, Payload::Slice(b"end"), &publisher, now, ctx.unix_ms(now));
        drop(ctx.worker.borrow_mut().publish(&mut [publication]));
    }

    /// A new connection, served by a worker that is drawn.
    pub(super) fn connect(&self, door: Door) -> End {
        let (client, server) = pipe::connection(Line::random(&self.random), &self.random);
        let doors = self.random.pick(&self.doors);
        let peer = Peer::plain(SocketAddr::from(([127, 0, 0, 1], 9)), true);
        // As behind TLS, whose handshake is not simulated.
        let peer = if door == Door::Xmpp { Peer { secure: true, ..peer } } else { peer };
        let task = match door {
            Door::Mqtt => spawn_local(mqtt::serve(Rc::clone(&doors.mqtt), server, peer)),
            Door::Http => spawn_local(http::serve(Rc::clone(&doors.http), server, peer, None)),
            Door::CoapTcp => spawn_local(coap::serve_stream(Rc::clone(&doors.coap), server, peer)),
            Door::Xmpp => spawn_local(xmpp::serve_stream(Rc::clone(&doors.xmpp), server, peer)),
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

fn coap_config() -> CoapConfig {
    // A lost value is told again within the time in which everything has to arrive.
    CoapConfig { confirm_interval: Duration::from_secs(20), ..CoapConfig::default() }
}

/// A store of sessions, which commits, and reads messages, now and then. Sessions end with the gateway, as their
/// clients do.
fn sessions(random: &Random) -> Arc<MemoryStore> {
    let (store, random) = (MemoryStore::default(), random.fork());
    let committed = store.clone();
    store.set_reading_later(true);
    spawn_local(async move {
        loop {
            sleep(Duration::from_millis(1 + random.below(40) as u64)).await;
            committed.commit(if random.below(3) == 0 { random.below(5) } else { usize::MAX });
            committed.answer(random.below(4));
        }
    });
    Arc::new(store)
}

fn mqtt_config(random: &Random) -> MqttConfig {
    MqttConfig {
        max_inflight: *random.pick(&[1, 2, 20, 1024]),
        out_bytes_max: *random.pick(&[1 << 10, 16 << 10, 256 << 10]),
        inflight_bytes_max: *random.pick(&[1 << 10, 64 << 10, 1 << 20]),
        queue_memory_bytes_max: *random.pick(&[0, 1 << 10, 64 << 10]),
        mark_messages: *random.pick(&[1, 4, 64]),
        // Seconds: sessions end soon after the simulation.
        session_expiry_max: 60,
        ..MqttConfig::default()
    }
}
