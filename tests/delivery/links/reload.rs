//! SIGHUP and links.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::tcp;
use rustix::process::Signal;

use super::line::{Line, PATIENCE, dropped, north, number, shown, wait, wait_up};
use crate::mqtt_bridge::peer::{Mosquitto, Reader, publish};

const RELOADED: &str = "configuration, users, rules and certificates are read again";

fn reload(gateway: &Gateway, configuration: &str) -> Result<()> {
    gateway.forget_log()?;
    gateway.configure(configuration)?;
    gateway.signal(Signal::HUP)?;
    gateway.wait_log(RELOADED, PATIENCE)
}

/// Whether a client that is called so has a session at the MQTT door.
fn has_session_of(gateway: &Gateway, client: &str) -> Result<bool> {
    let request = b"GET /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = tcp::ask(gateway.address("http")?, request)?;
    Ok(String::from_utf8_lossy(&answer).contains(client))
}

/// Whether the session of a link is there.
fn has_session(gateway: &Gateway) -> Result<bool> {
    has_session_of(gateway, "$link/")
}

/// An entry of `in` goes, also while the other broker is away: that sends nothing for it any more.
pub(super) fn unsubscribed() -> Result<String> {
    let mosquitto = Mosquitto::start("")?;
    let line = Line::new(Some(mosquitto.address))?;
    let both = north(line.address, "in = [{ filter = \"a/#\" }, { filter = \"b/#\" }, { filter = \"c/#\" }]");
    let gateway = Gateway::start_configured(&both)?;
    wait_up(&gateway, "north")?;
    let mut here = Reader::open(gateway.address("mqtt")?, "here", &["+/x"])?;
    reload(&gateway, &north(line.address, "in = [{ filter = \"b/#\" }, { filter = \"c/#\" }]"))?;
    wait_up(&gateway, "north")?;
    for topic in ["a/x", "b/x"] {
        publish(mosquitto.address, topic, 1, &[], &["one".to_owned()])?;
    }
    here.until_value("b/x", "one")?;
    line.lead(None);
    reload(&gateway, &north(line.address, "in = [{ filter = \"c/#\" }]"))?;
    line.lead(Some(mosquitto.address));
    wait_up(&gateway, "north")?;
    for topic in ["a/x", "b/x", "c/x"] {
        publish(mosquitto.address, topic, 1, &[], &["two".to_owned()])?;
    }
    here.until_value("c/x", "two")?;
    let entry = wait_up(&gateway, "north")?;
    ensure!(dropped(&entry, "in", "unmapped") == 0 && number(&entry, "/in/messages") == 1, "{entry}");
    Ok(String::new())
}

/// A link is led elsewhere, and removed: it leaves no session. One that is gone at the next start is named.
pub(super) fn ended() -> Result<String> {
    let (one, other) = (Gateway::start(&[])?, Gateway::start(&[])?);
    let data = tempfile::tempdir()?;
    let start =
        |text: &str| Gateway::start_as(Plan { data: Some(data.path()), configuration: Some(text), ..Plan::default() });
    let entries = "in = [{ filter = \"a/#\" }]";
    let (to_one, to_other) = (north(one.address("mqtt")?, entries), north(other.address("mqtt")?, entries));
    let mut gateway = start(&to_one)?;
    wait_up(&gateway, "north")?;
    let wait_sessions = |expected: (bool, bool)| -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while (has_session_of(&one, "fogmux-north")?, has_session_of(&other, "fogmux-north")?) != expected {
            ensure!(Instant::now() < deadline, "not {expected:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    };
    wait_sessions((true, false))?;
    reload(&gateway, &to_other)?;
    wait_up(&gateway, "north")?;
    wait_sessions((false, true))?;
    reload(&gateway, "")?;
    wait_sessions((false, false))?;
    // One that comes back at once is not ended by the end of the one before.
    reload(&gateway, &to_one)?;
    reload(&gateway, "")?;
    reload(&gateway, &to_one)?;
    wait_up(&gateway, "north")?;
    std::thread::sleep(Duration::from_secs(1));
    wait_up(&gateway, "north")?;
    wait_sessions((true, false))?;
    gateway.signal(Signal::TERM)?;
    gateway.wait_exit(Duration::from_secs(20))?;
    let gateway = start("")?;
    gateway.wait_log("stays there", PATIENCE)?;
    ensure!(gateway.log().contains("fogmux-north"), "{}", gateway.log());
    Ok(String::new())
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
