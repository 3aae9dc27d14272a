//! The state that the workers of the MQTT door share: sessions, delayed wills, and alarms of connections.

use std::{
    collections::{BTreeSet, HashMap},
    hash::BuildHasher,
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::Duration,
};

use fogmux_auth::ANONYMOUS;
use fogmux_bus::{Departure, GaveWay, NoRoom, SessionKey, Sessions, Subscription, Timestamp};
use tokio::sync::Notify;

use super::{
    bounds::Bounds,
    config::{ClientIdentifiers, MqttConfig},
    context::MqttContext,
    mailbox::{MqttMailbox, Ousted},
    wheel::{Entry, Wheel},
    will::{Will, WillRoom, WillRooms},
};
use crate::{
    metrics::{Counted, Counts},
    shares::Table,
    throttle::Throttle,
    turn::Portion,
    unfinished::{REST, Unfinished},
    worker::Shared,
};

/// The longest time between two runs of the housekeeping. Will delays and session expiries are whole seconds, so that
/// none begins and ends in between; an earlier alarm wakes it ([`MqttDoor::set_alarm`]).
const LOOK: Duration = Duration::from_secs(1);

/// The tag of all subscriptions of a session that are not shared: a message that several match is delivered once
/// (§3.3.4).
const TAG: u64 = 0;

/// The tag of a subscription at the bus. Each shared subscription has a tag of its own: it is delivered separately, and
/// its messages can be handed on.
pub(super) fn tag(subscription: &Subscription) -> u64 {
    subscription.group.as_ref().map_or(TAG, |_| u64::from(share_tag(subscription)))
}

/// If two shared subscriptions of a session had the same tag, the only harm would be that a message may be handed on in
/// the wrong group.
pub(super) fn share_tag(subscription: &Subscription) -> u32 {
    let hash = foldhash::fast::FixedState::default().hash_one(subscription);
    u32::try_from(hash >> 32).unwrap_or(1).max(1)
}

/// Shared subscriptions that a client leaves, by their tags.
pub(super) type LeftGroups = HashMap<u32, Arc<Subscription>>;

/// The key of a session. No identifier has a NUL ([MQTT-1.5.4-2]), and no user is called as those without a name.
pub(super) fn session_key(identifiers: ClientIdentifiers, principal: &str, client: &Arc<str>) -> SessionKey {
    match identifiers {
        ClientIdentifiers::PerPrincipal if principal != ANONYMOUS => {
            SessionKey(Arc::from(format!("{client}\0{principal}")))
        }
        ClientIdentifiers::PerPrincipal | ClientIdentifiers::Shared => SessionKey(Arc::clone(client)),
    }
}

/// The client identifier of a session, for the log.
pub(super) fn client_of(key: &SessionKey) -> &str {
    key.0.split('\0').next().unwrap_or_default()
}

/// Wills whose delay is not over.
#[derive(Debug, Default)]
struct WaitingWills {
    by_key: HashMap<SessionKey, (Timestamp, Will)>,
    by_due: BTreeSet<(Timestamp, SessionKey)>,
}

impl WaitingWills {
    /// Returns the will that was there.
    fn insert(&mut self, key: SessionKey, will: Will, due: Timestamp) -> Option<Will> {
        let before = self.remove(&key);
        self.by_due.insert((due, key.clone()));
        self.by_key.insert(key, (due, will));
        before
    }

    fn is_due(&self, key: &SessionKey, now: Timestamp) -> bool {
        self.by_key.get(key).is_some_and(|(due, _)| *due <= now)
    }

    fn remove(&mut self, key: &SessionKey) -> Option<Will> {
        let (due, will) = self.by_key.remove(key)?;
        self.by_due.remove(&(due, key.clone()));
        Some(will)
    }

    /// When the first is due.
    fn next(&self) -> Timestamp {
        self.by_due.first().map_or(Timestamp::NEVER, |(due, _)| *due)
    }

    fn pop_due(&mut self, now: Timestamp) -> Option<(SessionKey, Will)> {
        let (_, key) = self.by_due.first().filter(|(due, _)| *due <= now)?.clone();
        let will = self.remove(&key)?;
        Some((key, will))
    }
}

/// The state that the workers of the MQTT door share: configuration and registries. Connections find it in
/// [`MqttContext`].
#[derive(Debug)]
pub struct MqttDoor {
    /// The configuration.
    pub config: MqttConfig,
    pub(super) sessions: Sessions<MqttMailbox>,
    wills: Mutex<WaitingWills>,
    will_rooms: Arc<WillRooms>,
    /// The connections to wake, and when.
    alarms: Mutex<Wheel<Waker>>,
    /// When the housekeeping runs next; changed under the lock of `alarms`.
    next_look: AtomicU64,
    /// Notified when an alarm is set that is due before that.
    earlier: Notify,
    unfinished: Arc<Unfinished>,
    logins: Arc<Unfinished>,
    bounds: OnceLock<Arc<Bounds>>,
    /// Records of a later release that the start has found.
    pub(super) foreign: AtomicU64,
    /// Limits the log lines about slow subscribers.
    pub(super) slow_log: Throttle,
    pub(super) unkept_log: Throttle,
}

/// The room for unfinished packets, in which the buffer of a packet of the largest size fits in any case.
fn unfinished_bytes_max(config: &MqttConfig) -> usize {
    let packet = usize::try_from(config.packet_bytes_max).unwrap_or(usize::MAX);
    config.unfinished_bytes_max.max(packet.saturating_add(crate::worker::READ_BUFFER_BYTES))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these locks is our bug; the tables are no worse for it than the panicking task.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MqttDoor {
    /// Creates the door.
    #[must_use]
    pub fn new(config: MqttConfig) -> Self {
        Self {
            sessions: match config.client_identifiers {
                ClientIdentifiers::PerPrincipal => Sessions::new(config.sessions_max),
                ClientIdentifiers::Shared => Sessions::new(config.sessions_max).absent_give_way(),
            },
            // One login fits in any case. Of those of one host the oldest goes.
            logins: Unfinished::new(
                Table::MqttLogins,
                config.logins_bytes_max.max(config.connect_bytes_max.saturating_mul(4)),
                Duration::ZERO,
            ),
            unfinished: Unfinished::new(Table::MqttPackets, unfinished_bytes_max(&config), REST),
            config,
            wills: Mutex::default(),
            will_rooms: Arc::default(),
            alarms: Mutex::default(),
            next_look: AtomicU64::new(0),
            earlier: Notify::new(),
            bounds: OnceLock::new(),
            foreign: AtomicU64::new(0),
            slow_log: Throttle::default(),
            unkept_log: Throttle::default(),
        }
    }

    /// The number of sessions without a connection.
    pub(super) fn sessions_away(&self) -> usize {
        self.sessions.away()
    }

    pub(super) fn bounds(&self, shared: &Shared) -> Arc<Bounds> {
        Arc::clone(
            self.bounds.get_or_init(|| Arc::new(Bounds::new(&self.config, shared.bus.memory(), shared.clock.stops()))),
        )
    }

    /// The logins under way.
    pub(super) const fn logins(&self) -> &Arc<Unfinished> {
        &self.logins
    }

    /// The unfinished packets of clients that are logged in.
    pub(super) const fn unfinished(&self) -> &Arc<Unfinished> {
        &self.unfinished
    }

    /// Ends the sessions that have expired, and publishes their wills.
    pub(super) async fn end_expired(&self, ctx: &MqttContext, now: Timestamp, portion: &mut Portion) {
        while let Some((key, slot)) = self.sessions.expire(now) {
            ctx.shared.metrics.mqtt_only.expired_sessions.increment();
            // Taken at once: the client may come back with another will while this session ends.
            let will = self.take_will(&key);
            self.end_session_in_portions(ctx, &slot, portion).await;
            if let Some((will, departure)) = will {
                let deliveries = will.publish(ctx);
                self.sessions.departed(&key, &departure);
                portion.spend(deliveries).await;
            }
        }
    }

    /// Ends a session that gave way to one of another principal. Its connection, if it has one, is told why.
    pub(super) fn give_way(&self, ctx: &Rc<MqttContext>, gone: &GaveWay<MqttMailbox>) {
        ctx.shared.metrics.shares.session_gave_way(&gone.principal, client_of(&gone.key), ctx.now());
        gone.slot.with(|mailbox| mailbox.ousted = Some(Ousted::GaveWay));
        if gone.connected {
            gone.slot.claim(ctx.id);
        }
        self.end_session(ctx, &gone.key, &gone.slot);
        self.publish_will_of(ctx, &gone.key);
    }

    /// Delays a will until its time is over or its session ends (§3.1.3.2.2).
    pub(super) fn delay_will(&self, ctx: &MqttContext, key: SessionKey, will: Will, due: Timestamp) {
        let before = lock(&self.wills).insert(key, will, due);
        // A later connection has come and gone before its delay was over.
        before.iter().for_each(|will| will.cancel(ctx));
    }

    /// Waits with a will that the store has given back.
    pub(super) fn restore_will(&self, key: SessionKey, will: Will, due: Timestamp) {
        lock(&self.wills).insert(key, will, due);
    }

    /// Cancels the will of a client that has returned in time ([MQTT-3.1.3-9]). Publishes it if its delay was over when
    /// the client came.
    pub(super) fn settle_will_of(&self, ctx: &MqttContext, key: &SessionKey, came: Timestamp) {
        if lock(&self.wills).is_due(key, came) {
            return self.publish_will_of(ctx, key);
        }
        let will = lock(&self.wills).remove(key);
        will.iter().for_each(|will| will.cancel(ctx));
    }

    /// Publishes the will of a session that ended before the delay was over.
    pub(super) fn publish_will_of(&self, ctx: &MqttContext, key: &SessionKey) {
        if let Some((will, departure)) = self.take_will(key) {
            will.publish(ctx);
            self.sessions.departed(key, &departure);
        }
    }

    fn take_will(&self, key: &SessionKey) -> Option<(Will, Departure)> {
        let mut wills = lock(&self.wills);
        // Begun under the lock: who does not find the will there finds its departure.
        wills.remove(key).map(|will| (will, self.sessions.depart(key)))
    }

    /// Publishes the wills whose delay is over.
    pub(super) async fn publish_due_wills(&self, ctx: &MqttContext, now: Timestamp, portion: &mut Portion) {
        // Published without the lock.
        while let Some((key, will, departure)) = self.pop_due_will(now) {
            let deliveries = will.publish(ctx);
            self.sessions.departed(&key, &departure);
            portion.spend(deliveries).await;
        }
    }

    fn pop_due_will(&self, now: Timestamp) -> Option<(SessionKey, Will, Departure)> {
        let mut wills = lock(&self.wills);
        let (key, will) = wills.pop_due(now)?;
        let departure = self.sessions.depart(&key);
        Some((key, will, departure))
    }

    /// Room for a principal's will, if there is some.
    pub(super) fn admit_will(&self, ctx: &MqttContext, principal: &Arc<str>, bytes: usize) -> Option<WillRoom> {
        let room = self.will_room(&ctx.shared, principal, bytes);
        if let Err(NoRoom::Share) = room {
            ctx.shared.metrics.shares.refused(Table::Wills, principal, ctx.now());
        }
        room.ok()
    }

    pub(super) fn will_room(&self, shared: &Shared, principal: &Arc<str>, bytes: usize) -> Result<WillRoom, NoRoom> {
        WillRoom::take(&self.will_rooms, shared.bus.room(self.config.wills_bytes_max), principal, bytes)
    }

    /// Plans the next run of the housekeeping: when an alarm, a will or a session is due, after [`LOOK`] at the latest.
    pub(super) fn plan(&self, now: Timestamp) -> Timestamp {
        let others = lock(&self.wills).next().min(self.sessions.next_expiry()).min(now + LOOK);
        let mut alarms = lock(&self.alarms);
        let next = alarms.next(LOOK).min(others).max(now);
        self.next_look.store(next.as_millis(), Relaxed);
        next
    }

    /// Completes when an alarm was set, since the last [`plan`](Self::plan), that is due before what was planned.
    pub(super) async fn planned_earlier(&self) {
        self.earlier.notified().await;
    }

    /// Registers a connection's waker.
    pub(super) fn register(&self, waker: &Waker) -> Option<Entry> {
        lock(&self.alarms).insert(waker.clone())
    }

    /// Wakes the connection at the first tick at or after `due`, once.
    pub(super) fn set_alarm(&self, entry: Entry, due: Timestamp) {
        let mut alarms = lock(&self.alarms);
        let rings = alarms.set(entry, due);
        if rings.as_millis() < self.next_look.load(Relaxed) {
            self.earlier.notify_one();
        }
    }

    pub(super) fn unregister(&self, entry: Entry) {
        lock(&self.alarms).remove(entry);
    }

    /// Wakes every connection whose alarm is due.
    pub(super) fn ring(&self, now: Timestamp) {
        let due = lock(&self.alarms).ring(now);
        due.into_iter().for_each(Waker::wake);
    }

    /// Wakes every connection.
    pub(super) fn ring_all(&self) {
        let all = lock(&self.alarms).all();
        all.into_iter().for_each(Waker::wake);
    }
}

impl Counted for MqttDoor {
    fn counts(&self) -> Counts {
        let (logins, unfinished) = (self.logins.bytes(), self.unfinished.bytes());
        let foreign = usize::try_from(self.foreign.load(Relaxed)).unwrap_or(usize::MAX);
        Counts {
            sessions: self.sessions.len(),
            sessions_away: self.sessions.away(),
            sessions_largest_share: self.sessions.largest_share(),
            unfinished_bytes: logins + unfinished,
            gauges: vec![
                ("mqtt_wills_bytes", "Bytes of MQTT wills", self.will_rooms.bytes()),
                ("mqtt_logins_bytes", "Bytes of MQTT logins under way", logins),
                ("mqtt_unfinished_bytes", "Bytes of unfinished MQTT packets", unfinished),
                ("mqtt_foreign_records", "Records of MQTT sessions of a later release", foreign),
            ],
            ..Counts::default()
        }
    }
}
