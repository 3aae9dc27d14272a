//! The example of `docs/adding-a-door.md`: a door for lines of text, each a topic, a space and a payload.

use std::{ops::Deref, rc::Rc, sync::Arc};

use fogmux_auth::{Authority, Rules};
use fogmux_bus::{Bus, BusConfig, Door, Forgetful, Payload, Publication, Publisher, TopicRef, WorkerId};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    runtime::{Builder, LocalOptions},
    sync::watch,
};

use super::{Connection, DoorService, Seat};
use crate::{Clock, Peer, Shared, WorkerContext, listener::Listener, phase::Phase, tasks::Tasks};

/// The part of the door that all workers share: configuration and registries.
#[derive(Debug)]
struct LineDoor {
    line_bytes_max: usize,
}

/// The context that the connections of one worker share.
#[derive(Debug)]
struct LineContext {
    base: Rc<WorkerContext>,
    door: Arc<LineDoor>,
}

impl Deref for LineContext {
    type Target = WorkerContext;

    fn deref(&self) -> &WorkerContext {
        &self.base
    }
}

impl DoorService for Rc<LineContext> {
    fn serve(&self, connection: Connection, tasks: &Tasks) {
        let Connection { stream, peer, seat, .. } = connection;
        let ctx = Self::clone(self);
        tasks.spawn(async move {
            let _seat = seat;
            serve(ctx, stream, peer).await;
        });
    }
}

/// Serves a connection until it ends or the gateway shuts down.
async fn serve(ctx: Rc<LineContext>, stream: TcpStream, peer: Peer) {
    // This door has no logins, so every client is anonymous; others ask `credential::log_in`.
    let open = peer.may_be_anonymous(&ctx.shared.listening) && peer.is_loopback();
    let Some(principal) = ctx.authority().anonymous(open) else { return };
    let access = ctx.authority().access(&principal, "", Door::Http);
    let publisher = Arc::new(Publisher {
        principal: Arc::clone(&principal.name),
        client: Arc::from(""),
        door: Some(Door::Http),
        slot: None,
    });
    let mut lines = BufReader::new(stream).lines();
    loop {
        let line = tokio::select! {
            () = ctx.drain() => return,
            line = lines.next_line() => line,
        };
        let Ok(Some(line)) = line else { return };
        let Some((topic, payload)) = line.split_once(' ') else { continue };
        let Ok(name) = TopicRef::new(topic) else { continue };
        if line.len() > ctx.door.line_bytes_max || !access.may_write(topic) {
            continue;
        }
        let now = ctx.now();
        let payload = Payload::Slice(payload.as_bytes());
        let publication = Publication::new(name, payload, &publisher, now, ctx.unix_ms(now));
        drop(ctx.worker.borrow_mut().publish(&mut [publication]));
    }
}

#[test]
fn a_door_needs_no_more_than_this() {
    let clock = Clock::start();
    let now = clock.now();
    let bus = Bus::new(&BusConfig::default(), Box::new(Forgetful), now, clock.unix_ms(now));
    let (_drain, draining) = watch::channel(Phase::Open);
    let shared = Arc::new(Shared::new(bus, Arc::new(Authority::new(Rules::default())), clock, draining));
    let base = WorkerContext::new(Arc::clone(&shared), WorkerId(0));
    let door = Rc::new(LineContext { base, door: Arc::new(LineDoor { line_bytes_max: 64 }) });
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(socket.local_addr().unwrap()).await.unwrap();
        let (stream, address) = socket.accept().await.unwrap();
        let seat = Seat {
            seats: Arc::new([1.into()]),
            worker: 0,
            shared: Arc::clone(&shared),
            listener: Listener::Http,
            admitted: shared.admission.admit(address.ip()).unwrap(),
        };
        let (listener, peer, tasks) = (Listener::Http, Peer::plain(address, true), Tasks::default());
        door.serve(Connection { listener, stream, peer, tls: None, seat }, &tasks);
        client.write_all(b"room/temperature 21.5\n+ wrong\n").await.unwrap();
        drop(client);
        tasks.finished().await;
    });
    assert_eq!(shared.bus.counters().published.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(shared.admission.connections(), 0);
}
