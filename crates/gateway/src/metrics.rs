//! Counters of the doors, shown at `/metrics`. The bus and the store have counters of their own.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, UNIX_EPOCH},
};

use fogmux_auth::Door;
use fogmux_net::{
    InUse, Profile, Role, TlsConfig,
    pki::{self, rollover::Phase},
};
use fogmux_store::JournalStore;

pub use crate::counter::{Counter, Gauge};
use crate::{
    delivery_times::AllDeliveryTimes, handshake_failures::HandshakeFailures, listener::Listen, shares::ShareMetrics,
};

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

/// DTLS sessions that ended because the table was full, by reason.
#[derive(Debug, Default)]
pub struct DtlsEvicted {
    /// Their principal had most.
    pub principal: Counter,
    /// From their address there were too many.
    pub address: Counter,
    /// They had no credential.
    pub anonymous: Counter,
    /// They had rested long, and no principal had more than one.
    pub rest: Counter,
}

/// Answers to those who look for this gateway on the network.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Sent.
    pub answered: Counter,
    /// Not sent: there was nothing to tell, too much was asked, or somebody asked who is on another network.
    pub suppressed: Counter,
}

/// Certificates of an ACME server.
#[derive(Debug, Default)]
pub struct Acme {
    /// Certificates that were issued.
    pub issued: Counter,
    /// Attempts to have one issued that failed.
    pub failures: Counter,
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

/// The values of a door that it computes when they are read.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Sessions, with and without a connection.
    pub sessions: usize,
    /// Sessions without a connection.
    pub sessions_away: usize,
    /// Sessions of the principal that has most.
    pub sessions_largest_share: usize,
    /// Bytes of input that clients have begun to send and not finished, and of answers that they have yet to take.
    pub unfinished_bytes: usize,
    /// Bytes of what outlives connections.
    pub kept_bytes: usize,
    /// Tables with what the principal has of them that has most.
    pub largest: Vec<(&'static str, usize)>,
    /// Gauges of its own: name, description and value.
    pub gauges: Vec<(&'static str, &'static str, usize)>,
}

/// A door that computes values when they are read.
pub trait Counted: fmt::Debug + Send + Sync {
    /// Computes them.
    fn counts(&self) -> Counts;
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
    /// CoAP messages that were not sent because the peer takes no message, or no DTLS record, that large.
    pub coap_too_long: Counter,
    /// DTLS sessions that ended for others.
    pub dtls_evicted: DtlsEvicted,
    /// Bytes of unfinished uploads over CoAP.
    pub coap_uploads_bytes: Gauge,
    /// Large messages for CoAP observers that are not retained, of which the rest went before it was fetched.
    pub coap_events_lost: Counter,
    /// Requests to the groups of CoAP nodes.
    pub coap_groups: Discovery,
    /// Queries of multicast DNS.
    pub mdns: Discovery,
    /// HTTP.
    pub http: DoorMetrics,
    /// XMPP.
    pub xmpp: DoorMetrics,
    /// Handshakes that failed.
    pub handshakes: HandshakeFailures,
    /// Times of deliveries.
    pub deliveries: AllDeliveryTimes,
    /// Refusals in tables that all principals share.
    pub shares: ShareMetrics,
    /// Certificates of an ACME server.
    pub acme: Acme,
    /// Reloads by SIGHUP.
    pub reloads: Reloads,
    /// Lines of the log that were left out because their place in the program had written too many.
    pub lines_unlogged: Counter,
    /// Lines of the log that standard error did not take.
    pub lines_lost: Counter,
    /// Tasks that slept on output that they could have sent. Checked in debug builds only, and 0 if all is well.
    pub missed_wakes: Counter,
    /// The store on disk, if there is one, which has its own counters.
    pub store: OnceLock<JournalStore>,
    /// The doors that compute values when they are read.
    pub counted: Vec<Arc<dyn Counted>>,
    /// The certificates of listeners.
    pub certificates: Certificates,
}

/// Where the certificates of listeners are found when their dates are read.
#[derive(Debug, Default)]
pub struct Certificates {
    tls: Option<TlsConfig>,
    listeners: Vec<(Arc<str>, &'static Profile)>,
}

impl Certificates {
    /// Of those listeners that have one.
    #[must_use]
    pub fn of<'a>(listen: impl Iterator<Item = &'a Listen>, tls: Option<&TlsConfig>) -> Self {
        let with_one = listen.filter(|listen| listen.listener.has_certificate());
        let listeners = with_one.map(|listen| (Arc::clone(&listen.name), listen.security.profile));
        let mut encrypted: Vec<_> = listeners.filter(|(_, profile)| profile.is_encrypted() && !profile.psk).collect();
        // Of several addresses one name is left.
        encrypted.dedup_by(|one, other| one.0 == other.0);
        Self { tls: tls.cloned(), listeners: encrypted }
    }

    /// Everything that handshakes need; `None` if no listener has a certificate.
    #[cfg(feature = "http")]
    pub(crate) const fn tls(&self) -> Option<&TlsConfig> {
        self.tls.as_ref()
    }

    /// Whether the wall clock shows a time at which there was no gateway, or one before a certificate of the server's
    /// own became valid.
    pub(crate) fn is_clock_behind(&self, now_unix_s: u64) -> bool {
        let is_early = |one: &InUse| one.role != Role::ClientAuthority && now_unix_s < one.dates.not_before_unix_s;
        !pki::is_believable(UNIX_EPOCH + Duration::from_secs(now_unix_s))
            || self.tls.iter().flat_map(TlsConfig::in_use).any(|one| is_early(&one))
    }

    /// When the certificate of an ACME server expires, in seconds since 1970; `None` without one.
    #[must_use]
    pub fn of_acme_unix_s(&self) -> Option<u64> {
        Some(self.tls.as_ref()?.named()?.dates()?.not_after_unix_s)
    }

    /// When the gateway's own authority ends, or both in a rollover: subjects, and seconds since 1970.
    #[must_use]
    pub fn authorities_not_after_unix_s(&self) -> Vec<(String, u64)> {
        let dates = self.tls.iter().flat_map(TlsConfig::own_authority_dates);
        dates.map(|dates| (dates.subject, dates.not_after_unix_s)).collect()
    }

    /// How far a rollover of that authority is; `None` if none is under way.
    #[must_use]
    pub fn rollover(&self) -> Option<Phase> {
        self.tls.as_ref()?.rollover().map(|rollover| rollover.phase)
    }

    /// When the certificate of each listener expires, in seconds since 1970.
    pub fn not_after_unix_s(&self) -> impl Iterator<Item = (&str, u64)> {
        let all = self.listeners.iter();
        all.filter_map(|(name, profile)| Some((&**name, self.tls.as_ref()?.not_after_unix_s(profile)?)))
    }
}

impl Metrics {
    /// The counters of a door.
    #[must_use]
    pub const fn of(&self, door: Door) -> &DoorMetrics {
        match door {
            Door::Mqtt => &self.mqtt,
            Door::Coap => &self.coap,
            Door::Http => &self.http,
            Door::Xmpp => &self.xmpp,
        }
    }

    /// The computed values of all doors together.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let each = self.counted.iter().map(|door| door.counts());
        each.fold(Counts::default(), |mut all, door| {
            all.sessions += door.sessions;
            all.sessions_away += door.sessions_away;
            all.sessions_largest_share = all.sessions_largest_share.max(door.sessions_largest_share);
            all.unfinished_bytes += door.unfinished_bytes;
            all.kept_bytes += door.kept_bytes;
            all.largest.extend(door.largest);
            all.gauges.extend(door.gauges);
            all
        })
    }
}
