//! What a result depends on beside the experiment: the machine, its software and its state.

use serde::{Deserialize, Serialize};

/// A machine as it was when a measurement began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Of the kernel.
    pub kernel: String,
}
