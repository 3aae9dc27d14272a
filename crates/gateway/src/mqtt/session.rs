//! What the workers of the door share: sessions, wills that wait, and whom to wake when.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::Waker,
};

use fogmux_bus::{SessionKey, Sessions, Slot, Timestamp};

use super::{
    bounds::Bounds,
    config::MqttConfig,
    mailbox::MqttMailbox,
    shutdown::Shutdown,
    wheel::{Entry, Wheel},
    will::Will,
};
use crate::{WorkerContext, throttle::Throttle};

/// All subscriptions of a session are one subscriber: what several match is delivered once (§3.3.4).
pub(super) const TAG: u64 = 0;

#[derive(Debug)]
struct WaitingWill {
    due: Timestamp,
    will: Will,
}

/// What the workers of the MQTT door share: configuration and registries. Connections find it in
/// [`crate::Shared::mqtt`].
#[derive(Debug)]
pub struct MqttDoor {
    /// How it behaves.
    pub config: MqttConfig,
    pub(super) sessions: Sessions<MqttMailbox>,
    wills: Mutex<HashMap<SessionKey, WaitingWill>>,
    /// Whom to wake, and when.
    alarms: Mutex<Wheel<Waker>>,
    unfinished: AtomicUsize,
    bounds: OnceLock<Arc<Bounds>>,
    /// How far a shutdown is.
    pub(crate) shutdown: Shutdown,
    /// When a slow subscriber was logged.
    pub(super) slow_log: Throttle,
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
            alarms: Mutex::default(),
            unfinished: AtomicUsize::new(0),
            bounds: OnceLock::new(),
            shutdown: Shutdown::default(),
            slow_log: Throttle::default(),
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
        let subscriptions = slot.with(|mailbox| {
            ctx.bus().counters().gone(mailbox.clear());
            mailbox.subscriptions.take()
        });
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

    /// Remembers whom to wake.
    pub(super) fn register(&self, waker: &Waker) -> Option<Entry> {
        lock(&self.alarms).insert(waker.clone())
    }

    /// Wakes the connection at the first tick at or after `due`, once.
    pub(super) fn set_alarm(&self, entry: Entry, due: Timestamp) {
        lock(&self.alarms).set(entry, due);
    }

    pub(super) fn unregister(&self, entry: Entry) {
        lock(&self.alarms).remove(entry);
    }

    /// Wakes every connection whose alarm is due.
    pub(super) fn ring(&self, now: Timestamp) {
        let due = lock(&self.alarms).ring(now);
        due.into_iter().for_each(Waker::wake);
    }

    /// Wakes every connection: there is something that all have to look at.
    pub(super) fn ring_all(&self) {
        let all = lock(&self.alarms).all();
        all.into_iter().for_each(Waker::wake);
    }
}
