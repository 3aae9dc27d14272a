//! Worker threads: each runs the connections it is given, its UDP socket, and the task that passes wakes on.

use std::{
    future::poll_fn,
    io,
    panic::resume_unwind,
    rc::{Rc, Weak},
    sync::{Arc, atomic::AtomicUsize},
    task::Poll,
    thread::{self, JoinHandle},
    time::Duration,
};

use fogmux_bus::WorkerId;
#[cfg(feature = "http")]
use fogmux_net::quic;
use tokio::{
    runtime::{Builder, LocalOptions},
    sync::mpsc,
    task::spawn_local,
};

use super::{
    accept::{self, Accepted, Arrival},
    doors::{Doors, WorkerDoors},
    later,
    open::{Bound, Sockets, Udp},
    proxied,
    wall_clock::WallClock,
};
#[cfg(feature = "coap")]
use crate::coap;
#[cfg(feature = "http")]
use crate::http;
#[cfg(feature = "mqtt")]
use crate::mqtt;
use crate::{
    discovery::{self, DiscoveryConfig},
    door::Connection,
    stops::TICK,
    sys,
    tasks::Tasks,
    turn,
    worker::{Shared, WorkerContext},
};

/// The workers, started.
pub(super) struct Workers {
    pub(super) threads: Vec<JoinHandle<()>>,
    /// The ways to give each a connection.
    pub(super) arrivals: Vec<mpsc::UnboundedSender<Arrival>>,
}

/// Starts all worker threads.
pub(super) fn start(
    shared: &Arc<Shared>,
    doors: &Doors,
    sockets: Sockets,
    mut discovery: Option<DiscoveryConfig>,
    seats: &Arc<[AtomicUsize]>,
    done: &mpsc::UnboundedSender<()>,
) -> io::Result<Workers> {
    let (senders, receivers): (Vec<_>, Vec<_>) = seats.iter().map(|_| mpsc::unbounded_channel()).unzip();
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let mut tcp = Vec::new();
    for bound in sockets.bound {
        match bound {
            Bound::Tcp(listener) => tcp.push(*listener),
            Bound::Udp(sockets) => accept::hand_out(sockets, &senders),
        }
    }
    let arrivals = senders.clone();
    let mut first = Some((tcp, sockets.waiting, senders));
    let mut threads = Vec::with_capacity(seats.len());
    let (failed, failures) = std::sync::mpsc::channel();
    for (index, arrivals) in receivers.into_iter().enumerate() {
        let (shared, doors) = (Arc::clone(shared), doors.clone());
        let (seats, done, failed) = (Arc::clone(seats), done.clone(), failed.clone());
        let (accept, discovery) = (first.take(), discovery.take());
        let core = (cores.len() >= seats.len()).then(|| cores.get(index).copied()).flatten();
        let thread = thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            if let Some(core) = core {
                core_affinity::set_for_current(core);
            }
            // Its tasks are its own queue: those of a `LocalSet` are a queue within a task.
            let runtime = match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = failed.send(error);
                    return;
                }
            };
            drop(failed);
            let ctx = WorkerContext::new(shared, WorkerId(index));
            let (sys_interval, doors) = (doors.sys_interval(), doors.on(&ctx));
            runtime.block_on(async {
                let clock = accept.is_some().then(|| Rc::new(WallClock::default()));
                if let (Some((tcp, waiting, senders)), Some(clock)) = (accept, &clock) {
                    housekeeping(&ctx, &doors, clock, sys_interval);
                    for listener in tcp {
                        spawn_local(accept::accept(Rc::clone(&ctx), listener, senders.clone(), Arc::clone(&seats)));
                    }
                    for prepared in waiting {
                        spawn_local(later::open(Rc::clone(&ctx), prepared, senders.clone(), Arc::clone(&seats)));
                    }
                }
                // A task of its own: what is awaited here is polled each time any of them is woken.
                if let Err(failed) = spawn_local(run(Rc::clone(&ctx), doors, arrivals, discovery)).await
                    && failed.is_panic()
                {
                    resume_unwind(failed.into_panic());
                }
                if let Some(clock) = clock {
                    clock.finish(&ctx);
                }
            });
            // The gateway may have stopped waiting.
            let _ = done.send(());
        })?;
        threads.push(thread);
    }
    drop(failed);
    // Nothing comes, and the channel ends, when each has its runtime.
    match failures.recv() {
        Ok(error) => Err(error),
        Err(_) => Ok(Workers { threads, arrivals }),
    }
}

/// The tasks that one worker runs for all.
fn housekeeping(ctx: &Rc<WorkerContext>, doors: &WorkerDoors, clock: &Rc<WallClock>, sys_interval: Duration) {
    doors.keep_house();
    spawn_local(sweep(Rc::clone(ctx)));
    spawn_local(Rc::clone(clock).follow(Rc::clone(ctx)));
    spawn_local(sys::publish(Rc::clone(ctx), sys_interval));
}

/// Removes expired retained messages, looking at a few thousand each second; and looks how long publishers have waited
/// for memory.
async fn sweep(ctx: Rc<WorkerContext>) {
    const LOOKED_AT: usize = 2048;
    let mut after = None;
    let mut ticks = tokio::time::interval(std::time::Duration::from_secs(1));
    loop {
        ticks.tick().await;
        let now = ctx.now();
        ctx.bus().memory().look(now, ctx.went_on());
        after = ctx.bus().sweep(after.as_ref(), LOOKED_AT, now);
    }
}

/// Drops the worker's outdated routes, and with them the last references to subscribers that are gone; then has the
/// worker's heap give back what is free at its top.
async fn sweep_routes(ctx: Rc<WorkerContext>) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        // Also where no client asks for it, so that a time in which the worker did not run is seen.
        let _now = ctx.now();
        ctx.worker.borrow_mut().sweep_routes();
        fogmux_memory::give_back_top();
    }
}

/// Has the doors give back memory of this worker that they have not used for a second.
async fn rest(doors: Weak<WorkerDoors>) {
    let mut ticks = tokio::time::interval(TICK);
    while let Some(doors) = doors.upgrade() {
        doors.rest();
        drop(doors);
        ticks.tick().await;
    }
}

/// Starts the tasks of every worker: one wakes the owners of mailboxes, one drops outdated routes.
pub(crate) fn spawn_own_tasks(ctx: &Rc<WorkerContext>) {
    let wakes = Rc::clone(ctx);
    spawn_local(poll_fn(move |cx| -> Poll<()> {
        if wakes.worker.borrow_mut().wake_owners(cx) {
            turn::again(cx);
        }
        Poll::Pending
    }));
    spawn_local(sweep_routes(Rc::clone(ctx)));
}

async fn run(
    ctx: Rc<WorkerContext>,
    doors: WorkerDoors,
    mut arrivals: mpsc::UnboundedReceiver<Arrival>,
    discovery: Option<DiscoveryConfig>,
) {
    spawn_own_tasks(&ctx);
    let (doors, tasks) = (Rc::new(doors), Tasks::default());
    if let Some(config) = discovery {
        tasks.spawn(discovery::serve(Rc::clone(&ctx), config));
    }
    spawn_local(rest(Rc::downgrade(&doors)));
    let mut drain = std::pin::pin!(ctx.drain());
    loop {
        tokio::select! {
            biased;
            () = &mut drain => break,
            arrival = arrivals.recv() => match arrival {
                Some(Arrival::Connection(accepted)) => serve_tcp(&ctx, &doors, *accepted, &tasks),
                Some(Arrival::Socket(udp)) => serve_udp(&doors, *udp, &tasks),
                #[cfg(feature = "mqtt")]
                Some(Arrival::Link(link)) => {
                    tasks.spawn_flat(mqtt::serve(Rc::clone(&doors.mqtt), link.stream, link.peer), ());
                }
                None => break,
            },
        }
    }
    // The listeners close at the shutdown; open connections close by themselves.
    tasks.finished().await;
}

fn serve_udp(doors: &WorkerDoors, udp: Udp, tasks: &Tasks) {
    match udp {
        #[cfg(feature = "coap")]
        Udp::Coap { socket, listener } => tasks.spawn(coap::serve(Rc::clone(&doors.coap), socket, listener)),
        #[cfg(feature = "coap")]
        Udp::CoapGroup { socket, listener } => {
            tasks.spawn(coap::serve_group(Rc::clone(&doors.coap), socket, listener));
        }
        #[cfg(feature = "coap")]
        Udp::Coaps { socket, listener } => tasks.spawn(coap::serve_dtls(Rc::clone(&doors.coap), socket, *listener)),
        #[cfg(feature = "http")]
        Udp::Http3 { socket, tls, limits, listen, place } => {
            match quic::server(socket, &tls, &listen.security, &[b"h3"], &limits) {
                Ok(endpoint) => {
                    tasks.spawn(http::serve_quic(Rc::clone(&doors.http), endpoint, tls, *listen, Some(place)))
                }
                Err(error) => tracing::error!(%error, "the HTTP/3 socket cannot be watched"),
            }
        }
    }
}

/// Each protocol is a task of its own type: an idle MQTT connection does not pay for the size of an HTTP one.
fn serve_tcp(ctx: &Rc<WorkerContext>, doors: &Rc<WorkerDoors>, accepted: Accepted, tasks: &Tasks) {
    if accepted.proxied {
        let (ctx, doors, after) = (Rc::clone(ctx), Rc::clone(doors), tasks.clone());
        tasks.spawn(async move {
            if let Some(accepted) = proxied::unwrap(&ctx, accepted).await {
                serve_tcp(&ctx, &doors, accepted, &after);
            }
        });
        return;
    }
    let Accepted { listener, stream, peer, tls, seat, proxied: _ } = accepted;
    let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { return };
    if let Some(door) = doors.of(listener.door()) {
        door.serve(Connection { listener, stream, peer, tls, seat }, tasks);
    }
}
