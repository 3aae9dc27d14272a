//! Client identifiers of MQTT: whose sessions they name, and who may take one over.

use std::io::Write;

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::users::{self, Login};

pub(crate) const CASES: &[Case] = &[
    Case { name: "identifiers: an absent session keeps its name from no other user", run: apart_absent },
    Case { name: "identifiers: users with one name do not end each other's connections", run: apart_connected },
    Case { name: "identifiers: a shared name goes to another user while nobody is connected", run: shared },
];

fn start(settings: &[&str]) -> Result<Gateway> {
    users::gateway(settings, &["dev", "ada"], &[])
}

/// Logs in and expects success; whether there was a session.
fn log_in(gateway: &Gateway, user: &str, client: &str) -> Result<(Connection, bool)> {
    let (connection, present, reason) = Login::of(user, client).connect(gateway.address("mqtt")?)?;
    ensure!(reason == 0, "{user} as {client:?} was refused: {reason:#x}");
    Ok((connection, present))
}

fn publish(gateway: &Gateway, topic: &str) -> Result<()> {
    let mut publisher = Connection::open(gateway.address("mqtt")?, V4, "")?;
    publisher.stream.write_all(&mqtt::publish(V4, topic.as_bytes(), b"x", 1, false, 1))?;
    ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
    Ok(())
}

fn apart_absent() -> Result<String> {
    let gateway = start(&[])?;
    let (mut dev, _) = log_in(&gateway, "dev", "pump")?;
    ensure!(dev.subscribe(1, &["to/dev"], 1)? == [1]);
    dev.stream.write_all(&[0xe0, 0])?;
    drop(dev);
    let (mut ada, present) = log_in(&gateway, "ada", "pump")?;
    ensure!(!present, "ada has got the session of dev");
    ensure!(ada.subscribe(1, &["to/ada"], 1)? == [1]);
    publish(&gateway, "to/dev")?;
    publish(&gateway, "to/ada")?;
    let (first, body) = ada.read()?;
    ensure!(first & 0xf0 == 0x30 && body.get(2..8) == Some(b"to/ada"), "{first:#x} {body:?}");
    // The other's session is there as it was, with what waits in it.
    let (mut dev, present) = log_in(&gateway, "dev", "pump")?;
    ensure!(present, "the session of dev is gone");
    let (first, body) = dev.read()?;
    ensure!(first & 0xf0 == 0x30 && body.get(2..8) == Some(b"to/dev"), "{first:#x} {body:?}");
    // Those without a name are one principal.
    let (_nobody, present) = log_in(&gateway, "", "pump")?;
    ensure!(!present, "nobody has got a session of somebody");
    Ok(String::new())
}

fn apart_connected() -> Result<String> {
    let mut gateway = start(&[])?;
    let connect = |user: &str| {
        let login = Login { clean: true, expiry: 0, ..Login::of(user, "pump") };
        login.connect(gateway.address("mqtt")?)
    };
    let (mut dev, _, first) = connect("dev")?;
    let (mut ada, _, second) = connect("ada")?;
    ensure!([first, second] == [0, 0], "{first:#x} {second:#x}");
    for client in [&mut dev, &mut ada] {
        client.stream.write_all(&[0xc0, 0])?;
        ensure!(client.read()?.0 == 0xd0, "a connection has ended");
    }
    // [MQTT-3.1.4-3] for one and the same user.
    let (again, _, reason) = connect("dev")?;
    ensure!(reason == 0);
    let (first, body) = dev.read()?;
    ensure!(first == 0xe0 && body.first() == Some(&0x8e), "{first:#x} {body:?} instead of DISCONNECT 0x8E");
    ada.stream.write_all(&[0xc0, 0])?;
    ensure!(ada.read()?.0 == 0xd0, "ada's connection has ended");
    drop((again, ada, dev));
    gateway.settle()?;
    Ok(String::new())
}

fn shared() -> Result<String> {
    let gateway = start(&["mqtt.client_identifiers=shared"])?;
    let (mut dev, _) = log_in(&gateway, "dev", "pump")?;
    ensure!(dev.subscribe(1, &["to/dev"], 1)? == [1]);
    let mqtt = gateway.address("mqtt")?;
    let (_, _, reason) = Login::of("ada", "pump").connect(mqtt)?;
    ensure!(reason == 0x87, "{reason:#x} instead of 0x87 while dev is connected");
    dev.stream.write_all(&[0xe0, 0])?;
    while dev.read().is_ok() {}
    let (mut ada, present) = log_in(&gateway, "ada", "pump")?;
    ensure!(!present, "ada has got the session of dev");
    publish(&gateway, "to/dev")?;
    ada.stream.write_all(&[0xc0, 0])?;
    ensure!(ada.read()?.0 == 0xd0, "ada got what dev had subscribed to");
    let (_, _, reason) = Login::of("dev", "pump").connect(mqtt)?;
    ensure!(reason == 0x87, "{reason:#x} instead of 0x87 while ada is connected");
    let gave_way = gateway.metrics()?.get("fogmux_share_gave_way_total{table=\"sessions\"}").copied();
    ensure!(gave_way == Some(1.0), "{gave_way:?}");
    ensure!(gateway.whole_log().contains("gave way"), "the log does not say it");
    Ok(String::new())
}
