//! What is counted at the doors; the bus counts for itself. Doors add to these as they go, `/metrics` reads them.

use std::sync::{
    OnceLock,
    atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

use fogmux_store::FjallStore;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// How many.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Up or down.
    pub fn change(&self, by: i64) {
        self.0.fetch_add(by, Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// What one door counts.
#[derive(Debug, Default)]
pub struct DoorMetrics {
    /// Connections open now. CoAP: connections, DTLS sessions, and over plain UDP endpoints that observe something.
    pub connections: Gauge,
    /// Connections ever accepted.
    pub accepted: Counter,
    /// Connections turned away by a limit before they could speak.
    pub rejected: Counter,
    /// Logins refused.
    pub unauthenticated: Counter,
    /// Reads, writes and subscriptions refused by a rule.
    pub unauthorized: Counter,
    /// Peers that broke the protocol.
    pub misbehaved: Counter,
    /// Peers cut because they took nothing, sent nothing, or were too slow.
    pub timed_out: Counter,
    /// Bytes read.
    pub bytes_in: Counter,
    /// Bytes written.
    pub bytes_out: Counter,
}

/// MQTT clients that were disconnected because they were too slow, by reason.
#[derive(Debug, Default)]
pub struct MqttCut {
    /// Their queue of QoS 1 and 2 messages was full.
    pub queue_full: Counter,
    /// They took nothing of what there was for them.
    pub stalled: Counter,
    /// They sent nothing for one and a half times their keep alive.
    pub silent: Counter,
    /// Their host acknowledged no byte on the level of TCP.
    pub unreachable: Counter,
}

/// What only MQTT has.
#[derive(Debug, Default)]
pub struct MqttMetrics {
    /// CONNECT packets.
    pub connects: Counter,
    /// Control packets other than PUBLISH that were read.
    pub control_in: Counter,
    /// Control packets other than PUBLISH that were answered with; no DISCONNECT.
    pub control_out: Counter,
    /// Sessions that expired.
    pub expired_sessions: Counter,
}

/// All doors.
#[derive(Debug, Default)]
pub struct Metrics {
    /// MQTT, also over WebSocket.
    pub mqtt: DoorMetrics,
    /// MQTT clients that were disconnected.
    pub mqtt_cut: MqttCut,
    /// What only MQTT counts.
    pub mqtt_only: MqttMetrics,
    /// CoAP.
    pub coap: DoorMetrics,
    /// HTTP.
    pub http: DoorMetrics,
    /// XMPP.
    pub xmpp: DoorMetrics,
    /// Tasks that slept on output that they could have sent; looked for in debug builds only, and 0 if all is well.
    pub missed_wakes: Counter,
    /// The store, if there is one on disk; it counts for itself.
    pub store: OnceLock<FjallStore>,
}
