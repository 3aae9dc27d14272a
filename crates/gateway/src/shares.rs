//! Refusals in tables that all principals share (ADR 0031): counters, and a log line that names the principal.

use fogmux_bus::Timestamp;

use crate::{metrics::Counter, throttle::Throttle};

/// A table of the doors with a share for each principal. The bus counts those of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// MQTT sessions.
    Sessions,
    /// MQTT wills.
    Wills,
    /// CoAP observations.
    Observations,
    /// Nodes of XMPP.
    Nodes,
    /// Event streams of HTTP.
    EventStreams,
}

impl Table {
    const fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Wills => "wills",
            Self::Observations => "observations",
            Self::Nodes => "nodes",
            Self::EventStreams => "event_streams",
        }
    }
}

/// Counters of what principals were refused, or lost, for the sake of others.
#[derive(Debug, Default)]
pub struct ShareMetrics {
    sessions: Counter,
    wills: Counter,
    observations: Counter,
    nodes: Counter,
    event_streams: Counter,
    /// MQTT sessions that ended so that another principal got a place or a name.
    pub(crate) sessions_gave_way: Counter,
    /// Event streams without a reader that did.
    pub(crate) event_streams_gave_way: Counter,
    log: Throttle,
}

impl ShareMetrics {
    const fn counter(&self, table: Table) -> &Counter {
        match table {
            Table::Sessions => &self.sessions,
            Table::Wills => &self.wills,
            Table::Observations => &self.observations,
            Table::Nodes => &self.nodes,
            Table::EventStreams => &self.event_streams,
        }
    }

    /// Counts a refusal, and logs whose it was, a line a second at most.
    pub(crate) fn refused(&self, table: Table, principal: &str, now: Timestamp) {
        self.counter(table).increment();
        if let Some(suppressed) = self.log.admit(now) {
            let table = table.name();
            tracing::warn!(table, principal, suppressed, "a table is nearly full, and its rest is reserved for others");
        }
    }

    /// Counts a session that gave way, and logs whose it was, a line a second at most.
    pub(crate) fn session_gave_way(&self, principal: &str, client: &str, now: Timestamp) {
        self.sessions_gave_way.increment();
        if let Some(suppressed) = self.log.admit(now) {
            tracing::warn!(principal, client, suppressed, "an MQTT session gave way to one of another principal");
        }
    }

    /// Every table with its count.
    pub(crate) fn each(&self) -> [(&'static str, u64); 5] {
        let tables = [Table::Sessions, Table::Wills, Table::Observations, Table::Nodes, Table::EventStreams];
        tables.map(|table| (table.name(), self.counter(table).get()))
    }
}
