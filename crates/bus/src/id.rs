//! Identifiers of workers and slots.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// Names a worker: its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub usize);

/// Names a slot among the living; a small number, used again after its slot is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub(crate) u32);

/// Gives out slot names, a new one only when none is free, so that they index dense tables.
#[derive(Debug, Default)]
pub(crate) struct SlotIds {
    ids: Mutex<Free>,
    /// How often a slot has got or lost its connection.
    connections: AtomicU64,
}

#[derive(Debug, Default)]
struct Free {
    next: u32,
    free: Vec<u32>,
}

impl SlotIds {
    pub(crate) fn take(&self) -> SlotId {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let id = ids.free.pop().unwrap_or_else(|| {
            ids.next += 1;
            ids.next - 1
        });
        SlotId(id)
    }

    /// Notes that a slot has got or lost its connection.
    pub(crate) fn connection_changed(&self) {
        self.connections.fetch_add(1, Ordering::Release);
    }

    /// Changes whenever a slot gets or loses its connection.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    pub(crate) fn give_back(&self, id: SlotId) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).free.push(id.0);
    }
}
