//! What the shutdown of the gateway waits for: connections that have not said their last words, then those that have not
//! ended, and what was left for them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts of all workers, over every transport.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    open: AtomicUsize,
    spoke: AtomicUsize,
    left_clients: AtomicUsize,
    left_messages: AtomicUsize,
}

impl Shutdown {
    /// A client has logged in.
    pub(super) fn opened(&self) {
        self.open.fetch_add(1, Relaxed);
    }

    /// A connection publishes nothing any more, and its will is out.
    pub(super) fn spoke(&self) {
        self.spoke.fetch_add(1, Relaxed);
    }

    /// A connection is over; `spoke`: it had said its last words.
    pub(super) fn closed(&self, spoke: bool) {
        self.open.fetch_sub(1, Relaxed);
        if spoke {
            self.spoke.fetch_sub(1, Relaxed);
        }
    }

    /// A client is told to go though so many messages were not acknowledged.
    pub(super) fn left(&self, messages: usize) {
        if messages > 0 {
            self.left_clients.fetch_add(1, Relaxed);
            self.left_messages.fetch_add(messages, Relaxed);
        }
    }

    /// Whether no connection can publish any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.spoke.load(Relaxed) >= self.open.load(Relaxed)
    }

    /// Whether no connection is left.
    pub(crate) fn is_over(&self) -> bool {
        self.open.load(Relaxed) == 0
    }

    /// Clients that did not get or acknowledge everything, and the number of such messages.
    pub(crate) fn left_over(&self) -> (usize, usize) {
        (self.left_clients.load(Relaxed), self.left_messages.load(Relaxed))
    }
}
