//! The progress of a shutdown: connections that may still publish, connections that have not ended, and messages that
//! were left undelivered.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts over all workers and transports.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    open: AtomicUsize,
    quiesced: AtomicUsize,
    left_clients: AtomicUsize,
    left_messages: AtomicUsize,
}

impl Shutdown {
    /// A client has logged in.
    pub(super) fn opened(&self) {
        self.open.fetch_add(1, Relaxed);
    }

    /// A connection publishes nothing any more, and its will was published.
    pub(super) fn quiesced(&self) {
        self.quiesced.fetch_add(1, Relaxed);
    }

    /// A connection has ended; `quiesced`: [`quiesced`](Self::quiesced) was called for it.
    pub(super) fn closed(&self, quiesced: bool) {
        self.open.fetch_sub(1, Relaxed);
        if quiesced {
            self.quiesced.fetch_sub(1, Relaxed);
        }
    }

    /// A client is disconnected with this many unacknowledged messages.
    pub(super) fn left(&self, messages: usize) {
        if messages > 0 {
            self.left_clients.fetch_add(1, Relaxed);
            self.left_messages.fetch_add(messages, Relaxed);
        }
    }

    /// Whether no connection can publish any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiesced.load(Relaxed) >= self.open.load(Relaxed)
    }

    /// Whether no connection is left.
    pub(crate) fn is_over(&self) -> bool {
        self.open.load(Relaxed) == 0
    }

    /// The number of clients that were disconnected with unacknowledged messages, and of those messages.
    pub(crate) fn left_over(&self) -> (usize, usize) {
        (self.left_clients.load(Relaxed), self.left_messages.load(Relaxed))
    }
}
