//! The flags of `fogmux bench curve`.

use clap::Args;

use super::{Columns, Host, Output, Shape, Thresholds, Until, repetitions};

/// Measures latency against load.
#[derive(Debug, Args)]
pub(crate) struct Curve {
    #[command(flatten)]
    pub(crate) shape: Shape,
    /// Rates to measure at, in operations per second [default: shares of the highest rate that is kept]
    #[arg(long, value_name = "RATE", value_delimiter = ',')]
    pub(crate) rates: Vec<f64>,
    /// Rate at which the search for the highest one begins
    #[arg(long, value_name = "RATE", default_value_t = 1_000.0, conflicts_with = "rates")]
    pub(crate) from: f64,
    /// Seconds of each step of the search
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, conflicts_with = "rates")]
    pub(crate) step_seconds: f64,
    #[command(flatten)]
    pub(crate) host: Host,
    /// Repetitions at each rate
    #[arg(long, default_value_t = 5, value_parser = repetitions())]
    pub(crate) repeat: u32,
    #[command(flatten)]
    pub(crate) until: Until,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) columns: Columns,
    #[command(flatten)]
    pub(crate) thresholds: Thresholds,
}
