//! The gateway's process, here or where an agent has started it.

use super::process::ProcessProbe;
use crate::agent::RemoteProbe;
use crate::outcome::ProcessUse;

/// Looks at the gateway over an interval.
pub enum GatewayProbe {
    /// On this machine.
    Here(ProcessProbe),
    /// On an agent's.
    Elsewhere(RemoteProbe),
}

impl GatewayProbe {
    /// Begins an interval.
    pub fn start(&mut self) {
        match self {
            Self::Here(probe) => probe.start(),
            Self::Elsewhere(probe) => probe.start(),
        }
    }

    /// Reads the resources used since the start of the measurement.
    #[must_use]
    pub fn read(&self) -> ProcessUse {
        match self {
            Self::Here(probe) => probe.read(),
            Self::Elsewhere(probe) => probe.read(),
        }
    }
}
