//! Event streams and XMPP connections during a shutdown: it waits until each has been sent what was published, as long as
//! any of them still takes something.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::context::Shared;

/// Counts of all workers.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    open: AtomicUsize,
    progress: AtomicUsize,
    left_clients: AtomicUsize,
    left_messages: AtomicUsize,
}

impl Readers {
    /// Whether none is left.
    pub(crate) fn is_over(&self) -> bool {
        self.open.load(Relaxed) == 0
    }

    /// A number that changes whenever one of them takes something while the gateway shuts down.
    pub(crate) fn progress(&self) -> usize {
        self.progress.load(Relaxed)
    }

    /// Readers that were not sent everything, and the number of such messages.
    pub(crate) fn left_over(&self) -> (usize, usize) {
        (self.left_clients.load(Relaxed), self.left_messages.load(Relaxed))
    }
}

/// One reader, as long as it is there.
#[derive(Debug)]
pub(crate) struct Reading(Arc<Shared>);

impl Reading {
    pub(crate) fn begin(shared: &Arc<Shared>) -> Self {
        shared.readers.open.fetch_add(1, Relaxed);
        Self(Arc::clone(shared))
    }

    /// It has taken something; to be said while the gateway shuts down.
    pub(crate) fn note_progress(&self) {
        self.0.readers.progress.fetch_add(1, Relaxed);
    }

    /// It is told to go though so many messages wait for it.
    pub(crate) fn leave(&self, messages: usize) {
        if messages > 0 {
            self.0.readers.left_clients.fetch_add(1, Relaxed);
            self.0.readers.left_messages.fetch_add(messages, Relaxed);
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.readers.open.fetch_sub(1, Relaxed);
    }
}
