//! A container of the image: the layout is examined, unpacked by `umoci` and started by `runc`, which is asked for
//! `/readyz` and a message.

use std::path::Path;

use anyhow::Result;

use super::check::written;
use super::empty;
use super::program::Platform;
use crate::command::{command, on_path, run};
use crate::setup;
use crate::tree::Tree;

const SCRIPT: &str = include_str!("container.sh");

/// Examines an image, and starts it if this machine runs its programs.
pub(super) fn check(tree: &Tree, platform: &Platform, image: &Path, name: &str) -> Result<()> {
    let programs = [("umoci", "umoci"), ("runc", "runc"), ("jq", "jq"), ("nsenter", "util-linux"), ("curl", "curl")];
    let missing: Vec<&str> = programs.iter().filter(|(name, _)| !on_path(name)).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        setup::debian(&missing)?;
    }
    let place = empty(tree, "dist-container")?;
    let script = written(&place, "container.sh", SCRIPT)?;
    let mut check = command("unshare", &["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-eu"]);
    check.arg(script).arg(&place).arg(image).args([name, platform.oci()]);
    run(check.arg(if platform.is_native() { "start" } else { "examine" }))
}
