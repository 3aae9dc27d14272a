//! The progress of a shutdown: it waits until every MQTT connection, event stream, XMPP connection and CoAP connection
//! over TCP has been sent what was published, and their hosts have acknowledged it, as long as any of them still takes
//! something.

mod unsent;

use std::{
    net::SocketAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use unsent::Unsent;

/// The interval at which connections ask whether they are done during a shutdown.
pub(crate) const DRAIN_TICK: Duration = Duration::from_millis(100);

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
    /// Looks at the kernel's send queues that have begun.
    looks: AtomicUsize,
    look: RwLock<Look>,
}

/// A look at the kernel's send queues.
#[derive(Debug, Default)]
struct Look {
    /// Its number, from 1 on.
    number: usize,
    /// Nothing, if they cannot be looked at.
    queues: Option<Unsent>,
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

    /// Looks at the kernel's send queues of connections to these ports. Returns whether a client has taken something
    /// since the last look, and whether no more is waiting for clients to read, as far as can be seen.
    pub(crate) fn look(&self, ports: &[u16]) -> (bool, bool) {
        let number = self.looks.fetch_add(1, Relaxed) + 1;
        let queues = if ports.is_empty() { None } else { Unsent::read(ports).ok() };
        let mut look = self.look.write().unwrap_or_else(PoisonError::into_inner);
        let progress =
            queues.as_ref().zip(look.queues.as_ref()).is_some_and(|(now, then)| now.has_progress_since(then));
        let is_read = queues.as_ref().is_none_or(Unsent::is_read);
        *look = Look { number, queues };
        (progress, is_read)
    }

    /// The number of looks that have begun.
    fn looks(&self) -> usize {
        self.looks.load(Relaxed)
    }

    /// Whether a client's host has acknowledged everything that was written before so many looks had begun.
    fn has_taken(&self, peer: SocketAddr, looks: usize) -> bool {
        let look = self.look.read().unwrap_or_else(PoisonError::into_inner);
        look.number > looks && !look.queues.as_ref().is_some_and(|queues| queues.has(peer))
    }

    /// The number of clients whose hosts have not acknowledged everything that was written, and of those bytes.
    pub(crate) fn unsent(&self) -> (usize, u64) {
        let look = self.look.read().unwrap_or_else(PoisonError::into_inner);
        look.queues.as_ref().map(Unsent::count).unwrap_or_default()
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

/// Whether a connection has written everything, and the number of looks at the kernel's send queues that had begun by
/// then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written(Option<usize>);

impl Written {
    /// Notes whether everything is written; to be asked again until it returns true: the client's host has acknowledged
    /// it. A connection that is closed earlier may lose it.
    pub(crate) fn is_taken(&mut self, is_written: bool, shutdown: &Shutdown, peer: SocketAddr) -> bool {
        match self.0 {
            Some(looks) if is_written => return shutdown.has_taken(peer, looks),
            None if is_written => self.0 = Some(shutdown.looks()),
            Some(_) | None => self.0 = None,
        }
        false
    }
}

/// The reader of an event stream, or of an XMPP connection or a CoAP connection over TCP, as long as it is there.
#[derive(Debug)]
pub(crate) struct Reading(Arc<Shutdown>);

impl Reading {
    pub(crate) fn begin(shutdown: &Arc<Shutdown>) -> Self {
        shutdown.open.fetch_add(1, Relaxed);
        Self(Arc::clone(shutdown))
    }

    /// It has taken something; to be said while the gateway shuts down.
    pub(crate) fn note_progress(&self) {
        self.0.note_progress();
    }

    /// It is told to go though so many messages wait for it.
    pub(crate) fn leave(&self, messages: usize) {
        self.0.unread.add(messages);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}
