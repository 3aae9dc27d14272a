//! The flag of conditions under which a measurement fails.

use clap::Args;
use fogmux_traffic::report::threshold::Threshold;

/// Conditions under which a measurement fails.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Thresholds {
    /// End with exit code 1 if the median of a figure is so, such as p99>5ms, rate<1000/s, lost>0 or peak_memory>=50MiB
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<Threshold>,
}
