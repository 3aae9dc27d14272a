//! Bytes that the release program writes for steady loads, by the process and by the device, beside Mosquitto; and the
//! cost of durability.

use anyhow::Result;

use crate::command::{cargo, cargo_tree, run};
use crate::setup;
use crate::tree::Tree;

/// Measures each load for so many seconds, or those named: `[SECONDS] [LOAD]…`; or, with `speed`, flows as fast as they
/// go. Devices need root; without it only the process is measured.
pub(crate) fn wear(tree: &Tree, words: &[&str]) -> Result<()> {
    setup::mosquitto()?;
    run(cargo(&["build", "--release", "--package", "fogmux", "--locked"]).current_dir(tree.root()))?;
    let mut suite = cargo_tree("test", &["--test", "wear", "--"]);
    let (seconds, loads) = match words {
        [first, loads @ ..] if first.bytes().all(|byte| byte.is_ascii_digit()) => (Some(first), loads),
        loads => (None, loads),
    };
    suite.args(loads).env("FOGMUX_BIN", tree.target().join("release/fogmux"));
    if let Some(seconds) = seconds {
        suite.env("FOGMUX_WEAR_SECONDS", seconds);
    }
    run(suite.current_dir(tree.root()))
}
