//! The state of links to other brokers, as the API, `/metrics` and `$SYS` show it. The links themselves run beside the
//! gateway: each is a client of the MQTT door, whose session holds what waits for the other broker (ADR 0077).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

use crate::counter::Counter;

/// The beginning of the client identifiers of links at the MQTT door. No client from outside may have such a one.
pub const CLIENT: &str = "$link/";

/// The user property of CONNECT by which a link says which process it comes from. Other brokers ignore it.
pub const MARK: &str = "fogmux-link";

/// Why a link has dropped a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The receiver refused it with a reason code.
    Refused,
    /// It is larger than the receiver takes.
    TooLarge,
    /// No entry of the link's lists has its topic.
    Unmapped,
    /// QoS 0, while the other broker takes less than comes.
    Slow,
}

impl Dropped {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Refused, Self::TooLarge, Self::Unmapped, Self::Slow];

    /// The name in metrics and in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::TooLarge => "too_large",
            Self::Unmapped => "unmapped",
            Self::Slow => "slow",
        }
    }
}

/// The counters of one direction of a link.
#[derive(Debug, Default)]
pub struct Way {
    /// Messages passed on; those that are sent again count again.
    pub messages: Counter,
    /// Bytes of their payloads.
    pub bytes: Counter,
    dropped: [Counter; Dropped::ALL.len()],
}

impl Way {
    /// The count of messages dropped for this reason.
    #[must_use]
    pub const fn dropped(&self, reason: Dropped) -> &Counter {
        let [refused, too_large, unmapped, slow] = &self.dropped;
        match reason {
            Dropped::Refused => refused,
            Dropped::TooLarge => too_large,
            Dropped::Unmapped => unmapped,
            Dropped::Slow => slow,
        }
    }
}

/// A link.
#[derive(Debug)]
pub struct Link {
    /// Its name in the configuration.
    pub name: String,
    /// The other broker, without credentials.
    pub url: String,
    /// Messages to the other broker.
    pub out: Way,
    /// Messages from the other broker.
    pub inward: Way,
    /// Its principal at the MQTT door.
    principal: Arc<str>,
    /// Milliseconds since 1970; 0: there is no connection.
    since_unix_ms: AtomicU64,
    error: Mutex<Option<LinkError>>,
}

/// The last failure of a link.
#[derive(Clone, Debug)]
pub struct LinkError {
    /// In words.
    pub text: String,
    /// In milliseconds since 1970.
    pub at_unix_ms: u64,
}

impl Link {
    /// A link that has no connection yet.
    #[must_use]
    pub fn new(name: &str, url: String, principal: Arc<str>) -> Self {
        let (out, inward, since_unix_ms, error) = (Way::default(), Way::default(), AtomicU64::new(0), Mutex::default());
        Self { name: name.to_owned(), url, out, inward, principal, since_unix_ms, error }
    }

    /// Since when it has its connection, in milliseconds since 1970.
    #[must_use]
    pub fn connected_since_unix_ms(&self) -> Option<u64> {
        Some(self.since_unix_ms.load(Relaxed)).filter(|since| *since > 0)
    }

    /// The last failure, however long ago.
    #[must_use]
    pub fn last_error(&self) -> Option<LinkError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The client identifier of its session at the MQTT door.
    #[must_use]
    pub fn client(&self) -> String {
        format!("{CLIENT}{}", self.name)
    }
}

/// The messages that wait in the session of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Messages, in flight or not sent yet.
    pub messages: usize,
    /// Bytes that they hold.
    pub bytes: usize,
}

/// The sessions of links at the MQTT door.
pub trait LinkSessions: fmt::Debug + Send + Sync {
    /// The messages that wait in the session of a client of the door; `None` if there is none.
    fn queue(&self, principal: &str, client: &str) -> Option<Queue>;

    /// The filters that the session is subscribed to.
    fn filters(&self, principal: &str, client: &str) -> Vec<String>;

    /// Whether retained messages for its subscriptions have not all been sent, or not all acknowledged.
    fn is_announcing(&self, principal: &str, client: &str) -> bool;

    /// Whether the session will be sent the rest of them by itself. If not, they were begun in another process, or the
    /// rest was lost.
    fn goes_on_announcing(&self, principal: &str, client: &str) -> bool;

    /// The links that have a session: name and principal.
    fn names(&self) -> Vec<(String, Arc<str>)>;
}

/// All links, by their names.
#[derive(Debug, Default)]
pub struct Links {
    all: Mutex<BTreeMap<String, Arc<Link>>>,
    sessions: OnceLock<Arc<dyn LinkSessions>>,
    mark: OnceLock<String>,
    changed: Notify,
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Link>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_sessions(&self, sessions: Arc<dyn LinkSessions>) {
        // There is one door.
        let _ = self.sessions.set(sessions);
    }

    /// The sessions of links, if there is an MQTT door.
    #[must_use]
    pub fn sessions(&self) -> Option<&dyn LinkSessions> {
        self.sessions.get().map(|sessions| &**sessions)
    }

    /// Sets what links say of this process in CONNECT, which no other process may say: its own door refuses it.
    pub fn set_mark(&self, mark: String) {
        // Links are started once.
        let _ = self.mark.set(mark);
    }

    /// The value of [`MARK`], once links were started.
    #[must_use]
    pub fn mark(&self) -> Option<&str> {
        self.mark.get().map(String::as_str)
    }

    /// The name of the principal that a link has at the MQTT door.
    #[must_use]
    pub fn principal(&self, name: &str) -> Option<Arc<str>> {
        self.lock().get(name).map(|link| Arc::clone(&link.principal))
    }

    /// Adds a link, in place of one of the same name.
    pub fn add(&self, link: Arc<Link>) {
        self.lock().insert(link.name.clone(), link);
        self.changed.notify_one();
    }

    /// Removes a link.
    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Notes that a link has its connection.
    pub fn is_up(&self, link: &Link, now_unix_ms: u64) {
        link.since_unix_ms.store(now_unix_ms.max(1), Relaxed);
        self.changed.notify_one();
    }

    /// Notes that a link has no connection, and why.
    pub fn is_down(&self, link: &Link, error: Option<LinkError>) {
        link.since_unix_ms.store(0, Relaxed);
        if error.is_some() {
            *link.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
        }
        self.changed.notify_one();
    }

    /// Each link.
    #[must_use]
    pub fn each(&self) -> Vec<Arc<Link>> {
        self.lock().values().cloned().collect()
    }

    /// The messages that wait for a link.
    #[must_use]
    pub fn queue(&self, link: &Link) -> Queue {
        self.sessions().and_then(|sessions| sessions.queue(&link.principal, &link.client())).unwrap_or_default()
    }

    /// Ready when a state may have changed since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
