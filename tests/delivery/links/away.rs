//! A broker that is not there, or does not answer.

use std::net::{Ipv4Addr, TcpListener};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use serde_json::Value;

use super::line::{Line, north, number, numbered, wait};
use crate::mqtt_bridge::peer::{Mosquitto, Reader, publish};

const COUNT: usize = 500;

/// The broker is away at the start and once more later: QoS 1 and 2 wait and arrive in order, once.
pub(super) fn queues() -> Result<String> {
    let mosquitto = Mosquitto::start("")?;
    let line = Line::new(None)?;
    let lines = "out = [{ filter = \"up/#\", qos = 2 }]";
    let gateway = Gateway::start_configured(&north(line.address, lines))?;
    let fog = gateway.address("mqtt")?;
    let mut there = Reader::open(mosquitto.address, "there", &["up/#"])?;
    let down = |entry: &Value| entry.get("connected") == Some(&Value::Bool(false)) && entry.get("last_error").is_some();
    for (round, text) in ["first", "second"].into_iter().enumerate() {
        wait(&gateway, "north", down)?;
        for qos in [1, 2] {
            publish(fog, &format!("up/{text}{qos}"), qos, &[], &numbered(COUNT))?;
        }
        publish(fog, "up/nothing", 0, &[], &["gone".to_owned()])?;
        let entry = wait(&gateway, "north", |entry| number(entry, "/queue/messages") == 2 * COUNT as u64)?;
        ensure!(number(&entry, "/queue/bytes") > 0, "{entry}");
        line.lead(Some(mosquitto.address));
        there.until_value(&format!("up/{text}2"), &(COUNT - 1).to_string()).with_context(|| gateway.log())?;
        wait(&gateway, "north", |entry| number(entry, "/queue/messages") == 0)?;
        for qos in [1, 2] {
            let topic = format!("up/{text}{qos}");
            ensure!(there.payloads(&topic) == numbered(COUNT), "round {round}, {topic}: {:?}", there.payloads(&topic));
        }
        line.lead(None);
    }
    ensure!(there.payloads("up/nothing").is_empty(), "QoS 0 was queued");
    Ok(String::new())
}

/// A broker that accepts and says nothing: the link says so, the gateway is ready, and its clients notice nothing.
pub(super) fn deaf() -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let lines = "out = [{ filter = \"#\" }]\nconnect_timeout = \"1s\"";
    let gateway = Gateway::start_configured(&north(listener.local_addr()?, lines))?;
    let said = |entry: &Value| {
        let text = entry.pointer("/last_error/text").and_then(Value::as_str).unwrap_or_default();
        text.contains("no answer in time")
    };
    let entry = wait(&gateway, "north", said)?;
    ensure!(entry.get("connected") == Some(&Value::Bool(false)), "{entry}");
    let fog = gateway.address("mqtt")?;
    let mut here = Reader::open(fog, "here", &["a", "$SYS/broker/connection/north/state"])?;
    here.until_latest("$SYS/broker/connection/north/state", "0")?;
    publish(fog, "a", 2, &[], &numbered(COUNT))?;
    here.until_value("a", &(COUNT - 1).to_string())?;
    let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = fogmux_tests::tcp::ask(gateway.address("http")?, request)?;
    let text = String::from_utf8_lossy(&answer);
    ensure!(text.starts_with("HTTP/1.1 200") && text.contains("links.north:"), "{text}");
    ensure!(gateway.sum(&["fogmux_link_up{link=\"north\"}"])? == 0, "fogmux_link_up");
    // Two attempts at least have ended: one line in the log is for all.
    sleep(Duration::from_secs(3));
    let lines = gateway.whole_log().matches("this link is down").count();
    ensure!(lines == 1, "{lines} lines\n{}", gateway.log());
    Ok(String::new())
}
