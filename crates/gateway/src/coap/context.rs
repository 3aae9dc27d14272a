//! The context of a CoAP connection: its worker and the state of the door.

use std::{
    cell::RefCell,
    ops::Deref,
    rc::{Rc, Weak},
    sync::Arc,
};

use super::{CoapDoor, streams::Hub};
use crate::{WorkerContext, listening::Place};

/// The state that the CoAP sockets and connections of one worker share.
#[derive(Debug)]
pub struct CoapContext {
    base: Rc<WorkerContext>,
    /// The state that the workers of the door share.
    pub door: Arc<CoapDoor>,
    /// The hub of the worker's stream connections, while there are any.
    pub(super) streams: RefCell<Weak<Hub>>,
}

impl CoapContext {
    /// Creates the context of a worker.
    #[must_use]
    pub fn new(base: Rc<WorkerContext>, door: Arc<CoapDoor>) -> Rc<Self> {
        Rc::new(Self { base, door, streams: RefCell::default() })
    }

    /// Whether requests without OSCORE are refused at a listener's address.
    pub(super) fn wants_oscore(&self, place: Option<Place>) -> bool {
        place.is_some_and(|place| self.shared.listening.oscore_only(place))
    }
}

/// Everything that a connection of any door has: the bus, the clock, the counters.
impl Deref for CoapContext {
    type Target = WorkerContext;

    fn deref(&self) -> &WorkerContext {
        &self.base
    }
}
