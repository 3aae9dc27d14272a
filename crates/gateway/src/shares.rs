//! Refusals in tables that all principals share (ADR 0031, ADR 0036): counters, and a log line that names whose it was.

use std::net::SocketAddr;

use fogmux_bus::Timestamp;
use fogmux_fair::Owner;

use crate::{metrics::Counter, shown::shown_client, throttle::Throttle};

/// A table of the doors with a share for each principal. The bus counts those of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// MQTT sessions.
    Sessions,
    /// MQTT wills.
    Wills,
    /// CoAP observations.
    Observations,
    /// Nodes of XMPP, and their bytes.
    Nodes,
    /// Bytes of the subscriptions of XMPP.
    XmppSubscriptions,
    /// Event streams of HTTP.
    EventStreams,
    /// Looks at retained messages for lists over CoAP.
    CoapLists,
    /// Answers over CoAP that wait for the disk.
    CoapPending,
    /// Unfinished MQTT logins.
    MqttLogins,
    /// Unfinished MQTT packets.
    MqttPackets,
    /// Unfinished block-wise uploads over CoAP.
    CoapUploads,
    /// Representations that CoAP clients fetch in blocks.
    CoapDownloads,
    /// Messages that wait for CoAP observers.
    CoapNotifications,
    /// Unfinished request bodies of HTTP.
    HttpUploads,
    /// Answers of HTTP that clients have yet to take.
    HttpAnswers,
    /// Unfinished stanzas of XMPP.
    XmppStanzas,
    /// Idempotency keys of HTTP.
    IdempotencyKeys,
    /// TLS handshakes under way.
    TlsHandshakes,
}

/// The tables in which entries are refused.
const REFUSING: [Table; 9] = [
    Table::Sessions,
    Table::Wills,
    Table::Observations,
    Table::Nodes,
    Table::XmppSubscriptions,
    Table::EventStreams,
    Table::CoapLists,
    Table::CoapPending,
    Table::IdempotencyKeys,
];

/// The tables in which entries end for those of others.
const GIVING_WAY: [Table; 12] = [
    Table::Sessions,
    Table::EventStreams,
    Table::MqttLogins,
    Table::MqttPackets,
    Table::CoapUploads,
    Table::CoapDownloads,
    Table::CoapNotifications,
    Table::HttpUploads,
    Table::HttpAnswers,
    Table::XmppStanzas,
    Table::IdempotencyKeys,
    Table::TlsHandshakes,
];

impl Table {
    const fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Wills => "wills",
            Self::Observations => "observations",
            Self::Nodes => "nodes",
            Self::XmppSubscriptions => "xmpp_subscriptions",
            Self::EventStreams => "event_streams",
            Self::CoapLists => "coap_lists",
            Self::CoapPending => "coap_pending",
            Self::MqttLogins => "mqtt_logins",
            Self::MqttPackets => "mqtt_packets",
            Self::CoapUploads => "coap_uploads",
            Self::CoapDownloads => "coap_downloads",
            Self::CoapNotifications => "coap_notifications",
            Self::HttpUploads => "http_uploads",
            Self::HttpAnswers => "http_answers",
            Self::XmppStanzas => "xmpp_stanzas",
            Self::IdempotencyKeys => "idempotency_keys",
            Self::TlsHandshakes => "tls_handshakes",
        }
    }
}

/// Counters of what principals were refused, or lost, for the sake of others.
#[derive(Debug, Default)]
pub struct ShareMetrics {
    refused: PerTable,
    gave_way: PerTable,
    log: Throttle,
}

/// A counter for each table.
#[derive(Debug, Default)]
struct PerTable([Counter; 18]);

impl PerTable {
    fn add(&self, table: Table, count: u64) {
        if let Some(counter) = self.0.get(table as usize) {
            counter.add(count);
        }
    }

    fn get(&self, table: Table) -> u64 {
        self.0.get(table as usize).map_or(0, Counter::get)
    }
}

impl ShareMetrics {
    /// Counts a refusal, and logs whose it was, a line a second at most.
    pub(crate) fn refused(&self, table: Table, principal: &str, now: Timestamp) {
        self.refused.add(table, 1);
        if let Some(suppressed) = self.log.admit(now) {
            let table = table.name();
            tracing::warn!(table, principal, suppressed, "a table is nearly full, and its rest is reserved for others");
        }
    }

    /// The same for an owner that may have no name.
    pub(crate) fn refused_owner(&self, table: Table, owner: &Owner, now: Timestamp) {
        self.refused.add(table, 1);
        if let Some(suppressed) = self.log.admit(now) {
            let (table, owner) = (table.name(), owner.to_string());
            tracing::warn!(table, owner, suppressed, "a table is nearly full, and its rest is reserved for others");
        }
    }

    /// Counts a session that gave way, and logs whose it was, a line a second at most.
    pub(crate) fn session_gave_way(&self, principal: &str, client: &str, now: Timestamp) {
        self.gave_way.add(Table::Sessions, 1);
        if let Some(suppressed) = self.log.admit(now) {
            let client = shown_client(client);
            tracing::warn!(principal, client, suppressed, "an MQTT session gave way to one of another principal");
        }
    }

    /// Logs a DTLS session that gave way, and whose it was, a line a second at most. The metrics count them by reason.
    pub(crate) fn dtls_session_gave_way(&self, principal: &str, peer: SocketAddr, now: Timestamp) {
        if let Some(suppressed) = self.log.admit(now) {
            tracing::warn!(principal, %peer, suppressed, "the table of DTLS sessions is full, and a session gave way to another");
        }
    }

    /// Sessions that gave way.
    pub(crate) fn sessions_gave_way(&self) -> u64 {
        self.gave_way.get(Table::Sessions)
    }

    /// Counts an event stream without a reader that gave way.
    pub(crate) fn event_stream_gave_way(&self) {
        self.gave_way.add(Table::EventStreams, 1);
    }

    /// Counts entries that gave way, and logs whose the last one was, a line a second at most.
    pub(crate) fn gave_way(&self, table: Table, owner: &Owner, count: u64, now: Timestamp) {
        self.gave_way.add(table, count);
        if let Some(suppressed) = self.log.admit(now) {
            let (table, owner) = (table.name(), owner.to_string());
            tracing::warn!(table, owner, suppressed, "a table is full, and an entry of who has most gave way");
        }
    }

    /// Every table with the count of its refusals.
    pub(crate) fn each_refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REFUSING.into_iter().map(|table| (table.name(), self.refused.get(table)))
    }

    /// Every table with the count of entries that gave way.
    pub(crate) fn each_gave_way(&self) -> impl Iterator<Item = (&'static str, u64)> {
        GIVING_WAY.into_iter().map(|table| (table.name(), self.gave_way.get(table)))
    }
}
