//! The interface between the runtime and the doors.

#[cfg(test)]
mod tests;

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use fogmux_net::{Admission, Admitted, TlsAcceptor};
use tokio::net::TcpStream;

use crate::{Peer, Shared, listener::Listener, tasks::Tasks};

/// A door on one worker. The runtime serves connections by it, and starts its housekeeping on one of the workers.
pub(crate) trait DoorService {
    /// Serves a connection until it ends, as one of these tasks.
    fn serve(&self, connection: Connection, tasks: &Tasks);

    /// Starts the tasks that one worker runs for the whole door. They end at the shutdown.
    fn keep_house(&self) {}

    /// Gives back memory of this worker that nothing has used since the last call, a second ago.
    fn rest(&self) {}
}

/// A connection that came in by a listener of a door.
pub(crate) struct Connection {
    pub(crate) listener: Listener,
    pub(crate) stream: TcpStream,
    pub(crate) peer: Peer,
    /// Where TLS comes first or can be asked for; `None` if the listener's profile is `none`.
    pub(crate) tls: Option<TlsAcceptor>,
    /// To be dropped when the connection ends.
    pub(crate) seat: Seat,
}

/// A connection's place on a worker and under the limits, given back when dropped.
pub(crate) struct Seat {
    pub(crate) seats: Arc<[AtomicUsize]>,
    pub(crate) worker: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) listener: Listener,
    pub(crate) admitted: Admitted,
}

impl Seat {
    /// Counts the connection for the address that a proxy has named. Returns whether there is a place for it.
    pub(crate) fn count(&mut self, admission: &Admission, address: IpAddr) -> bool {
        admission.count(address, &mut self.admitted)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(seat) = self.seats.get(self.worker) {
            seat.fetch_sub(1, Relaxed);
        }
        self.shared.metrics.of(self.listener.door()).connections.change(-1);
    }
}
