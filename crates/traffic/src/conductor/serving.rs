//! The server of one repetition.

use crate::agent::RemoteGateway;
use crate::target::{Apart, Gateway};

/// The server of one repetition, which ends when this is dropped.
pub(super) enum Serving {
    Gateway(Gateway),
    Apart(Apart),
    Agent(RemoteGateway),
    Peer(Vec<u32>),
}

impl Serving {
    /// The settings of a fogmux gateway; empty for a peer.
    pub(super) fn settings(&self) -> Vec<String> {
        match self {
            Self::Gateway(gateway) => gateway.settings(),
            Self::Agent(gateway) => gateway.settings().to_vec(),
            Self::Apart(_) | Self::Peer(_) => Vec::new(),
        }
    }

    /// The processes that have to last, where they are on this machine.
    pub(super) fn pids(&self) -> Vec<u32> {
        match self {
            Self::Gateway(gateway) => gateway.pids(),
            Self::Apart(origin) => origin.pids(),
            Self::Peer(pids) => pids.clone(),
            Self::Agent(_) => Vec::new(),
        }
    }

    /// How its process ended.
    pub(super) fn ended(&mut self, pid: u32) -> String {
        match self {
            Self::Gateway(gateway) => gateway.ended().unwrap_or_else(|| "the gateway ended".to_owned()),
            Self::Apart(origin) => origin.ended().unwrap_or_else(|| "the origin ended".to_owned()),
            Self::Agent(_) | Self::Peer(_) => format!("process {pid} ended"),
        }
    }
}
