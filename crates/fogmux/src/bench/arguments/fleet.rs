//! The flags of `fogmux bench fleet`.

use std::path::PathBuf;

use clap::Args;

use super::{Columns, Output, Thresholds, repetitions};

/// Runs a fleet.
#[derive(Debug, Args)]
pub(crate) struct Fleet {
    /// File of the groups: name, count, door, security, topic, payload, QoS, period and start of each
    #[arg(value_name = "FILE.toml")]
    pub(crate) file: PathBuf,
    /// Repetitions
    #[arg(long, default_value_t = 1, value_parser = repetitions())]
    pub(crate) repeat: u32,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) columns: Columns,
    #[command(flatten)]
    pub(crate) thresholds: Thresholds,
}
