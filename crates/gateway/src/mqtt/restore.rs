//! Sessions that the store has: put back at the start, before the listeners open (ADR 0042).

use std::{
    collections::{HashMap, hash_map::Entry},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use fogmux_auth::{ANONYMOUS, Door, Principal, SourceKind};
use fogmux_bus::{
    ClockSet, Mailbox, Message, ReadGate, SessionKey, Slot, SubscribeOptions, Subscription, Timestamp, WorkerId,
    durable::{
        RecordId, Recovered, RestoredDelivery, RestoredSession, RestoredWill, Sequence, SessionStore, Vouched, Wanted,
        session_left,
    },
};
use fogmux_mqtt::{OutboundConfig, PacketId, Version};

use super::{
    MqttDoor,
    access::Gate,
    durable::{Durable, Restamped},
    kept::{Body, Kept},
    mailbox::MqttMailbox,
    session,
    will::Will,
};
use crate::{unfinished, worker::Shared};

/// Messages that are in memory, by their records: one for all sessions that wait for it.
type Messages = HashMap<RecordId, Arc<Message>>;

/// The start, on both clocks.
#[derive(Clone, Copy)]
struct Now {
    at: Timestamp,
    unix_ms: u64,
}

impl MqttDoor {
    /// Puts back the sessions that the store has, as sessions whose clients are away.
    pub(crate) fn restore(&self, shared: &Shared) {
        let Some(store) = &self.config.store else { return };
        let Recovered { sessions, wills, losses } = Recovered::load(&**store);
        if !losses.is_none() {
            tracing::error!(?losses, "records of MQTT sessions are lost");
        }
        self.foreign.store(losses.foreign, Relaxed);
        if losses.foreign > 0 {
            let (records, others) = (losses.foreign, losses.of_foreign_session);
            tracing::warn!(
                records,
                others,
                "MQTT sessions have records of a later release, which are left as they are"
            );
        }
        let at = shared.clock.now();
        let now = Now { at, unix_ms: shared.clock.unix_ms(at) };
        let (mut messages, mut waiting, count) = (Messages::new(), 0, sessions.len());
        for restored in sessions {
            waiting += restored.deliveries.len();
            self.put_back(shared, store, restored, &mut messages, now);
        }
        wills.into_iter().for_each(|will| self.put_back_will(shared, will, now));
        tracing::info!(sessions = count, messages = waiting, "MQTT sessions are back");
    }

    fn put_back(
        &self,
        shared: &Shared,
        store: &Arc<dyn SessionStore>,
        restored: RestoredSession,
        messages: &mut Messages,
        now: Now,
    ) {
        let since = restored.away_since_unix_ms.unwrap_or(now.unix_ms);
        let left = session_left(since, restored.expiry_s, now.unix_ms);
        let will_record = restored.log.will();
        let RestoredSession { log, principal, vouched, key, away_since_unix_ms, expiry_s, .. } = restored;
        let (subscriptions, will) = (restored.subscriptions, restored.will);
        let (deliveries, released, received) = (restored.deliveries, restored.released, restored.received);
        let who = principal_of(shared, &principal, vouched);
        let gate = Arc::new(Gate::new(shared.authority.access(&who, session::client_of(&key), Door::Mqtt)));
        let account = shared.bus.memory().account(unfinished::owner(&who, NOWHERE));
        let mut mailbox = MqttMailbox::new(NOBODY, Arc::clone(&gate), self.bounds(shared), account);
        mailbox.disconnect();
        mailbox.durable = Some(Durable::restored(Arc::clone(store), log, away_since_unix_ms));
        for id in received {
            let id = PacketId::new(id.get()).unwrap_or(PacketId::FIRST);
            mailbox.received.insert(id, usize::from(u16::MAX));
        }
        mailbox.restore(exchanges(&**store, deliveries, released, messages, now), now.at);
        mailbox.drop_expired(now.at);
        if away_since_unix_ms.is_none() {
            // Or its time would begin again at each start.
            mailbox.leave_store(now.unix_ms, expiry_s, will.is_some());
        }
        shared.bus.counters().restored(u64::try_from(Mailbox::waiting(&mailbox)).unwrap_or_default());
        let slot = shared.bus.slot(mailbox, WorkerId(0));
        // All that it holds counts from now on, with a subscription or without, whether its client comes back or not.
        slot.with(|_| ());
        for (subscription, wanted) in subscriptions {
            self.subscribe_again(shared, &slot, subscription, wanted, &gate);
        }
        self.sessions.restore(key.clone(), principal, Arc::clone(&slot), left.map(|left| now.at + left));
        if let (Some((delay, stored)), Some((record, _))) = (will, will_record) {
            let will = Will::restored(self, shared, stored, &gate, (Some(slot), record));
            // It is published at the end of its session at the latest (§3.1.3.2.2).
            let delay = restored_delay(delay, away_since_unix_ms, now.unix_ms);
            let due = now.at + left.map_or(delay, |left| delay.min(left));
            self.restore_will(key, will, due);
        }
    }

    /// A will that was being published when the process ended: its session is over, or has another connection.
    fn put_back_will(&self, shared: &Shared, RestoredWill { record, message }: RestoredWill, now: Now) {
        let who = principal_named(shared, &message.principal);
        let gate = Arc::new(Gate::new(shared.authority.access(&who, Arc::clone(&message.client), Door::Mqtt)));
        let will = Will::restored(self, shared, message, &gate, (None, record));
        // The key of no session: those begin with a client identifier, and that has no NUL ([MQTT-1.5.4-2]).
        self.restore_will(SessionKey(Arc::from(format!("\0{}", record.0))), will, now.at);
    }

    fn subscribe_again(
        &self,
        shared: &Shared,
        slot: &Arc<Slot<MqttMailbox>>,
        subscription: Subscription,
        wanted: Wanted,
        gate: &Arc<Gate>,
    ) {
        let Wanted { max_qos, no_local, retain_as_published, id } = wanted;
        let gate: Arc<dyn ReadGate> = Arc::<Gate>::clone(gate);
        let tag = session::tag(&subscription);
        let options = SubscribeOptions { tag, max_qos, no_local, retain_as_published, id, gate: Some(gate) };
        if shared.bus.subscribe(slot, &subscription, options).is_err() {
            tracing::warn!("there is no room for a subscription of an MQTT session");
            return;
        }
        // As many as it had before, whatever the bounds are now.
        slot.with(|mailbox| mailbox.subscriptions.get_or_insert_default().admit(&subscription, usize::MAX, usize::MAX));
    }
}

impl MqttDoor {
    /// Brings the ends of sessions whose clients are away in line with a clock that was set.
    pub(super) fn restamp(&self, clock: ClockSet, now: Timestamp) {
        let now_unix_ms = clock.origin_unix_ms.saturating_add(now.as_millis());
        for (key, slot) in self.sessions.all() {
            if let Restamped::Left(left) = slot.with(|mailbox| mailbox.restamp(clock, now_unix_ms)) {
                self.sessions.expire_at(&key, &slot, left.map(|left| now + left));
            }
        }
    }
}

/// The address of a client that has none yet.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The limits of a client that is not there. The next one brings its own.
const NOBODY: OutboundConfig =
    OutboundConfig { version: Version::V5, window: 1, packet_bytes_max: usize::MAX, topic_alias_maximum: 0 };

/// The principal of a session, until its client returns with a credential: as the last one that it has shown says,
/// under the present rules and sources.
fn principal_of(shared: &Shared, name: &Arc<str>, vouched: Option<Vouched>) -> Principal {
    let source = vouched.as_ref().and_then(|vouched| SourceKind::named(&vouched.source));
    match (source, vouched) {
        (Some(source), Some(vouched)) => Principal::returned(name, source, vouched.groups.iter().cloned()),
        _ => principal_named(shared, name),
    }
}

/// The principal with a name, until its client returns with a credential.
fn principal_named(shared: &Shared, name: &Arc<str>) -> Principal {
    if **name == *ANONYMOUS {
        return Principal::anonymous();
    }
    shared.authority.principal(name).unwrap_or_else(|| Principal::user(name, []))
}

/// The time until a will is due, from the end of its connection or from the start if that was not noted.
fn restored_delay(seconds: u32, away_since_unix_ms: Option<u64>, now_unix_ms: u64) -> Duration {
    let whole = Duration::from_secs(u64::from(seconds));
    let passed = away_since_unix_ms.map_or(0, |since| now_unix_ms.saturating_sub(since));
    whole.saturating_sub(Duration::from_millis(passed))
}

/// Unfinished exchanges in the order of their numbers. Messages stay in the store, but for those of shared
/// subscriptions: they may have to go to another member at any moment.
fn exchanges(
    store: &dyn SessionStore,
    deliveries: Vec<RestoredDelivery>,
    released: Vec<Sequence>,
    messages: &mut Messages,
    now: Now,
) -> impl Iterator<Item = (Sequence, Option<(Kept, bool)>)> {
    let mut here = |id| match messages.entry(id) {
        Entry::Occupied(message) => Some(Arc::clone(message.get())),
        Entry::Vacant(place) => {
            let message = Arc::new(store.read(id)?.restore(now.at, now.unix_ms));
            Some(Arc::clone(place.insert(message)))
        }
    };
    let deliveries = deliveries.into_iter().map(|restored| {
        let RestoredDelivery { stored, message, manner, may_be_sent } = restored;
        let (sequence, qos) = (stored.sequence(), manner.qos);
        let (retain, ids, share) = (manner.retain, manner.ids, manner.share);
        let of_group = if share == 0 { None } else { here(stored.message()) };
        let away = || Body::away(message.bytes, message.expires_at(now.at, now.unix_ms));
        let body = of_group.map_or_else(away, Body::Here);
        let kept = Kept { body, qos, retain, timed: false, ids, share, stored: Some(Box::new(stored)) };
        (sequence, Some((kept, may_be_sent)))
    });
    let mut all: Vec<_> = deliveries.chain(released.into_iter().map(|sequence| (sequence, None))).collect();
    all.sort_by_key(|(sequence, _)| *sequence);
    all.into_iter()
}
