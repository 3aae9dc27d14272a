//! Messages that a link may not pass on, by the other broker's rules or our own.

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, Connection, V4, V5};
use fogmux_tests::tcp;
use serde_json::Value;

use super::line::{dropped, north, wait, wait_up};
use crate::mqtt_bridge::peer::{Mosquitto, Reader, publish};

/// A message that the other broker refuses (0x87), or is too large for it, is counted, and the next ones pass.
pub(super) fn remote() -> Result<String> {
    let rules = tempfile::NamedTempFile::new()?;
    std::fs::write(rules.path(), "topic readwrite up/ok\ntopic readwrite up/end\n")?;
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o644);
    std::fs::set_permissions(rules.path(), mode)?;
    let lines = format!("acl_file {}\nmax_packet_size 2000\n", rules.path().display());
    let mosquitto = Mosquitto::start(&lines)?;
    let gateway = Gateway::start_configured(&north(mosquitto.address, "out = [{ filter = \"up/#\", qos = 2 }]"))?;
    wait_up(&gateway, "north")?;
    let fog = gateway.address("mqtt")?;
    let mut there = Reader::open(mosquitto.address, "there", &["up/ok", "up/end"])?;
    for qos in [1, 2] {
        publish(fog, "up/no", qos, &[], &["refused".to_owned()])?;
        publish(fog, "up/ok", qos, &[], &["x".repeat(4000)])?;
        publish(fog, "up/ok", qos, &[], &[format!("small{qos}")])?;
        there.until_value("up/ok", &format!("small{qos}")).with_context(|| mosquitto.log() + &gateway.log())?;
    }
    let entry = wait(&gateway, "north", |entry| entry.pointer("/queue/messages") == Some(&Value::from(0)))?;
    ensure!(dropped(&entry, "out", "refused") == 2 && dropped(&entry, "out", "too_large") == 2, "{entry}");
    ensure!(there.payloads("up/ok") == ["small1", "small2"], "{:?}", there.payloads("up/ok"));
    Ok(String::new())
}

/// The rules of `link:north` hold: no subscription beyond them, and what comes in to other topics is refused.
pub(super) fn rules() -> Result<String> {
    let mosquitto = Mosquitto::start("")?;
    let acl = "[[allow]]\nuser = \"link:north\"\nread = [\"up/#\"]\nwrite = [\"down/ok\"]\n\
               [[allow]]\nanonymous = true\nboth = [\"#\"]\n";
    let start = |lines: &str| {
        let configuration = north(mosquitto.address, lines);
        Gateway::start_as(Plan { files: &[("acl.toml", acl)], configuration: Some(&configuration), ..Plan::default() })
    };
    let gateway = start("out = [{ filter = \"up/#\" }]\nin = [{ filter = \"down/#\" }]")?;
    wait_up(&gateway, "north")?;
    let fog = gateway.address("mqtt")?;
    let mut here = Reader::open(fog, "here", &["down/#"])?;
    publish(mosquitto.address, "down/no", 1, &[], &["no".to_owned()])?;
    publish(mosquitto.address, "down/ok", 1, &[], &["yes".to_owned()])?;
    here.until_value("down/ok", "yes")?;
    ensure!(here.payloads("down/no").is_empty(), "the rules do not hold");
    wait(&gateway, "north", |entry| dropped(entry, "in", "refused") == 1)?;
    drop(gateway);
    let gateway = start("out = [{ filter = \"secret/#\" }]")?;
    let refused = |entry: &Value| {
        let text = entry.pointer("/last_error/text").and_then(Value::as_str).unwrap_or_default();
        text.contains("the gateway refuses the subscription to \"secret/#\"")
    };
    wait(&gateway, "north", refused)?;
    Ok(String::new())
}

/// The rules change while the link is up: what it may not read takes it down, in all places that show its state, and
/// it comes back with its right.
pub(super) fn withdrawn() -> Result<String> {
    let mosquitto = Mosquitto::start("")?;
    let acl = |read: &str| {
        format!(
            "[[allow]]\nuser = \"link:north\"\nread = [\"up/#\"{read}]\n[[allow]]\nanonymous = true\nboth = [\"#\"]\n"
        )
    };
    let configuration = north(mosquitto.address, "out = [{ filter = \"up/#\" }, { filter = \"more/#\" }]");
    let files = [("acl.toml", &*acl(", \"more/#\""))];
    let plan = Plan { files: &files, configuration: Some(&configuration), ..Plan::default() };
    let gateway = Gateway::start_as(plan)?;
    wait_up(&gateway, "north")?;
    let change = |text: &str| -> Result<()> {
        std::fs::write(gateway.data().join("acl.toml"), text)?;
        gateway.signal(rustix::process::Signal::HUP)
    };
    change(&acl(""))?;
    let refused = |entry: &Value| {
        let text = entry.pointer("/last_error/text").and_then(Value::as_str).unwrap_or_default();
        let is_told = text.contains("the gateway refuses the subscription to \"more/#\"");
        is_told && entry.get("connected") == Some(&Value::Bool(false))
    };
    wait(&gateway, "north", refused)?;
    let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = tcp::ask(gateway.address("http")?, request)?;
    ensure!(String::from_utf8_lossy(&answer).contains("more/#"), "{}", String::from_utf8_lossy(&answer));
    // It stays so.
    std::thread::sleep(std::time::Duration::from_secs(4));
    wait(&gateway, "north", refused)?;
    change(&acl(", \"more/#\""))?;
    wait_up(&gateway, "north")?;
    Ok(String::new())
}

/// A client identifier that begins with `$link/` is refused to everybody else.
pub(super) fn reserved() -> Result<String> {
    let gateway = Gateway::start(&["mqtt.client_identifiers=shared"])?;
    let fog = gateway.address("mqtt")?;
    for (version, code) in [(V4, 2), (V5, 0x85)] {
        let mut stream = tcp::connect(fog)?;
        std::io::Write::write_all(&mut stream, &mqtt::connect(version, "$link/north"))?;
        let (first, body) = Connection::over(stream, version).read()?;
        ensure!(first == 0x20 && body.get(1) == Some(&code), "{version}: {first:#x} {body:?}");
    }
    Connection::open(fog, V5, "link/north")?;
    Ok(String::new())
}
