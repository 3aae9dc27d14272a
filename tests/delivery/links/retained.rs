//! Retained messages of `out`, which go over completely.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, Connection, V5, packet};
use rustix::process::Signal;

use super::line::{Line, PATIENCE, north, number, wait, wait_up};
use crate::mqtt_bridge::peer::{Mosquitto, Reader, publish};

const COUNT: u16 = 600;

/// Retains a message on each of many topics, every other one with QoS 0, as most devices do.
fn retain(broker: SocketAddr, prefix: &str) -> Result<()> {
    let mut connection = Connection::open(broker, V5, "keeper")?;
    for id in 1..=COUNT {
        let topic = format!("{prefix}/{id}");
        let message = mqtt::publish(V5, topic.as_bytes(), b"kept", u8::from(id % 2 == 0), true, id);
        connection.stream.write_all(&message)?;
        if id % 2 == 0 {
            let (first, _) = connection.read()?;
            ensure!(first == 0x40, "{first:#x}");
        }
    }
    Ok(connection.stream.write_all(&packet(0xe0, &[]))?)
}

/// Waits until all of them are retained there.
fn all_there(broker: SocketAddr, prefix: &str) -> Result<()> {
    let mut late = Reader::open(broker, "late", &[&format!("{prefix}/#")])?;
    let topics = |messages: &[crate::mqtt_bridge::peer::Message]| {
        messages.iter().map(|message| message.topic.clone()).collect::<BTreeSet<_>>().len()
    };
    let came = late.until(|messages| topics(messages) == usize::from(COUNT));
    came.with_context(|| format!("{} of {COUNT}", topics(&late.messages)))
}

/// The line is cut several times while the retained messages of a new entry go over.
pub(super) fn cut() -> Result<String> {
    let mosquitto = Mosquitto::start("")?;
    let line = Line::new(Some(mosquitto.address))?;
    line.pace(Duration::from_millis(15));
    let lines = "inflight_max = 5\nout = [{ filter = \"up/#\", qos = 1 }]";
    let gateway = Gateway::start_configured("")?;
    retain(gateway.address("mqtt")?, "up")?;
    gateway.configure(&north(line.address, lines))?;
    gateway.signal(Signal::HUP)?;
    let mut passed = Vec::new();
    for part in 1..=3 {
        let enough = u64::from(COUNT) * part / 5;
        let entry = wait(&gateway, "north", |entry| number(entry, "/out/messages") >= enough)?;
        line.cut();
        passed.push(number(&entry, "/out/messages"));
    }
    ensure!(passed.iter().all(|passed| *passed < u64::from(COUNT)), "it was over before: {passed:?}");
    all_there(mosquitto.address, "up").with_context(|| gateway.log())?;
    // Those that went over are not sent again: only some were under way at each cut.
    let entry = wait(&gateway, "north", |entry| number(entry, "/queue/messages") == 0)?;
    let sent = number(&entry, "/out/messages");
    ensure!(sent < u64::from(COUNT) * 5 / 4, "{sent} for {COUNT}");
    // Nor at a later connection.
    std::thread::sleep(Duration::from_secs(2));
    line.cut();
    wait_up(&gateway, "north")?;
    publish(gateway.address("mqtt")?, "up/end", 1, &[], &["end".to_owned()])?;
    let entry = wait(&gateway, "north", |entry| number(entry, "/out/messages") > sent)?;
    ensure!(number(&entry, "/out/messages") == sent + 1, "{sent}, then {entry}");
    Ok(format!("{sent} for {COUNT}, cut at {passed:?}"))
}

/// An entry is added while the other broker is away, and the gateway is killed before it comes back, and once more in
/// the transfer.
pub(super) fn killed() -> Result<String> {
    let mosquitto = Mosquitto::start("")?;
    let (line, data) = (Line::new(Some(mosquitto.address))?, tempfile::tempdir()?);
    let configured = |filters: &str| north(line.address, &format!("inflight_max = 5\nout = [{filters}]"));
    let start =
        |text: &str| Gateway::start_as(Plan { data: Some(data.path()), configuration: Some(text), ..Plan::default() });
    let one = configured("{ filter = \"one/#\" }");
    let mut gateway = start(&one)?;
    wait_up(&gateway, "north")?;
    publish(gateway.address("mqtt")?, "one/x", 1, &["-r"], &["kept".to_owned()])?;
    retain(gateway.address("mqtt")?, "two")?;
    line.lead(None);
    let both = configured("{ filter = \"one/#\" }, { filter = \"two/#\" }");
    for _ in 0..2 {
        gateway.configure(&both)?;
        gateway.signal(Signal::HUP)?;
        gateway.wait_log("are read again", PATIENCE)?;
        wait(&gateway, "north", |entry| entry.get("last_error").is_some_and(|error| !error.is_null()))?;
        gateway.signal(Signal::KILL)?;
        gateway.wait_exit(Duration::from_secs(10))?;
        gateway = start(&both)?;
    }
    line.pace(Duration::from_millis(15));
    line.lead(Some(mosquitto.address));
    wait(&gateway, "north", |entry| number(entry, "/out/messages") >= u64::from(COUNT) / 3)?;
    gateway.signal(Signal::KILL)?;
    gateway.wait_exit(Duration::from_secs(10))?;
    gateway = start(&both)?;
    all_there(mosquitto.address, "two").with_context(|| gateway.log())?;
    Ok(String::new())
}
