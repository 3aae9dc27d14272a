//! The unit as systemd runs it: measurements over the API of a gateway in it, with every restriction in force.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::command::{command, on_path, run};
use crate::gateway;
use crate::setup;
use crate::tree::Tree;

/// Namespaces, a root directory for systemd, and the questions to the gateway there.
const SCRIPTS: [(&str, &str); 3] = [
    ("boot.sh", include_str!("service/boot.sh")),
    ("root.sh", include_str!("service/root.sh")),
    ("probe.sh", include_str!("service/probe.sh")),
];
const SYSTEMD: &str = "/lib/systemd/systemd";
/// Of everything, in seconds: the jobs take some forty where two cores are free.
const PATIENCE: &str = "600";
/// The last line of the probe if nothing has failed.
const GOOD: &str = "all as it should be";

/// Starts the unit and measures in it, as root where namespaces are permitted.
pub(crate) fn check(tree: &Tree) -> Result<()> {
    if !Path::new(SYSTEMD).exists() || !setup::is_root()? {
        println!("deploy: systemd runs the unit in namespaces of its own, as root; left out here");
        return Ok(());
    }
    setup::packages_of(&["ip", "unshare", "curl", "pgrep"])?;
    ensure!(on_path("setpriv") && on_path("pivot_root"), "util-linux has no setpriv or pivot_root here");
    let binary = gateway::build(tree)?;
    let place = tree.target().join("tmp/service");
    fs::create_dir_all(&place)?;
    for (name, text) in SCRIPTS {
        fs::write(place.join(name), text)?;
    }
    let mut booted = command("sh", &["-eu"]);
    booted.env("PATIENCE", PATIENCE).arg(place.join("boot.sh")).arg(&place).arg(&binary);
    booted.arg(tree.root().join("deploy/fogmux.service")).arg(place.join("probe.sh"));
    let ended = run(&mut booted);
    let said = fs::read_to_string(place.join("said")).context("the probe has said nothing")?;
    print!("{said}");
    ended?;
    ensure!(said.trim_end().ends_with(GOOD), "deploy/fogmux.service: a measurement in the unit went wrong");
    Ok(())
}
