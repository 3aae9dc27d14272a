//! The table of retained messages when it is full: whoever cannot be told of a refusal is not refused, and the limit is
//! that of users, not of the gateway's own status messages.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4, V5};
use fogmux_tests::{tcp, users};

use super::next_publish;

const SILENT: &str = "mqtt.sys_interval=0s";

fn status(http: SocketAddr, method: &str, topic: &str, body: &[u8]) -> Result<u16> {
    users::http(http, "", method, &format!("/topics/{topic}"), body)
}

/// Puts values of so many bytes until one is refused; how many were taken.
fn fill(http: SocketAddr, bytes: usize) -> Result<usize> {
    for number in 0.. {
        match status(http, "PUT", &format!("fill/{number}"), &vec![b'x'; bytes])? {
            201 => {}
            429 | 503 | 507 => return Ok(number),
            code => bail!("PUT is answered {code}"),
        }
    }
    Ok(0)
}

/// Messages of QoS 0 reach subscribers; those of QoS 1 are refused, for their publisher is told.
pub(super) fn qos_0() -> Result<String> {
    for limit in ["bus.retained_messages_max=0", "bus.retained_messages_max=3", "bus.retained_bytes_max=64KiB"] {
        let mut gateway = Gateway::start(&[limit, SILENT])?;
        let (address, http) = (gateway.address("mqtt")?, gateway.address("http")?);
        fill(http, if limit.contains("bytes") { 1000 } else { 1 })?;
        let mut subscriber = Connection::open(address, V4, "subscriber")?;
        subscriber.subscribe(1, &["live/#"], 1)?;
        let large = vec![b'v'; 2000];
        for version in [V4, V5] {
            let mut sensor = Connection::open(address, version, "sensor")?;
            // In one turn, with others around them.
            let retained = |topic: &str| mqtt::publish(version, topic.as_bytes(), &large, 0, true, 0);
            let plain = |topic: &str| mqtt::publish(version, topic.as_bytes(), b"plain", 0, false, 0);
            let turn = [retained("live/a"), plain("live/b"), retained("live/c"), retained("live/a"), plain("live/a")];
            tcp::pour(&mut sensor.stream, &turn.concat())?;
            for expected in ["live/a", "live/b", "live/c", "live/a", "live/a"] {
                let (_, topic, _) = next_publish(&mut subscriber).with_context(|| format!("{limit}: {expected}"))?;
                ensure!(topic == expected, "{limit}: {topic} instead of {expected}");
            }
            ensure!(status(http, "GET", "live/c", b"")? == 404, "{limit}: it is retained");
            let refused = mqtt::publish(version, b"live/d", &large, 1, true, 7);
            // A message behind a refused one in one turn is not lost with it.
            let behind = if version == V5 { plain("live/d") } else { Vec::new() };
            tcp::pour(&mut sensor.stream, &[refused, behind].concat())?;
            match (version, sensor.read()) {
                (V5, Ok((0x40, body))) => {
                    ensure!(body.get(2) == Some(&0x97), "PUBACK {body:02x?}");
                    let (_, topic, _) = next_publish(&mut subscriber).context("behind the refused message")?;
                    ensure!(topic == "live/d", "{limit}: {topic} instead of live/d");
                }
                // 3.1.1 has no way to refuse but to close.
                (V4, Err(_)) => {}
                (_, other) => bail!("{limit}: QoS 1 is answered {other:02x?}"),
            }
        }
        gateway.wait_metric("fogmux_bus_unkept_total", tcp::PATIENCE, |count| count == 6.0)?;
        gateway.wait_metric("fogmux_bus_refused_total", tcp::PATIENCE, |count| count >= 2.0)?;
        gateway.wait_log("delivered but not retained", tcp::PATIENCE)?;
        drop(subscriber);
        gateway.settle()?;
    }
    Ok("by number and by bytes".to_owned())
}

/// CONNECT of 3.1.1 with a will for `topic`.
fn connect_with_will(client: &str, topic: &str, qos: u8, retain: bool) -> Vec<u8> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([V4, 0x06 | qos << 3 | u8::from(retain) << 5, 0, 60]);
    for text in [client, topic, "offline"] {
        body.extend(mqtt::string(text.as_bytes()));
    }
    mqtt::packet(0x10, &body)
}

pub(super) fn wills() -> Result<String> {
    let mut gateway = Gateway::start(&["bus.retained_messages_max=3", SILENT])?;
    let (address, http) = (gateway.address("mqtt")?, gateway.address("http")?);
    ensure!(fill(http, 1)? == 3);
    let mut subscriber = Connection::open(address, V5, "subscriber")?;
    subscriber.subscribe(1, &["status/#"], 2)?;
    for qos in [0, 1, 2] {
        for retain in [false, true] {
            let topic = format!("status/{qos}/{retain}");
            let mut device = tcp::connect(address)?;
            tcp::pour(&mut device, &connect_with_will("device", &topic, qos, retain))?;
            let (first, body) = Connection::over(device, V4).read()?;
            ensure!(first == 0x20 && body.get(1) == Some(&0), "CONNACK {body:02x?}");
            // The connection is gone without DISCONNECT.
            let (_, came, _) = next_publish(&mut subscriber).with_context(|| topic.clone())?;
            ensure!(came == topic, "{came} instead of {topic}");
        }
    }
    gateway.wait_log("delivered but not retained", tcp::PATIENCE)?;
    drop(subscriber);
    gateway.settle()?;
    Ok("6 wills".to_owned())
}

/// A publisher chooses topic and client identifier, but no line of the log, which fail2ban reads.
pub(super) fn lines() -> Result<String> {
    let mut gateway = Gateway::start(&["bus.retained_messages_max=3", SILENT])?;
    ensure!(fill(gateway.address("http")?, 1)? == 3);
    let forged =
        "2026-01-01T00:00:00.000000Z  WARN fogmux::audit: login refused peer=192.0.2.7 port=1 door=mqtt by=password";
    let text = format!("x\n{forged}\r\n{forged}\n");
    let mut sensor = Connection::open(gateway.address("mqtt")?, V5, &text)?;
    tcp::pour(&mut sensor.stream, &mqtt::publish(V5, text.as_bytes(), b"x", 0, true, 0))?;
    gateway.wait_log("delivered but not retained", tcp::PATIENCE)?;
    let log = gateway.whole_log();
    ensure!(!log.lines().any(|line| line.starts_with("2026-01-01")), "a line by a publisher:\n{log}");
    drop(sensor);
    gateway.settle()?;
    Ok(String::new())
}

/// Users have as many places as the limit says, with and without the gateway's own messages.
pub(super) fn status_messages() -> Result<String> {
    let mut said = Vec::new();
    for setting in [SILENT, "mqtt.sys_interval=1s"] {
        for limit in [0, 1, 97, 1000] {
            let mut gateway = Gateway::start(&[&format!("bus.retained_messages_max={limit}"), setting])?;
            if setting != SILENT {
                await_status(&gateway)?;
            }
            let taken = fill(gateway.address("http")?, 1)?;
            ensure!(taken == limit, "{setting}: {taken} of {limit}");
            if setting != SILENT {
                await_status(&gateway)?;
            }
            gateway.settle()?;
        }
        let gateway = Gateway::start(&["bus.retained_bytes_max=64KiB", setting])?;
        if setting != SILENT {
            await_status(&gateway)?;
        }
        said.push(fill(gateway.address("http")?, 1000)?);
    }
    ensure!(said.first() == said.last(), "{said:?} values of 1000 bytes without and with status messages");
    Ok(format!("{said:?} values of 1000 bytes"))
}

/// Waits for one of the gateway's own messages, which are retained all together.
fn await_status(gateway: &Gateway) -> Result<()> {
    let mut subscriber = Connection::open(gateway.address("mqtt")?, V4, "status")?;
    subscriber.subscribe(1, &["$SYS/#"], 0)?;
    next_publish(&mut subscriber).context("no status message")?;
    Ok(())
}
