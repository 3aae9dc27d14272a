//! When operations are due: from when a schedule counts.

use serde::{Deserialize, Serialize};

/// From when the operations of an experiment are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// From when all connections are made.
    #[default]
    Connected,
    /// From when connecting begins. What is due meanwhile is sent when the connection is made, and a connection that is
    /// never made leaves everything unsent.
    Connecting,
}
