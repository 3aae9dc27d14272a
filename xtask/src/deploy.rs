//! The files shipped beside the binary: the unit as systemd reads and runs it, the image's list of ports, the filter of
//! fail2ban, the packages as Debian installs them.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::command::{command, on_path, output, run};
use crate::dist::{self, Recipe};
use crate::fail2ban;
use crate::gateway;
use crate::service;
use crate::setup;
use crate::tree::Tree;

const INSTALLED: &str = "/usr/bin/fogmux";
/// `systemd-analyze security` says 1.2 today; its scale ends at 10, and the threshold is in tenths.
const EXPOSURE_MAX: &str = "15";
/// The configuration of the unit and of the image, as their comments say.
const CONFIG: &str = "/etc/fogmux/fogmux.toml";
/// The configuration in the image when no other is mounted.
const IMAGE_CONFIG: &str = "deploy/container.toml";
/// Exit codes after which a restart would fail in the same way: EX_USAGE, EX_NOPERM, EX_CONFIG.
const FINAL_CODES: &str = "RestartPreventExitStatus=64 77 78";

/// All of `deploy/`.
pub(crate) fn deploy(tree: &Tree) -> Result<()> {
    image(tree)?;
    unit(tree)?;
    service::check(tree)?;
    setup::log_reader()?;
    setup::packages_of(&["openssl"])?;
    fail2ban::check(tree)?;
    dist::check(tree)
}

/// `systemd-analyze` looks for the program too, so the unit is checked with the one built here.
fn unit(tree: &Tree) -> Result<()> {
    if !on_path("systemd-analyze") {
        println!("deploy: there is no systemd-analyze here, the unit is not checked");
        return Ok(());
    }
    let text = fs::read_to_string(tree.root().join("deploy/fogmux.service")).context("deploy/fogmux.service")?;
    ensure!(text.contains(INSTALLED), "deploy/fogmux.service does not start {INSTALLED}");
    unit_text(&text)?;
    let binary = gateway::build(tree)?;
    let place = tree.target().join("tmp/fogmux.service");
    fs::create_dir_all(tree.target().join("tmp"))?;
    fs::write(&place, text.replace(INSTALLED, &binary.to_string_lossy()))?;
    run(command("systemd-analyze", &["verify", "--man=no"]).arg(&place))?;
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let arguments = ["security", "--offline=yes", "--no-pager", &threshold];
    let told = output(command("systemd-analyze", &arguments).arg(&place))?;
    println!("{}", told.lines().last().unwrap_or_default().trim_start_matches('→').trim());
    Ok(())
}

/// Checks what systemd does not: that the unit names its configuration, and does not try a mistake in it for ever.
fn unit_text(text: &str) -> Result<()> {
    let lines = [
        // Codes of ExecStartPre= would not prevent a restart.
        FINAL_CODES.to_owned(),
        format!("ExecStart={INSTALLED} serve --config {CONFIG}"),
        format!("ExecReload={INSTALLED} check --reload {CONFIG}"),
        "ExecReload=/bin/kill -HUP $MAINPID".to_owned(),
        // Without netlink no interface is found, and discovery by multicast is silent.
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK".to_owned(),
    ];
    for line in lines {
        ensure!(text.lines().any(|found| found == line), "deploy/fogmux.service lacks {line}");
    }
    ensure!(!text.contains("\nExecStartPre="), "ExecStartPre= in deploy/fogmux.service is restarted for ever");
    Ok(())
}

/// Every port of the default configuration is exposed, and no other.
fn image(tree: &Tree) -> Result<()> {
    let config = fs::read_to_string(tree.root().join("config/fogmux.toml")).context("config/fogmux.toml")?;
    let recipe = Recipe::read(tree)?;
    let text = fs::read_to_string(tree.root().join("deploy/Containerfile")).context("deploy/Containerfile")?;
    let mount = format!(":{CONFIG}:ro");
    let mounted = text.lines().any(|line| line.starts_with('#') && line.contains(&mount));
    ensure!(mounted, "the comment of deploy/Containerfile does not mount {CONFIG}");
    recipe.uses(CONFIG, IMAGE_CONFIG)?;
    run(command(gateway::build(tree)?, &["check"]).arg(tree.root().join(IMAGE_CONFIG)))?;
    let (mut exposed, mut wanted) = (recipe.ports, ports(&config));
    exposed.sort_unstable();
    wanted.sort_unstable();
    ensure!(exposed == wanted, "deploy/Containerfile exposes {exposed:?}, the defaults listen on {wanted:?}");
    println!("deploy: the image exposes the {} ports of the defaults", exposed.len());
    Ok(())
}

/// `PORT` or `PORT/udp` of every `[listeners.…]`; HTTP/3 listens beside HTTPS.
fn ports(config: &str) -> Vec<String> {
    let mut found = Vec::new();
    for section in config.split("\n[listeners.").skip(1) {
        let name = section.split(']').next().unwrap_or_default();
        // The section with defaults has none.
        let Some(address) = section.lines().find_map(|line| line.strip_prefix("address = \"")) else { continue };
        let port = address.trim_end_matches('"').rsplit(':').next().unwrap_or_default();
        if matches!(name, "coap" | "coaps") {
            found.push(format!("{port}/udp"));
        } else {
            found.push(port.to_owned());
        }
        if name == "https" {
            found.push(format!("{port}/udp"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_uses_the_configuration_that_it_names() {
        let unit = include_str!("../../deploy/fogmux.service");
        unit_text(unit).unwrap();
        assert!(unit_text(&unit.replace("64 77 78", "78")).is_err());
        assert!(unit_text(&unit.replace(" AF_NETLINK", "")).is_err());
        assert!(unit_text(&format!("{unit}\nExecStartPre=/usr/bin/fogmux check {CONFIG}\n")).is_err());
    }

    #[test]
    fn ports_are_those_of_the_listeners() {
        let config = "[workers]\n\n[listeners.coap] # UDP\naddress = \"127.0.0.1:5683\"\n\n[listeners.https]\n\
                      enabled = true\naddress = \"127.0.0.1:8443\"\n\n[limits]\naddress = \"x:1\"\n";
        assert_eq!(ports(config), ["5683/udp", "8443", "8443/udp"]);
    }
}
