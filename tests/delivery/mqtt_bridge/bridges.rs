//! A stock Mosquitto as a bridge to the gateway.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use rustix::process::Signal;

use super::peer::{Message, Mosquitto, PATIENCE, Reader, publish};

/// Messages of each QoS and direction.
const COUNT: usize = 97;

/// The bridge's configuration; all options at their defaults are written out.
fn bridge(gateway: SocketAddr, version: &str, clean: bool, topics: &str) -> String {
    format!(
        "connection fog\naddress {gateway}\nbridge_protocol_version {version}\nremote_clientid bridge\n\
         notifications true\ntry_private true\ncleansession {clean}\nrestart_timeout 1\n{topics}"
    )
}

const STATE: &str = "$SYS/broker/connection/bridge/state";

/// Probes go over until one arrives: the bridge's subscriptions stand, then.
fn wait_link(from: &mut Reader, to: &mut Reader, topic: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let before = to.payloads(topic).len();
    loop {
        from.publish(topic, "probe")?;
        sleep(Duration::from_millis(50));
        // The reader's own publication is what its broker gives it at once: a way to look without waiting.
        to.publish("tick", "")?;
        let ticks = to.payloads("tick").len();
        to.until(|messages| messages.iter().filter(|message| message.topic == "tick").count() > ticks)?;
        if to.payloads(topic).len() > before {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "nothing comes over the bridge");
    }
}

/// `topic # both 2`: every message arrives at the other side once, in order, with its QoS; nothing comes back.
fn both(version: &str) -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let fog = gateway.address("mqtt")?;
    publish(fog, "kept/before", 1, &["-r"], &["old".to_owned()])?;
    let mosquitto = Mosquitto::start(&bridge(fog, version, true, "topic # both 2\n"))?;
    let outcome = (|| {
        // `g` and `m` for the gateway's and Mosquitto's side; `tick` would cross, so that it is not subscribed to.
        let filters = [STATE, "g/#", "m/#", "kept/#", "tick"];
        let mut here = Reader::open(fog, "here", &filters)?;
        let mut there = Reader::open(mosquitto.address, "there", &filters)?;
        here.until_latest(STATE, "1").context("the state at the gateway")?;
        wait_link(&mut here, &mut there, "g/probe")?;
        wait_link(&mut there, &mut here, "m/probe")?;
        there.until_latest(STATE, "1").context("the state at mosquitto")?;
        let lines: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
        for qos in 0..=2 {
            publish(fog, &format!("g/q{qos}"), qos, &[], &lines)?;
            publish(mosquitto.address, &format!("m/q{qos}"), qos, &[], &lines)?;
        }
        publish(fog, "kept/g", 1, &["-r"], &["now".to_owned()])?;
        publish(mosquitto.address, "kept/m", 1, &["-r"], &["now".to_owned()])?;
        let of_qos = |messages: &[Message]| messages.iter().filter(|message| message.topic.contains("/q")).count();
        here.until(|messages| of_qos(messages) >= 6 * COUNT).context("at the gateway")?;
        there.until(|messages| of_qos(messages) >= 6 * COUNT).with_context(|| {
            let counts = ["g/q0", "g/q1", "g/q2", "m/q0", "m/q1", "m/q2"].map(|topic| there.payloads(topic).len());
            format!("at mosquitto: {counts:?}")
        })?;
        // Two rounds in both directions: what would loop has come back by then.
        for round in ["1", "2"] {
            here.publish("g/end", round)?;
            there.until_value("g/end", round)?;
            there.publish("m/end", round)?;
            here.until_value("m/end", round)?;
        }
        for (name, reader) in [("the gateway", &here), ("mosquitto", &there)] {
            for (side, qos) in ["g", "m"].into_iter().flat_map(|side| (0..=2).map(move |qos| (side, qos))) {
                let topic = format!("{side}/q{qos}");
                ensure!(reader.payloads(&topic) == lines, "{topic} at {name}: {:?}", reader.payloads(&topic));
                let kept = reader.messages.iter().filter(|message| message.topic == topic);
                ensure!(kept.clone().all(|message| message.qos == qos), "{topic} at {name} with another QoS");
            }
        }
        // Retained on one side is retained on the other, whether it was there before or came while the bridge was up.
        for (name, broker) in [("the gateway", fog), ("mosquitto", mosquitto.address)] {
            let mut late = Reader::open(broker, "late", &["kept/#"])?;
            late.until(|messages| messages.len() >= 3).with_context(|| format!("retained at {name}"))?;
            ensure!(late.messages.iter().all(|message| message.retain), "{name}: {:?}", late.messages);
        }
        Ok(String::new())
    })();
    let outcome = outcome.with_context(|| mosquitto.log());
    drop(mosquitto);
    outcome.and_then(|text| gateway.settle().map(|()| text))
}

pub(super) fn both_311() -> Result<String> {
    both("mqttv311")
}

pub(super) fn both_31() -> Result<String> {
    both("mqttv31")
}

pub(super) fn both_5() -> Result<String> {
    both("mqttv50")
}

/// `in` and `out` with prefixes: each goes one way only.
pub(super) fn one_way() -> Result<String> {
    for version in ["mqttv311", "mqttv50"] {
        let mut gateway = Gateway::start(&[])?;
        let fog = gateway.address("mqtt")?;
        let topics = "topic # out 1 up/ site/\ntopic # in 1 down/ orders/\n";
        let mosquitto = Mosquitto::start(&bridge(fog, version, true, topics))?;
        let mut here = Reader::open(fog, "here", &["#"])?;
        let mut there = Reader::open(mosquitto.address, "there", &["#"])?;
        let deadline = Instant::now() + PATIENCE;
        while !here.messages.iter().any(|message| message.topic == "site/probe") {
            there.publish("up/probe", "")?;
            here.publish("tick", "")?;
            let ticks = here.payloads("tick").len();
            here.until(|messages| messages.iter().filter(|message| message.topic == "tick").count() > ticks)?;
            ensure!(Instant::now() < deadline, "{version}: nothing comes up\n{}", mosquitto.log());
            sleep(Duration::from_millis(20));
        }
        here.publish("orders/stop", "now")?;
        there.until_value("down/stop", "now").with_context(|| format!("{version}\n{}", mosquitto.log()))?;
        // Neither of these is to cross.
        here.publish("site/x", "here")?;
        there.publish("down/x", "there")?;
        here.publish("orders/end", "")?;
        there.until_value("down/end", "")?;
        there.publish("up/end", "")?;
        here.until_value("site/end", "")?;
        ensure!(there.payloads("up/x").is_empty() && here.payloads("orders/x").is_empty(), "{version}: one way only");
        ensure!(here.payloads("site/x") == ["here"] && there.payloads("down/x") == ["there"], "{version}");
        drop((mosquitto, here, there));
        gateway.settle()?;
    }
    Ok(String::new())
}

/// A bridge with a session that is cut and comes back gets what it has missed; its state follows by its will.
pub(super) fn comes_back() -> Result<String> {
    for version in ["mqttv311", "mqttv50"] {
        let gateway = Gateway::start(&[])?;
        let fog = gateway.address("mqtt")?;
        let mut mosquitto = Mosquitto::start(&bridge(fog, version, false, "topic # both 2\n"))?;
        let mut here = Reader::open(fog, "here", &[STATE, "g/#", "m/#", "tick"])?;
        let mut there = Reader::open(mosquitto.address, "there", &["g/#", "tick"])?;
        here.until_latest(STATE, "1").with_context(|| mosquitto.log())?;
        wait_link(&mut here, &mut there, "g/probe").with_context(|| mosquitto.log())?;
        // More of QoS 2 than Mosquitto takes at a time (`max_inflight_messages`).
        for qos in [2, 1] {
            mosquitto.kill()?;
            here.until_latest(STATE, "0").with_context(|| format!("{version}: the will"))?;
            let lines: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
            publish(fog, "g/missed", qos, &[], &lines)?;
            // The gateway waits until somebody listens at the other side.
            gateway.signal(Signal::STOP)?;
            mosquitto.restart()?;
            let mut there = Reader::open(mosquitto.address, "there", &["g/#", "tick"])?;
            gateway.signal(Signal::CONT)?;
            here.until_latest(STATE, "1").with_context(|| mosquitto.log())?;
            // Mosquitto says that it is there before it subscribes, and without a session nothing waits for it.
            wait_link(&mut here, &mut there, "g/end").with_context(|| format!("{version}\n{}", mosquitto.log()))?;
            if version == "mqttv311" {
                let missed = |messages: &[Message]| messages.iter().filter(|m| m.topic == "g/missed").count();
                there.until(|messages| missed(messages) >= COUNT).with_context(|| mosquitto.log())?;
            }
            let got = there.payloads("g/missed");
            // Mosquitto 2.0 asks for no session in version 5: it sends no Session Expiry Interval.
            let kept = if version == "mqttv50" { &[] } else { &*lines };
            ensure!(got == kept, "{version}: {got:?}\n{}", mosquitto.log());
        }
    }
    Ok(String::new())
}
