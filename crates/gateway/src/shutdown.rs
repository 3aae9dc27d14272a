//! The progress of a shutdown: it waits until every MQTT connection, event stream and XMPP connection has been sent what
//! was published, as long as any of them still takes something.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::context::Shared;

/// Counts over all workers.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    /// Connections and streams that have not ended.
    open: AtomicUsize,
    /// MQTT connections that may still publish.
    publishing: AtomicUsize,
    progress: AtomicUsize,
    unacknowledged: Left,
    unread: Left,
}

/// Messages that were left undelivered.
#[derive(Debug, Default)]
struct Left {
    clients: AtomicUsize,
    messages: AtomicUsize,
}

impl Left {
    fn add(&self, messages: usize) {
        if messages > 0 {
            self.clients.fetch_add(1, Relaxed);
            self.messages.fetch_add(messages, Relaxed);
        }
    }

    fn count(&self) -> (usize, usize) {
        (self.clients.load(Relaxed), self.messages.load(Relaxed))
    }
}

impl Shutdown {
    /// An MQTT client has logged in.
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Relaxed);
        self.publishing.fetch_add(1, Relaxed);
    }

    /// An MQTT connection publishes nothing any more, and its will was published.
    pub(crate) fn quiesced(&self) {
        self.publishing.fetch_sub(1, Relaxed);
    }

    /// An MQTT connection has ended; `quiesced`: [`quiesced`](Self::quiesced) was called for it.
    pub(crate) fn closed(&self, quiesced: bool) {
        self.open.fetch_sub(1, Relaxed);
        if !quiesced {
            self.quiesced();
        }
    }

    /// An MQTT client is disconnected with so many unacknowledged messages.
    pub(crate) fn left_unacknowledged(&self, messages: usize) {
        self.unacknowledged.add(messages);
    }

    /// A client has taken something; to be said while the gateway shuts down.
    pub(crate) fn note_progress(&self) {
        self.progress.fetch_add(1, Relaxed);
    }

    /// A number that changes whenever a client takes something while the gateway shuts down.
    pub(crate) fn progress(&self) -> usize {
        self.progress.load(Relaxed)
    }

    /// Whether no connection can publish any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.publishing.load(Relaxed) == 0
    }

    /// Whether nobody is left.
    pub(crate) fn is_over(&self) -> bool {
        self.open.load(Relaxed) == 0
    }

    /// The number of MQTT clients that were disconnected with unacknowledged messages, and of those messages.
    pub(crate) fn unacknowledged(&self) -> (usize, usize) {
        self.unacknowledged.count()
    }

    /// The number of readers of streams that were not sent everything, and of those messages.
    pub(crate) fn unread(&self) -> (usize, usize) {
        self.unread.count()
    }
}

/// The reader of an event stream or an XMPP connection, as long as it is there.
#[derive(Debug)]
pub(crate) struct Reading(Arc<Shared>);

impl Reading {
    pub(crate) fn begin(shared: &Arc<Shared>) -> Self {
        shared.shutdown.open.fetch_add(1, Relaxed);
        Self(Arc::clone(shared))
    }

    /// It has taken something; to be said while the gateway shuts down.
    pub(crate) fn note_progress(&self) {
        self.0.shutdown.note_progress();
    }

    /// It is told to go though so many messages wait for it.
    pub(crate) fn leave(&self, messages: usize) {
        self.0.shutdown.unread.add(messages);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.shutdown.open.fetch_sub(1, Relaxed);
    }
}
