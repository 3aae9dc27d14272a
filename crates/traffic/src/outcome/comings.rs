//! Clients that leave and come back.

use serde::{Deserialize, Serialize};

use super::{Bytes, ProcessUse};
use crate::measure::latency::Latency;

/// Counts of leaving and coming back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comings {
    /// Times that a client left.
    pub left: u64,
    /// Times that one was back: connected and, in the case of a subscriber, with its subscription confirmed.
    pub returned: u64,
    /// Attempts to come back that failed, each followed by another.
    pub failed: u64,
    /// From leaving to being back.
    pub away: Latency,
    /// Of connecting again, as `connect` of the outcome.
    pub connect: Latency,
    /// The bytes of connecting again.
    pub connect_bytes: Bytes,
    /// Where all left at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storm: Option<Storm>,
}

/// All clients left at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Storm {
    /// When, in seconds since the measurement began.
    pub at_s: f64,
    /// Until all were back, in seconds; none: they never were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_back_s: Option<f64>,
    /// Deliveries that were still to come when all left; most are lost with the connections.
    #[serde(default)]
    pub under_way: u64,
    /// Messages that were published meanwhile, once for each subscriber that should have received them.
    pub expected: u64,
    /// Different ones of these that arrived, then or later.
    pub delivered: u64,
    /// Those that arrived again.
    pub duplicates: u64,
    /// The processor time of the gateway meanwhile, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_cpu_us: Option<f64>,
}

impl Storm {
    /// Messages of that time that never arrived.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.expected.saturating_sub(self.delivered)
    }
}

impl Comings {
    /// Bytes of both connecting for the first time and again are not those of the steady state.
    pub(crate) fn without(&self, bytes: Bytes) -> Bytes {
        Bytes { wire: bytes.wire, ..bytes.since(self.connect_bytes) }
    }

    /// The processor time of the gateway in a storm, from what it had used at its beginning and at its end.
    pub(crate) fn cpu_us(from: Option<ProcessUse>, to: Option<ProcessUse>) -> Option<f64> {
        from.zip(to).map(|(from, to)| to.cpu_us - from.cpu_us)
    }
}
