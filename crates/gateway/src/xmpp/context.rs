//! The context of an XMPP connection: its worker and the state of the door.

use std::{cell::RefCell, ops::Deref, rc::Rc, sync::Arc};

use fogmux_xmpp::parse::Spare;

use super::XmppDoor;
use crate::{WorkerContext, encodings::Encodings};

/// The state that the XMPP connections of one worker share.
#[derive(Debug)]
pub struct XmppContext {
    base: Rc<WorkerContext>,
    /// The state that the workers of the door share.
    pub door: Arc<XmppDoor>,
    /// Allocations of earlier stanzas.
    pub(super) stanzas: RefCell<Spare>,
    /// Notifications of messages, without their heads.
    pub(super) notifications: RefCell<Encodings>,
}

impl XmppContext {
    /// Creates the context of a worker.
    #[must_use]
    pub fn new(base: Rc<WorkerContext>, door: Arc<XmppDoor>) -> Rc<Self> {
        Rc::new(Self { base, door, stanzas: RefCell::default(), notifications: RefCell::default() })
    }
}

/// Everything that a connection of any door has: the bus, the clock, the counters.
impl Deref for XmppContext {
    type Target = WorkerContext;

    fn deref(&self) -> &WorkerContext {
        &self.base
    }
}
