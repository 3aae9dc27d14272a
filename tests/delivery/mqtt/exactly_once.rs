//! QoS 2 messages of version 3.1.1 behind one that ends the connection: the client sends them again in its next
//! connection, and each is delivered, or refused again, but not acknowledged and lost ([MQTT-4.3.3-10]).

use std::io::Write;

use anyhow::{Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{Connection, V4, packet, publish, string};
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, users};

pub(super) const CASES: &[Case] = &[
    Case { name: "mqtt QoS 2 messages behind a forbidden one are not lost", run: forbidden },
    Case { name: "mqtt a QoS 2 message that was refused is refused again", run: refused },
    Case { name: "mqtt QoS 2 messages that are never released count as memory", run: unreleased },
];

/// Logs in as ada with a session that stays.
fn login(gateway: &Gateway) -> Result<Connection> {
    let body =
        [string(b"MQTT"), vec![V4, 0xc0, 0, 60], string(b"device"), string(b"ada"), string(users::PASSWORD.as_bytes())];
    let mut stream = tcp::connect(gateway.address("mqtt")?)?;
    stream.write_all(&packet(0x10, &body.concat()))?;
    let mut connection = Connection::over(stream, V4);
    let (first, body) = connection.read()?;
    ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {first:#x} {body:?}");
    Ok(connection)
}

/// Sends messages, and gives the identifiers of the PUBRECs until the connection ends, or as many as there are
/// messages.
fn received(connection: &mut Connection, messages: &[(&str, u16)], again: bool, retain: bool) -> Result<Vec<u16>> {
    let duplicate = u8::from(again) << 3;
    let mut batch = Vec::new();
    for (topic, id) in messages {
        let mut message = publish(V4, topic.as_bytes(), &id.to_be_bytes(), 2, retain, *id);
        message.iter_mut().take(1).for_each(|first| *first |= duplicate);
        batch.extend(message);
    }
    connection.stream.write_all(&batch)?;
    let mut ids = Vec::new();
    while ids.len() < messages.len()
        && let Ok((first, body)) = connection.read()
    {
        ensure!(first == 0x50, "{first:#x} instead of PUBREC");
        ids.extend(body.first_chunk::<2>().map(|id| u16::from_be_bytes(*id)));
    }
    Ok(ids)
}

fn release(connection: &mut Connection, ids: &[u16]) -> Result<()> {
    for id in ids {
        connection.stream.write_all(&packet(0x62, &id.to_be_bytes()))?;
        let (first, body) = connection.read()?;
        ensure!(first == 0x70 && body == id.to_be_bytes(), "{first:#x} {body:?} instead of PUBCOMP");
    }
    Ok(())
}

/// The identifiers in the payloads that came, up to a message that follows them.
fn delivered(gateway: &Gateway, reader: &mut Connection) -> Result<Vec<u16>> {
    let mut last = login_as_last(gateway)?;
    last.publish("ok/last", b"")?;
    let mut ids = Vec::new();
    loop {
        let (first, body) = reader.read()?;
        ensure!(first & 0xf0 == 0x30, "{first:#x} instead of PUBLISH");
        // Version 5: no properties, and no payload.
        if body.ends_with(b"ok/last\0") {
            return Ok(ids);
        }
        ids.extend(body.last_chunk::<2>().map(|id| u16::from_be_bytes(*id)));
    }
}

fn login_as_last(gateway: &Gateway) -> Result<Connection> {
    let (connection, ..) =
        users::Login { clean: true, ..users::Login::of("ada", "last") }.connect(gateway.address("mqtt")?)?;
    Ok(connection)
}

fn reader(gateway: &Gateway) -> Result<Connection> {
    let login = users::Login { clean: true, ..users::Login::of("ada", "reader") };
    let (mut reader, ..) = login.connect(gateway.address("mqtt")?)?;
    let codes = reader.subscribe(1, &["ok/#"], 0)?;
    ensure!(codes == [0], "SUBACK {codes:?}");
    Ok(reader)
}

fn forbidden() -> Result<String> {
    const RULES: &str = "[[allow]]\nuser = \"ada\"\nboth = [\"ok/#\"]\n";
    // More than one batch of the gateway (256).
    const COUNT: u16 = 300;
    // Hundreds of PUBCOMPs, each of which waits for a commit.
    let mut gateway = users::gateway(&["store.durability=always"], &["ada"], &[("acl.toml", RULES)])?;
    let mut reader = reader(&gateway)?;
    for forbidden in [1, 2, 100, COUNT] {
        let all: Vec<(&str, u16)> =
            (1..=COUNT).map(|id| (if id == forbidden { "no" } else { "ok/some" }, id)).collect();
        let (mut device, mut left) = (login(&gateway)?, all);
        let first = received(&mut device, &left, false, false)?;
        // PUBREC waits for the disk, and the connection may end before.
        let is_before = first.iter().copied().eq((1..forbidden).take(first.len()));
        ensure!(is_before, "PUBREC of {first:?} before number {forbidden}");
        // Its rights are as before, so the client gives up on this one.
        left.retain(|(_, id)| *id != forbidden);
        let mut device = login(&gateway)?;
        let again = received(&mut device, &left, true, false)?;
        ensure!(again.len() == left.len(), "{} of {} PUBRECs", again.len(), left.len());
        release(&mut device, &again)?;
        drop(device);
        let mut got = delivered(&gateway, &mut reader)?;
        got.sort_unstable();
        ensure!(got == again, "{} acknowledged messages behind number {forbidden}, {} came", again.len(), got.len());
    }
    gateway.check_alive()?;
    Ok(String::new())
}

/// There is no room for more retained messages: 3.1.1 has no other refusal than the end of the connection.
fn refused() -> Result<String> {
    let settings = &["bus.retained_messages_max=1", "bus.reserve_percent=0"];
    let mut gateway = users::gateway(settings, &["ada"], &[])?;
    let mut device = login(&gateway)?;
    let kept = received(&mut device, &[("ok/1", 1)], false, true)?;
    release(&mut device, &kept)?;
    for again in [false, true, true] {
        let refused = received(&mut device, &[("ok/2", 2), ("ok/3", 3)], again, true)?;
        ensure!(refused.is_empty(), "PUBREC of {refused:?}, sent again: {again}");
        device = login(&gateway)?;
    }
    gateway.check_alive()?;
    Ok(String::new())
}

/// Each has a record in the store, and in the memory of a session that outlives its connection, also after a restart.
fn unreleased() -> Result<String> {
    const MESSAGES: u16 = 20_000;
    const EACH_BYTES: f64 = 50.0;
    let home = tempfile::tempdir()?;
    std::fs::write(home.path().join("users.toml"), users::file(&["ada"]))?;
    let plan = Plan { data: Some(home.path()), ..Plan::default() };
    let mut gateway = Gateway::start_as(plan)?;
    let mut client = login(&gateway)?;
    for first in (1..=MESSAGES).step_by(1000) {
        let messages: Vec<(&str, u16)> = (first..first + 1000).map(|id| ("t", id)).collect();
        let ids = received(&mut client, &messages, false, false)?;
        ensure!(ids.len() == messages.len(), "{} PUBRECs", ids.len());
    }
    let counted = |gateway: &Gateway| {
        let enough = |bytes| bytes >= EACH_BYTES * f64::from(MESSAGES);
        gateway.wait_metric("fogmux_bus_mailbox_bytes", tcp::PATIENCE, enough)
    };
    let before = counted(&gateway)?;
    drop(client);
    gateway.signal(rustix::process::Signal::TERM)?;
    gateway.wait_exit(tcp::PATIENCE)?;
    let after = counted(&Gateway::start_as(plan)?)?;
    Ok(format!("{before} bytes, {after} after a restart"))
}
