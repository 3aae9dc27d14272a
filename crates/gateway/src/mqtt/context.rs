//! The context of an MQTT connection: its worker and the state of the door.

use std::{ops::Deref, rc::Rc, sync::Arc};

use super::MqttDoor;
use crate::WorkerContext;

/// The state that the MQTT connections of one worker share.
#[derive(Debug)]
pub struct MqttContext {
    base: Rc<WorkerContext>,
    /// The state that the workers of the door share.
    pub door: Arc<MqttDoor>,
}

impl MqttContext {
    /// Creates the context of a worker.
    #[must_use]
    pub fn new(base: Rc<WorkerContext>, door: Arc<MqttDoor>) -> Rc<Self> {
        Rc::new(Self { base, door })
    }
}

/// Everything that a connection of any door has: the bus, the clock, the counters.
impl Deref for MqttContext {
    type Target = WorkerContext;

    fn deref(&self) -> &WorkerContext {
        &self.base
    }
}
