//! Sessions as the administration API sees them, whichever door holds them.

use std::{fmt, pin::Pin, sync::Arc};

use fogmux_bus::{Subscription, Timestamp};

/// A session, with or without a connection.
#[derive(Clone, Debug)]
pub struct HeldSession {
    /// Its number, unique since the start: sessions that began later have greater ones.
    pub number: u64,
    /// The client identifier.
    pub client: Arc<str>,
    /// The principal that owns it.
    pub principal: Arc<str>,
    /// Whether it has a connection.
    pub connected: bool,
    /// Whether it ends with its connection.
    pub transient: bool,
    /// When it ends if no connection comes; `None` with a connection, or if it never does.
    pub expires: Option<Timestamp>,
    /// Its subscriptions.
    pub subscriptions: usize,
    /// Messages that wait to be sent.
    pub queued: usize,
    /// Bytes that they hold.
    pub queued_bytes: usize,
    /// Messages that were sent and not acknowledged.
    pub inflight: usize,
    /// Bytes that they hold.
    pub inflight_bytes: usize,
    /// Whether it is in the store on disk.
    pub durable: bool,
}

/// Resolves when a session has ended, to whether the store has forgotten it. The session ends whether this is polled or
/// not.
pub type Ending = Pin<Box<dyn Future<Output = bool>>>;

/// A session that is being ended.
pub struct Ended {
    /// The client identifier.
    pub client: Arc<str>,
    /// The principal that owned it.
    pub principal: Arc<str>,
    /// Its end.
    pub ending: Ending,
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ended").field("client", &self.client).finish_non_exhaustive()
    }
}

/// The sessions of a door.
pub trait HeldSessions {
    /// Up to `limit` sessions with greater numbers than `after`, in their order, and whether there are more.
    fn page(&self, after: u64, limit: usize) -> (Vec<HeldSession>, bool);

    /// The subscriptions of a session, in no order; `None` if it has ended.
    fn subscriptions(&self, number: u64) -> Option<Vec<Subscription>>;

    /// Ends a session and forgets it, its connection included, if it has not ended.
    fn end(&self, number: u64) -> Option<Ended>;
}
