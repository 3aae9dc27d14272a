//! SIGHUP and links.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::tcp;
use rustix::process::Signal;

use super::line::{PATIENCE, north, number, shown, wait, wait_up};
use crate::mqtt_bridge::peer::{Mosquitto, Reader, publish};

const RELOADED: &str = "configuration, users, rules and certificates are read again";

fn reload(gateway: &Gateway, configuration: &str) -> Result<()> {
    gateway.forget_log()?;
    gateway.configure(configuration)?;
    gateway.signal(Signal::HUP)?;
    gateway.wait_log(RELOADED, PATIENCE)
}

/// Whether the session of a link is at the MQTT door.
fn has_session(gateway: &Gateway) -> Result<bool> {
    let request = b"GET /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = tcp::ask(gateway.address("http")?, request)?;
    Ok(String::from_utf8_lossy(&answer).contains("$link/"))
}

/// A link is added, gets another list, and goes with its session.
pub(super) fn links() -> Result<String> {
    let mosquitto = Mosquitto::start("")?;
    let gateway = Gateway::start_configured("")?;
    let fog = gateway.address("mqtt")?;
    ensure!(shown(&gateway, "north")?.is_none(), "a link that nobody configured");
    reload(&gateway, &north(mosquitto.address, "out = [{ filter = \"a/#\" }]"))?;
    wait_up(&gateway, "north")?;
    let mut there = Reader::open(mosquitto.address, "there", &["a/#", "b/#"])?;
    publish(fog, "b/kept", 1, &["-r"], &["old".to_owned()])?;
    publish(fog, "a/x", 1, &[], &["one".to_owned()])?;
    there.until_value("a/x", "one")?;
    reload(&gateway, &north(mosquitto.address, "out = [{ filter = \"b/#\" }]"))?;
    // A retained message goes over when its filter is new.
    there.until_value("b/kept", "old").with_context(|| gateway.log())?;
    wait_up(&gateway, "north")?;
    publish(fog, "a/x", 1, &[], &["two".to_owned()])?;
    publish(fog, "b/x", 1, &[], &["two".to_owned()])?;
    there.until_value("b/x", "two")?;
    ensure!(there.payloads("a/x") == ["one"], "the old list is in force: {:?}", there.payloads("a/x"));
    let entry = wait(&gateway, "north", |entry| number(entry, "/queue/messages") == 0)?;
    ensure!(number(&entry, "/out/messages") == 2, "{entry}");
    // A mistake changes nothing.
    gateway.configure(&north(mosquitto.address, "out = [{ filter = \"b#\" }]"))?;
    gateway.signal(Signal::HUP)?;
    gateway.wait_log("nothing was reloaded", PATIENCE)?;
    publish(fog, "b/x", 1, &[], &["three".to_owned()])?;
    there.until_value("b/x", "three")?;
    reload(&gateway, "")?;
    let deadline = Instant::now() + PATIENCE;
    while shown(&gateway, "north")?.is_some() || has_session(&gateway)? {
        ensure!(Instant::now() < deadline, "the link or its session stays\n{}", gateway.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(String::new())
}
