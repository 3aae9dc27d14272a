//! `$SYS`: the topics of Mosquitto beside a real one, values that follow what happens, and who may read them.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{Connection, V4, V5};
use rustix::process::Signal;

use super::peer::{Mosquitto, PATIENCE, Reader, publish};

/// The latest text of every topic that `mosquitto_sub` prints in three seconds.
fn tree(broker: SocketAddr) -> Result<BTreeMap<String, String>> {
    let port = broker.port().to_string();
    let mut command = Command::new("mosquitto_sub");
    command.args(["-h", "127.0.0.1", "-p", &port, "-t", "$SYS/#", "-F", "%t|%p", "-W", "3"]);
    let output = command.output().context("mosquitto_sub")?;
    let text = String::from_utf8(output.stdout)?;
    let pair = |line: &str| line.split_once('|').map(|(topic, text)| (topic.to_owned(), text.to_owned()));
    Ok(text.lines().filter_map(pair).collect())
}

/// A text with every run of digits in one form.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    for character in text.chars() {
        match character {
            '0'..='9' if shape.ends_with('0') => {}
            '0'..='9' => shape.push('0'),
            other => shape.push(other),
        }
    }
    shape
}

pub(super) fn same_as_mosquitto() -> Result<String> {
    let gateway = Gateway::start(&["mqtt.sys_interval=1s"])?;
    let mosquitto = Mosquitto::start("sys_interval 1\n")?;
    let (theirs, ours) = (tree(mosquitto.address)?, tree(gateway.address("mqtt")?)?);
    ensure!(theirs.len() > 40, "mosquitto says {theirs:?}");
    for (topic, text) in &theirs {
        let our = ours.get(topic).with_context(|| format!("{topic} is missing"))?;
        // The version begins with the broker's name.
        let (our, their) = (our.replace("fogmux", "mosquitto"), text);
        ensure!(shape(&our) == shape(their), "{topic}: {our:?} is not like {their:?}");
    }
    ensure!(ours.contains_key("$SYS/fogmux/coap/connections"), "no $SYS/fogmux: {ours:?}");
    Ok(format!("({} topics of mosquitto, {} of ours)", theirs.len(), ours.len()))
}

/// A number below `$SYS` as it was last heard.
fn number(reader: &Reader, topic: &str) -> u64 {
    reader.payloads(&format!("$SYS/{topic}")).last().and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub(super) fn counts() -> Result<String> {
    let mut gateway = Gateway::start(&["mqtt.sys_interval=1s"])?;
    let address = gateway.address("mqtt")?;
    let before = gateway.metrics()?;
    let mut watch = Reader::open(address, "watch", &["$SYS/#"])?;
    let mut others = vec![Connection::open(address, V4, "one")?, Connection::open(address, V5, "two")?];
    for other in &mut others {
        other.subscribe(1, &["count/#", "$share/group/other"], 0)?;
    }
    let lines: Vec<String> = (0..1000).map(|number| format!("{number:010}")).collect();
    publish(address, "count/x", 1, &[], &lines)?;
    watch.until_latest("$SYS/broker/publish/messages/received", "1000")?;
    watch.until_latest("$SYS/fogmux/mqtt/connections", "3")?;
    watch.until_latest("$SYS/broker/shared_subscriptions/count", "2")?;
    watch.until_latest("$SYS/broker/subscriptions/count", "5")?;
    watch.until(|messages| {
        let maximum = messages.iter().rev().find(|message| message.topic == "$SYS/broker/clients/maximum");
        maximum.is_some_and(|message| message.payload.parse().is_ok_and(|clients: u64| clients >= 3))
    })?;
    for (topic, least) in [
        ("broker/clients/connected", 3),
        ("broker/publish/messages/sent", 2000),
        ("broker/messages/received", 1000),
        // The PUBACKs, and CONNECTs and SUBSCRIBEs with their answers.
        ("broker/messages/sent", 3000 + 6),
        ("broker/publish/bytes/received", 10_000),
        ("broker/publish/bytes/sent", 20_000),
        ("broker/bytes/received", 10_000),
        ("broker/heap/current", 1 << 20),
    ] {
        ensure!(number(&watch, topic) >= least, "{topic} is {}, not {least}", number(&watch, topic));
    }
    watch.until(|messages| {
        let load = messages.iter().rev().find(|message| message.topic == "$SYS/broker/load/publish/received/1min");
        load.is_some_and(|message| message.payload.parse().is_ok_and(|a_minute: f64| a_minute > 100.0))
    })?;
    // The gateway's own status is not counted as received: only clients publish.
    let now = gateway.metrics()?;
    let published = |metrics: &std::collections::HashMap<String, f64>| {
        metrics.get("fogmux_bus_published_total").copied().context("no fogmux_bus_published_total")
    };
    ensure!(published(&now)? - published(&before)? == 1000.0, "{} published", published(&now)?);
    drop((watch, others));
    gateway.settle()?;
    // Nothing of it is on the disk: the next run begins with its own.
    gateway.signal(Signal::TERM)?;
    gateway.wait_exit(PATIENCE)?;
    let found = holds(&gateway.data(), b"$SYS/")?;
    ensure!(!found, "$SYS is in the data directory");
    Ok(String::new())
}

/// Whether a file below the directory holds these bytes.
fn holds(directory: &std::path::Path, bytes: &[u8]) -> Result<bool> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let found = if path.is_dir() {
            holds(&path, bytes)?
        } else {
            fs::read(&path)?.windows(bytes.len()).any(|window| window == bytes)
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

const ACL: &str =
    "[[allow]]\nanonymous = true\nboth = \"#\"\n[[allow]]\nanonymous = true\nread = \"$SYS/broker/uptime\"\n";

pub(super) fn access() -> Result<String> {
    let mut gateway = Gateway::start(&["mqtt.sys_interval=1s"])?;
    let address = gateway.address("mqtt")?;
    // [MQTT-4.7.2-1]: what is subscribed to beside wildcards shows that time has passed.
    let mut reader = Reader::open(address, "reader", &["#", "+/+/+", "+/broker/uptime", "$SYS/broker/uptime"])?;
    reader.until(|messages| messages.len() >= 3)?;
    let others = reader.messages.iter().find(|message| message.topic != "$SYS/broker/uptime");
    ensure!(others.is_none(), "{others:?} by a wildcard");
    drop(reader);
    gateway.settle()?;
    // With an access file `#` names no topic that begins with `$`.
    let gateway = Gateway::start_furnished(&["mqtt.sys_interval=1s"], &[("acl.toml", ACL)])?;
    let mut ruled = Connection::open(gateway.address("mqtt")?, V4, "ruled")?;
    let codes =
        ruled.subscribe(1, &["#", "$SYS/#", "$SYS/broker/uptime", "$SYS/broker/version", "$SYS/fogmux/#"], 0)?;
    // `$SYS/#` is granted in part: for the one topic that a rule allows.
    ensure!(codes == [0, 0, 0, 0x80, 0x80], "{codes:02x?}");
    for _ in 0..3 {
        let (_, body) = ruled.read()?;
        ensure!(body.windows(18).any(|window| window == b"$SYS/broker/uptime"), "{body:?}");
    }
    // Zero: nothing is published.
    let silent = Gateway::start(&["mqtt.sys_interval=0s"])?;
    let said = tree(silent.address("mqtt")?)?;
    ensure!(said.is_empty(), "{said:?}");
    Ok(String::new())
}
