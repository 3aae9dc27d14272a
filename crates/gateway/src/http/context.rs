//! The context of an HTTP connection: its worker and the state of the door.

use std::{cell::RefCell, fmt, ops::Deref, pin::Pin, rc::Rc, sync::Arc};

use tokio::sync::Semaphore;

use super::shared::HttpDoor;
use crate::{Peer, WorkerContext, encodings::Encodings, held::HeldSessions, transport::Transport};

/// Serves a stream that a WebSocket carries until it ends.
pub type Serve = Box<dyn Fn(Box<dyn Transport>, Peer) -> Pin<Box<dyn Future<Output = ()>>>>;

/// The doors behind WebSockets, as far as there are any.
pub struct Upgrades {
    /// MQTT: takes the bytes inside the frames.
    pub mqtt: Option<Serve>,
    /// CoAP: takes the frames, whose boundaries are those of its messages (RFC 8323 §4.2).
    pub coap: Option<Serve>,
    /// The sessions of the MQTT door, for administrators.
    pub sessions: Option<Box<dyn HeldSessions>>,
}

/// The state that the HTTP connections of one worker share.
pub struct HttpContext {
    base: Rc<WorkerContext>,
    /// The state that the workers of the door share.
    pub door: Arc<HttpDoor>,
    /// The doors behind WebSockets.
    pub(super) upgrades: Upgrades,
    /// The JSON of messages for the readers of event streams.
    pub(super) events: RefCell<Encodings>,
    /// The request to the API that is being answered.
    pub(super) administration: Semaphore,
}

impl HttpContext {
    /// Creates the context of a worker.
    #[must_use]
    pub fn new(base: Rc<WorkerContext>, door: Arc<HttpDoor>, upgrades: Upgrades) -> Rc<Self> {
        Rc::new(Self { base, door, upgrades, events: RefCell::default(), administration: Semaphore::new(1) })
    }
}

/// Everything that a connection of any door has: the bus, the clock, the counters.
impl Deref for HttpContext {
    type Target = WorkerContext;

    fn deref(&self) -> &WorkerContext {
        &self.base
    }
}

impl fmt::Debug for HttpContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpContext").field("door", &self.door).finish_non_exhaustive()
    }
}
