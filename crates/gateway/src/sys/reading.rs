//! A reading of all counters, and its texts.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use fogmux_bus::{Door, Timestamp};

use super::{load::RATES, seconds};
use crate::{Shared, metrics::DoorMetrics};

/// The values of one moment. All doors together are what Mosquitto calls the broker.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) uptime: Duration,
    pub(super) doors: [DoorReading; 4],
    pub(super) mqtt_sessions: u64,
    /// MQTT sessions without a connection.
    pub(super) away: u64,
    pub(super) expired: u64,
    pub(super) published: u64,
    pub(super) published_bytes: u64,
    pub(super) delivered: u64,
    pub(super) delivered_bytes: u64,
    /// Messages dropped for lack of room, as Mosquitto counts them.
    pub(super) dropped: u64,
    /// MQTT control packets other than PUBLISH.
    pub(super) control_in: u64,
    pub(super) control_out: u64,
    pub(super) connects: u64,
    pub(super) retained: u64,
    pub(super) retained_bytes: u64,
    pub(super) subscriptions: u64,
    pub(super) shared_subscriptions: u64,
    /// The resident set and its peak stand for Mosquitto's count of its heap.
    pub(super) resident_bytes: u64,
    pub(super) resident_bytes_max: u64,
    /// MQTT sessions that gave way to those of other principals, and refusals for the sake of others.
    pub(super) gave_way: u64,
    pub(super) share_refused: u64,
    /// Counters of the bus below `$SYS/fogmux/bus/`.
    pub(super) bus: Vec<(&'static str, u64)>,
}

/// The counters of one door.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DoorReading {
    pub(super) connections: u64,
    accepted: u64,
    rejected: u64,
    unauthenticated: u64,
    unauthorized: u64,
    misbehaved: u64,
    timed_out: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl DoorReading {
    fn of(metrics: &DoorMetrics) -> Self {
        Self {
            connections: u64::try_from(metrics.connections.get()).unwrap_or(0),
            accepted: metrics.accepted.get(),
            rejected: metrics.rejected.get(),
            unauthenticated: metrics.unauthenticated.get(),
            unauthorized: metrics.unauthorized.get(),
            misbehaved: metrics.misbehaved.get(),
            timed_out: metrics.timed_out.get(),
            bytes_in: metrics.bytes_in.get(),
            bytes_out: metrics.bytes_out.get(),
        }
    }

    const fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("connections", self.connections),
            ("accepted", self.accepted),
            ("rejected", self.rejected),
            ("unauthenticated", self.unauthenticated),
            ("unauthorized", self.unauthorized),
            ("misbehaved", self.misbehaved),
            ("timed_out", self.timed_out),
            ("bytes/received", self.bytes_in),
            ("bytes/sent", self.bytes_out),
        ]
    }
}

impl Reading {
    /// Reads everything.
    pub(super) fn of(shared: &Shared, now: Timestamp) -> Self {
        let (bus, metrics) = (&shared.bus, &shared.metrics);
        let (count, computed) = (bus.counters(), metrics.counts());
        let doors = Door::ALL.map(|door| DoorReading::of(metrics.of(door)));
        let (retained, retained_bytes) = bus.retained_size();
        Self {
            uptime: now.since(Timestamp::ZERO),
            doors,
            mqtt_sessions: wide(computed.sessions),
            away: wide(computed.sessions_away),
            expired: metrics.mqtt_only.expired_sessions.get(),
            published: count.published.load(Relaxed),
            published_bytes: count.published_bytes.load(Relaxed),
            delivered: count.delivered.load(Relaxed),
            delivered_bytes: count.delivered_bytes.load(Relaxed),
            dropped: count.dropped_full.load(Relaxed) + count.dropped_too_large.load(Relaxed),
            control_in: metrics.mqtt_only.control_in.get(),
            control_out: metrics.mqtt_only.control_out.get(),
            connects: metrics.mqtt_only.connects.get(),
            retained: wide(retained),
            retained_bytes: wide(retained_bytes),
            subscriptions: wide(bus.subscriptions()),
            shared_subscriptions: wide(bus.shared_subscriptions()),
            resident_bytes: fogmux_memory::resident_bytes().unwrap_or(0),
            resident_bytes_max: fogmux_memory::resident_bytes_max().unwrap_or(0),
            gave_way: metrics.shares.sessions_gave_way(),
            share_refused: metrics.shares.each_refused().map(|(_, refused)| refused).sum::<u64>()
                + count.share_retained.load(Relaxed)
                + count.share_subscriptions.load(Relaxed),
            bus: vec![
                ("mailbox_bytes", wide(bus.memory().held())),
                ("dropped_full", count.dropped_full.load(Relaxed)),
                ("dropped_expired", count.dropped_expired.load(Relaxed)),
                ("dropped_too_large", count.dropped_too_large.load(Relaxed)),
                ("dropped_gone", count.dropped_gone.load(Relaxed)),
                ("conflated", count.conflated.load(Relaxed)),
                ("refused", count.refused.load(Relaxed)),
                ("unmatched", count.unmatched.load(Relaxed)),
            ],
        }
    }

    fn connected(&self) -> u64 {
        self.doors.iter().map(|door| door.connections).sum()
    }

    /// Clients of all doors, MQTT sessions without a connection included.
    pub(super) fn clients(&self) -> u64 {
        self.connected() + self.away
    }

    fn bytes(&self) -> (u64, u64) {
        let sum = |of: fn(&DoorReading) -> u64| self.doors.iter().map(of).sum();
        (sum(|door| door.bytes_in), sum(|door| door.bytes_out))
    }

    /// The totals whose load averages are published, in the order of [`RATES`].
    pub(super) fn rates(&self) -> [u64; RATES.len()] {
        let (bytes_in, bytes_out) = self.bytes();
        [
            self.published + self.control_in,
            self.delivered + self.control_out,
            self.dropped,
            self.published,
            self.delivered,
            bytes_in,
            bytes_out,
            self.doors.iter().map(|door| door.accepted).sum(),
            self.connects,
        ]
    }

    /// Each topic below `$SYS/` with its text.
    pub(super) fn texts(&self) -> Vec<(String, String)> {
        let mut texts = vec![
            ("broker/version".into(), concat!("fogmux version ", env!("CARGO_PKG_VERSION")).into()),
            ("broker/uptime".into(), seconds(self.uptime)),
            ("fogmux/mqtt/sessions".into(), self.mqtt_sessions.to_string()),
            ("fogmux/mqtt/sessions/gave_way".into(), self.gave_way.to_string()),
            ("fogmux/share/refused".into(), self.share_refused.to_string()),
        ];
        texts.extend(self.broker().map(|(name, value)| (format!("broker/{name}"), value.to_string())));
        for (door, reading) in Door::ALL.into_iter().zip(&self.doors) {
            let named = reading.named().into_iter();
            texts.extend(named.map(|(name, value)| (format!("fogmux/{}/{name}", door.name()), value.to_string())));
        }
        texts.extend(self.bus.iter().map(|(name, value)| (format!("fogmux/bus/{name}"), value.to_string())));
        texts
    }

    /// Mosquitto's numbers. It has two generations of names for clients, and its "store" are the retained messages.
    fn broker(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let (bytes_in, bytes_out) = self.bytes();
        let [messages_in, messages_out, ..] = self.rates();
        [
            ("clients/total", self.clients()),
            ("clients/connected", self.connected()),
            ("clients/active", self.connected()),
            ("clients/disconnected", self.away),
            ("clients/inactive", self.away),
            ("clients/expired", self.expired),
            ("messages/received", messages_in),
            ("messages/sent", messages_out),
            ("messages/stored", self.retained),
            ("store/messages/count", self.retained),
            ("store/messages/bytes", self.retained_bytes),
            ("retained messages/count", self.retained),
            ("subscriptions/count", self.subscriptions),
            ("shared_subscriptions/count", self.shared_subscriptions),
            ("publish/messages/received", self.published),
            ("publish/messages/sent", self.delivered),
            ("publish/messages/dropped", self.dropped),
            ("publish/bytes/received", self.published_bytes),
            ("publish/bytes/sent", self.delivered_bytes),
            ("bytes/received", bytes_in),
            ("bytes/sent", bytes_out),
            ("heap/current", self.resident_bytes),
            ("heap/maximum", self.resident_bytes_max),
        ]
        .into_iter()
    }
}

fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
