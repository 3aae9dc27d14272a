//! What the workers of the door share: sessions, wills that wait, who failed to log in, and whom to wake at a drain.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::Waker,
    time::Duration,
};

use fogmux_auth::{Backoff, BackoffConfig};
use fogmux_bus::{SessionKey, Sessions, Slot, Timestamp};

use super::{
    config::MqttConfig,
    mailbox::{Bounds, MqttMailbox},
    will::Will,
};
use crate::WorkerContext;

/// All subscriptions of a session are one subscriber: what several match is delivered once (§3.3.4).
pub(super) const TAG: u64 = 0;

/// Names a connection for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionId(u64);

#[derive(Debug)]
struct WaitingWill {
    due: Timestamp,
    will: Will,
}

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

/// What the workers of the MQTT door share: configuration and registries. Connections find it in
/// [`crate::Shared::mqtt`].
#[derive(Debug)]
pub struct MqttDoor {
    /// How it behaves.
    pub config: MqttConfig,
    pub(super) sessions: Sessions<MqttMailbox>,
    wills: Mutex<HashMap<SessionKey, WaitingWill>>,
    backoff: Mutex<Backoff>,
    connections: Mutex<Connections>,
    bounds: OnceLock<Arc<Bounds>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these locks is our bug; the tables are no worse for it than the panicking task.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MqttDoor {
    /// A door that nobody uses yet.
    #[must_use]
    pub fn new(config: MqttConfig) -> Self {
        Self {
            sessions: Sessions::new(config.sessions_max),
            config,
            wills: Mutex::default(),
            backoff: Mutex::new(Backoff::new(BackoffConfig::default())),
            connections: Mutex::default(),
            bounds: OnceLock::new(),
        }
    }

    /// How many sessions there are, with and without a connection.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn bounds(&self, ctx: &WorkerContext) -> Arc<Bounds> {
        Arc::clone(self.bounds.get_or_init(|| Arc::new(Bounds::new(&self.config, ctx.bus().memory()))))
    }

    /// A session is over: nothing is delivered to it any more.
    pub(super) fn end_session(&self, ctx: &WorkerContext, slot: &Arc<Slot<MqttMailbox>>) {
        let subscriptions = slot.with(|mailbox| mailbox.subscriptions.take());
        for subscription in subscriptions.into_iter().flat_map(|set| *set) {
            ctx.bus().unsubscribe(slot, &subscription, TAG);
        }
    }

    /// Keeps a will until its delay is over or its session ends (§3.1.3.2.2).
    pub(super) fn delay_will(&self, key: SessionKey, will: Will, due: Timestamp) {
        lock(&self.wills).insert(key, WaitingWill { due, will });
    }

    /// The client came back in time: its will is not sent ([MQTT-3.1.3-9]).
    pub(super) fn cancel_will_of(&self, key: &SessionKey) {
        lock(&self.wills).remove(key);
    }

    /// The session ended before the delay was over.
    pub(super) fn publish_will_of(&self, ctx: &WorkerContext, key: &SessionKey) {
        let waiting = lock(&self.wills).remove(key);
        if let Some(waiting) = waiting {
            waiting.will.publish(ctx);
        }
    }

    /// Publishes the wills whose time has come.
    pub(super) fn publish_due_wills(&self, ctx: &WorkerContext, now: Timestamp) {
        let due: Vec<WaitingWill> =
            lock(&self.wills).extract_if(|_, waiting| waiting.due <= now).map(|(_, w)| w).collect();
        for waiting in due {
            waiting.will.publish(ctx);
        }
    }

    /// How long somebody who failed before has to wait.
    pub(super) fn backoff(&self, now: Timestamp, address: IpAddr, user: &str) -> Option<Duration> {
        lock(&self.backoff).wait(now.as_millis(), address, user)
    }

    /// Notes how a login went.
    pub(super) fn login_was(&self, success: bool, now: Timestamp, address: IpAddr, user: &str) {
        let mut backoff = lock(&self.backoff);
        if success {
            backoff.succeeded(user);
        } else {
            backoff.failed(now.as_millis(), address, user);
        }
    }

    /// Remembers whom to wake when the gateway drains: cheaper than a watcher in every connection.
    pub(super) fn register(&self, waker: &Waker) -> ConnectionId {
        let mut connections = lock(&self.connections);
        connections.next += 1;
        let id = connections.next;
        connections.wakers.insert(id, waker.clone());
        ConnectionId(id)
    }

    pub(super) fn unregister(&self, id: ConnectionId) {
        lock(&self.connections).wakers.remove(&id.0);
    }

    /// Wakes every connection: the gateway drains.
    pub(super) fn wake_all(&self) {
        let wakers: Vec<Waker> = lock(&self.connections).wakers.values().cloned().collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}
