//! Messages that wait for an MQTT client while it loses the right to read them.

use std::fs;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, Connection};
use fogmux_tests::users::{self, Login};
use rustix::process::Signal;

use super::PATIENCE;

pub(super) const ALLOWED: &str =
    "[[allow]]\nuser = \"ada\"\nread = [\"#\"]\n\n[[allow]]\nuser = \"bob\"\nwrite = [\"#\"]\n";
pub(super) const DENIED: &str = "[[deny]]\nuser = \"ada\"\nboth = [\"secret/#\"]\n\n";

/// The state of the session when the right is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// The messages wait for a client that is away.
    Away,
    /// They were sent on a connection that has ended, and not acknowledged.
    Unacknowledged,
    /// It is away, and the gateway is killed before the deny is written.
    AcrossKill,
}

pub(super) fn denied() -> Result<String> {
    for client in [Client::Away, Client::Unacknowledged, Client::AcrossKill] {
        lost(client).with_context(|| format!("{client:?}"))?;
    }
    Ok(String::new())
}

fn lost(client: Client) -> Result<()> {
    let home = tempfile::tempdir()?;
    let data = home.path().join("data");
    fs::create_dir(&data)?;
    fs::write(data.join("users.toml"), users::file(&["ada", "bob"]))?;
    fs::write(data.join("acl.toml"), ALLOWED)?;
    let plan = Plan { data: Some(&data), ..Plan::default() };
    let mut gateway = Gateway::start_as(plan)?;
    let (mut ada, ..) = Login::of("ada", "reader").connect(gateway.address("mqtt")?)?;
    ada.subscribe(1, &["#"], 2)?;
    let (mut bob, ..) = Login::of("bob", "writer").connect(gateway.address("mqtt")?)?;
    if client != Client::Unacknowledged {
        // DISCONNECT, so that the session is left for certain.
        ada.stream.write_all(&[0xe0, 0])?;
        ensure!(ada.read().is_err(), "something behind DISCONNECT");
    }
    for (id, topic, qos) in [(1, "secret/1", 1), (2, "secret/2", 2), (3, "public/3", 1), (4, "public/4", 2)] {
        publish(&mut bob, id, topic, qos)?;
    }
    if client == Client::Unacknowledged {
        for _ in 0..4 {
            ensure!(ada.read()?.0 & 0xf0 == 0x30);
        }
    }
    drop(ada);
    if client == Client::AcrossKill {
        gateway.signal(Signal::KILL)?;
        gateway.wait_exit(PATIENCE)?;
        fs::write(data.join("acl.toml"), format!("{DENIED}{ALLOWED}"))?;
        gateway = Gateway::start_as(plan)?;
    } else {
        fs::write(data.join("acl.toml"), format!("{DENIED}{ALLOWED}"))?;
        gateway.wait_log("users, rules and keys are read again", PATIENCE)?;
    }
    let (mut ada, present, _) = Login::of("ada", "reader").connect(gateway.address("mqtt")?)?;
    ensure!(present, "no session");
    let topics = taken(&mut ada)?;
    ensure!(topics == ["public/3", "public/4"], "{topics:?}");
    // The identifiers are free: further messages come under them.
    let (mut bob, ..) = Login { clean: true, ..Login::of("bob", "writer") }.connect(gateway.address("mqtt")?)?;
    for (id, qos) in [(1, 2), (2, 1), (3, 2)] {
        publish(&mut bob, id, &format!("public/again/{id}"), qos)?;
    }
    let topics = taken(&mut ada)?;
    ensure!(topics == ["public/again/1", "public/again/2", "public/again/3"], "{topics:?}");
    drop((ada, bob));
    gateway.check_conservation()?;
    gateway.check_alive()
}

/// Publishes and waits until the message is taken.
fn publish(bob: &mut Connection, id: u16, topic: &str, qos: u8) -> Result<()> {
    bob.stream.write_all(&mqtt::publish(mqtt::V5, topic.as_bytes(), b"x", qos, false, id))?;
    let (first, _) = bob.read()?;
    ensure!(first == if qos == 1 { 0x40 } else { 0x50 }, "{first:#x}");
    if qos == 2 {
        bob.stream.write_all(&mqtt::packet(0x62, &id.to_be_bytes()))?;
        ensure!(bob.read()?.0 == 0x70, "PUBCOMP");
    }
    Ok(())
}

/// The topics of all messages up to the answer to a PINGREQ, each acknowledged as its QoS asks.
fn taken(ada: &mut Connection) -> Result<Vec<String>> {
    let (mut topics, mut pings, mut ends) = (Vec::new(), 0, 0);
    ada.stream.write_all(&[0xc0, 0])?;
    loop {
        let (first, body) = ada.read()?;
        match first & 0xf0 {
            0x30 => {
                let length =
                    usize::from(u16::from_be_bytes([*body.first().context("cut")?, *body.get(1).context("cut")?]));
                topics.push(String::from_utf8(body.get(2..2 + length).context("cut")?.to_vec())?);
                let id = body.get(2 + length..4 + length).context("cut")?;
                let answer = if first & 6 == 2 { 0x40 } else { 0x50 };
                ada.stream.write_all(&mqtt::packet(answer, id))?;
            }
            0x60 => {
                ends += 1;
                ada.stream.write_all(&mqtt::packet(0x70, body.get(..2).context("cut")?))?;
            }
            0xd0 if pings < 3 + ends => {
                // Messages that an acknowledgement lets through come behind the answer to the first.
                pings += 1;
                ada.stream.write_all(&[0xc0, 0])?;
            }
            0xd0 => return Ok(topics),
            other => anyhow::bail!("{other:#x}"),
        }
    }
}
