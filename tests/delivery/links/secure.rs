//! TLS and credentials of a link.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use rustix::process::Signal;
use serde_json::Value;

use super::line::{wait, wait_up};
use crate::mqtt_bridge::peer::{Mosquitto, Reader, publish};

/// Runs a command of the gateway's program in a directory.
fn fogmux(words: &[&str], data: &Path) -> Result<()> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let output = Command::new(binary).args(words).arg("--data").arg(data).output()?;
    ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Lets Mosquitto read a file, which gives up the rights of root.
fn open(path: &Path) -> Result<()> {
    let mode = if path.is_dir() { 0o755 } else { 0o644 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            open(&entry?.path())?;
        }
    }
    Ok(())
}

fn says(entry: &Value, what: &[&str]) -> bool {
    let text = entry.pointer("/last_error/text").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    what.iter().any(|what| text.contains(what))
}

/// Mosquitto that verifies clients; without its authority, or without a certificate, there is no link.
pub(super) fn certificates() -> Result<String> {
    let pki = tempfile::tempdir()?;
    let (data, server, client) = (pki.path().join("data"), pki.path().join("server"), pki.path().join("client"));
    fs::create_dir(&data)?;
    fogmux(&["pki", "init"], &data)?;
    fogmux(&["pki", "server", "127.0.0.1", "--out", &text(&server)], &data)?;
    fogmux(&["pki", "client", "gateway", "--out", &text(&client)], &data)?;
    open(pki.path())?;
    let (ca, server, client) = (text(&data.join("pki/ca.pem")), text(&server), text(&client));
    let plain = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mosquitto = Mosquitto::start(&format!(
        "cafile {ca}\ncertfile {server}.pem\nkeyfile {server}.key\nrequire_certificate true\n\
         listener {} 127.0.0.1\n",
        plain.port()
    ))?;
    let keys = |with: &str| {
        let url = format!("mqtts://{}", mosquitto.address);
        format!("[links.north]\nurl = \"{url}\"\nout = [{{ filter = \"up/#\" }}]\n{with}\n")
    };
    let gateway = Gateway::start_configured(&keys(""))?;
    wait(&gateway, "north", |entry| says(entry, &["ca_file"]))?;
    let without = keys(&format!("ca_file = \"{ca}\""));
    gateway.configure(&without)?;
    gateway.signal(Signal::HUP)?;
    wait(&gateway, "north", |entry| says(entry, &["alert", "closed", "broke"]))?;
    let with = keys(&format!("ca_file = \"{ca}\"\ncert_file = \"{client}.pem\"\nkey_file = \"{client}.key\""));
    gateway.configure(&with)?;
    gateway.signal(Signal::HUP)?;
    wait_up(&gateway, "north").with_context(|| mosquitto.log())?;
    let mut there = Reader::open(plain, "there", &["up/#"])?;
    publish(gateway.address("mqtt")?, "up/x", 2, &[], &["under TLS".to_owned()])?;
    there.until_value("up/x", "under TLS")?;
    Ok(String::new())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A password is read from its file for each connection.
pub(super) fn passwords() -> Result<String> {
    let home = tempfile::tempdir()?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755))?;
    let users = home.path().join("users");
    let made = Command::new("mosquitto_passwd").args(["-c", "-b"]).arg(&users).args(["fog", "right"]).status()?;
    ensure!(made.success(), "mosquitto_passwd: {made}");
    open(&users)?;
    let mosquitto = Mosquitto::start_closed(&format!("password_file {}\n", users.display()))?;
    let password = home.path().join("password");
    fs::write(&password, "wrong\n")?;
    let lines = format!(
        "[links.north]\nurl = \"mqtt://{}\"\nuser = \"fog\"\npassword_file = {:?}\nout = [{{ filter = \"up/#\" }}]\n",
        mosquitto.address, password
    );
    let gateway = Gateway::start_configured(&lines)?;
    wait(&gateway, "north", |entry| says(entry, &["not authorized", "bad user name"]))?;
    ensure!(!gateway.whole_log().contains("wrong"), "the password is in the log");
    fs::write(&password, "right\n")?;
    wait_up(&gateway, "north")?;
    Ok(String::new())
}
