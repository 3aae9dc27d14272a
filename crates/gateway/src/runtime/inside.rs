//! Connections from inside to the MQTT door, for links to other brokers: each is an ordinary client of the door over a
//! pipe in memory, whose principal the configuration names.
#![cfg(feature = "mqtt")]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use fogmux_auth::Principal;
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc,
};

use super::{
    RunningGateway,
    accept::{Arrival, Link},
};
use crate::Peer;

/// Bytes in each direction of a pipe: what a turn of a connection reads and writes.
const PIPE_BYTES: usize = 64 << 10;

/// Makes connections to the MQTT door.
#[derive(Clone)]
pub struct Inside {
    workers: Vec<mpsc::UnboundedSender<Arrival>>,
    next: Arc<AtomicUsize>,
}

impl Inside {
    /// Connects a link, one worker after the other. A gateway that shuts down closes the connection at once.
    #[must_use]
    pub fn connect(&self, principal: Principal) -> DuplexStream {
        let (ours, stream) = duplex(PIPE_BYTES);
        let worker = self.next.fetch_add(1, Relaxed) % self.workers.len().max(1);
        if let Some(to) = self.workers.get(worker) {
            let _ = to.send(Arrival::Link(Box::new(Link { stream, peer: Peer::link(principal) })));
        }
        ours
    }
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inside").finish_non_exhaustive()
    }
}

impl RunningGateway {
    /// The way for links to the MQTT door.
    #[must_use]
    pub fn inside(&self) -> Inside {
        Inside { workers: self.arrivals.clone(), next: Arc::default() }
    }
}
