//! Counters of the doors, shown at `/metrics`. The bus and the store have counters of their own.

use std::sync::{
    OnceLock,
    atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

use fogmux_store::FjallStore;

use crate::shares::ShareMetrics;

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

/// The counters of one door.
#[derive(Debug, Default)]
pub struct DoorMetrics {
    /// Open connections. For CoAP: stream connections, DTLS sessions, and plain UDP endpoints that observe something.
    pub connections: Gauge,
    /// Connections ever accepted.
    pub accepted: Counter,
    /// Connections refused by a limit before they could send anything.
    pub rejected: Counter,
    /// Logins refused.
    pub unauthenticated: Counter,
    /// Reads, writes and subscriptions refused by a rule.
    pub unauthorized: Counter,
    /// Peers that broke the protocol.
    pub misbehaved: Counter,
    /// Peers cut because they read nothing, sent nothing, or were too slow.
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
    /// They read nothing of the output for them.
    pub stalled: Counter,
    /// They sent nothing for one and a half times their keep alive.
    pub silent: Counter,
    /// Their host did not acknowledge TCP segments.
    pub unreachable: Counter,
}

/// Counters that only MQTT has.
#[derive(Debug, Default)]
pub struct MqttMetrics {
    /// CONNECT packets.
    pub connects: Counter,
    /// Control packets other than PUBLISH that were read.
    pub control_in: Counter,
    /// Control packets other than PUBLISH and DISCONNECT that were sent.
    pub control_out: Counter,
    /// Logins that ended because all logins under way together held too much.
    pub logins_gave_way: Counter,
    /// Sessions that expired.
    pub expired_sessions: Counter,
}

/// Reloads by SIGHUP, by outcome.
#[derive(Debug, Default)]
pub struct Reloads {
    /// Everything was put in place.
    pub applied: Counter,
    /// A part was not; the log says which.
    pub partial: Counter,
    /// Nothing was, because something does not hold.
    pub refused: Counter,
}

/// The counters of all doors.
#[derive(Debug, Default)]
pub struct Metrics {
    /// MQTT, also over WebSocket.
    pub mqtt: DoorMetrics,
    /// MQTT clients that were disconnected.
    pub mqtt_cut: MqttCut,
    /// Counters that only MQTT has.
    pub mqtt_only: MqttMetrics,
    /// CoAP.
    pub coap: DoorMetrics,
    /// Messages over DTLS that were not sent because the peer takes no record that large.
    pub coap_too_long: Counter,
    /// Bytes of unfinished uploads over CoAP.
    pub coap_uploads_bytes: Gauge,
    /// HTTP.
    pub http: DoorMetrics,
    /// XMPP.
    pub xmpp: DoorMetrics,
    /// Refusals in tables that all principals share.
    pub shares: ShareMetrics,
    /// Reloads by SIGHUP.
    pub reloads: Reloads,
    /// Tasks that slept on output that they could have sent. Checked in debug builds only, and 0 if all is well.
    pub missed_wakes: Counter,
    /// The store on disk, if there is one, which has its own counters.
    pub store: OnceLock<FjallStore>,
}
