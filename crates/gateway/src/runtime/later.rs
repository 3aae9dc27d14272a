//! Listeners whose address or port was not to be had at the start: an interface that gets its address later, a port
//! that another process still had. Each is tried again until it opens.

use std::{
    rc::Rc,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use tokio::{sync::mpsc, time::sleep};

use super::{
    accept::{self, Arrival},
    open::{Bound, Prepared},
};
use crate::WorkerContext;

/// The first pause, which doubles. A port of a process that just ends is free by then.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause: an address that comes is noticed within it, and a system call in this time costs nothing.
const LONGEST: Duration = Duration::from_secs(30);

/// Opens one listener as soon as its address is to be had, and accepts on it. Logged once, and once when it is open.
pub(super) async fn open(
    ctx: Rc<WorkerContext>,
    prepared: Prepared,
    workers: Vec<mpsc::UnboundedSender<Arrival>>,
    seats: Arc<[AtomicUsize]>,
) {
    let (name, address) = (&*prepared.listen.name, prepared.listen.address);
    let listening = &ctx.shared.listening;
    let error = listening.at(prepared.place).and_then(|spot| spot.failure()).unwrap_or_default();
    tracing::warn!(listener = name, %address, error, "this address cannot be opened; it is tried again");
    let mut pause = FIRST;
    let bound = loop {
        tokio::select! {
            biased;
            () = ctx.drain() => return,
            () = sleep(pause) => {}
        }
        match prepared.bind(listening) {
            Ok(bound) => break bound,
            Err(error) => listening.failed(prepared.place, error.to_string()),
        }
        pause = (pause * 2).min(LONGEST);
    };
    tracing::info!(listener = name, %address, "this address is open now");
    match bound {
        Bound::Tcp(tcp) => accept::accept(Rc::clone(&ctx), *tcp, workers, seats).await,
        Bound::Udp(sockets) => accept::hand_out(sockets, &workers),
    }
}
