//! Messages at which the other broker closes the connection.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;

use super::line::{Line, dropped, north, number, numbered, wait, wait_up};
use crate::mqtt_bridge::peer::{Mosquitto, Reader, publish};

/// Waits longer than for anything else: each message is sent alone three times.
fn wait_long(gateway: &Gateway, link: &str, holds: impl Fn(&serde_json::Value) -> bool) -> Result<Duration> {
    let began = Instant::now();
    for _ in 0..3 {
        if wait(gateway, link, &holds).is_ok() {
            return Ok(began.elapsed());
        }
    }
    wait(gateway, link, holds).map(|_| began.elapsed())
}

/// One message is dropped, with QoS 1 and 2, and all others arrive, once and in order.
pub(super) fn dropped_alone() -> Result<String> {
    const COUNT: usize = 40;
    let mosquitto = Mosquitto::start("")?;
    let lines = [Line::new(Some(mosquitto.address))?, Line::new(Some(mosquitto.address))?];
    let mut configuration = String::new();
    for (qos, line) in (1..).zip(&lines) {
        line.close_at("poison", usize::MAX);
        let text = north(line.address, &format!("out = [{{ filter = \"{qos}/#\", qos = {qos} }}]"));
        configuration += &text.replace("links.north", &format!("links.q{qos}"));
    }
    let gateway = Gateway::start_configured(&configuration)?;
    let fog = gateway.address("mqtt")?;
    let mut there = Reader::open(mosquitto.address, "there", &["1/#", "2/#"])?;
    for qos in [1, 2] {
        wait_up(&gateway, &format!("q{qos}"))?;
        let publish = |topic: &str, lines: &[String]| publish(fog, &format!("{qos}/{topic}"), qos, &[], lines);
        publish("x", &numbered(COUNT))?;
        publish("bad", &["poison".to_owned()])?;
        publish("y", &numbered(COUNT))?;
    }
    let mut took = Duration::ZERO;
    for qos in [1, 2] {
        let name = format!("q{qos}");
        took = took.max(wait_long(&gateway, &name, |entry| number(entry, "/queue/messages") == 0)?);
        let entry = wait(&gateway, &name, |entry| dropped(entry, "out", "refused") > 0)?;
        ensure!(dropped(&entry, "out", "refused") == 1, "{entry}");
        there.until_value(&format!("{qos}/y"), &(COUNT - 1).to_string()).with_context(|| gateway.log())?;
        for topic in ["x", "y"] {
            let topic = format!("{qos}/{topic}");
            ensure!(there.payloads(&topic) == numbered(COUNT), "{topic}: {:?}", there.payloads(&topic));
        }
        ensure!(there.payloads(&format!("{qos}/bad")).is_empty(), "it went over");
        let log = gateway.whole_log();
        ensure!(log.contains(&format!("\"{qos}/bad\"")) || log.contains(&format!("{qos}/bad")), "{log}");
    }
    Ok(format!("{took:?}"))
}

/// A line that ends each time behind one message, but not often enough to show that it is the message: nothing is lost.
pub(super) fn kept() -> Result<String> {
    let mosquitto = Mosquitto::start("")?;
    let line = Line::new(Some(mosquitto.address))?;
    let gateway = Gateway::start_configured(&north(line.address, "out = [{ filter = \"up/#\", qos = 2 }]"))?;
    let fog = gateway.address("mqtt")?;
    wait_up(&gateway, "north")?;
    let mut there = Reader::open(mosquitto.address, "there", &["up/#"])?;
    // Two connections as usual, and two on which it is alone.
    line.close_at("unlucky", 4);
    publish(fog, "up/x", 2, &[], &["unlucky".to_owned(), "next".to_owned()])?;
    wait_long(&gateway, "north", |entry| number(entry, "/queue/messages") == 0)?;
    ensure!(line.closes_left() == 0, "{} times left", line.closes_left());
    there.until_value("up/x", "next")?;
    ensure!(there.payloads("up/x") == ["unlucky", "next"], "{:?}", there.payloads("up/x"));
    let entry = wait_up(&gateway, "north")?;
    ensure!(dropped(&entry, "out", "refused") == 0, "{entry}");
    Ok(String::new())
}
