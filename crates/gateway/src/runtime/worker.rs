//! Worker threads: each runs the connections it is given, its UDP socket, and the task that passes wakes on.

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    panic::resume_unwind,
    pin::Pin,
    rc::Rc,
    sync::{Arc, atomic::AtomicUsize},
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::Duration,
};

use fogmux_bus::WorkerId;
use fogmux_net::{listener::set_user_timeout, quic};
use tokio::{
    runtime::{Builder, LocalOptions},
    sync::{Notify, mpsc},
    task::spawn_local,
};

use super::{
    Listener,
    accept::{self, Accepted, Sockets, Udp},
};
use crate::{
    coap,
    context::{Shared, WorkerContext},
    http, mqtt, proxy,
    stops::TICK,
    sys, turn, xmpp,
};

/// Starts all worker threads.
pub(super) fn start(
    shared: &Arc<Shared>,
    sockets: Sockets,
    seats: &Arc<[AtomicUsize]>,
    done: &mpsc::UnboundedSender<()>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let (senders, receivers): (Vec<_>, Vec<_>) = seats.iter().map(|_| mpsc::unbounded_channel()).unzip();
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let mut tcp = Some((sockets.tcp, senders));
    let mut threads = Vec::with_capacity(seats.len());
    let (failed, failures) = std::sync::mpsc::channel();
    for ((index, connections), udp) in receivers.into_iter().enumerate().zip(sockets.udp) {
        let (shared, seats, done, failed) = (Arc::clone(shared), Arc::clone(seats), done.clone(), failed.clone());
        let accept = tcp.take();
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
            runtime.block_on(async {
                if let Some((tcp, senders)) = accept {
                    housekeeping(&ctx);
                    for listener in tcp {
                        spawn_local(accept::accept(Rc::clone(&ctx), listener, senders.clone(), Arc::clone(&seats)));
                    }
                }
                // A task of its own: what is awaited here is polled each time any of them is woken.
                if let Err(failed) = spawn_local(run(ctx, connections, udp)).await
                    && failed.is_panic()
                {
                    resume_unwind(failed.into_panic());
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
        Err(_) => Ok(threads),
    }
}

/// The tasks that one worker runs for all.
fn housekeeping(ctx: &Rc<WorkerContext>) {
    spawn_local(mqtt::housekeeping(Rc::clone(ctx)));
    spawn_local(http::housekeeping(Rc::clone(ctx)));
    spawn_local(xmpp::housekeeping(Rc::clone(ctx)));
    spawn_local(sweep(Rc::clone(ctx)));
    spawn_local(follow_clock(Rc::clone(ctx)));
    spawn_local(sys::publish(Rc::clone(ctx)));
}

/// Removes expired retained messages, looking at a few thousand each second.
async fn sweep(ctx: Rc<WorkerContext>) {
    const LOOKED_AT: usize = 2048;
    let mut after = None;
    let mut ticks = tokio::time::interval(std::time::Duration::from_secs(1));
    loop {
        ticks.tick().await;
        after = ctx.bus().sweep(after.as_ref(), LOOKED_AT, ctx.now());
    }
}

/// Notices that the wall clock was set, and brings the retained messages in line with it.
async fn follow_clock(ctx: Rc<WorkerContext>) {
    const TURN: usize = 256;
    let mut ticks = tokio::time::interval(std::time::Duration::from_secs(1));
    loop {
        ticks.tick().await;
        let Some(clock) = ctx.shared.clock.look() else { continue };
        let mut after = None;
        loop {
            after = ctx.bus().restamp(clock, after.as_ref(), TURN, ctx.now());
            if after.is_none() {
                break;
            }
            tokio::task::yield_now().await;
        }
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

async fn run(ctx: Rc<WorkerContext>, mut connections: mpsc::UnboundedReceiver<Accepted>, udp: Vec<Udp>) {
    spawn_own_tasks(&ctx);
    let tasks = Tasks::default();
    for socket in udp {
        serve_udp(&ctx, socket, &tasks);
    }
    let mut drain = std::pin::pin!(ctx.drain());
    loop {
        tokio::select! {
            biased;
            () = &mut drain => break,
            accepted = connections.recv() => match accepted {
                Some(accepted) => serve_tcp(&ctx, accepted, &tasks),
                None => break,
            },
        }
    }
    // The listeners close at the shutdown; open connections close by themselves.
    tasks.finished().await;
}

fn serve_udp(ctx: &Rc<WorkerContext>, udp: Udp, tasks: &Tasks) {
    match udp {
        Udp::Coap { socket, listener } => tasks.spawn(coap::serve(Rc::clone(ctx), socket, listener)),
        Udp::Coaps { socket, listener } => tasks.spawn(coap::serve_dtls(Rc::clone(ctx), socket, listener)),
        Udp::Http3 { socket, tls, limits, listen } => {
            match quic::server(socket, &tls, &listen.security, &[b"h3"], &limits) {
                Ok(endpoint) => tasks.spawn(http::serve_quic(Rc::clone(ctx), endpoint, tls, listen)),
                Err(error) => tracing::error!(%error, "the HTTP/3 socket cannot be watched"),
            }
        }
    }
}

/// Each protocol is a task of its own type: an idle MQTT connection does not pay for the size of an HTTP one.
fn serve_tcp(ctx: &Rc<WorkerContext>, accepted: Accepted, tasks: &Tasks) {
    if accepted.proxied {
        let (ctx, after) = (Rc::clone(ctx), tasks.clone());
        tasks.spawn(async move {
            if let Some(accepted) = proxy::unwrap(&ctx, accepted).await {
                serve_tcp(&ctx, accepted, &after);
            }
        });
        return;
    }
    let Accepted { listener, stream, peer, tls, seat, proxied: _ } = accepted;
    let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { return };
    let ctx = Rc::clone(ctx);
    if let Some(limit) = unacknowledged_max(&ctx, listener) {
        set_user_timeout(&stream, limit);
    }
    match (listener, tls) {
        // A TLS listener without TLS here has the profile `none`.
        (Listener::Mqtt, _) | (Listener::Mqtts, None) => tasks.spawn_flat(mqtt::serve(ctx, stream, peer), seat),
        (Listener::Http, _) | (Listener::Https, None) => tasks.spawn(async move {
            let _seat = seat;
            http::serve(ctx, stream, peer, None).await;
        }),
        (Listener::Xmpp, tls) | (Listener::Xmpps, tls @ None) => {
            tasks.spawn_flat(Box::pin(xmpp::serve_plain(ctx, stream, peer, tls)), seat);
        }
        (Listener::Mqtts, Some(tls)) => {
            let after = tasks.clone();
            tasks.spawn(async move {
                let Some((stream, peer)) = accept::handshake(&ctx, listener, stream, &tls, peer).await else { return };
                // A task of its own, so that an idle connection does not pay for the size of a handshake.
                after.spawn_flat(mqtt::serve(ctx, stream, peer), seat);
            });
        }
        (Listener::Https, Some(tls)) => tasks.spawn(async move {
            let _seat = seat;
            let handshake = Box::pin(accept::boxed_handshake(&ctx, listener, stream, &tls, peer));
            let Some((stream, peer)) = handshake.await else { return };
            let alpn = stream.alpn().map(<[u8]>::to_vec);
            http::serve(ctx, stream, peer, alpn).await;
        }),
        (Listener::Xmpps, Some(tls)) => {
            tasks.spawn_flat(Box::pin(xmpp::serve_secure(ctx, stream, peer, tls)), seat);
        }
        (Listener::CoapTcp, _) | (Listener::CoapsTcp, None) => tasks.spawn(async move {
            let _seat = seat;
            coap::serve_stream(ctx, stream, peer).await;
        }),
        (Listener::CoapsTcp, Some(tls)) => tasks.spawn(async move {
            let _seat = seat;
            let handshake = Box::pin(accept::boxed_handshake(&ctx, listener, stream, &tls, peer));
            let Some((stream, peer)) = handshake.await else { return };
            coap::serve_stream(ctx, stream, peer).await;
        }),
        (Listener::Coap | Listener::Coaps | Listener::Http3, _) => {}
    }
}

/// How long a peer of that listener may acknowledge nothing. With MQTT that depends on the keep alive, which is not known
/// before the login.
fn unacknowledged_max(ctx: &WorkerContext, listener: Listener) -> Option<Duration> {
    let shared = &ctx.shared;
    match listener {
        Listener::Http | Listener::Https => Some(shared.http.config.unacknowledged_max),
        Listener::CoapTcp | Listener::CoapsTcp => Some(shared.coap.config.unacknowledged_max),
        Listener::Xmpp | Listener::Xmpps => Some(shared.xmpp.config.unacknowledged_max),
        Listener::Mqtt | Listener::Mqtts | Listener::Coap | Listener::Coaps | Listener::Http3 => None,
    }
}

/// A future and a value that lives as long; an `async` block would hold each twice, which matters for ten thousand.
struct Flat<F, B> {
    work: F,
    _beside: B,
}

impl<F: Future<Output = ()> + Unpin, B: Unpin> Future for Flat<F, B> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.work).poll(cx)
    }
}

/// The tasks of a worker that a drain waits for, counted.
#[derive(Clone, Default)]
struct Tasks(Rc<Live>);

#[derive(Default)]
struct Live {
    count: Cell<usize>,
    none: Notify,
}

struct Task(Rc<Live>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        if self.0.count.get() == 0 {
            self.0.none.notify_one();
        }
    }
}

impl Tasks {
    fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.0.count.set(self.0.count.get() + 1);
        let task = Task(Rc::clone(&self.0));
        spawn_local(async move {
            let _task = task;
            work.await;
        });
    }

    /// As [`spawn`](Self::spawn), for a future that is `Unpin`, with a value that lives as long.
    fn spawn_flat(&self, work: impl Future<Output = ()> + Unpin + 'static, beside: impl Unpin + 'static) {
        self.0.count.set(self.0.count.get() + 1);
        spawn_local(Flat { work, _beside: (beside, Task(Rc::clone(&self.0))) });
    }

    async fn finished(&self) {
        while self.0.count.get() > 0 {
            self.0.none.notified().await;
        }
    }
}
