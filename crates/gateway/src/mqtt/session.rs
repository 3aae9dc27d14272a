//! What the workers of the door share: sessions, wills that wait, who failed to log in, and whom to wake at a drain.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId(usize);

#[derive(Debug)]
struct WaitingWill {
    due: Timestamp,
    will: Will,
}

/// Whom to wake, and when. A timer in each connection would cost five times the memory; looking at ten thousand
/// entries once a second costs some fifty microseconds.
#[derive(Debug, Default)]
struct Alarms {
    entries: Vec<Option<(Waker, Timestamp)>>,
    free: Vec<usize>,
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
    alarms: Mutex<Alarms>,
    unfinished: AtomicUsize,
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
            alarms: Mutex::default(),
            unfinished: AtomicUsize::new(0),
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

    /// Counts bytes of unfinished packets.
    pub(super) fn change_unfinished(&self, before: usize, after: usize) {
        if after > before {
            self.unfinished.fetch_add(after - before, Relaxed);
        } else if after < before {
            self.unfinished.fetch_sub(before - after, Relaxed);
        }
    }

    /// How full the room for unfinished packets is: below 1 there is some.
    pub(super) fn unfinished_share(&self) -> usize {
        self.unfinished.load(Relaxed) / self.config.unfinished_bytes_max.max(1)
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

    /// Remembers whom to wake when the gateway drains.
    pub(super) fn register(&self, waker: &Waker) -> ConnectionId {
        let mut alarms = lock(&self.alarms);
        let entry = Some((waker.clone(), Timestamp::NEVER));
        let index = alarms.free.pop().unwrap_or(alarms.entries.len());
        match alarms.entries.get_mut(index) {
            Some(free) => *free = entry,
            None => alarms.entries.push(entry),
        }
        ConnectionId(index)
    }

    /// Wakes the connection at the first tick at or after `due`, once.
    pub(super) fn set_alarm(&self, id: ConnectionId, due: Timestamp) {
        if let Some(Some((_, at))) = lock(&self.alarms).entries.get_mut(id.0) {
            *at = due;
        }
    }

    pub(super) fn unregister(&self, id: ConnectionId) {
        let mut alarms = lock(&self.alarms);
        if let Some(entry) = alarms.entries.get_mut(id.0) {
            *entry = None;
            alarms.free.push(id.0);
        }
    }

    /// Wakes every connection whose alarm is due; with [`Timestamp::NEVER`] all of them.
    pub(super) fn ring(&self, now: Timestamp) {
        let mut wakers = Vec::new();
        for (waker, due) in lock(&self.alarms).entries.iter_mut().flatten().filter(|(_, due)| *due <= now) {
            *due = Timestamp::NEVER;
            wakers.push(waker.clone());
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}
